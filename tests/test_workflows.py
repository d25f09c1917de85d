"""The Action and the example workflows, as two linters of workflows see them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / "docs/workflows").glob("*.yml"))  # that users copy
OURS = sorted((ROOT / ".github/workflows").glob("*.yml"))
BIN = Path(sys.executable).parent
PINNED = re.compile(r"uses: [\w./-]+@[0-9a-f]{40} # \S")


def _run(tool: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([BIN / tool, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)


def test_zizmor() -> None:
    done = _run("zizmor", "--offline", "--pedantic", "--no-progress", *WORKFLOWS, ".github", "action.yml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_actionlint() -> None:
    assert len(WORKFLOWS) == 6 and len(OURS) == 2
    done = _run("actionlint", *WORKFLOWS, *OURS)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("tool", "fault"),
    [
        (
            "zizmor",
            (
                "      - id: ptopt\n",
                "      - run: echo ${{ github.event.pull_request.title }}\n      - id: ptopt\n",
            ),
        ),
        ("actionlint", ("steps.ptopt.outputs.report", "steps.nobody.outputs.report")),
    ],
)
def test_a_planted_fault_is_found(tool: str, fault: tuple[str, str], tmp_path: Path) -> None:
    text = (ROOT / "docs/workflows/ptopt-fork-report.yml").read_text()
    assert fault[0] in text
    broken = tmp_path / "workflow.yml"
    broken.write_text(text.replace(*fault))
    options = ["--offline"] if tool == "zizmor" else []
    assert _run(tool, *options, broken).returncode != 0


@pytest.mark.parametrize("path", [*WORKFLOWS, *OURS, ROOT / "action.yml"], ids=lambda path: path.name)
def test_every_action_is_pinned(path: Path) -> None:
    for line in path.read_text().splitlines():
        assert "uses:" not in line or "uses: $/.github/" in line or PINNED.search(line), line


def test_an_action_is_pinned_to_one_commit() -> None:
    """The same one in all workflows, and each release of it by its own commit."""
    paths = [*WORKFLOWS, *OURS, ROOT / "action.yml"]
    uses = {
        found for path in paths for found in re.findall(r"uses: ([\w./-]+)@(\w+) # (v\S+)", path.read_text())
    }
    assert len(uses) > 9
    assert len({name for name, *_ in uses}) == len({commit for _, commit, _ in uses}) == len(uses)


def test_no_expression_in_a_script_and_nothing_checked_out() -> None:
    """The audit alone needs a checkout: of the default branch, with a token that can only read."""
    action = (ROOT / "action.yml").read_text()
    assert "${{" not in action[action.index("run: |") :]
    texts = {path.name: path.read_text() for path in [*WORKFLOWS, ROOT / "action.yml"]}
    assert [name for name, text in texts.items() if "actions/checkout" in text] == ["ptopt-audit.yml"]
    audit = texts["ptopt-audit.yml"]
    assert re.findall(r"^  (\w+):", audit.partition("\non:")[2].partition("permissions")[0], re.M) == [
        "schedule",
        "workflow_dispatch",
    ]
    assert ": write" not in audit and "persist-credentials: false" in audit and "ref:" not in audit


@pytest.mark.parametrize(
    ("file", "extras", "python"),
    [
        ("action", ["github"], "3.12"),
        ("service", ["github", "service"], "3.10"),
        ("worker", ["github", "service", "model-client"], "3.10"),
    ],
)
def test_what_is_installed_is_pinned_and_complete(file: str, extras: list[str], python: str) -> None:
    """`make action-requirements` and `make service-requirements` write the files."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    text = (ROOT / f"{file}-requirements.txt").read_text()
    hashed = re.findall(r"^([\w.-]+)(?:\[\w,]+\])?==(\S+) .*\\\n\s+--hash=sha256:[0-9a-f]{64}", text, re.M)
    assert len(hashed) == len(re.findall(r"^[^\s#]", text, re.M))  # none without a hash, none from an address
    extra = [line for name in extras for line in project["optional-dependencies"][name]]
    for line in [*project["dependencies"], *extra]:
        wanted = Requirement(line)
        if wanted.name != "ptopt" and (
            wanted.marker is None or wanted.marker.evaluate({"python_version": python})
        ):
            versions = [version for name, version in hashed if name == wanted.name.lower()]
            assert versions and all(map(wanted.specifier.contains, versions)), line


def test_the_action_needs_nothing_of_an_app() -> None:
    """PyGithub signs as the App; it is not among what the Action installs."""
    code = "import sys, bot.action.run as _, ptopt.github.auth as a; a.for_token('t'); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert {"cryptography", "github", "jwt", "requests"}.isdisjoint(done.stdout.split())


def test_no_command_is_dropped_for_another_one() -> None:
    """GitHub keeps one waiting run of a concurrency group and cancels the others."""
    text = (ROOT / "docs/workflows/ptopt-commands.yml").read_text()
    (group,) = re.findall(r"^  group: (.+)$", text, re.M)
    assert "github.event.comment.id" in group
