"""What the database has as short names, in words for people. What is not known here is shown as it is."""

from __future__ import annotations

import re

from bot.dashboard.queries.reviews import SignalLine
from feedback.signals import SignalKind

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
# By a member of an enumeration or by its text, which are equal.
_KINDS: dict[str, str] = {
    SignalKind.MERGED: _SIGNALS["merged", "exact"],
    SignalKind.APPLIED: _SIGNALS["applied", "exact"],
    SignalKind.CHANGED: _SIGNALS["changed", "suggested"],
    SignalKind.VERDICT: "/ptopt feedback",
    SignalKind.IGNORED: "/ptopt ignore",
    SignalKind.REPLY: "reply",
    SignalKind.HIDDEN: "comment hidden or deleted",
    SignalKind.THREAD: _SIGNALS["thread", "resolved"],
    SignalKind.REACTION: "reaction",
}
_REACTIONS = {
    "+1": "👍", "-1": "👎", "laugh": "😄", "hooray": "🎉", "confused": "😕", "heart": "❤️", "rocket": "🚀", "eyes": "👀",
}  # fmt: skip
_REASON = re.compile(r"(\w+) \((\d+) of (\d+)\)")
_JUDGED = re.compile(r"(\d+) judged comments \(R (\d+) T (\d+) W (\d+)\)")


def signal(line: SignalLine) -> str:
    """What somebody did about a comment."""
    if known := _SIGNALS.get((line.kind, line.value)):
        return known
    value = _REACTIONS.get(line.value, line.value)
    if line.kind == SignalKind.WITHDRAWN:
        return f"{value} taken back"
    return f"{_KINDS.get(line.kind, line.kind)} {value}".rstrip()


def reason(text: str) -> str:
    """Why a comment is good or bad, as `feedback.labels` says it."""
    match = _REASON.fullmatch(text)
    if match is None:
        return text
    words = _KINDS.get(match[1], match[1])
    return words if match[3] == "1" else f"{words}, {match[2]} of {match[3]} people"


def learned_from(origin: str) -> str:
    """The judged comments that weights were learned from; the letters of the verdicts spelt out."""
    match = _JUDGED.fullmatch(origin)
    if match is None:
        return origin
    number, useful, trivial, wrong = (f"{int(each):,}" for each in match.groups())
    return f"{number} judged comments: {useful} useful, {trivial} true but trivial, {wrong} wrong"
