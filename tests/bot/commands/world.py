"""A repository on the fake GitHub with a pull request that ptopt has reviewed, and people who give commands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from bot.commands import CommandRequest, handle
from fake_github import FakeGitHub
from fake_github.pulls import Pull
from fake_github.repos import Repo
from ptopt.github.auth import AppAuth, for_installation
from ptopt.github.client import GitHubClient
from ptopt.github.pipeline import review_pull
from ptopt.github.pullstate import PullState, read_state
from ptopt.github.values import Actor
from ptopt.runner import Runner, in_process

REPO = "octo/train"
BEFORE = b"import torch\n"
CODE = b"""\
import torch


def train(model, loader, optimizer, total):
    for batch in loader:
        a = torch.zeros(8).to(batch.device)
        loss = model(batch, a).mean()
        loss.backward()
        optimizer.step()
        total += loss.item()
"""


@dataclass
class RecordingHost:
    """The host of the tests: records its calls."""

    budget: int = 20
    given: int = 1
    runner: Runner = in_process
    pull_budget: int = 10
    on_pull: int = 1
    calls: list[tuple[object, ...]] = field(default_factory=list)

    def commands_in_last_hour(self, login: str) -> int:
        return self.given

    def commands_on_pull(self, login: str) -> int:
        return self.on_pull

    def review(self, full: bool) -> str:
        self.calls.append(("review", full))
        return "A review is on its way."

    def status(self) -> Sequence[str]:
        return ("Queue: nothing waits.",)

    def feedback(self, rule: str) -> str:
        return ""

    def record_feedback(self, comment_id: int, good: bool, reason: str, actor: Actor) -> None:
        self.calls.append(("feedback", comment_id, good, reason, actor.login))

    def note_ignored(self, comment_ids: Sequence[int], scope: Literal["rule", "here"], actor: Actor) -> None:
        self.calls.append(("ignored", tuple(comment_ids), scope, actor.login))


class World:
    """Roles: `octo` owns, `writer` writes, `triager` triages, `dev` is the author, `stranger` is nobody."""

    def __init__(
        self, github: FakeGitHub, *, head: str = "change", files: dict[str, bytes] | None = None
    ) -> None:
        self.github = github
        self.repo: Repo = github.repository(REPO, {"train.py": BEFORE, **(files or {})})
        self.repo.permission("writer", "write")
        self.repo.permission("triager", "triage")
        for login in ("stranger", "dev"):
            github.account(login)
        self.pull: Pull = self.repo.pull(head, author="dev", files={"train.py": CODE})
        installation = self.repo.installation
        assert installation is not None
        auth = AppAuth(github.url, github.app.id, github.app.private_key, seconds_between_writes=0)
        self.client: GitHubClient = for_installation(auth, installation.id)
        self.host = RecordingHost()

    def review(self) -> None:
        outcome = review_pull(self.client, REPO, self.pull.number, before_write=lambda: None)
        assert outcome.status == "posted", outcome

    def posted(self, rule: str) -> int:
        """The id of our comment on this rule."""
        return next(c.id for c in self.pull.review_comments if f"ptopt:finding {rule} " in c.body)

    def request(
        self,
        login: str,
        body: str,
        *,
        thread: int | None = None,
        previous: str | None = None,
        comment: int | None = None,
    ) -> CommandRequest:
        """Somebody writes `body`, in the conversation or in a thread; `comment` is one that is there already."""
        account = self.github.account(login)
        if comment is None:
            comment = (
                self.pull.comment(login, body) if thread is None else self.pull.reply(login, thread, body)
            )
        return CommandRequest(
            REPO,
            self.pull.number,
            comment,
            "issue" if thread is None else "review",
            thread,
            body,
            previous,
            Actor(account.id, login, account.type == "Bot"),
        )

    def give(self, login: str, body: str, *, thread: int | None = None) -> str:
        """The answer to a comment, without its marker; "" for none."""
        before = len(self.answers())
        handle(self.request(login, body, thread=thread), self.client, self.host)
        new = self.answers()[before:]
        assert len(new) <= 1
        return new[0].partition(" -->\n")[2] if new else ""

    def state(self) -> PullState:
        return read_state(self.client, REPO, self.pull.number)

    def answers(self) -> list[str]:
        """Our answers, with their markers, in the order they were written."""
        comments = [*self.pull.issue_comments, *self.pull.review_comments]
        ours = [c for c in comments if c.body.startswith("<!-- ptopt:answer ")]
        return [c.body for c in sorted(ours, key=lambda comment: comment.id)]

    def reactions(self, comment_id: int) -> list[str]:
        comments = [*self.pull.issue_comments, *self.pull.review_comments]
        return [r.content for c in comments if c.id == comment_id for r in c.reactions]
