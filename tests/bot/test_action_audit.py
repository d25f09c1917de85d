"""`mode: audit` of the Action: the checkout in the workspace, read and never run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fake_github import FakeGitHub
from tests.bot.test_action import BEFORE, READ_ONLY, Runner

NETWORK = b"\n\nclass Net(torch.nn.Module):\n    def forward(self, x):\n        return x\n"
MAIN = BEFORE + NETWORK + b"\n\nif __name__ == '__main__':\n    train(Net(), loader, optimizer)\n"


@pytest.fixture
def runner(fake_github: FakeGitHub, tmp_path: Path) -> Runner:
    return Runner(fake_github, tmp_path)


def audited(runner: Runner, **inputs: str) -> dict[str, str]:
    repo = runner.github.repository("octo/models", {"train.py": MAIN}, installation=False)
    (runner.folder / "train.py").write_bytes(MAIN + b"\nraise SystemExit('it was run')\n")
    return runner.run(
        "workflow_dispatch", {}, runner.github.token(repo, READ_ONLY), mode="audit", **inputs
    )  # fmt: skip


def test_the_summary_and_a_json_report(runner: Runner) -> None:
    outputs = audited(runner)
    assert runner.exit_code == 0, runner.log
    assert "Training audit of models" in runner.summary
    document = json.loads(Path(outputs["report"]).read_text())
    assert [entry["path"] for entry in document["entry_points"]] == ["train.py"]
    weighty = [gap for gap in document["gaps"] if gap["priority"] != "low"]
    assert int(outputs["findings"]) >= len(weighty) > 0


def test_an_html_report_and_a_failing_step(runner: Runner) -> None:
    outputs = audited(runner, report="audit.html", fail="true")
    assert runner.exit_code == 1
    assert Path(outputs["report"]).read_text().startswith("<!doctype html>")


def test_errors_of_the_configuration_are_named(runner: Runner) -> None:
    (runner.folder / ".ptopt.toml").write_text("budgets = 3\n")
    audited(runner)
    assert runner.exit_code == 2
    assert "budgets" in runner.log
