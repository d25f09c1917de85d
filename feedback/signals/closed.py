"""A pull request that was closed or merged while the thread of a comment was open: nobody did anything about it.

A thread that was resolved is none of these, nor one whose lines changed since: the finding may be gone with them.
"""

from __future__ import annotations

from ptopt.github.values import PullResponses

MERGED = "merged"
UNMERGED = "unmerged"


def left_open(pull: PullResponses) -> tuple[str, frozenset[int]]:
    """The value of the signal, and the ids of the comments that it is about; none while the pull request is open."""
    ids = () if pull.open else (t.comment_id for t in pull.threads if not (t.resolved or t.outdated))
    return (MERGED if pull.merged else UNMERGED), frozenset(ids)
