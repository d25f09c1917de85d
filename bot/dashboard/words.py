"""What the database has as short names, in words for people. What is not known here is shown as it is."""

from __future__ import annotations

import re

from bot.dashboard.queries.reviews import SignalLine
from feedback.signals import SignalKind
from service.jobs import Kind

_KINDS = {
    SignalKind.MERGED: "merged as suggested",
    SignalKind.APPLIED: "suggestion committed",
    SignalKind.CHANGED: "changed as suggested",
    SignalKind.VERDICT: "/ptopt feedback",
    SignalKind.IGNORED: "/ptopt ignore",
    SignalKind.REPLY: "reply",
    SignalKind.HIDDEN: "comment hidden or deleted",
    SignalKind.THREAD: "conversation resolved",
    SignalKind.REACTION: "reaction",
}
_REASONS = {kind.value: words for kind, words in _KINDS.items()}
_SIGNALS = {
    ("merged", "exact"): "merged as suggested",
    ("merged", "similar"): "merged nearly as suggested",
    ("applied", "exact"): "suggestion committed",
    ("applied", "similar"): "suggestion committed with changes",
    ("changed", "suggested"): "changed as suggested",
    ("ignored", "rule"): "/ptopt ignore, for the rule",
    ("ignored", "here"): "/ptopt ignore here",
    ("hidden", "hidden"): "comment hidden",
    ("hidden", "deleted"): "comment deleted",
    ("thread", "resolved"): "conversation resolved",
    ("thread", "unresolved"): "conversation reopened",
    ("closed", "merged"): "pull request merged, conversation open",
    ("closed", "unmerged"): "pull request closed, conversation open",
}
_REACTIONS = {
    "+1": "👍", "-1": "👎", "laugh": "😄", "hooray": "🎉", "confused": "😕", "heart": "❤️", "rocket": "🚀", "eyes": "👀",
}  # fmt: skip
_JOBS = {
    Kind.COMMAND: "slash command",
    Kind.CLOSED: "pull request closed",
    Kind.THREAD: "conversation resolved or reopened",
    Kind.DELETED: "comment deleted",
    Kind.POLL: "look for reactions",
}
_JOB_KINDS = {kind.value: words for kind, words in _JOBS.items()}
_REASON = re.compile(r"(\w+) \((\d+) of (\d+)\)")
_JUDGED = re.compile(r"(\d+) judged comments \(R (\d+) T (\d+) W (\d+)\)")


def signal(said: SignalLine) -> str:
    """What somebody did about a comment."""
    if known := _SIGNALS.get((said.kind, said.value)):
        return known
    value = _REACTIONS.get(said.value, said.value)
    if said.kind == SignalKind.WITHDRAWN.value:
        return f"{value} taken back"
    return f"{_REASONS.get(said.kind, said.kind)} {value}".rstrip()


def reason(text: str) -> str:
    """Why a comment is good or bad, as `feedback.labels` says it."""
    match = _REASON.fullmatch(text)
    if match is None:
        return text
    words = _REASONS.get(match[1], match[1])
    return words if match[3] == "1" else f"{words}, {match[2]} of {match[3]} people"


def job(kind: str) -> str:
    return _JOB_KINDS.get(kind, kind)


def learned_from(origin: str) -> str:
    """The judged comments that weights were learned from; the letters of the verdicts spelt out."""
    match = _JUDGED.fullmatch(origin)
    if match is None:
        return origin
    number, useful, trivial, wrong = (f"{int(each):,}" for each in match.groups())
    return f"{number} judged comments: {useful} useful, {trivial} true but trivial, {wrong} wrong"
