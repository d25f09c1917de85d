"""Which functions a change made faster: those changed on both sides, and what our rules say about each side."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice

from ptopt.config import Config
from ptopt.rules import rules
from ptopt.rules.engine import Prefilter, run
from ptopt.source.file import SourceFile
from ptopt.syntax import ParseError
from training.dataset.regions import Region, regions
from training.sources.base import Block

MOST_CHANGED = 40  # lines of a function that a change may touch and still be about one thing

_SAYS = (
    (2, r"\bspeed(?:s|ed|ing)?[ -]?up|\bfaster\b|\bperformance\b|\bperf\b|\bslow(?:er|ness|down)?\b|\bbottleneck|\blatency\b"),
    (2, r"\bthroughput\b|\bvectori[sz]|\boptimi[sz](?:e[sd]?|ing|ation)\b(?! step)|\b(?:gpu|cpu|cuda) ?-?sync|\bout of memory\b|\boom\b"),
    (2, r"\bmemory (?:usage|use|leak|footprint|consumption|efficien)|\b(?:reduce|save|less|lower) \w* ?memory\b|\butili[sz]ation\b"),
    (1, r"\bpin_?memory\b|\bnon_blocking\b|\bno_grad\b|\binference_mode\b|\bautocast\b|\bmixed precision\b|\bamp\b|\bchannels_last\b"),
    (1, r"\btorch\.compile\b|\bfused\b|\bforeach\b|\bset_to_none\b|\bflash[ _-]?att|\bsdpa\b|\bnum_workers\b|\befficien|\bavoid \w+ (?:cop|transfer)"),
    (-2, r"^revert\b|^merge\b|^bump\b|^release\b|\btypo\b|\bchangelog\b|\breadme\b|\bdocstring|\bblack\b|\bisort\b|\bflake8\b|\breformat"),
    (-1, r"\bmodel performance\b|\baccuracy\b|\bmetrics?\b|\blint\b|\brefactor"),
)  # fmt: skip
_SAYS_COMPILED = tuple((weight, re.compile(pattern, re.I | re.M)) for weight, pattern in _SAYS)

_TOUCHES = re.compile(
    r"no_grad|inference_mode|autocast|pin_memory|non_blocking|num_workers|persistent_workers|prefetch|\.item\(|\.cpu\(|"
    r"\.cuda\(|\.to\(|\.numpy\(|tolist\(|torch\.compile|channels_last|fused|foreach|set_to_none|einsum|bmm|matmul|scatter|"
    r"gather|index_select|\.expand\(|\.repeat\(|contiguous|empty_cache|checkpoint|scaled_dot_product|synchronize|"
    r"detach\(|zero_grad|torch\.(?:cat|stack|zeros|ones|empty|arange|tensor|from_numpy|as_tensor)|lru_cache|\.backward\("
)


@dataclass(frozen=True, slots=True)
class ChangedFunction:
    """A function, or a small class, before and after. `gone` are rules that spoke before and are silent after."""

    before: Region
    after: Region
    gone: tuple[str, ...]
    came: tuple[str, ...]

    def blocks(self, pair: int, url: str = "") -> tuple[Block, Block]:
        def block(region: Region, role: str, names: tuple[str, ...]) -> Block:
            return Block(
                region.text, role, pair, region.path, region.symbol, region.context, url=url, rules=names
            )

        return block(self.before, "before", self.gone), block(self.after, "after", ())


def says_performance(message: str) -> int:
    """How clearly the first line of a message speaks of speed or memory; 2 and more is a yes.

    The rest is not asked: squashed pull requests tell there of everything.
    """
    subject = message.lstrip().partition("\n")[0][:300]
    return sum(weight for weight, pattern in _SAYS_COMPILED if pattern.search(subject))


def useful(message: str, function: ChangedFunction) -> str:
    """Why the change of the function is taken as one that makes it faster: "rule", "message", "both"; "" if it is not.

    What our rules see gone is one. What only the message says must also touch what performance is made of, and bring
    nothing that our rules call slow.
    """
    if function.came:
        return ""
    by_message = says_performance(message) >= 2 and any(
        _TOUCHES.search(line) for line in _changed_lines(function.before, function.after)
    )
    if function.gone:
        return "both" if by_message else "rule"
    return "message" if by_message else ""


def changed_functions(path: str, before: bytes, after: bytes) -> Iterator[ChangedFunction]:
    """Functions on both sides of a change of `path` whose code differs by more than comments, docstrings and layout.

    Those of which much changed are left out: nobody could tell what of it made a difference.
    """
    if b"torch" not in before:
        return
    try:
        old, new = SourceFile.parse(path, before), SourceFile.parse(path, after)
    except ParseError:
        return
    olds = {region.symbol: region for region in regions(path, old.text)}
    both = [
        (left, right)
        for right in regions(path, new.text)
        if (left := olds.get(right.symbol)) is not None
        and left.text != right.text
        and _about_one_thing(left, right)
    ]
    if not both:
        return
    told_old, told_new = _told(old, before), _told(new, after)
    for left, right in both:
        was, now = told_old.get(left.symbol, set()), told_new.get(right.symbol, set())
        yield ChangedFunction(left, right, tuple(sorted(was - now)), tuple(sorted(now - was)))


def _about_one_thing(before: Region, after: Region) -> bool:
    return 0 < len(_changed_lines(before, after)) <= MOST_CHANGED and _meaning(before) != _meaning(after)


def _meaning(region: Region) -> str:
    """The code as the interpreter sees it."""
    tree = ast.parse(region.text)
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                node.body = node.body[1:] or [ast.Pass()]
            if not isinstance(node, ast.ClassDef):
                node.returns = None
        elif isinstance(node, ast.arg):
            node.annotation = None
    return ast.dump(tree)


@cache
def _prefilter() -> Prefilter:
    config = Config()
    return Prefilter([rule for rule in rules() if config.enabled(*rule.keys(), rule.default, "")])


def _told(source: SourceFile, data: bytes) -> dict[str, set[str]]:
    """Symbol, and each symbol around it -> names of the rules that speak there, sure enough to be shown."""
    least = Config().min_confidence
    found: dict[str, set[str]] = {}
    for hit in run(source, _prefilter()(data), []):
        if hit.problem.confidence < least:
            continue
        parts = source.index.symbol_of(hit.problem.node).split(".")
        for depth in range(1, len(parts) + 1):
            found.setdefault(".".join(parts[:depth]), set()).add(hit.rule.name)
    return found


def _changed_lines(before: Region, after: Region) -> list[str]:
    """Lines with code that left or came."""
    diff = difflib.unified_diff(before.text.split("\n"), after.text.split("\n"), n=0, lineterm="")
    return [
        line[1:]
        for line in islice(diff, 2, None)
        if line[0] in "+-" and line[1:].strip() and not line[1:].lstrip().startswith("#")
    ]
