"""Where slash commands run in the Action: GitHub is the only memory."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import Literal

from bot.commands.base import CommandRequest, UserError
from bot.commands.parse import new_commands
from ptopt.github import outside_diff
from ptopt.github.client import GitHubClient
from ptopt.github.pipeline import review_pull
from ptopt.github.values import Actor, IssueComment, PostedComment
from ptopt.report.text import count, markdown_text
from ptopt.runner import Runner, in_process


class ActionHost:
    """`bot.commands.Host` without a service."""

    budget = 20
    pull_budget = 10

    def __init__(self, github: GitHubClient, request: CommandRequest) -> None:
        self._github = github
        self._request = request

    @property
    def runner(self) -> Runner:
        return in_process

    def commands_in_last_hour(self, login: str) -> int:
        request = self._request
        since = datetime.now(timezone.utc) - timedelta(hours=1)
        comments: list[IssueComment | PostedComment] = [
            *self._github.issue_comments(request.repo, request.number),
            *self._github.review_comments(request.repo, request.number),
        ]
        return sum(
            c.author.login == login and c.created_at > since and bool(new_commands(c.body, None))
            for c in comments
        )

    def commands_on_pull(self, login: str) -> int:
        return self.commands_in_last_hour(login)  # the Action sees no other pull request

    def review(self, full: bool) -> str:
        request = self._request
        outcome = review_pull(
            self._github, request.repo, request.number, before_write=lambda: None, requested=True, full=full
        )
        if outcome.review is None or outcome.status == "superseded":
            return f"No review: {markdown_text(outcome.reason)}."
        findings = outcome.review.findings
        text = (
            f"Reviewed: {count(len(findings), 'finding')} in {count(outcome.review.files_reviewed, 'file')}."
        )
        if full and outcome.pull is not None:
            comments = self._github.issue_comments(request.repo, request.number)
            outside_diff.update(self._github, outcome.pull, outcome.outside_diff, comments, lambda: None)
            text += f" {outside_diff.pointer(outcome.outside_diff)}"
        return text

    def audit(self) -> str:
        raise UserError("The Action audits a checkout, in a workflow with `mode: audit`.")

    def status(self) -> Sequence[str]:
        return ["Runs as a GitHub Action; there is no queue."]

    def feedback(self, rule: str) -> str:
        return ""

    def record_feedback(self, comment_id: int, good: bool, reason: str, actor: Actor) -> None:
        raise UserError("The Action does not record feedback; only the service does.")

    def note_ignored(self, comment_ids: Sequence[int], scope: Literal["rule", "here"], actor: Actor) -> None:
        """The answer remembers what is ignored; there is nowhere to count it."""
