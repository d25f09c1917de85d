"""Notices suggestions that were taken: GitHub sends no event for it, so the files of a later head are asked."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime, timezone

from feedback import signals
from feedback.accepted import Taken, taken
from feedback.database import reading, writing
from feedback.models import CommentRow
from feedback.signals import SignalKind
from ptopt.github.errors import NotFoundError, TooLargeError
from ptopt.source.decode import SourceError, decode_python
from worker.records import hash_key
from worker.work import Work


def note(work: Work, head_sha: str, kind: SignalKind) -> None:
    """Record which of our suggestions on the pull request stand in `head_sha`. `kind` is APPLIED or MERGED."""
    key = hash_key(work.settings)
    waiting = _waiting(work, kind)
    if not waiting:
        return
    now = datetime.now(timezone.utc)
    for file in work.github.pull_files(work.job.repository, work.job.pull):
        comments = waiting.get(signals.hashed(file.path, key))
        text = _text(work, file.path, head_sha) if comments else None
        if comments is None or text is None:
            continue
        with writing(work.engine) as session:
            for comment in comments:
                how = taken(text, comment.suggestion, key)
                if how is not Taken.NO:
                    signals.record(session, comment, kind, how.value, actor="", source=head_sha, now=now)


def _waiting(work: Work, kind: SignalKind) -> dict[str, list[CommentRow]]:
    """Our comments with a suggestion of which nothing is known yet, by the hash of their path."""
    found: defaultdict[str, list[CommentRow]] = defaultdict(list)
    with reading(work.engine) as session:
        for comment in signals.comments_of(session, work.job.repository_id, work.job.pull):
            if comment.suggestion and not signals.known(session, comment, [kind]):
                found[comment.path_hash].append(comment)
        session.expunge_all()
    return dict(found)


def _text(work: Work, path: str, sha: str) -> str | None:
    """The file as the reviewer read it; None when it is gone or is no text."""
    try:
        data = work.github.file(work.job.repository, path, sha)
        return None if data is None else decode_python(data)[0]
    except (NotFoundError, TooLargeError, SourceError, ValueError):
        return None
