"""The GitHub Action: one event in, a review or an answer out.

It stands on the API alone: no checkout, no database. The event and, of a `workflow_run`, the report are hostile data.
"""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from bot import commands
from bot.action.command_host import ActionHost
from bot.action.errors import ActionError
from bot.action.fork_report import ReportError, review_again, write_report
from bot.action.workspace import audit_of_folder
from bot.commands.base import CommandRequest
from ptopt import report
from ptopt.audit.values import Level
from ptopt.findings import Review
from ptopt.github.auth import for_token
from ptopt.github.client import GitHubClient
from ptopt.github.errors import ForbiddenError, GitHubError
from ptopt.github.pipeline import Outcome, PreparedReview, post_prepared, prepare_review
from ptopt.github.values import Actor
from ptopt.report import audit as report_audit
from ptopt.report.audit.markdown import render as audit_in_markdown
from ptopt.report.audit.text import number_of
from ptopt.report.audit.text import outcome as audit_outcome
from ptopt.report.github import command, plain_line

_OF_THE_RUNNER = (
    "GITHUB_WORKSPACE",
    "GITHUB_API_URL",
    "GITHUB_REPOSITORY",
    "GITHUB_EVENT_NAME",
    "GITHUB_EVENT_PATH",
    "GITHUB_OUTPUT",
    "GITHUB_STEP_SUMMARY",
)
_LONGEST_SUMMARY = 1_000_000  # GitHub takes 1 MiB
COMMENTS = {"issue_comment": "issue", "pull_request_review_comment": "review"}


@dataclass(frozen=True)
class Run:
    """One run of the step: what happened, and what the workflow requests."""

    github: GitHubClient
    repo: str
    event: str
    payload: Mapping[str, Any]
    mode: Literal["auto", "report", "audit"]
    workspace: Path
    report: Path
    sarif: Path | None
    fail_on_findings: bool
    output: Path  # where the step's outputs go
    summary: Path  # where the job summary goes


def main() -> int:
    """Run in a step of a workflow. Returns the exit status."""
    try:
        return act(read(os.environ))
    except (ActionError, ReportError, GitHubError) as error:
        print(command("error", str(error)))
        return 2
    except Exception:
        # Not as it is: it may quote the pull request, and the runner takes lines of the log for commands.
        print(command("error", traceback.format_exc()))
        return 2


def read(environment: Mapping[str, str]) -> Run:
    """What GitHub's runner and `action.yml` put into the environment. Raises ActionError."""
    missing = [name for name in _OF_THE_RUNNER if not environment.get(name)]
    if missing:
        raise ActionError(
            f"{missing[0]} is not set. This is a step of a GitHub workflow (docs/action.md); on your machine, run `ptopt review`"
        )
    workspace = Path(environment["GITHUB_WORKSPACE"])
    mode = environment.get("PTOPT_MODE") or "auto"
    if mode not in ("auto", "report", "audit"):
        raise ActionError(f"mode: {mode!r} is not allowed, give `auto`, `report` or `audit`")
    sarif = environment.get("PTOPT_SARIF")
    try:
        github = for_token(environment.get("PTOPT_TOKEN", ""), environment["GITHUB_API_URL"])
    except ValueError as error:
        raise ActionError(f"token: {error}") from None
    return Run(
        github=github,
        repo=environment["GITHUB_REPOSITORY"],
        event=environment["GITHUB_EVENT_NAME"],
        payload=json.loads(Path(environment["GITHUB_EVENT_PATH"]).read_bytes()),
        mode=cast(Literal["auto", "report", "audit"], mode),
        workspace=workspace,
        report=_within(workspace, "report", environment.get("PTOPT_REPORT") or "ptopt-report.json"),
        sarif=_within(workspace, "sarif", sarif) if sarif else None,
        fail_on_findings=environment.get("PTOPT_FAIL", "").lower() == "true",
        output=Path(environment["GITHUB_OUTPUT"]),
        summary=Path(environment["GITHUB_STEP_SUMMARY"]),
    )


def _within(workspace: Path, name: str, text: str) -> Path:
    """A relative path does not leave the workspace, also not by a link of a pull request that is checked out there."""
    path = workspace / text
    if not Path(text).is_absolute() and not path.resolve().is_relative_to(workspace.resolve()):
        raise ActionError(
            f"{name}: {text!r} is outside the workspace; give an absolute path if that is intended"
        )
    return path


def act(run: Run) -> int:
    """Handle the event. Raises ActionError and GitHubError."""
    if run.mode == "audit":
        return _audit(run)
    if run.event in ("pull_request", "pull_request_target"):
        return _review(run)
    if run.event in COMMENTS:
        return _answer(run)
    if run.event == "workflow_run":
        return _post_report(run)
    raise ActionError(
        f"the event {run.event!r} is not supported; run it on pull_request, issue_comment, "
        "pull_request_review_comment or workflow_run"
    )


def _review(run: Run) -> int:
    pull = run.payload["pull_request"]
    number, head_sha = int(pull["number"]), str(pull["head"]["sha"])
    prepared = prepare_review(run.github, run.repo, number, head_sha=head_sha)
    if run.mode == "report":  # one without a review, too: the steps after this one count on the file
        write_report(run.report, run.repo, number, head_sha, prepared.review)
        _set(run, "report", str(run.report))
    if isinstance(prepared, Outcome):
        return _nothing(run, prepared)
    return _done(run, prepared.review) if run.mode == "report" else _post(run, prepared)


def _post_report(run: Run) -> int:
    """Review the pull request that an unprivileged run reported on."""
    prepared = review_again(run.github, run.repo, run.report, run.payload["workflow_run"])
    return _nothing(run, prepared) if isinstance(prepared, Outcome) else _post(run, prepared)


def _post(run: Run, prepared: PreparedReview) -> int:
    try:
        outcome = post_prepared(run.github, prepared, before_write=lambda: None)
    except ForbiddenError:
        print(
            "The token cannot write to this pull request; the findings are annotations and in the job summary."
        )
        print(report.render("github", prepared.review), end="")
        return _done(run, prepared.review)
    if outcome.status == "superseded":
        return _nothing(run, outcome)
    for note in outcome.posted.notes if outcome.posted else ():
        print(command("warning", note))
    return _done(run, prepared.review)


def _answer(run: Run) -> int:
    comment, where = run.payload["comment"], COMMENTS[run.event]
    pull = run.payload.get("pull_request") or run.payload["issue"]
    if where == "issue" and "pull_request" not in pull:
        print("The comment is on an issue, not on a pull request.")
        return 0
    action, previous = run.payload["action"], None
    if action == "edited":
        previous = ((run.payload.get("changes") or {}).get("body") or {}).get("from")
    if action != "created" and previous is None:
        print("The edit added no text to the comment.")
        return 0
    user, author = run.payload["sender"], comment.get("user")
    if author is None or author["id"] != user["id"]:
        # What the author hid in it would run with the editor's permission.
        print("The comment was edited by someone other than its author.")
        return 0
    request = CommandRequest(
        repo=run.repo,
        number=int(pull["number"]),
        comment_id=int(comment["id"]),
        where="issue" if where == "issue" else "review",
        in_reply_to=comment.get("in_reply_to_id"),
        body=comment["body"] or "",
        previous_body=previous,
        actor=Actor(int(user["id"]), user["login"], user["type"] == "Bot"),
    )
    commands.handle(request, run.github, ActionHost(run.github, request))
    return 0


def _audit(run: Run) -> int:
    """Audit what is checked out in the workspace: files are read, nothing of them is run."""
    if not any(run.workspace.iterdir()):
        raise ActionError("the workspace is empty; with `mode: audit`, put actions/checkout before this step")
    audit = audit_of_folder(run.workspace, run.repo.rpartition("/")[2])
    run.report.parent.mkdir(parents=True, exist_ok=True)
    name = "html" if run.report.suffix == ".html" else "json"
    run.report.write_text(report_audit.render(name, audit), encoding="utf-8")
    _set(run, "report", str(run.report))
    with run.summary.open("a", encoding="utf-8") as summary:
        summary.write(audit_in_markdown(audit, _LONGEST_SUMMARY))
    weighty = sum(number_of(audit, level) for level in (Level.CRITICAL, Level.MODERATE))
    print(plain_line(f"{audit_outcome(audit)}."))
    _set(run, "findings", str(weighty))
    return 1 if run.fail_on_findings and weighty else 0


def _nothing(run: Run, outcome: Outcome) -> int:
    print(plain_line(f"No review: {outcome.reason}."))
    _set(run, "findings", "0")
    return 0


def _done(run: Run, review: Review) -> int:
    if run.sarif is not None:
        run.sarif.parent.mkdir(parents=True, exist_ok=True)
        run.sarif.write_text(report.render("sarif", review), encoding="utf-8")
        _set(run, "sarif", str(run.sarif))
    with run.summary.open("a", encoding="utf-8") as summary:
        summary.write(report.render("markdown", review))
    print(f"{len(review.findings)} findings in {review.files_reviewed} files.")
    _set(run, "findings", str(len(review.findings)))
    return 1 if run.fail_on_findings and review.findings else 0


def _set(run: Run, name: str, value: str) -> None:
    """An output of the step. A line break would begin another one."""
    if "\n" in value or "\r" in value:
        raise ActionError(f"{name}: a path must not hold a line break")
    with run.output.open("a", encoding="utf-8") as output:
        output.write(f"{name}={value}\n")
