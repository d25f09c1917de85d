"""The kinds of signals."""

from __future__ import annotations

import enum


class SignalKind(str, enum.Enum):
    """Kinds, most trusted first, and the values of each."""

    MERGED = "merged"  # "exact" | "similar": as suggested, in the head that was merged
    APPLIED = "applied"  # "exact" | "similar": as suggested, in a later head
    CHANGED = "changed"  # "suggested": the same statements in a later head, not as one block
    VERDICT = "verdict"  # "good" | "bad": `/ptopt feedback`; its note is the reason
    IGNORED = "ignored"  # "rule" | "here": `/ptopt ignore`
    REPLY = "reply"  # a value of `replies.Says`
    HIDDEN = "hidden"  # "hidden" | "deleted"; or "outdated" | "resolved", the reasons that are no opinion
    THREAD = "thread"  # "resolved" | "unresolved"
    REACTION = "reaction"  # "+1", "-1", …
    CLOSED = "closed"  # "merged" | "unmerged": the pull request, while the thread was open
    WITHDRAWN = "withdrawn"  # takes back the signal of the same actor, value and source

    def __str__(self) -> str:
        return self.value
