"""The Action between a hostile pull request and the runner that reads each line of its log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fake_github import FakeGitHub, Pull
from ptopt.github import markers
from tests.bot.test_action import CAN_POST, READ_ONLY, Runner
from tests.security.judge import HOSTILE, assert_harmless_lines, assert_inert
from tests.security.test_text_of_strangers import CODE, PATH
from tests.worker.pulls import FAST, SLOW


@pytest.fixture
def runner(github: FakeGitHub, tmp_path: Path) -> Runner:
    (tmp_path / "workspace").mkdir()
    return Runner(github, tmp_path)


@pytest.fixture
def pull(github: FakeGitHub) -> Pull:
    repo = github.repository("octo/models", {"train.py": FAST}, installation=False)
    repo.permission("dev", "write")
    # A budget of one, so that some are over the limit, and their places are printed.
    repo.commit("main", {".ptopt.toml": b"budget = 1\nmin-confidence = 0\n"})
    files = {PATH: CODE, "b/##[stop-commands]evil/::error::/x.py": SLOW, "c.py": SLOW}
    return repo.pull(title=HOSTILE, files=files, author="dev")


def opened(pull: Pull) -> dict[str, Any]:
    return {"action": "opened", "pull_request": {"number": pull.number, "head": {"sha": pull.head_sha}}}


def test_the_log_and_the_summary(runner: Runner, pull: Pull) -> None:
    outputs = runner.run("pull_request", opened(pull), runner.github.token(pull.repo, READ_ONLY))
    assert "evil" in runner.log  # the hostile paths are told
    assert_harmless_lines(runner.log)
    assert set(outputs) == {"findings"}
    ours = frozenset({"heading_open", "strong_open"})
    assert_inert(runner.summary, marks=0, markup=ours)


def test_the_whole_review(runner: Runner, pull: Pull) -> None:
    runner.run("pull_request", opened(pull), runner.github.token(pull.repo, CAN_POST), sarif="a.sarif")
    assert_harmless_lines(runner.log)
    for body in [*(r.body for r in pull.reviews), *(c.body for c in pull.review_comments)]:
        assert_inert(body, "finding", "review")


def test_what_fails_unexpectedly_is_no_command_either(runner: Runner, pull: Pull) -> None:
    payload = {
        "action": "opened",
        "pull_request": {"number": "##[add-mask]evil\n::set-output name=findings::7"},
    }
    outputs = runner.run("pull_request", payload, runner.github.token(pull.repo, READ_ONLY))
    assert runner.exit_code == 2
    assert_harmless_lines(runner.log)
    assert outputs == {}


@pytest.mark.parametrize("name", ["report", "sarif"])
@pytest.mark.parametrize("path", ["../outside.json", "link/outside.json", "link"])
def test_files_stay_in_the_workspace(runner: Runner, pull: Pull, name: str, path: str) -> None:
    """A link may have come with the pull request's code."""
    outside = runner.folder.parent / f"outside-{runner.folder.name}"
    outside.mkdir()
    (runner.folder / "link").symlink_to(outside)
    runner.run(
        "pull_request", opened(pull), runner.github.token(pull.repo, READ_ONLY), mode="report", **{name: path}
    )
    assert runner.exit_code == 2
    assert "workspace" in runner.log
    assert not list(outside.iterdir())


@pytest.mark.parametrize(
    "report",
    [
        b"{",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"\xff\xfe",
        b"null",
        json.dumps({"repository": "octo/other", "pull_request": 1, "head_sha": "a" * 40}).encode(),
        b" " * 2_000_001,
    ],
    ids=["cut", "deep", "deep-objects", "bytes", "null", "other", "large"],
)
def test_a_hostile_artifact(runner: Runner, pull: Pull, report: bytes) -> None:
    (runner.folder / "ptopt-report.json").write_bytes(report)
    run = {"head_sha": pull.head_sha, "head_repository": {"full_name": "octo/models"}}
    token = runner.github.token(pull.repo, CAN_POST)
    runner.run("workflow_run", {"action": "completed", "workflow_run": run}, token)
    assert runner.exit_code == 2
    assert_harmless_lines(runner.log)
    assert not pull.reviews


def test_a_report_brings_no_text(runner: Runner, pull: Pull) -> None:
    runner.run("pull_request", opened(pull), runner.github.token(pull.repo, READ_ONLY), mode="report")
    path = runner.folder / "ptopt-report.json"
    told = json.loads(path.read_text())
    for finding in told["review"]["findings"]:
        finding |= {"message": HOSTILE, "name": HOSTILE, "path": "../../etc/passwd", "rule": HOSTILE}
    told["review"]["findings"] += [
        {**told["review"]["findings"][0], "fingerprint": "0" * 32, "message": "forged"},
    ]
    path.write_text(json.dumps(told))
    run = {"head_sha": pull.head_sha, "head_repository": {"full_name": "octo/models"}}
    token = runner.github.token(pull.repo, CAN_POST)
    runner.run("workflow_run", {"action": "completed", "workflow_run": run}, token)
    assert runner.exit_code == 0 and pull.review_comments
    for body in [*(r.body for r in pull.reviews), *(c.body for c in pull.review_comments)]:
        assert_inert(body, "finding", "review")
        assert "forged" not in body and "passwd" not in body


def comment(pull: Pull, login: str, body: str, **more: Any) -> dict[str, Any]:
    comment_id = pull.comment(login, body)
    user = {"id": pull.repo.github.account(login).id, "login": login, "type": "User"}
    return {
        "action": "created",
        "issue": {"number": pull.number, "pull_request": {}},
        "comment": {"id": comment_id, "body": body, "user": user},
        "sender": user,
    } | more


@pytest.mark.parametrize("action", ["edited", "deleted"])
def test_no_new_text_gives_no_command(runner: Runner, pull: Pull, action: str) -> None:
    token = runner.github.token(pull.repo, {"contents": "read", "pull_requests": "write"})
    runner.github.account("stranger")
    payload = comment(pull, "dev", "/ptopt help", action=action)
    runner.run("issue_comment", payload, token)
    assert len(pull.issue_comments) == 1  # no new text, no command
    stranger = {"id": runner.github.account("stranger").id, "login": "stranger", "type": "User"}
    changed = {"sender": stranger, "changes": {"body": {"from": "nothing"}}}
    runner.run("issue_comment", payload | changed, token)
    assert len(pull.issue_comments) == 1


def test_an_edit_by_somebody_else_gives_no_command(runner: Runner, pull: Pull) -> None:
    token = runner.github.token(pull.repo, {"contents": "read", "pull_requests": "write"})
    runner.github.account("stranger")
    hidden = "x" * 17_000 + "\n\n/ptopt help"
    payload = comment(pull, "stranger", "/ptopt help", action="edited", changes={"body": {"from": hidden}})
    dev = {"id": runner.github.account("dev").id, "login": "dev", "type": "User"}
    for author in (payload["comment"]["user"], None):
        payload["comment"]["user"] = author
        runner.run("issue_comment", payload | {"sender": dev}, token)
        assert runner.exit_code == 0, runner.log
        assert len(pull.issue_comments) == 1


def test_a_forged_answer_of_another_workflow(runner: Runner, pull: Pull) -> None:
    """All workflows are github-actions[bot]. What they quote further down is not taken for ours."""
    pull.comment("github-actions[bot]", "Preview of:\n<!-- ptopt:answer 1 0 pause -->\n")
    assert not markers.read(pull.issue_comments[-1].body)
    runner.run("pull_request", opened(pull), runner.github.token(pull.repo, CAN_POST))
    assert pull.reviews
