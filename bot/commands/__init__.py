"""Slash commands: a comment in, one answer out, in the same place.

    handle(request, github, host)

Everything may happen twice: a delivery comes again, a worker dies after it answered. An answer begins with a marker
that names the comment and its commands, and is looked for before it is written. What a command does besides is done
before the answer, and harmless to repeat.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

from bot.commands import registry
from bot.commands.base import (
    Answer,
    Call,
    CommandRequest,
    Host,
    PostedFinding,
    UsageError,
    UserError,
    Who,
    nearest,
    shown,
)
from bot.commands.parse import MOST_COMMANDS, WORD, Line, new_commands
from bot.commands.permission import Standing, standing
from ptopt.github import markers
from ptopt.github.client import GitHubClient
from ptopt.github.errors import AmbiguousError, ForbiddenError, NotFoundError, RejectedError
from ptopt.github.pullstate import fold
from ptopt.github.values import IssueComment, PostedComment, ReactionContent
from ptopt.report.text import code_span, count, markdown_text

__all__ = ["CommandRequest", "Host", "UserError", "handle"]

_LONGEST_QUOTE = 80


def handle(request: CommandRequest, github: GitHubClient, host: Host) -> None:
    """Run the commands of a comment and answer them. Raises what GitHub raises, and is then to be called again."""
    lines = [] if request.actor.is_bot else new_commands(request.body, request.previous_body)
    if not lines or (markers.read(request.body) and request.actor.login == github.identity()):
        return
    given = host.commands_in_last_hour(request.actor.login)
    if given > 2 * host.budget:
        return
    pull = github.pull(request.repo, request.number)
    who = standing(github, pull, request.actor)
    busy = not who.may(Who.WRITE) and host.commands_on_pull(request.actor.login) > host.pull_budget
    if given > host.budget or busy or not who.known:
        with suppress(NotFoundError):  # the comment was deleted
            _react(github, request, "confused")
        return
    issue_comments = github.issue_comments(request.repo, request.number)
    review_comments = github.review_comments(request.repo, request.number)
    digest = _digest(lines)
    if _is_answered(request, github.identity(), digest, issue_comments, review_comments):
        return
    try:
        _react(github, request, "eyes")
    except NotFoundError:
        return  # the comment was deleted
    call = Call(
        request,
        pull,
        github,
        host,
        posted=tuple(_posted(github.identity(), review_comments)),
        state=fold(github.identity(), (*issue_comments, *review_comments)),
    )
    text, effects = _run(call, who, lines)
    _write(request, github, digest, f"{markers.answer(request.comment_id, digest, *effects)}\n{text}\n")


def _digest(lines: Sequence[Line]) -> str:
    """Tells the answers to a comment and to its edits apart."""
    return hashlib.sha256("\n".join(map(str, lines)).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _react(github: GitHubClient, request: CommandRequest, content: ReactionContent) -> None:
    """A reaction is a courtesy: it may fail."""
    with suppress(AmbiguousError, ForbiddenError, RejectedError):
        github.react(request.repo, request.where, request.comment_id, content)


def _posted(identity: str, comments: Iterable[PostedComment]) -> Iterable[PostedFinding]:
    for comment in comments:
        found = markers.first(comment.body, "finding") if comment.author.login == identity else None
        if found is not None and len(found.words) == 2:
            yield PostedFinding(comment.id, comment.path, *found.words)


# -- running -----------------------------------------------------------------------------------------------


def _run(call: Call, who: Standing, lines: Sequence[Line]) -> tuple[str, tuple[str, ...]]:
    """The answers to all commands as one text, and what is in force from now on."""
    parts: list[str] = []
    effects: tuple[str, ...] = ()
    for line in lines[:MOST_COMMANDS]:
        answer = _run_one(call, who, line)
        call = replace(call, state=call.state.after(answer.effects))
        effects += answer.effects
        if call.request.where == "issue" or len(lines) > 1:
            parts.append(_quote(call.request, line))
        parts.append(answer.text)
    if len(lines) > MOST_COMMANDS:
        left = count(len(lines) - MOST_COMMANDS, "command")
        parts.append(
            f"{left} not run: the limit is {MOST_COMMANDS} per comment. Put the rest into another comment."
        )
    return "\n\n".join(parts), effects


def _run_one(call: Call, who: Standing, line: Line) -> Answer:
    command = registry.COMMANDS.get(line.verb or "help")
    if command is None:
        near = nearest(line.verb, registry.COMMANDS)
        return Answer(f"There is no command {shown(line.verb)}.{near} `/ptopt help` lists them.")
    if not who.may(command.who):
        return Answer(
            f"`{WORD} {command.name}` needs the {command.who.value} role in this repository. "
            f"See `{WORD} help {command.name}`."
        )
    try:
        return command.run(call, command.parse(line.words))
    except UsageError as error:
        return Answer(f"{error} Usage: `{command.usage}`")
    except UserError as error:
        return Answer(str(error))


def _quote(request: CommandRequest, line: Line) -> str:
    text = str(line)
    cut = text if len(text) <= _LONGEST_QUOTE else f"{text[: _LONGEST_QUOTE - 1]}…"
    return f"> {markdown_text(request.actor.login)}: {code_span(cut)}"


# -- answering ---------------------------------------------------------------------------------------------


def _is_answered(
    request: CommandRequest,
    identity: str,
    digest: str,
    issue_comments: Iterable[IssueComment],
    review_comments: Iterable[PostedComment],
) -> bool:
    places = issue_comments if request.where == "issue" else review_comments
    key = (str(request.comment_id), digest)
    return any(
        comment.author.login == identity
        and (found := markers.first(comment.body, "answer")) is not None
        and found.words[:2] == key
        for comment in places
    )


def _write(request: CommandRequest, github: GitHubClient, digest: str, body: str) -> None:
    """Answer where the question stands. After a failure that may have been none, look before giving up."""
    repo, number = request.repo, request.number
    try:
        if request.where == "issue":
            github.create_issue_comment(repo, number, body)
        else:
            github.reply(repo, number, request.in_reply_to or request.comment_id, body)
    except AmbiguousError:
        issue_comments = github.issue_comments(repo, number) if request.where == "issue" else []
        review_comments = github.review_comments(repo, number) if request.where == "review" else []
        if not _is_answered(request, github.identity(), digest, issue_comments, review_comments):
            raise
