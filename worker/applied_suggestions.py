"""Detects suggestions that were applied, and applied ones that were undone: GitHub sends no event for either, so the files of
a later head are compared.

Of a file we know the hash of its path. Most of the files are in the change that was just reviewed; what is no longer
in it (the suggestion may have undone it) is read from GitHub, which remembers the paths of its comments.
"""

from __future__ import annotations

from datetime import datetime, timezone

from feedback import signals
from feedback.signals import SignalKind
from feedback.signals.suggestions import is_undone, match_suggestion, signals_of
from ptopt.change import Change, Status
from ptopt.github.errors import NotFoundError, RejectedError, TooLargeError
from ptopt.source.decode import decode_python
from ptopt.syntax import ParseError
from service.database import reading, writing
from service.models import CommentRow, Signal
from worker.job_context import JobContext
from worker.review_records import hash_key

_MOST_FILES = 50  # read from GitHub in one look
_KINDS = (SignalKind.MERGED, SignalKind.APPLIED, SignalKind.CHANGED)


def note(
    context: JobContext,
    head_sha: str,
    change: Change | None = None,
    *,
    closed: bool = False,
    merged: bool = False,
) -> None:
    """Record which of our suggestions on the pull request stand in `head_sha`, and which of them were undone.

    `change` is the one of that head, where it was read. Whether what was applied still is, is looked up in `change`, and
    when the pull request is `closed` in any case.
    """
    key = hash_key(context.settings)
    waiting = _waiting(context)
    if not waiting:
        return
    heads = _Heads(context, head_sha, change, key)
    now = datetime.now(timezone.utc)
    found = []
    for comment, standing in waiting:
        text = heads.of(comment, read=closed or not standing)
        if text is None:
            continue
        undone = bool(standing) and is_undone(text, comment.suggestion, key)
        match = match_suggestion(text, comment.suggestion, key)
        new, kinds = signals_of(match, undone, merged, {SignalKind(signal.kind) for signal in standing})
        found.append((comment, new, [signal for signal in standing if SignalKind(signal.kind) in kinds]))
    with writing(context.engine) as session:
        for comment, new, back in found:
            for kind, value in new:
                signals.record(session, comment, kind, value, actor="", source=head_sha, now=now)
            for signal in back:
                signals.withdraw(session, comment, signal, now)


def _waiting(context: JobContext) -> list[tuple[CommentRow, list[Signal]]]:
    """Our comments with a suggestion that is not known to be merged, and what is known of it. The newest come first."""
    found = []
    with reading(context.engine) as session:
        for comment in reversed(signals.comments_of(session, context.job.repository_id, context.job.pull)):
            standing = signals.standing(session, comment, _KINDS)
            if comment.suggestion and all(signal.kind != SignalKind.MERGED.value for signal in standing):
                found.append((comment, standing))
        session.expunge_all()
    return found


class _Heads:
    """The files that our comments stand in, as they are in one head."""

    def __init__(self, context: JobContext, head_sha: str, change: Change | None, key: bytes) -> None:
        self._context, self._head_sha = context, head_sha
        files = change.files if change is not None else ()
        self._texts = {signals.hashed(f.path, key): _decoded(f.head) for f in files if f.head is not None}
        for file in files:
            if file.status is Status.RENAMED and file.old_path is not None:
                here = self._texts.get(signals.hashed(file.path, key))
                self._texts.setdefault(signals.hashed(file.old_path, key), here)
        self._paths: dict[int, str] | None = None
        self._renamed: dict[str, str] | None = None
        self._left = _MOST_FILES

    def of(self, comment: CommentRow, *, read: bool) -> str | None:
        """None when it is gone, or is no text; without `read`, also when it is not in the change."""
        if comment.path_hash not in self._texts:
            if not read:
                return None
            self._texts[comment.path_hash] = self._read(comment.github_id)
        return self._texts[comment.path_hash]

    def _read(self, comment_id: int) -> str | None:
        github, job = self._context.github, self._context.job
        if self._paths is None:
            self._paths = {c.id: c.path for c in github.review_comments(job.repository, job.pull)}
        path = self._paths.get(comment_id)
        if path is None or self._left <= 0:
            return None
        self._left -= 1
        data = self._file(path)
        if data is None and (now := self._new_name(path)) is not None:
            data = self._file(now)
        return None if data is None else _decoded(data)

    def _file(self, path: str) -> bytes | None:
        try:
            return self._context.github.file(self._context.job.repository, path, self._head_sha)
        except (NotFoundError, TooLargeError, ValueError):
            return None

    def _new_name(self, path: str) -> str | None:
        github, job = self._context.github, self._context.job
        if self._renamed is None:
            try:
                files = github.pull_files(job.repository, job.pull)
            except (TooLargeError, RejectedError):
                files = []
            self._renamed = {
                f.previous_path: f.path for f in files if f.previous_path and f.status == "renamed"
            }
        return self._renamed.get(path)


def _decoded(data: bytes) -> str | None:
    """The text as the reviewer reads it."""
    try:
        return decode_python(data)[0]
    except (ParseError, ValueError):
        return None
