"""No fix is shown unchecked: apply it, parse the result, see that the rule is content, and nothing is left behind."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise

from ptopt.findings import Edit, Fix, Safety
from ptopt.rules.base import Problem, Rule
from ptopt.rules.engine import run
from ptopt.rules.shared.stale import removal, stale_names, undefined_names
from ptopt.source import work
from ptopt.source.decode import Parsed
from ptopt.source.file import SourceFile
from ptopt.source.index import LOOPS, Loop
from ptopt.source.work import WorkLimitError
from ptopt.syntax import ParseError, check_text, parse_text

_BYTES_PER_NODE = 8
_MOST_CHAINED = 3


class EditError(ValueError):
    """Edits that overlap, or reach beyond the text."""


def apply_edits(text: str, edits: Sequence[Edit]) -> str:
    """The text after the edits. Offsets count in its UTF-8 form. Raises `EditError`."""
    data = text.encode("utf-8", "surrogatepass")
    parts: list[bytes] = []
    position = 0
    for edit in sorted(edits):
        if edit.start < position:
            raise EditError(f"edits overlap at byte {edit.start}")
        if edit.end > len(data):
            raise EditError(f"edit ends at byte {edit.end}, the text at byte {len(data)}")
        parts += [data[position : edit.start], edit.replacement.encode("utf-8", "surrogatepass")]
        position = edit.end
    parts.append(data[position:])
    return b"".join(parts).decode("utf-8", "surrogatepass")


def with_line_ends_of(text: str, edits: Sequence[Edit]) -> list[Edit]:
    r"""The edits with `\r\n` line ends where every line end of the text is one."""
    if "\n" not in text or text.count("\r\n") < text.count("\n"):
        return list(edits)
    return [
        dataclasses.replace(e, replacement=e.replacement.replace("\r\n", "\n").replace("\n", "\r\n"))
        for e in edits
    ]


def verified(file: SourceFile, rule: Rule, problem: Problem, before: int) -> Fix | None:
    """The problem's fix when it holds, else None. `before` is how many problems the rule sees in the file."""
    if problem.fix is None:
        return None
    held = holds(file, problem.fix, {rule: before}, {rule: 1}, waiting_loops([problem], file))
    return None if held is None else held[0]


def waiting_loops(problems: Iterable[Problem], file: SourceFile) -> frozenset[Loop]:
    """The loops of which problems say that an iteration waits."""
    return frozenset(
        problem.cause
        for problem in problems
        if isinstance(problem.cause, LOOPS) and file.waits.is_wait(problem.node)
    )


def together(fixes: Iterable[Fix | None]) -> Fix | None:
    """One fix that makes all of them; None when there is one without a fix, or when two change the same bytes."""
    several = list(fixes)
    given = [fix for fix in several if fix is not None]
    if not given or len(given) < len(several):
        return None
    edits = sorted({edit for fix in given for edit in fix.edits})
    if any(b.start < a.end or (a.start, a.end) == (b.start, b.end) for a, b in pairwise(edits)):
        return None
    safety = max((fix.safety for fix in given), key=list(Safety).index)
    return Fix(
        safety, tuple(edits), joined_assumptions(fix.assumption for fix in given if fix.safety is safety)
    )


_NAMED = re.compile(r"`[^`]+`")


def joined_assumptions(assumptions: Iterable[str]) -> str:
    """What several fixes assume, each matter once: clauses that differ in one name alone become one clause."""
    named: dict[str, list[str]] = {}  # the clause with its only name taken out -> the names
    for clause in dict.fromkeys(c for assumption in assumptions for c in assumption.split("; ") if c):
        names = _NAMED.findall(clause)
        subject = names[0] if names else ""
        if clause.count(subject) != 1:
            subject = ""
        named.setdefault(clause.replace(subject, "\0", 1) if subject else clause, []).append(subject)
    return "; ".join(
        clause.replace("\0", first) + (f" (the same for {', '.join(others)})" if others else "")
        for clause, (first, *others) in named.items()
    )


def holds(
    file: SourceFile,
    fix: Fix,
    before: Mapping[Rule, int],
    solved: Mapping[Rule, int],
    loops: Collection[Loop] = (),
) -> tuple[Fix, SourceFile] | None:
    """The fix when it holds, with the removal of what it leaves stale, and the file after it; else None.

    `before` is how many problems each rule sees, and `loops` are those in which a wait must have gone. It holds when the
    edited text parses, each rule sees at least as many problems less as `solved` says and would not edit the new code
    again, the lines outside of the edits are untouched, nothing is left that was used only by what is gone, and no name is
    read that nothing binds.
    """
    try:
        return _holding(file, fix, before, solved, loops)
    except (EditError, ParseError, UnicodeError, WorkLimitError):
        return None


def _holding(
    file: SourceFile,
    fix: Fix,
    before: Mapping[Rule, int],
    solved: Mapping[Rule, int],
    loops: Collection[Loop],
) -> tuple[Fix, SourceFile] | None:
    after = _edited(file, fix)
    for _ in range(_MOST_CHAINED):  # what is removed may have been the last to read another name
        stale = stale_names(file, after)
        removals = {removal(file, owner, name) for owner, name in stale}
        if not stale or None in removals:
            break
        edits = sorted({*fix.edits, *(edit for edit in removals if edit is not None)})
        fix = dataclasses.replace(fix, edits=tuple(edits))
        after = _edited(file, fix)
    if stale_names(file, after) or undefined_names(file, after):
        return None
    if not only_edited_lines_differ(file, fix.edits, after.text):
        return None
    failed: list[tuple[Rule, Exception]] = []
    left = run(after, list(before), failed)
    counts = Counter(hit.rule for hit in left)
    if failed or any(counts[rule] > before[rule] - solved[rule] for rule in before):
        return None
    if _edited_again(fix, [hit.problem for hit in left]):
        return None
    return None if any(_waits_as_before(loop, file, after) for loop in loops) else (fix, after)


def _waits_as_before(loop: Loop, file: SourceFile, after: SourceFile) -> bool:
    """Does an iteration of the loop wait as often as before the fix, because what was read is read elsewhere in it?"""
    same = [other for other in after.index.of_type(*LOOPS) if other.lineno == loop.lineno]
    return len(same) == 1 and _waits(same[0], after) >= _waits(loop, file)


def _waits(loop: Loop, file: SourceFile) -> int:
    """How often an iteration waits; what the loop runs over is read once."""
    once = None if isinstance(loop, ast.While) else loop.iter
    return sum(once is None or not file.index.within(node, once) for node in file.waits.reads_in(loop))


def _edited(file: SourceFile, fix: Fix) -> SourceFile:
    """The file after the fix; raises when it does not parse."""
    work.current().charge(len(file.data) // _BYTES_PER_NODE)  # for parsing it again
    text = apply_edits(file.text, fix.edits)
    if file.is_notebook:
        check_text(text)
        numbers = tuple(range(1, text.count("\n") + 2))
        parsed = Parsed(text, parse_text(text), file.parsed.encoding, numbers)
        return SourceFile(file.path, parsed, file.facts, file.repository)
    return SourceFile.parse(file.path, text.encode(file.parsed.encoding), file.facts, file.repository)


def only_edited_lines_differ(file: SourceFile, edits: Sequence[Edit], text: str) -> bool:
    old, new = file.text.split("\n"), text.split("\n")
    first = file.line_at(min(e.start for e in edits)) - 1
    last = file.line_at(max(e.end for e in edits))
    tail = len(old) - last
    return old[:first] == new[:first] and old[last:] == new[len(new) - tail :]


def _edited_again(fix: Fix, left: Sequence[Problem]) -> bool:
    """Would a second run edit the bytes that the fix just wrote?"""
    written: list[tuple[int, int]] = []
    shift = 0
    for edit in sorted(fix.edits):
        size = len(edit.replacement.encode("utf-8", "surrogatepass"))
        written.append((edit.start + shift, edit.start + shift + size))
        shift += size - (edit.end - edit.start)
    return any(
        edit.start < end and start < edit.end
        for problem in left
        if problem.fix is not None
        for edit in problem.fix.edits
        for start, end in written
    )
