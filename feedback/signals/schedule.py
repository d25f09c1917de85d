"""When a pull request is polled for what GitHub sends no webhook for: less and less often, and at last no longer."""

from __future__ import annotations

from datetime import datetime, timedelta

_SLOWER = 8  # the time since anything happened is that many intervals long
_RARELY = timedelta(days=1)
OPEN_FOR = timedelta(days=30)  # polled so long after the last thing that happened, while it is open
CLOSED_FOR = timedelta(days=7)  # and so long after it was closed


def next_poll(
    now: datetime, active_at: datetime, closed_at: datetime | None, every: timedelta
) -> datetime | None:
    """The next time, or None when polling ends.

    `active_at` is when we commented or anybody did anything about a comment. In the first eight hours after it, or after the
    closing, at intervals of `every`, then of an eighth of the time since, up to a day.
    """
    since, most = (active_at, OPEN_FOR) if closed_at is None else (closed_at, CLOSED_FOR)
    age = now - since
    if age >= most:
        return None
    return now + max(every, min(age / _SLOWER, _RARELY))
