"""A Python file of examples of the rules, the suggestions on it, and what people do to such a file."""

from __future__ import annotations

import ast
import difflib
import functools
import keyword
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from feedback.signals.stored_suggestion import Replacement
from ptopt.rules import rules
from ptopt.rules.examples import PRELUDE, plain

_LONGEST = 12  # lines of a suggestion
_NOTES = (
    "# TODO: look at this again",
    "# see the design notes",
    "# checked with ada",
    "# keep in step with eval.py",
)


@dataclass(slots=True)
class Line:
    text: str
    block: int
    offer: int | None = None  # the suggestion whose lines it is one of, the old ones or the new ones


@dataclass(frozen=True, slots=True)
class Example:
    """Code, and for one with a suggestion, the lines of it (from 0, without the end) that become `new`."""

    lines: tuple[str, ...]
    start: int = 0
    stop: int = 0
    new: tuple[str, ...] = ()


@functools.cache
def offers() -> tuple[Example, ...]:
    """The examples that rules have a fix for, where it is one run of lines and not only white space."""
    found = []
    for case in (case for rule in rules() for case in rule.INVALID if case.fixed is not None):
        old, new = (plain(text or "").rstrip("\n").split("\n") for text in (case.code, case.fixed))
        changed = [
            op
            for op in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
            if op[0] != "equal"
        ]
        if not changed:
            continue
        start, stop, first, last = changed[0][1], changed[-1][2], changed[0][3], changed[-1][4]
        if start == stop:  # only insertions: a neighbour is replaced with them, as in a comment
            start, first = (start - 1, first - 1) if start else (start, first)
            stop, last = (stop, last) if start < stop else (stop + 1, last + 1)
        same = "".join("".join(old[start:stop]).split()) == "".join("".join(new[first:last]).split())
        if stop - start <= _LONGEST and last - first <= _LONGEST and not same:
            found.append(Example(tuple(old), start, stop, tuple(new[first:last])))
    return tuple(found)


@functools.cache
def fillers() -> tuple[Example, ...]:
    found = (plain(code).rstrip("\n").split("\n") for rule in rules() for code in rule.VALID)
    return tuple(Example(tuple(lines)) for lines in found if 2 <= len(lines) <= 15)


@dataclass(slots=True)
class Draft:
    """The file as it is edited."""

    lines: list[Line]
    new: dict[int, list[str]] = field(
        default_factory=dict
    )  # the lines of each suggestion, with their indentation

    @property
    def text(self) -> str:
        return "".join(f"{line.text}\n" for line in self.lines)

    def parses(self) -> bool:
        try:
            ast.parse(self.text)
        except SyntaxError:
            return False
        return True

    def copy(self) -> Draft:
        return Draft([Line(line.text, line.block, line.offer) for line in self.lines], self.new)

    def where(self, offer: int) -> slice:
        """The lines of the suggestion, old or new."""
        at = [n for n, line in enumerate(self.lines) if line.offer == offer]
        return slice(at[0], at[-1] + 1) if at else slice(0, 0)

    def replacement(self, offer: int) -> Replacement:
        at = self.where(offer)
        return Replacement(at.start + 1, at.stop, self.new[offer])

    def put(self, offer: int, texts: Sequence[str]) -> None:
        at = self.where(offer)
        self.lines[at] = [Line(text, self.lines[at.start].block, offer) for text in texts]

    def without(self, blocks: Sequence[int]) -> str:
        return "".join(f"{line.text}\n" for line in self.lines if line.block not in blocks)

    def follow(self, text: str) -> None:
        """Take over what git made of the file; lines that stayed keep what is known of them."""
        texts = text.removesuffix("\n").split("\n")
        old = [line.text for line in self.lines]
        lines = [Line(line, -1) for line in texts]
        for block in difflib.SequenceMatcher(None, old, texts, autojunk=False).get_matching_blocks():
            for n in range(block.size):
                known = self.lines[block.a + n]
                lines[block.b + n] = Line(known.text, known.block, known.offer)
        self.lines = lines


def compose(chance: random.Random, *, twins: bool = False) -> Draft:
    """Imports, then blocks by turns: filler, suggestion 0, filler, suggestion 1, …, filler. Even blocks are fillers.

    `twins`: suggestion 1 is the same as suggestion 0, in another function.
    """
    while True:
        chosen = [chance.choice(offers()) for _ in range(chance.randint(2, 3))]
        if twins:
            chosen[1] = chosen[0]
        draft = Draft([Line(text, -1) for text in PRELUDE.rstrip("\n").split("\n")])
        for number in range(2 * len(chosen) + 1):
            offer, filler = divmod(number, 2)
            example = chosen[offer] if filler else chance.choice(fillers())
            _append(draft, number, offer if filler else None, example, chance)
        ours = {offer: "".join("".join(new).split()) for offer, new in draft.new.items()}
        if draft.parses() and (twins or len(set(ours.values())) == len(ours)):
            return draft


def _append(draft: Draft, block: int, offer: int | None, example: Example, chance: random.Random) -> None:
    name = f"{chance.choice(('run', 'train', 'evaluate', 'prepare', 'step'))}_{block}"
    heads = chance.choice(
        ([f"def {name}(model, loader, optimizer):"], [f"class {name.title()}:", "    def fit(self, model):"])
    )
    indent = " " * 4 * len(heads)
    draft.lines += [Line(text, block) for text in ("", "", *heads)]

    def inside(text: str) -> str:
        return f"{indent}{text}" if text else ""

    for at, text in enumerate(example.lines):
        ours = offer if offer is not None and example.start <= at < example.stop else None
        draft.lines.append(Line(inside(text), block, ours))
    if offer is not None:
        draft.new[offer] = [inside(text) for text in example.new]


# -- what people do ------------------------------------------------------------------------------------------------


def statements(draft: Draft) -> dict[int, ast.stmt]:
    """The statements that begin a line and are not nested in a decorated one's head, by line (from 0)."""
    found: dict[int, ast.stmt] = {}
    for node in ast.walk(ast.parse(draft.text)):
        if isinstance(node, ast.stmt) and not getattr(node, "decorator_list", None):
            found.setdefault(node.lineno - 1, node)
    return found


def unrelated(draft: Draft, chance: random.Random, blocks: Sequence[int] | None = None) -> None:
    """Edits of one or two lines that are no suggestion's, in these blocks or anywhere."""
    for _ in range(chance.randint(1, 2)):
        free = [
            (at, node)
            for at, node in sorted(statements(draft).items())
            if draft.lines[at].offer is None
            and (draft.lines[at].block in blocks if blocks is not None else draft.lines[at].block >= 0)
            and (
                at == 0
                or draft.lines[at - 1].offer is None
                or draft.lines[at].offer != draft.lines[at - 1].offer
            )
        ]
        if not free:
            return
        at, node = chance.choice(free)
        one_line = node.end_lineno == node.lineno and not isinstance(node, (ast.FunctionDef, ast.ClassDef))
        before = draft.copy()
        if one_line and chance.random() < 0.3:
            draft.lines[at].text += f"  {chance.choice(_NOTES)}"
        elif one_line and chance.random() < 0.3:
            del draft.lines[at]
        else:
            insert(draft, at, chance)
        if not draft.parses():
            draft.lines = before.lines


def insert(draft: Draft, at: int, chance: random.Random) -> None:
    """A comment or a statement before line `at`."""
    text = draft.lines[at].text
    indent = text[: len(text) - len(text.lstrip())]
    new = chance.choice(
        (chance.choice(_NOTES), f"print({chance.randint(0, 999)})", f"count = {chance.randint(0, 999)}")
    )
    draft.lines.insert(at, Line(indent + new, draft.lines[at].block))


def neighbours(draft: Draft, offer: int, chance: random.Random) -> None:
    """Edits of the lines right above or right below a suggestion, or of both."""
    above, below = chance.choice(((True, False), (False, True), (True, True)))
    at = draft.where(offer)
    if below and at.stop < len(draft.lines):
        tried(draft, lambda: insert(draft, at.stop, chance))
    if above:
        tried(draft, lambda: insert(draft, at.start, chance))


def tried(draft: Draft, edit: Callable[[], object]) -> bool:
    """Whether the edit left a file that parses; else it is taken back."""
    before = draft.copy()
    edit()
    if draft.parses():
        return True
    draft.lines = before.lines
    return False


def by_hand(draft: Draft, offer: int, chance: random.Random) -> str:
    """Puts the new lines as a person might type or a formatter might leave them; how, or "" where they do not parse."""
    styles: list[tuple[str, Callable[[list[str]], list[str]]]] = [
        ("typed", lambda new: new),
        ("commented", _commented),
        ("spaced", _spaced),
        ("wrapped", _wrapped),
    ]
    chance.shuffle(styles)
    for name, style in styles:
        new = style(list(draft.new[offer]))
        if tried(draft, functools.partial(draft.put, offer, new)):
            return name
    return ""


def _commented(new: list[str]) -> list[str]:
    return [f"{text}  # as suggested" if text and not text.endswith("\\") else text for text in new]


def _spaced(new: list[str]) -> list[str]:
    return [
        re.sub(r"(?<=\w)=(?=\w)", " = ", re.sub(r", ?(?=\w)", ",  ", text)).replace("'", '"') for text in new
    ]


def _wrapped(new: list[str]) -> list[str]:
    """The first call with arguments over several lines, as black has it."""
    for at, text in enumerate(new):
        call = re.fullmatch(r"(\s*)([^()\"'#]*\w\()([^()\"'#]+)(\)[^()\"'#]*)", text)
        if call:
            indent, head, inner, tail = call.groups()
            return [*new[:at], f"{indent}{head}", f"{indent}    {inner},", f"{indent}{tail}", *new[at + 1 :]]
    return new


def renamed(draft: Draft, offer: int, chance: random.Random) -> bool:
    """Another name for a variable of the new lines, everywhere in their function: other words for the same."""
    at = draft.where(offer)
    names = sorted(
        {
            name
            for line in draft.lines[at]
            for name in re.findall(r"(?<![.\w])[a-z_]\w{2,}(?![\w(])", line.text)
            if not keyword.iskeyword(name) and name not in ("torch", "self")
        }
    )
    if not names:
        return False
    name, block = chance.choice(names), draft.lines[at.start].block

    def rename() -> None:
        for line in draft.lines:
            if line.block == block:
                line.text = re.sub(rf"(?<![.\w]){name}(?!\w)", f"{name}_now", line.text)

    return tried(draft, rename)


def moved(draft: Draft, offer: int, chance: random.Random) -> str:
    """Moves the code around a suggestion; how."""
    block = draft.lines[draft.where(offer).start].block
    how = chance.choice(("to the end", "into a class", "into a function of its own"))
    mine = [line for line in draft.lines if line.block == block]
    rest = [line for line in draft.lines if line.block != block]
    before = draft.copy()
    if how == "to the end":
        draft.lines = [*rest, *mine]
    elif how == "into a class":
        first = draft.lines.index(mine[0])
        body = [Line(f"    {line.text}" if line.text else "", block, line.offer) for line in mine]
        draft.lines = [
            *rest[:first],
            Line("", block),
            Line(f"class Owner{block}:", block),
            *body,
            *rest[first:],
        ]
    else:
        _extract(draft, offer, block)
    if not draft.parses():
        draft.lines = [
            *[line for line in before.lines if line.block != block],
            *[line for line in before.lines if line.block == block],
        ]
        return "to the end"
    return how


def _extract(draft: Draft, offer: int, block: int) -> None:
    """The lines of the suggestion and those below of at least their indentation become a function."""
    at = draft.where(offer)
    first = draft.lines[at.start].text
    indent = len(first) - len(first.lstrip())
    stop = at.stop
    while stop < len(draft.lines) and draft.lines[stop].block == block:
        text = draft.lines[stop].text
        if text and len(text) - len(text.lstrip()) < indent:
            break
        stop += 1
    taken = draft.lines[at.start : stop]
    body = [Line(" " * 4 + line.text[indent:] if line.text else "", block, line.offer) for line in taken]
    draft.lines[at.start : stop] = [Line(f"{first[:indent]}helper_{block}(locals())", block)]
    draft.lines += [Line("", block), Line("", block), Line(f"def helper_{block}(found):", block), *body]
