"""Where review comments may stand, and where they stand after a push."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fake_github.diffs import FileDiff
    from fake_github.pulls import Pull

Json = dict[str, Any]
_OFF_DIFF = "Pull request review thread line must be part of the diff"
_OTHER_HUNK = "Pull request review thread start line must be part of the same hunk as the line."
_NO_HUNK = "Pull request review thread diff hunk can't be blank"
_ORDER = "Pull request review thread start line must precede the end line."
_PATH = "Pull request review thread path is invalid and Pull request review thread diff hunk can't be blank"


@dataclass(frozen=True)
class Anchor:
    """Where a comment was made. `line` and `position` are None for one on the whole file."""

    commit_id: str
    path: str
    side: str
    line: int | None
    start_side: str | None
    start_line: int | None
    position: int
    diff_hunk: str


def anchor(pull: Pull, commit_id: str, draft: Json) -> Anchor | list[str]:
    """The place that a draft of the REST API names, or GitHub's reasons why there is none."""
    file = next((each for each in pull.files_at(commit_id) if each.path == draft.get("path")), None)
    if file is None:
        return [_PATH]
    if draft.get("subject_type") == "file":
        return Anchor(commit_id, file.path, "RIGHT", None, None, None, 1, "")
    line, start = draft.get("line"), draft.get("start_line")
    side = draft.get("side") or "RIGHT"
    if line is None and draft.get("position") is not None:
        row = file.at_position(draft["position"])
        if row is None:
            return [_OFF_DIFF, _NO_HUNK]
        side, line = ("LEFT", row.left) if row.right is None else ("RIGHT", row.right)
    row = file.row(side, line) if line is not None else None
    if start is None:
        if row is None:
            return [_OFF_DIFF, _NO_HUNK]
        return Anchor(commit_id, file.path, side, line, None, None, row.position, file.hunk_until(row))
    start_side = draft.get("start_side") or side
    if start_side == side and line is not None and start >= line:
        return [_ORDER]
    first = file.row(start_side, start)
    if row is None:
        return [_OFF_DIFF, _OTHER_HUNK, _NO_HUNK]
    if first is None or first.hunk != row.hunk:
        return [_OTHER_HUNK]
    if first.position > row.position:
        return [_ORDER]
    return Anchor(commit_id, file.path, side, line, start_side, start, row.position, file.hunk_until(row))


def place(pull: Pull, where: Anchor) -> tuple[int | None, int | None, int | None]:
    """(start line, line, position) in the diff of the head. A comment whose lines changed is outdated: all None."""
    nowhere = (None, None, None)
    if where.line is None:
        return (None, None, 1)
    file = next((each for each in pull.files if each.path == where.path), None)
    if file is None:
        return nowhere
    start, line = where.start_line, where.line
    if where.commit_id != pull.head_sha and where.side == "RIGHT":
        shift = _shift(pull, where.commit_id, where.path, start or line, line)
        if shift is None:
            return nowhere
        line += shift
        start = start + shift if start is not None and where.start_side == "RIGHT" else start
    return _in_diff(file, where, start, line)


def _shift(pull: Pull, since: str, path: str, start: int, line: int) -> int | None:
    changed: FileDiff | None = None
    for each in pull.repo.git.diff(since, pull.head_sha, context=False):
        if path in (each.path, each.previous_path):
            changed = each
    if changed is None:
        return 0
    return changed.moved(start, line)


def _in_diff(
    file: FileDiff, where: Anchor, start: int | None, line: int
) -> tuple[int | None, int | None, int | None]:
    row = file.row(where.side, line)
    if row is None:
        return (None, None, None)
    if start is not None and file.row(where.start_side or where.side, start) is None:
        start = None
    return (start, line, row.position)
