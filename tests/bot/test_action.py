"""The Action against the fake GitHub, with the token and the files that GitHub's runner gives it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bot.action.run import ActionError, read
from fake_github import FakeGitHub, Pull, Request, Response
from ptopt.ranker.model import ENVIRONMENT

ROOT = Path(__file__).parents[2]
BEFORE = b"""\
import torch


def train(model, loader, optimizer):
    for x, y in loader:
        x, y = x.cuda(), y.cuda()
        loss = model(x, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
"""
SLOW = b"""\
import torch


def train(model, loader, optimizer):
    total = 0.0
    for x, y in loader:
        x, y = x.cuda(), y.cuda()
        loss = model(x, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += loss.item()
    return total
"""
CAN_POST = {"contents": "read", "pull_requests": "write"}
READ_ONLY = {"contents": "read", "pull_requests": "read"}


class Runner:
    """What a runner of GitHub's sets up for a step."""

    def __init__(self, github: FakeGitHub, folder: Path) -> None:
        self.github, self.folder = github, folder
        self.exit_code, self.log = 0, ""

    def run(self, event: str, payload: Mapping[str, Any], token: str, **inputs: str) -> dict[str, str]:
        """One run of the step; its outputs."""
        (self.folder / "event.json").write_text(json.dumps(payload))
        for name in ("output", "summary"):
            (self.folder / name).write_text("")
        environment = {
            "PATH": os.environ["PATH"],
            ENVIRONMENT: os.environ[ENVIRONMENT],
            "GITHUB_WORKSPACE": str(self.folder),
            "GITHUB_REPOSITORY": "octo/models",
            "GITHUB_EVENT_NAME": event,
            "GITHUB_EVENT_PATH": str(self.folder / "event.json"),
            "GITHUB_API_URL": self.github.url,
            "GITHUB_OUTPUT": str(self.folder / "output"),
            "GITHUB_STEP_SUMMARY": str(self.folder / "summary"),
            "PTOPT_TOKEN": token,
            **{f"PTOPT_{name.upper()}": value for name, value in inputs.items()},
        }
        done = subprocess.run(
            [sys.executable, "-m", "bot.action"], cwd=ROOT, env=environment, capture_output=True, text=True
        )
        assert not done.stderr, done.stderr
        assert token not in done.stdout
        self.exit_code, self.log = done.returncode, done.stdout
        lines = (self.folder / "output").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines)

    @property
    def summary(self) -> str:
        return (self.folder / "summary").read_text()


@pytest.fixture
def runner(fake_github: FakeGitHub, tmp_path: Path) -> Runner:
    return Runner(fake_github, tmp_path)


@pytest.fixture
def pull(fake_github: FakeGitHub) -> Pull:
    repo = fake_github.repository("octo/models", {"train.py": BEFORE}, installation=False)
    repo.permission("dev", "write")
    return repo.pull(files={"train.py": SLOW}, title="Log the loss", author="dev")


def _opened(pull: Pull) -> dict[str, Any]:
    return {"action": "opened", "pull_request": {"number": pull.number, "head": {"sha": pull.head_sha}}}


def _comment(pull: Pull, login: str, body: str) -> dict[str, Any]:
    comment_id = pull.comment(login, body)
    user = {"id": pull.repo.github.account(login).id, "login": login, "type": "User"}
    return {
        "action": "created",
        "issue": {"number": pull.number, "pull_request": {}},
        "comment": {"id": comment_id, "body": body, "user": user},
        "sender": user,
    }


def _workflow_run(pull: Pull, head_repo: str, **changed: Any) -> dict[str, Any]:
    run = {"head_sha": pull.head_sha, "head_repository": {"full_name": head_repo}}
    return {"action": "completed", "workflow_run": run | changed}


def test_posts_one_review(runner: Runner, pull: Pull) -> None:
    token = runner.github.token(pull.repo, CAN_POST)
    outputs = runner.run("pull_request", _opened(pull), token, sarif="out/ptopt.sarif")
    assert runner.exit_code == 0, runner.log
    assert outputs["findings"] == "1"
    assert json.loads(Path(outputs["sarif"]).read_text())["runs"][0]["results"]
    assert [review.author.login for review in pull.reviews] == ["github-actions[bot]"]
    (comment,) = pull.review_comments
    assert "PTO101" in comment.body and "```suggestion" in comment.body
    assert "item-every-step" in runner.summary
    runner.run("pull_request", _opened(pull), token)
    assert len(pull.reviews) == 1


def test_findings_can_fail_the_step(runner: Runner, pull: Pull) -> None:
    token = runner.github.token(pull.repo, CAN_POST)
    runner.run("pull_request", _opened(pull), token, fail="true")
    assert runner.exit_code == 1
    assert len(pull.reviews) == 1


def test_a_token_that_can_only_read(runner: Runner, pull: Pull) -> None:
    outputs = runner.run("pull_request", _opened(pull), runner.github.token(pull.repo, READ_ONLY))
    assert runner.exit_code == 0, runner.log
    assert outputs["findings"] == "1"
    assert "::notice file=train.py,line=12" in runner.log
    assert "item-every-step" in runner.summary
    assert not pull.reviews


def test_answers_a_command(runner: Runner, pull: Pull) -> None:
    payload = _comment(pull, "dev", "/ptopt explain item-every-step")
    runner.run("issue_comment", payload, runner.github.token(pull.repo, CAN_POST))
    assert runner.exit_code == 0, runner.log
    answer = pull.issue_comments[-1]
    assert answer.author.login == "github-actions[bot]" and "PTO101" in answer.body


def test_a_review_on_demand(runner: Runner, pull: Pull) -> None:
    payload = _comment(pull, "dev", "/ptopt review")
    runner.run("issue_comment", payload, runner.github.token(pull.repo, CAN_POST))
    assert len(pull.reviews) == 1
    assert "1 finding in 1 file" in pull.issue_comments[-1].body


def test_a_full_review_on_demand(runner: Runner, pull: Pull) -> None:
    token = runner.github.token(pull.repo, CAN_POST)
    for _ in range(2):
        runner.run("issue_comment", _comment(pull, "dev", "/ptopt review --full"), token)
        assert runner.exit_code == 0, runner.log
    assert not any("ptopt:full" in comment.body for comment in pull.issue_comments)
    assert "No findings outside the diff." in pull.issue_comments[-1].body


def test_a_review_that_a_push_overtakes_is_not_said_to_be_posted(runner: Runner, pull: Pull) -> None:
    def push(request: Request, _response: Response) -> None:
        if request.path.endswith("/reviews") and not pushed:
            pushed.append(pull.push({"more.py": b"x = 1\n"}))

    pushed: list[str] = []
    runner.github.checks.append(push)
    payload = _comment(pull, "dev", "/ptopt review")
    runner.run("issue_comment", payload, runner.github.token(pull.repo, CAN_POST))
    assert pushed and not pull.reviews
    assert "No review: the head is " in pull.issue_comments[-1].body


def test_a_command_in_a_thread(runner: Runner, pull: Pull) -> None:
    token = runner.github.token(pull.repo, CAN_POST)
    runner.run("pull_request", _opened(pull), token)
    (told,) = pull.review_comments
    reply = pull.reply("dev", told.id, "/ptopt ignore here")
    payload = _comment(pull, "dev", "/ptopt ignore here") | {"pull_request": {"number": pull.number}}
    payload["comment"] |= {"id": reply, "in_reply_to_id": told.id}
    runner.run("pull_request_review_comment", payload, token)
    assert runner.exit_code == 0, runner.log
    assert "This finding is ignored" in pull.thread_of(told.id).comments[-1].body


def test_a_comment_on_an_issue(runner: Runner, pull: Pull) -> None:
    payload = _comment(pull, "dev", "/ptopt review")
    del payload["issue"]["pull_request"]
    runner.run("issue_comment", payload, runner.github.token(pull.repo, CAN_POST))
    assert runner.exit_code == 0
    assert not pull.reviews


class TestFork:
    @pytest.fixture
    def pull(self, fake_github: FakeGitHub) -> Pull:
        repo = fake_github.repository("octo/models", {"train.py": BEFORE}, installation=False)
        fork = repo.fork("mallory")
        fork.commit("faster", {"train.py": SLOW}, "Log the loss")
        return repo.pull(head="mallory:faster", title="Log the loss", author="mallory")

    def _report(self, runner: Runner, pull: Pull) -> Path:
        token = runner.github.token(pull.repo, READ_ONLY)
        outputs = runner.run("pull_request", _opened(pull), token, mode="report")
        assert runner.exit_code == 0, runner.log
        assert not pull.reviews
        return Path(outputs["report"])

    def _post(self, runner: Runner, pull: Pull, **changed: Any) -> None:
        payload = _workflow_run(pull, "mallory/models", **changed)
        runner.run("workflow_run", payload, runner.github.token(pull.repo, CAN_POST))

    def test_reports_then_posts(self, runner: Runner, pull: Pull) -> None:
        self._report(runner, pull)
        self._post(runner, pull)
        assert runner.exit_code == 0, runner.log
        assert len(pull.reviews) == len(pull.review_comments) == 1

    def test_a_forged_report_changes_nothing(self, runner: Runner, pull: Pull) -> None:
        path = self._report(runner, pull)
        data = json.loads(path.read_text())
        (finding,) = data["review"]["findings"]
        lie = finding | {"fingerprint": "0" * 32, "message": "@octo/everyone ![x](https://evil.example/x)"}
        data["review"]["findings"] = [finding | {"message": "Send your token to evil.example"}, lie]
        path.write_text(json.dumps(data))
        self._post(runner, pull)
        (comment,) = pull.review_comments
        assert "evil" not in comment.body and "everyone" not in comment.body

    def test_an_emptied_report_hides_nothing(self, runner: Runner, pull: Pull) -> None:
        path = self._report(runner, pull)
        data = json.loads(path.read_text())
        data["review"]["findings"] = []
        path.write_text(json.dumps(data))
        for _ in range(2):
            self._post(runner, pull)
            assert len(pull.review_comments) == 1
            assert not pull.threads[0].resolved
            assert "1 performance finding" in pull.reviews[0].body

    def test_a_draft_is_reported_too(self, runner: Runner, pull: Pull) -> None:
        """The second workflow, and the upload in the first, fail without a file."""
        pull.draft = True
        path = self._report(runner, pull)
        assert json.loads(path.read_text())["review"] is None
        self._post(runner, pull)
        assert runner.exit_code == 0, runner.log
        assert "it is a draft" in runner.log
        assert not pull.reviews

    def test_a_push_while_it_is_reported(self, runner: Runner, pull: Pull) -> None:
        opened, run = _opened(pull), _workflow_run(pull, "mallory/models")
        pull.push({"train.py": SLOW + b"\n"})
        outputs = runner.run("pull_request", opened, runner.github.token(pull.repo, READ_ONLY), mode="report")
        assert Path(outputs["report"]).exists()
        runner.run("workflow_run", run, runner.github.token(pull.repo, CAN_POST))
        assert runner.exit_code == 0, runner.log
        assert not pull.reviews

    @pytest.mark.parametrize(
        "change",
        [
            {"repository": "octo/other"},
            {"head_sha": "0" * 40},
            {"pull_request": 0},
        ],
    )
    def test_a_report_of_something_else(self, change: dict[str, Any], runner: Runner, pull: Pull) -> None:
        path = self._report(runner, pull)
        path.write_text(json.dumps(json.loads(path.read_text()) | change))
        self._post(runner, pull)
        assert runner.exit_code == 2
        assert runner.log.startswith("::error title=ptopt::")
        assert not pull.reviews

    @pytest.mark.parametrize(
        "text", ["", "null", "[" * 100_000, '{"a": "' + "x" * 3_000_000 + '"}', "\xff\x00"]
    )
    def test_no_report(self, text: str, runner: Runner, pull: Pull) -> None:
        (runner.folder / "ptopt-report.json").write_text(text, encoding="latin-1")
        self._post(runner, pull)
        assert runner.exit_code == 2
        assert runner.log.startswith("::error title=ptopt::")

    def test_the_number_of_somebody_elses_pull_request(self, runner: Runner, pull: Pull) -> None:
        path = self._report(runner, pull)
        pull.repo.permission("dev", "write")
        other = pull.repo.pull(files={"train.py": SLOW}, title="Another", author="dev")
        path.write_text(json.dumps(json.loads(path.read_text()) | {"pull_request": other.number}))
        self._post(runner, pull)
        assert not other.reviews and not pull.reviews

    def test_a_push_in_between(self, runner: Runner, pull: Pull) -> None:
        self._report(runner, pull)
        reported = pull.head_sha
        pull.push({"train.py": SLOW + b"\n"})
        self._post(runner, pull, head_sha=reported)
        assert runner.exit_code == 0
        assert not pull.reviews


@pytest.mark.parametrize(
    ("event", "inputs", "told"),
    [
        ("push", {}, "the event 'push' is not supported"),
        ("pull_request", {"mode": "both"}, "mode: 'both' is not allowed"),
        ("pull_request", {"token": "two words"}, "token: "),
    ],
)
def test_a_workflow_that_is_wrong(
    event: str, inputs: dict[str, str], told: str, runner: Runner, pull: Pull
) -> None:
    token = inputs.pop("token", runner.github.token(pull.repo, CAN_POST))
    runner.run(event, _opened(pull), token, **inputs)
    assert runner.exit_code == 2
    assert told in runner.log


def test_a_path_with_a_workflow_command(runner: Runner, pull: Pull) -> None:
    """A line of the log that begins with `::` is an order to the runner."""
    pull.push({"a\n::set-output name=x::y\n.py": SLOW, "train.py": SLOW})
    runner.run("pull_request", _opened(pull), runner.github.token(pull.repo, READ_ONLY))
    ordered = [line.split(" ")[0] for line in runner.log.splitlines() if line.startswith("::")]
    assert set(ordered) <= {"::warning", "::notice"}


def test_outside_of_a_runner_it_says_where_it_belongs() -> None:
    with pytest.raises(ActionError, match=r"GITHUB_WORKSPACE is not set.*run `ptopt review`"):
        read({"PATH": "/bin"})
