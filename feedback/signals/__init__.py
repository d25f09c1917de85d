"""What people do about comments of ours: one module for each kind of signal, and the rows that they become.

The modules of the kinds are pure: what GitHub shows and what is known in, signals out. `store` has the rows.
"""

from feedback.signals.kinds import SignalKind
from feedback.signals.store import comment_of, comments_of, hashed, known, record, standing, withdraw

__all__ = ["SignalKind", "comment_of", "comments_of", "hashed", "known", "record", "standing", "withdraw"]
