"""`/ptopt ignore`: ignore a rule, or one finding, in this pull request."""

from __future__ import annotations

from collections.abc import Sequence

from bot.commands.base import Answer, Call, Command, PostedFinding, UsageError, UserError, Who
from bot.commands.rulename import rule_named
from ptopt.github import pullstate
from ptopt.github.errors import ForbiddenError, NotFoundError, RejectedError
from ptopt.rules import find_rule
from ptopt.rules.base import Rule

_HERE = "here"


def parse(words: Sequence[str]) -> type[Rule] | None:
    """The rule; None for `here`."""
    if len(words) != 1:
        raise UsageError(
            "Name what to ignore: a rule by its id or name, or `here` for the finding of this thread."
        )
    return None if words[0].lower() == _HERE else rule_named(words[0])


def run(call: Call, rule: type[Rule] | None) -> Answer:
    if rule is None:
        return _ignore_here(call)
    silenced = [one for one in call.posted if one.rule == rule.id]
    call.host.note_ignored([one.comment_id for one in silenced], "rule", call.request.actor)
    closed = _resolve(call, silenced)
    return Answer(
        f"{rule.id} {rule.name} is ignored in this pull request{closed}.\n\n{_for_good(rule)}",
        (pullstate.ignore(rule.id),),
    )


def _ignore_here(call: Call) -> Answer:
    finding = call.thread
    if finding is None:
        raise UserError("`here` works only in the thread of a ptopt comment. Reply there, or name a rule.")
    call.host.note_ignored([finding.comment_id], "here", call.request.actor)
    _resolve(call, [finding])
    rule = find_rule(finding.rule)
    more = f"\n\n{_for_good(rule, here=True)}" if rule is not None else ""
    return Answer(
        f"This finding is ignored in this pull request.{more}", (pullstate.ignore(finding.fingerprint),)
    )


def _resolve(call: Call, silenced: Sequence[PostedFinding]) -> str:
    """Resolve the threads of these comments. Returns what to say of it."""
    first = {one.comment_id for one in silenced}
    if not first:
        return ""
    request = call.request
    try:
        for thread in call.github.threads(request.repo, request.number):
            if not thread.resolved and thread.comments and thread.comments[0][0] in first:
                call.github.resolve_thread(thread.id)
    except (ForbiddenError, NotFoundError, RejectedError):  # no reason not to ignore it
        return ""
    return ", and its threads are resolved"


def _for_good(rule: type[Rule], *, here: bool = False) -> str:
    inline = f"`# ptopt: ignore[{rule.id}] reason` on the line"
    if here:
        return f"To ignore it permanently: {inline}."
    return f'To ignore it permanently: `ignore = ["{rule.name}"]` in `.ptopt.toml` on the base branch, or {inline}.'


COMMAND: Command[type[Rule] | None] = Command(
    name="ignore",
    arguments="RULE|here",
    summary="ignore a rule, or the finding of this thread, in this pull request",
    details=(
        "`RULE` is the id or the name of a rule; `here`, in the thread of a comment, is that finding alone. The "
        "threads are resolved. It applies to this pull request; the answer says how to make it permanent. To undo "
        "it, delete the answer. With the App, ignoring also counts as feedback against the rule in the whole repository, as a 👎 "
        "does."
    ),
    who=Who.AUTHOR_OR_TRIAGE,
    examples=(
        ("/ptopt ignore item-every-step", "no more comments from this rule"),
        ("/ptopt ignore here", "dismiss this finding"),
    ),
    parse=parse,
    run=run,
)
