"""What a change takes out: a measure that is gone while the work that it sped up is still there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from ptopt.change import ChangedFile
from ptopt.findings import Severity
from ptopt.rules.base import Fix, Problem, Rule, SourceFile, Span
from ptopt.rules.code import has_unpacking
from ptopt.rules.examples import plain
from ptopt.source.index import FUNCTIONS, FunctionNode, own_nodes

_LONGEST = 400  # characters of a line that are looked at
_NEAR = 10  # lines from where it stood in which the rest of the code is looked for
_CLOSE = 3  # the same for a comment on module code
_NEIGHBOURS = 4  # removed lines before and after it that count
_MOST_AROUND = 30  # removed lines in which the bracket around it, or the block below it, is looked for
_AROUND = 12  # lines of a module that count as the place, where no function stands around it
_HEADER = re.compile(r"^(\s*)(?:async\s+)?(?:def|class)\s+(\w+)")
_COMMENT = re.compile(r"(^|\s)#.*$")
_WORD = re.compile(r"\w+")
_WEAK = frozenset(
    "with torch self cuda amp as import from return def if else not and or True False None".split()
)
_ARGUMENT = re.compile(r"""\s*(\w+\s*=(?!=)|["']\w+["']\s*:)[^#]*,\s*(#|$)|\s*\w+\s*=(?!=)[^#(\[{]*$""")
_BLOCK = re.compile(r"\s*(@|with\b)")
_EVALUATES = re.compile(r"(^|_)(eval|valid|val(_|$)|test|infer|predict|sampl|generat)", re.I)
_STRING = re.compile(r"(\"\"\"|\"|')(?:(?!\1).)*\1")


@dataclass(frozen=True)
class Loss:
    """One removed line with the measure, and where it stood: a function of the head file, or lines of the module."""

    file: SourceFile
    change: ChangedFile
    line: int  # of the head file, before which it stood
    text: str
    neighbours: tuple[str, ...]  # removed lines around it
    function: FunctionNode | None
    first: int
    last: int
    number: int = 0  # of the line in `change.removed`
    at: int = 0  # the line to comment on, where a rule knows a better one than `anchor` finds

    @cached_property
    def before(self) -> tuple[str, ...]:
        """The lines taken out just before it, without their comments."""
        return tuple(reversed([_code(text) for text in self._taken_out(range(self.number - 1, -1, -1))]))

    @cached_property
    def after(self) -> tuple[str, ...]:
        """The lines taken out just after it."""
        return tuple(self._taken_out(range(self.number + 1, len(self.change.removed))))

    def _taken_out(self, numbers: range) -> Iterator[str]:
        for number in numbers[:_MOST_AROUND]:
            line, text = self.change.removed[number]
            if line != self.line:
                return
            yield text[:_LONGEST]

    @cached_property
    def place(self) -> str:
        """The code that is there now, without comments."""
        return "\n".join(_code(self.file.line(number)) for number in range(self.first, self.last + 1))

    @cached_property
    def measures(self) -> str:
        """The code that is there now, without comments and without prose: a log that names a measure is none."""
        lines = {n: self.file.line(n).encode() for n in range(self.first, self.last + 1)}
        for text in self.file.index.of_type(ast.Constant):
            if isinstance(text, ast.Constant) and isinstance(text.value, str) and " " in text.value.strip():
                last = text.end_lineno or text.lineno
                for n in range(max(text.lineno, self.first), min(last, self.last) + 1):
                    start = text.col_offset if n == text.lineno else 0
                    end = (text.end_col_offset or 0) if n == last else len(lines[n])
                    lines[n] = lines[n][:start] + b" " * (end - start) + lines[n][end:]
        return "\n".join(_code(line.decode(errors="replace")) for line in lines.values())

    @cached_property
    def added(self) -> tuple[int, ...]:
        """The lines of code that the change wrote there: near ones that follow first, then by distance."""
        lines = [
            number
            for number in self.change.added
            if self.first <= number <= self.last and _code(self.file.line(number)).strip()
        ]

        def far(number: int) -> tuple[bool, bool, int]:
            distance = abs(number - self.line)
            return (distance > _NEAR, distance <= _NEAR and number < self.line, distance)

        return tuple(sorted(lines, key=far))

    @cached_property
    def anchor(self) -> int:
        """Where a comment stands: the definition that lost a decorator, an added line nearby, the line that follows in the hunk."""
        if self.at:
            return self.at
        if self.function is not None and self.function.lineno == self.line:
            return self.line
        if self.added and abs(self.added[0] - self.line) <= _CLOSE:
            return self.added[0]
        for hunk in self.change.hunks:
            if hunk.start <= self.line <= hunk.start + hunk.count:
                return min(self.line, hunk.start + hunk.count - 1)
        return self.added[0] if self.added else self.first

    @cached_property
    def node(self) -> ast.AST:
        """The innermost statement at the anchor."""
        best: ast.AST = self.function or self.file.tree.body[0]
        for node in own_nodes(self.function or self.file.tree):
            if isinstance(node, ast.stmt) and node.lineno <= self.anchor <= (node.end_lineno or 0):
                best = node
        return best

    def kept(self, argument: ast.expr) -> bool:
        """Does the change leave the argument as it is: on a line that it did not write, or in the lines that it took out, too?"""
        lines = range(argument.lineno, (argument.end_lineno or argument.lineno) + 1)
        if not any(line in self.change.added for line in lines):
            return True
        taken_out = " ".join(" ".join((*self.before, self.text, *self.after)).split())
        written = " ".join(self.file.source(argument).split())
        return re.search(rf"(?<![\w.]){re.escape(written)}(?![\w.])", taken_out) is not None

    def stood(self, call: ast.Call) -> bool:
        """Was the call there before the change, which may have written its first line anew?"""
        number = call.func.end_lineno or call.lineno
        if number not in self.change.added:
            return True
        head = self.file.line(number).encode()[: call.func.end_col_offset].decode().strip()
        return any(text.strip().startswith(f"{head}(") for _, text in self.change.removed)

    def survives(self, measure: re.Pattern[str], work: re.Pattern[str]) -> bool:
        """Is what stood with the measure still there: the rest of its line, most of the lines around it, or its call?"""
        if self.rewritten(measure) is not None:
            return True
        brackets = self.brackets(measure)
        if brackets is not None and (
            isinstance(brackets, ast.Dict) or work.search(self.file.source(brackets))
        ):
            return True
        near = {number for number in self.added if abs(number - self.line) <= _NEAR}
        written = _words(" ".join(_code(self.file.line(number)) for number in near))
        rest = _words(measure.sub(" ", self.text)) - _WEAK
        if rest and rest <= written:
            return True
        around = [words for text in self.neighbours if (words := _words(_code(text)))]
        if not around:
            return not rest or bool(_BLOCK.match(self.text))
        return sum(words <= written for words in around) * 2 >= len(around)

    def brackets(self, measure: re.Pattern[str]) -> ast.Call | ast.Dict | None:
        """The call, or the dictionary of options, of the head file that the line held an argument of."""
        around = [
            node
            for node in self.file.index.of_type(ast.Call, ast.Dict)
            if isinstance(node, (ast.Call, ast.Dict)) and node.lineno < self.line <= (node.end_lineno or 0)
        ]
        if not around or not (_ARGUMENT.match(self.text) or _is_argument(measure, self.text)):
            return None
        return max(around, key=lambda node: (node.lineno, node.col_offset))

    def head(self, measure: re.Pattern[str]) -> str:
        """The removed line that opened the bracket around the measure, up to the bracket; "" where none that was removed did."""
        found = measure.search(self.text)
        text = self.text[: found.start()] if found is not None else ""
        above = iter(reversed(self.before))
        while found is not None:
            head = _opened(text)
            if head is not None:
                return head
            line = next(above, None)
            if line is None:
                break
            text = f"{line}\n{text}"
        return ""

    def rewritten(self, measure: re.Pattern[str]) -> ast.Call | None:
        """The call of an added line that begins as the removed line did, up to the bracket that the measure stood in.

        It is the same call, whatever else the change wrote in it: `num_workers=0` for `num_workers=8` goes with
        `persistent_workers=True`. The bracket may stand on a line above that the change took out, too.
        """
        head = self.head(measure)
        if not head:
            return None
        near = {number for number in self.added if abs(number - self.line) <= _NEAR}
        alike = [n for n in near if self.file.line(n).strip().startswith(head)]
        if not alike:
            return self._called_alike(head, near)
        number = min(alike, key=lambda n: (abs(n - self.line), n))
        text = self.file.line(number)
        column = len(text[: text.index(head) + len(head) - 1].encode())
        for call in self.file.index.of_type(ast.Call):
            if (call.func.end_lineno, call.func.end_col_offset) == (number, column):
                return call
        return None

    def _called_alike(self, head: str, near: set[int]) -> ast.Call | None:
        """The only call of that name that the change wrote near, where it took out one: its result has another name now."""
        name = re.split(r"[^\w.]", head[:-1])[-1]
        if sum(text.count(f"{name}(") for text in (*self.before, self.text, *map(_code, self.after))) != 1:
            return None
        calls = [
            call
            for call in self.file.index.of_type(ast.Call)
            if isinstance(call, ast.Call)
            and call.func.end_lineno in near
            and self.file.source(call.func) == name
        ]
        return calls[0] if len(calls) == 1 else None

    def narrowed(self, measure: re.Pattern[str], work: re.Pattern[str]) -> Loss:
        """The loss with the call as its place, where the line was an argument of a call that does the work.

        Other calls of the function may have the measure still, but for those that pass the same options on.
        """
        call = self.rewritten(measure) or self.brackets(measure)
        if not isinstance(call, ast.Call) or has_unpacking(call) or not work.search(self.file.source(call)):
            return self
        return replace(self, first=call.lineno, last=call.end_lineno or call.lineno)

    def moved(self, measure: re.Pattern[str], *, written: bool = False) -> bool:
        """Is the measure in a function that the place calls? What a training evaluates with says nothing of its steps.

        `written`: only calls on lines that the change wrote count.
        """
        calls = self.file.calls.calls_in(self.function)
        found = (
            self.file.definition_of(call)
            for call in calls
            if self.first <= call.lineno <= self.last and (not written or call.lineno in self.change.added)
        )
        trains = not _EVALUATES.search(self.function.name if self.function is not None else "")
        return any(
            measure.search(other.source(function))
            for other, function in filter(None, found)
            if not (trains and _EVALUATES.search(function.name))
        )


class Regression(Rule):
    """Base of rules about a measure that a change takes out.

    `measure` finds it in a removed line. It is gone when `still` (default: `measure`) matches neither the place where it
    stood nor any line that the change wrote: then it was moved, or written in another way. `work` must match the place:
    what the measure sped up is still there. `message` says what is lost and what to write.
    """

    family = "regressions"
    severity = Severity.MEDIUM
    nodes = ()
    measure: ClassVar[re.Pattern[str]]
    still: ClassVar[re.Pattern[str] | None] = None
    work: ClassVar[re.Pattern[str]]
    message: ClassVar[str]
    why: ClassVar[str]
    source: ClassVar[str]  # a link, in Markdown
    prior: ClassVar[float] = 0.5
    fix_safety: ClassVar[str] = (
        "No fix: the author had a reason, and only the author can tell whether it holds everywhere."
    )
    work_says_all: ClassVar[bool] = False  # else, what stood in and around the line must be left too

    @classmethod
    def sections(cls) -> dict[str, str]:
        before = "\n".join(plain(cls.INVALID[0].code).split("\n")).replace("# - ", "- ").rstrip()
        kept = plain(cls.VALID[0]).rstrip()
        return {
            "What it does": "Compares a change with what stood there before: a measure that it takes out is named where the "
            "work that it sped up is still done. Measures that were moved, or written in another way, are left alone.",
            "Why it is slow": cls.why,
            "When this is wrong": f"When {cls.when_wrong}.",
            "Example": f"A line with `-` is one that the change takes out.\n\n```diff\n{before}\n```",
            "Use instead": f"```python\n{kept}\n```",
            "Fix safety": cls.fix_safety,
            "Sources": f"- {cls.source}",
        }

    def concerns(self, change: ChangedFile | None) -> bool:
        return change is not None and any(self.measure.search(text[:_LONGEST]) for _, text in change.removed)

    def check_change(self, file: SourceFile, change: ChangedFile) -> Iterator[Problem]:
        still = self.still or self.measure
        if not self.concerns(change) or file.is_notebook:
            return
        written = self._written(file, change)
        if None in written:
            return
        others = [call for call in written if call is not None]
        seen: set[FunctionNode | None] = set()
        for wide in _losses(self.measure, file, change):
            loss = self.narrowed(wide)
            if others and not self._is_of_others(wide, others):
                continue
            if loss.function in seen or still.search(loss.measures) or not self.work.search(loss.place):
                continue
            if loss.function is None and len(loss.neighbours) > _NEIGHBOURS:
                continue  # the module was written anew
            if not (self.work_says_all or loss.survives(self.measure, self.work)) or not self.is_loss(loss):
                continue
            if self.is_moved(loss, still):
                continue
            seen.add(loss.function)
            yield Problem(
                loss.node,
                f"This change takes out `{_shown(loss.text, self.measure)}` here. {self.said(loss)}",
                self.confidence(loss),
                fix=self.fix(loss),
                span=Span(loss.anchor, loss.anchor),
                facts={"lines_added": float(len(loss.added)), "lines_removed": float(len(change.removed))},
                shown=self.is_shown(loss),
            )

    def _written(self, file: SourceFile, change: ChangedFile) -> list[ast.Call | None]:
        """Each time that the change writes the measure: the call that does the work and has it, None where that is not all."""
        found: list[ast.Call | None] = []
        for number in change.added:
            code = _code(file.line(number)) if number <= _lines(file) else ""
            for pattern in {self.still or self.measure, self.measure}:
                for match in pattern.finditer(code):
                    call = _call_at(number, len(code[: match.start()].encode()), file)
                    works = call is not None and self.work.search(f"{file.source(call.func)}(")
                    found.append(call if works else None)
                    if not works:
                        return found
        return found

    def _is_of_others(self, loss: Loss, calls: list[ast.Call]) -> bool:
        """Does the call that lost the measure still work on the same, and each of those that got it on something else?

        Else it may have been moved. A call in another function counts as another one if it was there before, too.
        """
        own = loss.rewritten(self.measure) or loss.brackets(self.measure)
        if not isinstance(own, ast.Call) or has_unpacking(own):
            return False
        subject, file = _first_argument(own), loss.file
        if subject is None or not loss.kept(subject) or not self.work.search(f"{file.source(own.func)}("):
            return False
        for call in calls:
            of_call = _first_argument(call)
            if call is own or of_call is None:
                return False
            alike = file.source(of_call) == file.source(subject)
            apart = file.index.function_of(call) is not loss.function and loss.stood(call)
            if alike and not apart:
                return False
        return True

    def narrowed(self, loss: Loss) -> Loss:
        """The part of the place that the measure was about: its call, unless a rule knows better."""
        return loss.narrowed(self.measure, self.work)

    def said(self, loss: Loss) -> str:
        """What is lost and what to write: `message`, unless that depends on what was taken out."""
        return self.message

    def confidence(self, loss: Loss) -> float:
        """How sure it is that the measure is missed there; `prior`, unless a rule can prove it."""
        return self.prior

    def is_shown(self, loss: Loss) -> bool:
        """Does the change itself show the loss: does it write the same measure as switched off?"""
        return False

    def is_moved(self, loss: Loss, still: re.Pattern[str]) -> bool:
        """Does a function that the place calls take the measure now?"""
        return loss.moved(still)

    def fix(self, loss: Loss) -> Fix | None:
        """What puts the measure back; nothing, unless a rule can write it."""
        return None

    def is_loss(self, loss: Loss) -> bool:
        """What else must hold; nothing, unless a rule says so."""
        return True


def _call_at(line: int, column: int, file: SourceFile) -> ast.Call | None:
    """The innermost call with the place, in bytes, in its brackets."""
    around = [
        call
        for call in file.index.of_type(ast.Call)
        if isinstance(call, ast.Call)
        and ((call.func.end_lineno or 0), (call.func.end_col_offset or 0)) <= (line, column)
        and (line, column) < ((call.end_lineno or 0), (call.end_col_offset or 0))
    ]
    return max(around, key=lambda call: (call.func.end_lineno, call.func.end_col_offset), default=None)


def _first_argument(call: ast.Call) -> ast.expr | None:
    """What it works on: `dataset` of `DataLoader(dataset)` and `DataLoader(dataset=dataset)`."""
    if call.args:
        return None if isinstance(call.args[0], ast.Starred) else call.args[0]
    return call.keywords[0].value if call.keywords and call.keywords[0].arg else None


def _losses(measure: re.Pattern[str], file: SourceFile, change: ChangedFile) -> Iterator[Loss]:
    functions: dict[str, list[FunctionNode]] = {}
    for function in file.index.of_type(*FUNCTIONS):
        functions.setdefault(function.name, []).append(function)
    classes = {cls.name for cls in file.index.of_type(ast.ClassDef)}
    headers: list[
        tuple[int, str]
    ] = []  # (indentation, name) of the removed definitions around a removed line
    at = -1
    for number, (line, text) in enumerate(change.removed):
        code = _code(text[:_LONGEST])
        if line != at:
            at, headers = line, []
        header = _HEADER.match(code)
        indent = len(code) - len(code.lstrip())
        if code.strip():
            headers = [h for h in headers if h[0] < indent]
        if header is not None:
            headers.append((indent, header[2]))
        if not measure.search(code if "'" in measure.pattern else _STRING.sub("''", code)):
            continue
        neighbours = _neighbours(number, change)
        owner: FunctionNode | None
        decorated = _decorated(number, change) if code.lstrip().startswith("@") else ""
        if headers or decorated:
            name = decorated or headers[-1][1]
            if name not in functions:
                if name in classes:
                    yield _at_module(line, code, neighbours, number, file, change)
                continue  # what held the measure is gone, or has another name
            owner = min(functions[name], key=lambda f: abs(f.lineno - line))
        else:
            owner = _function_at(line, indent, code, file)
        if owner is None:
            yield _at_module(line, code, neighbours, number, file, change)
        else:
            first = min([owner.lineno, *(d.lineno for d in owner.decorator_list)])
            last = owner.end_lineno or owner.lineno
            yield Loss(file, change, line, code, neighbours, owner, first, last, number)


def _decorated(number: int, change: ChangedFile) -> str:
    """The name of what a removed decorator stood on, if that line was taken out too."""
    line = change.removed[number][0]
    for other, text in change.removed[number + 1 :]:
        if other != line or not text.lstrip().startswith(("@", "def", "async", "class", "#")):
            return ""
        header = _HEADER.match(text[:_LONGEST])
        if header is not None:
            return header[2]
    return ""


def _function_at(line: int, indent: int, code: str, file: SourceFile) -> FunctionNode | None:
    """The innermost function that holds the place where the line stood; for a decorator, the one that it decorated."""
    best: FunctionNode | None = None
    for function in file.index.of_type(*FUNCTIONS):
        first = min([function.lineno, *(d.lineno for d in function.decorator_list)])
        decorates = code.lstrip().startswith("@") and first <= line <= function.lineno
        inside = function.lineno < line <= (function.end_lineno or 0) + 1 and function.col_offset < indent
        if decorates or inside:
            best = function if best is None or function.lineno > best.lineno or decorates else best
    return best


def _neighbours(number: int, change: ChangedFile) -> tuple[str, ...]:
    """Lines taken out at the same place, just before and after the line."""
    line = change.removed[number][0]
    low, high = max(0, number - _NEIGHBOURS), number + _NEIGHBOURS + 1
    around = [*change.removed[low:number], *change.removed[number + 1 : high]]
    return tuple(text[:_LONGEST] for other, text in around if other == line)


def _at_module(
    line: int,
    code: str,
    neighbours: tuple[str, ...],
    number: int,
    file: SourceFile,
    change: ChangedFile,
) -> Loss:
    first, last = max(1, line - _AROUND), min(_lines(file), line + _AROUND)
    return Loss(file, change, line, code, neighbours, None, first, last, number)


def _code(text: str) -> str:
    """The line without its comment."""
    return _COMMENT.sub("", text) if "#" in text else text


def _opened(text: str) -> str | None:
    """`loader = DataLoader(` of `loader = DataLoader(data, `: the line up to the innermost bracket that stays open.

    "" where that is no call's, None where no bracket stays open.
    """
    code, depth = _STRING.sub(_blank, text), 0
    for at in range(len(code) - 1, -1, -1):
        depth += (code[at] in ")]}") - (code[at] in "([{")
        if depth < 0:
            head = text[: at + 1].rpartition("\n")[2].strip()
            return head if re.search(r"\w\($", head) else ""
    return None


def _within(text: str) -> str:
    """`data, num_workers=8` of `data, num_workers=8)`: up to a bracket that closes what an earlier line opened."""
    depth = 0
    for at, character in enumerate(_STRING.sub(_blank, text)):
        depth += (character in "([{") - (character in ")]}")
        if depth < 0:
            return text[:at]
    return text


def _blank(string: re.Match[str]) -> str:
    return f"{string[1]}{' ' * (len(string[0]) - 2 * len(string[1]))}{string[1]}"


def _is_argument(measure: re.Pattern[str], text: str) -> bool:
    """Is the measure an argument among others on a line that holds nothing else, as in `data, 32, num_workers=8)`?"""
    found = measure.search(text)
    if found is None or _opened(text[: found.start()]) is not None:
        return False
    try:
        call = ast.parse(f"_({_within(text).strip()})", mode="eval").body
    except (SyntaxError, ValueError):
        return False
    return isinstance(call, ast.Call) and len(call.args) + len(call.keywords) > 1


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text))


def _lines(file: SourceFile) -> int:
    return file.text.count("\n") + 1


def _shown(text: str, measure: re.Pattern[str]) -> str:
    found = measure.search(text)
    if _ARGUMENT.match(text) and not (found is not None and _is_one_of_several(found)):
        found = None  # an argument is shown whole
    shown = text if found is None else found[0]
    if (
        found is not None and "=" in shown
    ):  # a call that is the value of an option is shown with its arguments
        shown += _called(text[found.end() :])
    words = " ".join(shown.replace("`", "'").split()).strip(" ,:@")
    return f"{words})" if words.count("(") > words.count(")") else words


def _is_one_of_several(found: re.Match[str]) -> bool:
    """Does another argument stand before or behind it in its line?"""
    before, behind = found.string[: found.start()].rstrip(), found.string[found.end() :].strip()
    return before.endswith(",") or (behind.startswith(",") and behind[1:].strip()[:1] not in ("", "#"))


def _called(rest: str) -> str:
    """The brackets with which the text begins, and what is in them; "" where it begins with none, or they are not closed."""
    depth = 0
    for at, character in enumerate(rest if rest.startswith("(") else ""):
        depth += (character == "(") - (character == ")")
        if not depth:
            return rest[: at + 1]
    return ""
