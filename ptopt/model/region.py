"""What the model is shown: a whole changed function with its static facts, cut to a number of tokens.

Numbers. What comes in (`changed`, the lines of candidates) counts lines of the head file, as `Change` and `Finding`
do. Inside a `Region` lines count in `SourceFile.text`; `SourceFile.head_line` leads back. The two differ only in
notebooks, where several lines of code can stand on one line of the file.
"""

from __future__ import annotations

import ast
import dataclasses
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from ptopt.model.neutral import neutralise
from ptopt.model.region_facts import facts_of, statements
from ptopt.model.surroundings import Passage, surroundings
from ptopt.source.file import SourceFile
from ptopt.source.index import FUNCTIONS, FunctionNode

JUDGE_TOKENS = 128
"""Code that a judge reads, unless its adapter says otherwise: the lines around its candidates. With the facts and the
questions a prompt then has some 180 tokens, which a model of 135 million parameters reads in a fifth of a CPU second."""
ADVISE_TOKENS = 1024
"""Code that a model reads to find problems of its own: functions of 80 lines whole, within a context of 2,048."""

TORCH_WORDS = re.compile(r"\b(torch|nn|F|loss|optim\w*|\w*loader|tensor|backward|model)\b")
MAX_REMOVED = 6  # lines that are shown before one line
_LIBRARIES = re.compile(r"torch|lightning|accelerate|transformers")
_WORDS = re.compile(r"[^\W\d]+|\d|\s+|[^\w\s]+")
_SIGNATURE = re.compile(r"(async\s+)?def\s|class\s")
_GAP = "...\n"


@dataclass(frozen=True, slots=True)
class Line:
    """A line of code: its 1-based number in the text of the file, its text without the region's indent.

    `changed` is whether the change wrote it, None where it wrote all of the region; `removed` are lines that stood before it.
    """

    number: int
    text: str
    changed: bool | None
    removed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Candidate:
    """A rule (by name) that may have a finding here, and the lines of it."""

    rule: str
    lines: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Region:
    """A function, or a run of statements outside of functions, from line `start` to `end` of the text of its file.

    `lines` has gaps where it was cut. `facts` speak in shown numbers, where line `start` is 1 (see `prompt`). `around` is
    what else of the repository is shown.
    """

    path: str
    symbol: str
    lines: tuple[Line, ...]
    facts: tuple[str, ...]
    candidates: tuple[Candidate, ...]
    cut: bool
    indent: str
    start: int
    end: int
    around: tuple[Passage, ...] = ()


def regions_of(
    source: SourceFile,
    changed: Collection[int] | None,
    candidates: Sequence[Candidate],
    removed: Sequence[tuple[int, str]] = (),
) -> list[Region]:
    """The regions to show a model, in file order: those with a candidate, and those that changed and work with torch.

    `changed`, the lines of `candidates` and those of `removed` (line that it stood before, text) are lines of the head
    file; `changed` None: all of it is new. A candidate belongs to
    the region of its first line; candidates of one rule in one region become one. One whose lines hold no code is
    left out.
    """
    spans = list(_spans(source))
    starts = [start for start, _, _ in spans]
    lines_at: defaultdict[int, list[int]] = defaultdict(list)
    if source.is_notebook:
        for number in range(1, source.text.count("\n") + 2):
            lines_at[source.head_line(number)].append(number)
    found: defaultdict[int, dict[str, list[int]]] = defaultdict(dict)
    for candidate in candidates:
        lines = [n for line in candidate.lines for n in (lines_at[line] if source.is_notebook else [line])]
        place = next((at for n in lines if (at := _place(spans, starts, n)) is not None), None)
        if place is not None:
            known = found[place].setdefault(candidate.rule, [])
            known += [n for n in lines if n not in known]
    uses_torch = _LIBRARIES.search(source.text) is not None
    regions = []
    for place, (start, end, node) in enumerate(spans):
        own = tuple(
            Candidate(rule, tuple(n for n in lines if start <= n <= end))
            for rule, lines in found[place].items()
        )
        if own or (
            uses_torch and _is_changed(source, changed, start, end) and _works_with_torch(source, start, end)
        ):
            regions.append(
                region_between(source, start, end, _symbol(source, node, start, end), changed, own, removed)
            )
    return regions


def changed_regions(
    source: SourceFile, changed: Collection[int], removed: Sequence[tuple[int, str]] = ()
) -> list[Region]:
    """All regions that the change touched, whatever they work with, in file order. Lines as for `regions_of`."""
    return [
        region_between(source, start, end, _symbol(source, node, start, end), changed, (), removed)
        for start, end, node in _spans(source)
        if _is_changed(source, changed, start, end)
        or any(start <= before <= end and text.strip() for before, text in removed)
    ]


def region_of_file(
    source: SourceFile,
    changed: Collection[int],
    lines: Sequence[int],
    removed: Sequence[tuple[int, str]] = (),
) -> Region:
    """The whole file, to be cut around `lines`. Shown numbers are those of the text."""
    claim = Candidate("", tuple(lines))
    return region_between(source, 1, source.text.count("\n") + 1, "", changed, (claim,), removed)


def region_of_function(
    source: SourceFile,
    node: FunctionNode | ast.ClassDef,
    changed: Collection[int] | None = None,
    candidates: Sequence[Candidate] = (),
) -> Region:
    """The region of one function or class, decorators included. Lines of `candidates` count in the text."""
    start = min([node.lineno, *(d.lineno for d in node.decorator_list)])
    end = node.end_lineno or node.lineno
    return region_between(source, start, end, source.index.symbol_of(node), changed, candidates)


def region_between(
    source: SourceFile,
    start: int,
    end: int,
    symbol: str,
    changed: Collection[int] | None = None,
    candidates: Sequence[Candidate] = (),
    removed: Sequence[tuple[int, str]] = (),
) -> Region:
    """The region of the lines `start` to `end` of the text, both included."""
    texts = [source.line(n) for n in range(start, end + 1)]
    indent = _common_indent(texts)
    out: defaultdict[int, list[str]] = defaultdict(list)
    for before, text in removed if not source.is_notebook else ():
        if start <= before <= end and text.strip() and len(out[before]) < MAX_REMOVED:
            out[before].append(text.removeprefix(indent).rstrip())
    marked = None
    if changed is not None:
        marked = {n for n, text in enumerate(texts, start) if text.strip() and source.head_line(n) in changed}
        if not out and len(marked) == sum(bool(text.strip()) for text in texts):
            marked = None
    lines = tuple(
        Line(
            n,
            text[len(indent) :] if text.strip() else "",
            None if marked is None else n in marked,
            tuple(out.get(n, ())),
        )
        for n, text in enumerate(texts, start)
    )
    return Region(
        source.path, symbol, lines, facts_of(source, start, end), tuple(candidates), False, indent, start, end,
        surroundings(source, start, end),
    )  # fmt: skip


def shown_number(region: Region, file_line: int) -> int:
    """The number that a line of the file's text has in a prompt: the first line of the region is 1."""
    return file_line - region.start + 1


def file_line(region: Region, shown: int) -> int:
    """The line of the file's text behind a number of a prompt."""
    return shown + region.start - 1


def render(region: Region) -> str:
    """The code as the model reads it: one line a line, each after its shown number, "..." where lines are left out.

    "+" marks a line that the change wrote, "-" what stood before the line below.
    """
    parts, expected = [], region.start
    for line in region.lines:
        if line.number != expected:
            parts.append(_GAP)
        parts.append(_shown(region, line))
        expected = line.number + 1
    if expected <= region.end:
        parts.append(_GAP)
    return "".join(parts)


def estimate(text: str) -> int:
    """An estimate of the number of tokens, rather too high than too low. Needs no tokenizer."""
    tokens = 0
    for piece in _WORDS.findall(text):
        if not piece.isascii():
            tokens += len(piece.encode("utf-8", "surrogatepass"))
        elif piece[0].isspace():
            tokens += piece.count("\n") + (len(piece) > 1) + len(piece) // 16
        elif piece[0].isalpha() or piece[0] == "_":
            tokens += -(-len(piece) // 5) + piece.count("_")
        else:
            tokens += -(-len(piece) // 2)
    return tokens


def fit(region: Region, limit: int, count: Callable[[str], int] = estimate) -> Region:
    """The region with so few lines that its code takes at most `limit` tokens, as `count` counts them.

    What stands around it takes at most half as many, the least important left out. What stays, in this order: the signature, the lines of the candidates (of the change where there are none), the
    headers of the blocks around these, then what is nearest. Lines go as a whole; one that alone would take half
    of the room goes first.
    """
    around = _fit_around(region.around, limit // 2, count)
    if around != region.around:
        region = dataclasses.replace(region, around=around)
    if not region.lines or count(render(region)) <= limit:
        return region
    lines = region.lines
    cost = [count(_shown(region, line)) for line in lines]
    gap = count(_GAP)
    kept: list[int] = []
    there = [False] * len(lines)
    used = gap
    for i in _by_priority(region):
        if there[i] or cost[i] > limit // 2:
            continue
        beside = (i == 0 or there[i - 1]) + (i == len(lines) - 1 or there[i + 1])
        more = cost[i] + gap * (1 - beside)
        if used + more > limit:
            break
        there[i] = True
        used += more
        kept.append(i)
    smaller = _with_lines(region, kept)
    while (
        kept and count(render(smaller)) > limit
    ):  # tokens that reach over lines, or lines that were cut before
        kept.pop()
        smaller = _with_lines(region, kept)
    return smaller


def render_around(passages: Sequence[Passage]) -> str:
    """The passages as the model reads them."""
    return "".join(
        neutralise(f"{passage.title}\n" + "".join(f"  {line}\n" for line in passage.lines))
        for passage in passages
    )


def _fit_around(
    passages: tuple[Passage, ...], limit: int, count: Callable[[str], int]
) -> tuple[Passage, ...]:
    """The most important passages that take at most `limit` tokens, in their order; of the first too long its first lines."""
    kept: list[Passage] = []
    for passage in sorted(passages, key=lambda p: p.importance):
        lines = passage.lines
        while lines and count(render_around([*kept, dataclasses.replace(passage, lines=lines)])) > limit:
            lines = lines[:-1]
        if lines:
            kept.append(dataclasses.replace(passage, lines=lines))
        if len(lines) < len(passage.lines):
            break
    order = {passage.title: at for at, passage in enumerate(passages)}
    return tuple(sorted(kept, key=lambda p: order[p.title]))


def _with_lines(region: Region, kept: Iterable[int]) -> Region:
    return dataclasses.replace(region, lines=tuple(region.lines[i] for i in sorted(kept)), cut=True)


def _shown(region: Region, line: Line) -> str:
    mark = "+" if line.changed else ""
    gone = "".join(f"{neutralise(f'- {text}')}\n" for text in line.removed)
    return gone + neutralise(f"{shown_number(region, line.number)}{mark} {line.text}".rstrip()) + "\n"


def _by_priority(region: Region) -> Iterator[int]:
    """Indices of the lines, the most important first; may repeat one."""
    lines = region.lines
    signature = next((i for i, line in enumerate(lines) if _SIGNATURE.match(line.text)), None)
    if signature is not None:
        yield signature
    candidate_lines = {n for candidate in region.candidates for n in candidate.lines}
    focus = [i for i, line in enumerate(lines) if line.number in candidate_lines]
    focus = focus or [i for i, line in enumerate(lines) if line.changed is not False and line.text] or [0]
    yield from focus
    for i in focus:
        yield from _headers(lines, i)
    distance = [_distance(focus, i) for i in range(len(lines))]
    yield from sorted(range(len(lines)), key=lambda i: (distance[i], i))


def _headers(lines: Sequence[Line], at: int) -> Iterator[int]:
    """The lines above that are indented less, each less than the one before: the headers of the blocks around."""
    depth = _depth(lines[at].text)
    for i in range(at - 1, -1, -1):
        if depth == 0:
            return
        if lines[i].text and _depth(lines[i].text) < depth:
            depth = _depth(lines[i].text)
            yield i


def _depth(text: str) -> int:
    return len(text) - len(text.lstrip())


def _distance(focus: Sequence[int], at: int) -> int:
    right = bisect_right(focus, at)
    return min(abs(at - f) for f in focus[max(0, right - 1) : right + 1])


# -- where regions are -------------------------------------------------------------------------------------


def _spans(source: SourceFile) -> Iterator[tuple[int, int, FunctionNode | None]]:
    """Start, end and node of each outermost function, and of the code between them; in order, without overlap."""
    last = source.text.count("\n") + 1
    free = 1
    functions = source.index.of_type(ast.FunctionDef, ast.AsyncFunctionDef)
    for node in sorted(functions, key=lambda f: f.lineno):
        start = min([node.lineno, *(d.lineno for d in node.decorator_list)])
        end = node.end_lineno or node.lineno
        if end < free or source.index.enclosing(node, FUNCTIONS) is not None:
            continue
        start = max(start, free)  # two functions on one line
        yield from _between(source, free, start - 1)
        yield start, end, node
        free = end + 1
    yield from _between(source, free, last)


def _between(source: SourceFile, start: int, end: int) -> Iterator[tuple[int, int, None]]:
    while start <= end and not source.line(start).strip():
        start += 1
    while end >= start and not source.line(end).strip():
        end -= 1
    if start <= end:
        yield start, end, None


def _place(
    spans: Sequence[tuple[int, int, FunctionNode | None]], starts: Sequence[int], line: int
) -> int | None:
    at = bisect_right(starts, line) - 1
    return at if at >= 0 and line <= spans[at][1] else None


def _symbol(source: SourceFile, node: FunctionNode | None, start: int, end: int) -> str:
    if node is not None:
        return source.index.symbol_of(node)
    around = [
        c for c in source.index.of_type(ast.ClassDef) if c.lineno <= start and end <= (c.end_lineno or 0)
    ]
    return source.index.symbol_of(around[-1]) if around else ""


def _is_changed(source: SourceFile, changed: Collection[int] | None, start: int, end: int) -> bool:
    return changed is None or any(
        source.head_line(n) in changed and source.line(n).strip() for n in range(start, end + 1)
    )


def _works_with_torch(source: SourceFile, start: int, end: int) -> bool:
    """Do the lines name torch, and hold a statement other than an import or a declaration?"""
    if not any(TORCH_WORDS.search(source.line(n)) for n in range(start, end + 1)):
        return False
    idle = (ast.Import, ast.ImportFrom, ast.Pass, ast.Global, ast.Nonlocal)
    return any(not isinstance(node, idle) for node in statements(source, start, end))


def _common_indent(texts: Iterable[str]) -> str:
    common: str | None = None
    for text in texts:
        if text.strip():
            blank = text[: len(text) - len(text.lstrip())]
            if common is None:
                common = blank
            while not blank.startswith(common):
                common = common[:-1]
    return common or ""
