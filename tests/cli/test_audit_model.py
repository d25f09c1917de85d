"""`ptopt audit --model`: against a stand-in server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("urllib3")

from tests.cli.command import TRAIN, run
from tests.model.backends.fake_server import FakeServer, Reply, chat, serving

MAIN = (
    TRAIN
    + "\n\nif __name__ == '__main__':\n    model = nn.Linear(512, 512)\n    train(model, loader, optimizer)\n"
)
CHANGE = {"state": "on", "because": "<b>It</b> says so.", "evidence": ["train.py:8"], "agrees": False}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(MAIN)
    return tmp_path


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with serving() as fake:
        fake.replies["/v1/chat/completions"] = _answer
        yield fake


def _answer(body: dict[str, Any]) -> Reply:
    schema = body["response_format"]["json_schema"]["schema"]["properties"]
    if "rows" not in schema:
        return chat(
            json.dumps(
                {
                    "because": "so",
                    "verdict": "right" if "probability" in schema else "stands",
                    "probability": 80,
                }
            )
        )
    rows = [
        {"measure": key, "because": "", "evidence": [], "state": "off", "agrees": True} | (CHANGE if key == "cudnn_benchmark" else {})
        for key in schema["rows"]["items"]["properties"]["measure"]["enum"]
    ]  # fmt: skip
    return chat(json.dumps({"rows": rows}))


def _row(document: dict[str, Any], key: str) -> dict[str, Any]:
    (row,) = [row for row in document["entry_points"][0]["measures"] if row["key"] == key]
    assert isinstance(row, dict)
    return row


def test_the_model_is_asked_and_its_word_is_shown(repository: Path, server: FakeServer) -> None:
    result = run("audit", repository, "--model", "m", "--model-server", server.url, "--format", "json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    row = _row(document, "cudnn_benchmark")
    assert (row["state"], row["detail"]) == ("on", '"<b>It</b> says so." (m, served)')
    assert row["checked"]["before"]["state"] == "not applicable"
    assert document["model"]["changed"] == 1 and not document["model"]["note"]
    first = server.bodies("/v1/chat/completions")[0]
    assert "loss.backward()" in first["messages"][1]["content"] and first["max_tokens"] >= 4_000


def test_without_a_model_nothing_is_asked_and_nothing_changes(
    repository: Path, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PTOPT_MODEL", "m")  # of reviews: an audit sends code only where its command says so
    monkeypatch.setenv("PTOPT_MODEL_SERVER", server.url)
    for name in ("terminal", "markdown", "json", "html"):
        shown = run("audit", repository, "--format", name).stdout
        assert "static audit said" not in shown and "Checked by" not in shown and '"checked"' not in shown
    assert not server.requests


def test_a_server_that_is_away_leaves_the_static_audit(repository: Path) -> None:
    alone = run("audit", repository, "--format", "json", "--exit-code")
    away = ("--model", "m", "--model-server", "http://127.0.0.1:9", "--model-seconds", "5")
    result = run("audit", repository, "--format", "json", "--exit-code", *away)
    assert result.exit_code == alone.exit_code == 1
    document = json.loads(result.stdout)
    reading = document.pop("model")
    assert document == json.loads(alone.stdout)
    assert reading["note"] and not reading["scripts"]
    assert "Not all was checked: " in run("audit", repository, *away).stdout


def test_a_server_that_fails_leaves_the_static_audit(repository: Path, server: FakeServer) -> None:
    server.replies["/v1/chat/completions"] = lambda _: Reply(400, {"error": "too long"})
    result = run("audit", repository, "--model", "m", "--model-server", server.url, "--format", "json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["model"]["note"]


@pytest.mark.parametrize("arguments", [("--model", "m"), ("--model-server", "http://127.0.0.1:9")])
def test_a_model_needs_its_server(repository: Path, arguments: tuple[str, ...]) -> None:
    result = run("audit", repository, *arguments)
    assert result.exit_code == 2 and "--model and --model-server go together" in result.output


def test_an_address_that_is_none(repository: Path) -> None:
    result = run("audit", repository, "--model", "m", "--model-server", "ftp://x")
    assert result.exit_code == 2 and "must begin with http" in result.output


def test_only_so_many_scripts(repository: Path, server: FakeServer) -> None:
    (repository / "again.py").write_text(MAIN.replace("x.cuda()", "x.cuda(0)"))
    model = ("--model", "m", "--model-server", server.url, "--model-scripts", "1")
    reading = json.loads(run("audit", repository, *model, "--format", "json").stdout)["model"]
    assert reading["scripts"] == 1 and "1 of 2 scripts" in reading["note"]
