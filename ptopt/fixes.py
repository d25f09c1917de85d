"""Fixes on disk: applied one at a time, each to the text it was verified on, and written in one step; suppressions too."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from ptopt.change import ChangedFile, whole_file
from ptopt.findings import Edit, Finding, Review, Safety
from ptopt.pathkind import is_config, is_notebook
from ptopt.source.decode import decode_python
from ptopt.suppress import add_suppressions, add_to_config
from ptopt.syntax import ParseError
from ptopt.verify import apply_edits, with_line_ends_of

Spot = tuple[str, int]  # a rule, and the line on which its finding starts


@dataclass(frozen=True, slots=True)
class Round:
    """What was fixed of the findings of one version of a file."""

    before: bytes
    places: frozenset[Spot]


@dataclass(frozen=True, slots=True)
class FixedFile:
    """What fixes, or suppressions, make of one file."""

    path: str
    before: bytes
    after: bytes
    fixed: tuple[Finding, ...]  # in the order they were applied; or those that are suppressed now
    left: tuple[Finding, ...]  # findings of the file as it is afterwards
    rounds: tuple[
        Round, ...
    ] = ()  # `fixed`, first as found in `before`, then as found in what those fixes made of it


def fix_file(
    file: ChangedFile,
    review: Callable[[ChangedFile], Review],
    *,
    unsafe: bool,
    most_rounds: int | None = None,
    shown: Callable[[bytes], frozenset[Spot]] | None = None,
) -> FixedFile:
    """Apply the safe fixes (and the unsafe ones) until none is left. Encoding and newlines stay.

    A fix moves what stands behind it, so the file is reviewed again after each one. What appears only once other fixes are
    made is fixed after them, in a round of its own. With `shown` a round fixes only what it gives of the version of the
    file that the round starts from; nothing in a notebook saved without line breaks, whose lines tell no findings apart.
    """
    allowed = {Safety.SAFE, Safety.UNSAFE} if unsafe else {Safety.SAFE}
    before = data = start = file.head or b""
    fixed: list[Finding] = []
    rounds: list[Round] = []
    places: set[Spot] = set()  # of this round, in `start`
    known: Collection[Spot] = ()
    origin: list[int] = []  # line -> line of `start` that it came from
    if shown is not None and _is_unbroken(file):
        shown = _nothing

    def spot(finding: Finding) -> Spot:
        line = finding.span.start
        return finding.rule, origin[line - 1] if line <= len(origin) else line

    seen = {data}
    while True:
        findings = review(whole_file(file.path, data)).findings
        ready = [(f, f.fix.edits) for f in findings if f.fix is not None and f.fix.safety in allowed]
        chosen = [(finding, edits) for finding, edits in ready if spot(finding) in known]
        if not chosen and (most_rounds is None or len(rounds) + bool(places) < most_rounds):
            if places:
                rounds.append(Round(start, frozenset(places)))
            start, places = data, set()
            origin = list(range(1, _text(file.path, data).count("\n") + 2)) if ready else []
            known = frozenset(map(spot, findings)) if shown is None else shown(data) if ready else ()
            chosen = [(finding, edits) for finding, edits in ready if spot(finding) in known]
        finding, edits = min(chosen, key=lambda pair: pair[0].sort_key(), default=(None, ()))
        after = data if finding is None else _apply(file.path, data, edits)
        if finding is None or after in seen:  # none left, or two rules that undo one another
            if places:
                rounds.append(Round(start, frozenset(places)))
            return FixedFile(file.path, before, data, tuple(fixed), findings, tuple(rounds))
        places.add(spot(finding))
        _follow(origin, _text(file.path, data), edits)
        fixed.append(finding)
        data = after
        seen.add(data)


def _nothing(data: bytes) -> frozenset[Spot]:
    return frozenset()


def _follow(origin: list[int], text: str, edits: Sequence[Edit]) -> None:
    """Where the lines come from after the edits of `text`."""
    data = text.encode("utf-8", "surrogatepass")
    for edit in sorted(edits, reverse=True):
        first, last = data.count(b"\n", 0, edit.start), data.count(b"\n", 0, edit.end)
        old = origin[first : last + 1] or origin[-1:]
        lines = edit.replacement.split("\n")
        new = [old[min(number, len(old) - 1)] for number in range(len(lines))]
        begins = len(lines) > 1 or edit.start == 0 or data[edit.start - 1 : edit.start] == b"\n"
        if begins and not lines[-1]:  # the line behind whole lines keeps its own
            new[-1] = old[-1]
        origin[first : last + 1] = new


def _is_unbroken(file: ChangedFile) -> bool:
    """Is it a notebook with several lines of code on one line of the file?"""
    if not is_notebook(file.path):
        return False
    from ptopt.source.notebook import parse_notebook

    try:
        return not parse_notebook(file.head or b"").numbered_as_on_disk
    except ParseError:
        return True


def _text(path: str, data: bytes) -> str:
    """The text that fixes edit: in a notebook, its code."""
    if not is_notebook(path):
        return decode_python(data)[0]
    from ptopt.notebook_edits import reviewed

    return reviewed(data).text


def suppress_file(file: ChangedFile, review: Callable[[ChangedFile], Review], reason: str) -> FixedFile:
    """Write a comment that suppresses it above each finding; a notebook and JSON stay as they are.

    Characters of `reason` that the encoding of the file has not become escapes.
    """
    before = file.head or b""
    found = review(file).findings
    if not found or is_notebook(file.path) or file.path.endswith(".json"):
        return FixedFile(file.path, before, before, (), found)
    text, encoding = decode_python(before)
    places = [(finding.span.start, finding.name) for finding in found]
    write = add_to_config if is_config(file.path) else add_suppressions
    after = write(text, places, reason)
    data = after.encode(encoding, "backslashreplace")
    left = review(whole_file(file.path, data)).findings
    identities = {finding.fingerprint for finding in left}
    # Two of a rule on one line are one finding everywhere.
    done = {(f.rule, f.span): f for f in reversed(found) if f.fingerprint not in identities}
    return FixedFile(file.path, before, data, tuple(reversed(done.values())), left)


def _apply(path: str, data: bytes, edits: Sequence[Edit]) -> bytes:
    """The file after the edits; as it is where a notebook cannot be written so."""
    if is_notebook(path):
        from ptopt.notebook_edits import NotebookEditError, edited_notebook

        try:
            return edited_notebook(data, edits)
        except NotebookEditError:
            return data
    text, encoding = decode_python(data)
    return apply_edits(text, with_line_ends_of(text, edits)).encode(encoding)


class FileChangedError(RuntimeError):
    """The file was written by somebody else while it was under review."""


def write_fixed(place: Path, result: FixedFile) -> None:
    """Replace the file in one step; it keeps its mode, and a link to it stays a link.

    Raises `FileChangedError` when the file is no longer the one that was reviewed, and `OSError`.
    """
    real = Path(os.path.realpath(place))
    if real.read_bytes() != result.before:
        raise FileChangedError(f"{result.path}: changed while it was under review; run ptopt fix again")
    mode = real.stat().st_mode
    descriptor, name = tempfile.mkstemp(prefix=f".{real.name}.", dir=real.parent)
    try:
        with os.fdopen(descriptor, "wb") as out:
            out.write(result.after)
        os.chmod(name, mode & 0o7777)
        os.replace(name, real)
    except BaseException:
        os.unlink(name)
        raise
