"""Which functions a commit made faster: those on both sides of the change, with our rules' findings on each side."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Literal

from ptopt.config import Config
from ptopt.rules import rules
from ptopt.rules.base import SURE
from ptopt.rules.engine import Prefilter, run
from ptopt.source.file import SourceFile
from ptopt.syntax import ParseError
from training.dataset.regions import Region, regions
from training.sources.base import Block, Role

MOST_CHANGED = 40  # lines of a function; a larger change is rarely about one thing

_MESSAGE_PATTERNS = (
    (2, r"\bspeed(?:s|ed|ing)?[ -]?up|\bfaster\b|\bperformance\b|\bperf\b|\bslow(?:er|ness|down)?\b|\bbottleneck|\blatency\b"),
    (2, r"\bthroughput\b|\bvectori[sz]|\boptimi[sz](?:e[sd]?|ing|ation)\b(?! step)|\b(?:gpu|cpu|cuda) ?-?sync|\bout of memory\b|\boom\b"),
    (2, r"\bmemory (?:usage|use|leak|footprint|consumption|efficien)|\b(?:reduce|save|less|lower) \w* ?memory\b|\butili[sz]ation\b"),
    (1, r"\bpin_?memory\b|\bnon_blocking\b|\bno_grad\b|\binference_mode\b|\bautocast\b|\bmixed precision\b|\bamp\b|\bchannels_last\b"),
    (1, r"\btorch\.compile\b|\bfused\b|\bforeach\b|\bset_to_none\b|\bflash[ _-]?att|\bsdpa\b|\bnum_workers\b|\befficien|\bavoid \w+ (?:cop|transfer)"),
    (-2, r"^revert\b|^merge\b|^bump\b|^release\b|\btypo\b|\bchangelog\b|\breadme\b|\bdocstring|\bblack\b|\bisort\b|\bflake8\b|\breformat"),
    (-1, r"\bmodel performance\b|\baccuracy\b|\bmetrics?\b|\blint\b|\brefactor"),
)  # fmt: skip
_MESSAGE_WEIGHTS = tuple((weight, re.compile(pattern, re.I | re.M)) for weight, pattern in _MESSAGE_PATTERNS)

_PERFORMANCE_API = re.compile(
    r"no_grad|inference_mode|autocast|pin_memory|non_blocking|num_workers|persistent_workers|prefetch|\.item\(|\.cpu\(|"
    r"\.cuda\(|\.to\(|\.numpy\(|tolist\(|torch\.compile|channels_last|fused|foreach|set_to_none|einsum|bmm|matmul|scatter|"
    r"gather|index_select|\.expand\(|\.repeat\(|contiguous|empty_cache|checkpoint|scaled_dot_product|synchronize|"
    r"detach\(|zero_grad|torch\.(?:cat|stack|zeros|ones|empty|arange|tensor|from_numpy|as_tensor)|lru_cache|\.backward\("
)


@dataclass(frozen=True, slots=True)
class ChangedFunction:
    """A function, or a small class, before and after, with the rules that had a finding on one side only."""

    before: Region
    after: Region
    resolved: tuple[str, ...]
    introduced: tuple[str, ...]

    def blocks(self, pair: int, url: str = "") -> tuple[Block, Block]:
        def block(region: Region, role: Role, names: tuple[str, ...]) -> Block:
            return Block(
                region.text, role, pair, region.path, region.symbol, region.context, url=url, rules=names
            )

        return block(self.before, "before", self.resolved), block(self.after, "after", ())


def performance_score(message: str) -> int:
    """How clearly the first line of a message is about speed or memory; 2 and more is a yes.

    The rest is not read: in squashed pull requests it lists every commit.
    """
    subject = message.lstrip().partition("\n")[0][:300]
    return sum(weight for weight, pattern in _MESSAGE_WEIGHTS if pattern.search(subject))


Evidence = Literal["", "rule", "message", "both"]


def evidence(message: str, function: ChangedFunction) -> Evidence:
    """What shows that the change made the function faster: a finding that is gone, the message, or both; "" for neither.

    A message counts only where a changed line uses an API that matters for performance. A change that brings a new finding
    never counts.
    """
    if function.introduced:
        return ""
    by_message = performance_score(message) >= 2 and any(
        _PERFORMANCE_API.search(line) for line in _changed_lines(function.before, function.after)
    )
    if function.resolved:
        return "both" if by_message else "rule"
    return "message" if by_message else ""


def changed_functions(path: str, before: bytes, after: bytes) -> Iterator[ChangedFunction]:
    """Functions on both sides of a change of `path` whose code differs by more than comments, docstrings and layout.

    Large changes are left out: it would be unknown which part of them made the difference.
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
    rules_before, rules_after = _rules_by_symbol(old, before), _rules_by_symbol(new, after)
    for left, right in both:
        was, now = rules_before.get(left.symbol, set()), rules_after.get(right.symbol, set())
        yield ChangedFunction(left, right, tuple(sorted(was - now)), tuple(sorted(now - was)))


def _about_one_thing(before: Region, after: Region) -> bool:
    return 0 < len(_changed_lines(before, after)) <= MOST_CHANGED and _normalised_tree(
        before
    ) != _normalised_tree(after)


def _normalised_tree(region: Region) -> str:
    """The syntax tree without docstrings, annotations and layout."""
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


def _rules_by_symbol(source: SourceFile, data: bytes) -> dict[str, set[str]]:
    """Symbol, and each symbol around it -> names of the rules with a finding there that a review would show."""
    found: dict[str, set[str]] = {}
    for hit in run(source, _prefilter()(data), []):
        if hit.problem.confidence < SURE:
            continue
        parts = source.index.symbol_of(hit.problem.node).split(".")
        for depth in range(1, len(parts) + 1):
            found.setdefault(".".join(parts[:depth]), set()).add(hit.rule.name)
    return found


def _changed_lines(before: Region, after: Region) -> list[str]:
    """Removed and added lines that hold code."""
    diff = difflib.unified_diff(before.text.split("\n"), after.text.split("\n"), n=0, lineterm="")
    return [
        line[1:]
        for line in islice(diff, 2, None)
        if line[0] in "+-" and line[1:].strip() and not line[1:].lstrip().startswith("#")
    ]
