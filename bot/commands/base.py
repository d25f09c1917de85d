"""What a slash command is: its description, its arguments, and a function from a call to an answer."""

from __future__ import annotations

import difflib
import enum
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, Protocol, TypeVar

from bot.commands.parse import WORD
from ptopt.github.client import GitHubClient
from ptopt.github.pullstate import PullState
from ptopt.github.values import Actor, PullRequest
from ptopt.report.text import code_span
from ptopt.runner import Runner

A = TypeVar("A")  # the arguments of a command


class Who(enum.Enum):
    """Who may give a command."""

    AUTHOR_OR_TRIAGE = "author, triage"
    WRITE = "write"


@dataclass(frozen=True, slots=True)
class CommandRequest:
    """A comment that may hold commands. `previous_body` is its text before an edit, None for a new comment."""

    repo: str
    number: int
    comment_id: int
    where: Literal["issue", "review"]
    in_reply_to: int | None  # the first comment of the thread; None for that one, and in the conversation
    body: str
    previous_body: str | None
    actor: Actor


class Host(Protocol):
    """Where the commands run: the service, or the Action. It may raise `UserError` for what it cannot do."""

    @property
    def runner(self) -> Runner:
        """Where files of the pull request are analysed."""

    @property
    def budget(self) -> int:
        """Comments with commands that one person may write in an hour."""

    def commands_in_last_hour(self, login: str) -> int:
        """How many the person wrote, this one included."""

    @property
    def pull_budget(self) -> int:
        """Those that a person without write access may write in an hour on one pull request."""

    def commands_on_pull(self, login: str) -> int:
        """How many the person wrote on this pull request in the last hour, this one included."""

    def review(self, full: bool) -> str:
        """See to a review of the pull request; if `full`, of all that stands in its files. Returns Markdown for the
        answer."""

    def audit(self) -> str:
        """See to an audit of the repository, if it had none today; what to answer, as Markdown."""

    def status(self) -> Sequence[str]:
        """What it is doing about the pull request, a sentence each."""

    def feedback(self, rule: str) -> str:
        """What the people of the repository made of a rule, given by id: a sentence as Markdown, "" for nothing."""

    def record_feedback(self, comment_id: int, good: bool, reason: str, actor: Actor) -> None:
        """Somebody judged our comment. The second of the same is no harm."""

    def note_ignored(self, comment_ids: Sequence[int], scope: Literal["rule", "here"], actor: Actor) -> None:
        """Somebody wants no more comments on the findings of these. The second of the same is no harm."""


@dataclass(frozen=True, slots=True)
class PostedFinding:
    """A finding that a review comment of ours reports; the comment is the first of its thread."""

    comment_id: int
    path: str
    rule: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Call:
    """What a command knows when it runs."""

    request: CommandRequest
    pull: PullRequest
    github: GitHubClient
    host: Host
    posted: tuple[PostedFinding, ...]  # oldest first
    state: PullState  # after the commands before it in the comment

    @property
    def thread(self) -> PostedFinding | None:
        """The finding in whose thread the command stands."""
        if self.request.where != "review":
            return None
        return next((one for one in self.posted if one.comment_id == self.request.in_reply_to), None)


@dataclass(frozen=True, slots=True)
class Answer:
    """Markdown for the person who asked, and what is in force from now on (see `ptopt.github.pullstate`)."""

    text: str
    effects: tuple[str, ...] = ()


class UserError(Exception):
    """What was asked for cannot be done. The text is Markdown for the person who asked; what they wrote is made
    harmless in it."""


class UsageError(UserError):
    """The command was not understood. The usage is added to the text."""


@dataclass(frozen=True, slots=True)
class Command(Generic[A]):
    """A slash command. The help, `docs/commands.md` and the permission check are made of this."""

    name: str
    arguments: str  # as the usage shows them
    summary: str  # one clause, for the table
    details: str  # Markdown, for the page
    who: Who
    examples: tuple[tuple[str, str], ...]  # a command, and what it does
    parse: Callable[[Sequence[str]], A]  # raises `UsageError`
    run: Callable[[Call, A], Answer]  # raises `UserError`; other exceptions are no fault of the person

    @property
    def usage(self) -> str:
        return " ".join(filter(None, (WORD, self.name, self.arguments)))


# -- arguments ---------------------------------------------------------------------------------------------


def nothing(words: Sequence[str]) -> None:
    """Of a command without arguments."""
    if words:
        raise UsageError(f"It takes no arguments, but got {shown(words[0])}.")


def shown(word: str) -> str:
    """A word of the comment, for an answer."""
    return code_span(word if len(word) <= 60 else f"{word[:59]}…")


def nearest(word: str, choices: Iterable[str]) -> str:
    """ " Did you mean …?" where a choice is close, else nothing."""
    folded = {choice.lower(): choice for choice in choices}
    close = difflib.get_close_matches(word[:60].lower(), folded, n=1)
    return f" Did you mean `{folded[close[0]]}`?" if close else ""
