"""A comment that somebody hid (GitHub: minimized) or deleted.

Only people with write access can do either. Who hid a comment, GitHub does not say, and it sends no webhook for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from service.models import Signal

HIDDEN = "hidden"
DELETED = "deleted"
# Reasons that are no opinion of the comment: it was true, or is dealt with.
_NEUTRAL = frozenset({"outdated", "resolved"})
_VISIBLE_AFTER = timedelta(minutes=10)  # GitHub may list a comment somewhat later than it takes it


def value_of(reason: str | None) -> str | None:
    """The value of the signal for GitHub's reason; None for a comment that is not hidden."""
    if reason is None:
        return None
    return reason if reason in _NEUTRAL else HIDDEN


def changed(reason: str | None, standing: Sequence[Signal]) -> tuple[str | None, list[Signal]]:
    """For a comment that is listed: the value to record, if any, and the signals to take back."""
    value = value_of(reason)
    old = [signal for signal in standing if signal.value != value]
    return (None if len(old) < len(standing) else value), old


def was_deleted(posted_at: datetime, now: datetime, standing: Sequence[Signal]) -> bool:
    """For a comment that is not listed: is it news that it was deleted?"""
    return now - posted_at >= _VISIBLE_AFTER and all(signal.value != DELETED for signal in standing)
