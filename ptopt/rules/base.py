"""What a rule is: one class that holds its text, its check, its fix and its examples."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from ptopt.change import ChangedFile
from ptopt.findings import TEXTBOOK, Edit, Evidence, Fix, Safety, Severity, Span
from ptopt.project.facts import NO_FACTS, ProjectFacts
from ptopt.rules.examples import MARK, Invalid, plain
from ptopt.source.file import SourceFile

_IN_A_WORD = re.compile(r"\w\w")
_CLOSES = {"(": ")", "[": "]", "{": "}"}
_LAST_WORD = re.compile(r"\w+$")

HEADINGS = (
    "What it does",
    "Why it is slow",
    "When this is wrong",
    "Example",
    "Use instead",
    "Fix safety",
    "Sources",
)
SURE = 0.6  # a rule that states less only proposes; the ranker decides


@dataclass(frozen=True, slots=True)
class Problem:
    """What a check yields: the place, the reason in this code, and how to correct it.

    `cause` is the node that several problems have in common (the loop whose step they slow down): problems of one
    family with one cause become one comment. By default the cause is the file.

    `subject` is the expression that the comment is about (default: the node); the ranker asks where its value lives and
    goes. `facts` are what the rule itself measured, by name; the ranker weighs them. `at` is the place whose frequency
    counts (default: the node). `elsewhere` states the same problem at its other places: a comment stands on a line that
    the change added, so one of these is made where the lines of the node are old. `shown`: the change itself shows that it
    is true, as where it writes `num_workers=0` for `num_workers=4`.
    """

    node: ast.AST
    message: str
    confidence: float
    evidence: tuple[Evidence, ...] = ()
    fix: Fix | None = None
    cause: ast.AST | None = None
    span: Span | None = None  # default: the lines of `node`
    subject: ast.expr | None = None
    at: ast.AST | None = None
    facts: Mapping[str, float] = field(default_factory=dict)
    elsewhere: tuple[Problem, ...] = ()
    shown: bool = False
    severity: Severity | None = None  # default: that of the rule


@dataclass(frozen=True, slots=True)
class Benchmark:
    """Code that measures what the advice is worth; `torch`, `nn` and `F` are in scope.

    `before` and `after` each leave what must be equal in `result`.
    """

    setup: str
    before: str
    after: str
    scope: str = "this operation"
    sizes: str = ""  # the sizes that `setup` chose, in words


class Rule:
    """Base of all rules. Subclasses hold no state; one instance of each serves every file."""

    id: ClassVar[str]
    name: ClassVar[str]  # names the bad pattern: reads as "allow X"
    family: ClassVar[str]
    severity: ClassVar[Severity] = Severity.MEDIUM
    default: ClassVar[bool] = True
    foreign: ClassVar[bool] = False  # of another package: no judged comment on it was ever learned from
    libraries: ClassVar[tuple[str, ...]] = (
        "torch",
        "lightning",
        "accelerate",
    )  # the file must mention one of these
    triggers: ClassVar[tuple[str, ...]] = ()  # ... and one of these words (see `Prefilter`)
    requires: ClassVar[tuple[str, ...]] = ()  # ... and one of these
    # ... and one of these, where the rule is surer than `SURE` of anything in the file.
    sure_triggers: ClassVar[tuple[str, ...]] = ()
    # The most confidence that a problem of it states. A rule that never states what a comment needs is run for those who ask.
    most_stated: ClassVar[float] = 1.0
    nodes: ClassVar[tuple[type[ast.AST], ...]]  # node types that `candidates` gives
    calls: ClassVar[frozenset[str]] = frozenset()  # of the calls, only those whose name ends in one of these
    since: ClassVar[Mapping[str, str]] = {}  # package -> first version for which the advice holds
    until: ClassVar[Mapping[str, str]] = {}  # package -> first version for which it no longer does
    # Names of `ptopt.project.added` that a part of the advice needs, which is left out where a project lacks them.
    partly: ClassVar[frozenset[str]] = frozenset()
    when_wrong: ClassVar[str] = ""  # the condition under which a comment is wrong, in one clause
    VALID: ClassVar[tuple[str, ...]] = ()
    INVALID: ClassVar[tuple[Invalid, ...]] = ()
    PROJECT: ClassVar[ProjectFacts] = NO_FACTS  # what the project of the examples pins
    BENCHMARK: ClassVar[Benchmark | None] = None

    def candidates(self, file: SourceFile) -> list[ast.AST]:
        """The nodes that `check` sees. A rule that wants few of a frequent type may pick them here, in one pass."""
        if not self.calls:
            return list(file.index.of_type(*self.nodes))
        named = self.calls & file.called_names
        calls: list[ast.AST] = [call for name in named for call in file.calls_named(name)]
        return calls + list(file.index.of_type(*(cls for cls in self.nodes if cls is not ast.Call)))

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        """Problems at `node`, one of the candidates."""
        raise NotImplementedError(f"{type(self).__name__} has no check")

    def concerns(self, change: ChangedFile | None) -> bool:
        """Can the rule have a question about the change (None: the file as it stands)? Asked before the file is parsed."""
        return True

    def may_be_sure_of(self, data: bytes) -> bool:
        """Can the rule be surer than `SURE` of anything in a file with this content? For what `sure_triggers` cannot say."""
        return True

    def may_be_sure(self, file: SourceFile) -> bool:
        """The same of a file that is parsed: a quick answer, where `check` takes long to find out."""
        return True

    def check_change(self, file: SourceFile, change: ChangedFile) -> Iterator[Problem]:
        """Problems that only the change shows, not the file as it stands."""
        return iter(())

    # -- text ------------------------------------------------------------------------------------------

    @classmethod
    def summary(cls) -> str:
        """First line of the docstring."""
        return (inspect.getdoc(cls) or "").partition("\n")[0].strip()

    @classmethod
    def sections(cls) -> dict[str, str]:
        """Heading -> Markdown text. What the docstring leaves out is taken from the class, where it says it."""
        parts = re.split(r"^## (.+)$", inspect.getdoc(cls) or "", flags=re.M)
        written = {title.strip(): body.strip() for title, body in zip(parts[1::2], parts[2::2], strict=True)}
        known = {**cls._unwritten(), **written}
        return {title: known[title] for title in dict.fromkeys((*HEADINGS, *written)) if title in known}

    @classmethod
    def _unwritten(cls) -> dict[str, str]:
        """The sections that say what an attribute says.

        The examples are the first one with a fix; else those with what to write instead; else the first, with valid code beside it.
        """
        if not (cls.VALID and cls.INVALID and cls.when_wrong):
            return {}
        cases = [case for case in cls.INVALID if case.fixed][:1]
        cases = cases or [case for case in cls.INVALID if case.instead] or [cls.INVALID[0]]
        better = [case.fixed or case.instead or cls.VALID[0] for case in cases]
        return {
            "When this is wrong": f"When {cls.when_wrong}.",
            "Example": cls.fenced("\n".join(plain(case.code) for case in cases)),
            "Use instead": cls.fenced("\n".join(plain(code) for code in better)),
        }

    @classmethod
    def fenced(cls, code: str) -> str:
        """An example in Markdown."""
        return f"```python\n{plain(code).rstrip()}\n```"

    @classmethod
    def keys(cls) -> tuple[str, str, str]:
        """What a configuration or a suppression may call it: id, name, family."""
        return (cls.id, cls.name, cls.family)


class ModelRule(Rule):
    """Base of rules without a check: a model finds the problems, and the rule says what is known of such findings."""

    nodes: ClassVar[tuple[type[ast.AST], ...]] = ()
    libraries: ClassVar[tuple[str, ...]] = ()


# -- helpers that several rules share ----------------------------------------------------------------------


def replace_node(file: SourceFile, node: ast.AST, text: str) -> Edit:
    """Edit that puts `text` in the place of `node`."""
    start, end = file.bounds(node)
    return Edit(start, end, text)


def add_keyword(file: SourceFile, call: ast.Call, keyword: str) -> Edit:
    """Edit that adds `name=value` as last argument of `call`, in the layout that the call already has."""
    name, _, value = keyword.partition("=")
    if writes_spaces(file, call):
        keyword = f"{name} = {value}"
    _, end = file.bounds(call)
    close = end - 1  # the call ends with its closing parenthesis
    last = max((file.bounds(a)[1] for a in [*call.args, *(k.value for k in call.keywords)]), default=-1)
    if last < 0:
        return Edit(close, close, keyword)
    while file.data[last:close].lstrip().startswith(b")"):
        last = file.data.index(b")", last) + 1  # the last argument stands in parentheses of its own
    between = file.data[last:close]
    comma = between.find(b",")
    hash_at = between.find(b"#")
    if comma != -1 and (hash_at == -1 or comma < hash_at):
        if b"\n" not in between:
            return Edit(last + comma, close, f", {keyword}")
        line = file.line(file.line_at(last))
        indent = line[: len(line) - len(line.lstrip())]
        newline = "\r\n" if b"\r\n" in between else "\n"
        at = last + comma + 1
        rest = file.data[at:close].partition(b"\n")[0].rstrip()
        if rest.lstrip().startswith(b"#"):  # it speaks of the last argument, and stays beside it
            at += len(rest)
        return Edit(at, at, f"{newline}{indent}{keyword},")
    return Edit(last, last, f", {keyword}")


def beside(node: ast.AST, other: ast.AST, note: str) -> tuple[Evidence, ...]:
    """Evidence on the line of `other`, unless the comment on `node` stands on that line."""
    line: int = getattr(other, "lineno", 0)
    return (Evidence(line, note),) if line != getattr(node, "lineno", 0) else ()


def writes_spaces(file: SourceFile, call: ast.Call) -> bool:
    """Is each keyword argument of the call on one line with its value written `a = b`?"""
    named = [k for k in call.keywords if k.arg is not None]
    between = [file.source(k)[len(k.arg or "") :] for k in named]
    return bool(between) and all(re.match(r"[ \t]+=[ \t]", text) for text in between)


def keyword_of(call: ast.Call, name: str) -> ast.expr | None:
    """Value of a keyword argument, or None."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    return None


def has_unpacking(call: ast.Call) -> bool:
    """Does the call pass `*args` or `**kwargs`, so that its arguments cannot be told?"""
    for keyword in call.keywords:
        if keyword.arg is None:
            return True
    return ast.Starred in map(type, call.args)


def method_call(node: ast.AST, *names: str) -> ast.expr | None:
    """The receiver of `receiver.name(...)`, or None."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in names:
        return node.func.value
    return None


def is_literal(node: ast.expr | None, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def quote(file: SourceFile, node: ast.AST, limit: int = 60) -> str:
    """The node's code on one line and in a code span, for a message."""
    text = re.sub(r"\\\r?\n", "\n", file.source(node))
    text = re.sub(r"([(\[])\s*\n\s*|\s*\n\s*(?=[)\].])", r"\1", text)
    text = " ".join(text.split())
    if len(text) > limit:
        tail = ""  # the end of a chain, such as `.item()`, is what the message is about
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            tail = text[text.rfind(f".{node.func.attr}(") :]
        tail = tail if len(tail) <= limit // 3 else ""
        whole = text.removesuffix(tail)
        room = limit - 1 - len(tail)
        close = whole[-1] if whole[-1] in ")]}" else ""
        head = _without_part(whole[: room - len(close)], whole)
        if close:
            head = _without_part(whole[: room - len(_closing(head))], whole)
            close = _closing(head)
            if _goes_on(whole[len(head) :], close):
                close += "…"  # as before `.item()` in `(a == b).sum().item()`
        text = f"{head}…{close}{tail}"
    return f"`{text}`"


def _closing(head: str) -> str:
    """What closes the brackets that the start of a code leaves open, as far as it can be told from it."""
    still_open: list[str] = []
    for character in head:
        if character in _CLOSES:
            still_open.append(_CLOSES[character])
        elif still_open and character == still_open[-1]:
            still_open.pop()
    return "".join(reversed(still_open))


def _goes_on(cut: str, close: str) -> bool:
    """Does the code that was cut go on behind the brackets that its start leaves open?"""
    open_brackets = list(reversed(close))
    for at, character in enumerate(cut):
        if not open_brackets:
            return bool(cut[at:].strip())
        if character in _CLOSES:
            open_brackets.append(_CLOSES[character])
        elif character == open_brackets[-1]:
            open_brackets.pop()
    return False


def _without_part(head: str, whole: str) -> str:
    """The start of a code without the part of a name or a number that it ends in."""
    in_a_word = _IN_A_WORD.match(whole, len(head) - 1)
    shorter = _LAST_WORD.sub("", head) if in_a_word else head
    return shorter or head


__all__ = [
    "HEADINGS",
    "MARK",
    "TEXTBOOK",
    "Benchmark",
    "Edit",
    "Evidence",
    "Fix",
    "Invalid",
    "ModelRule",
    "Problem",
    "Rule",
    "Safety",
    "Severity",
    "SourceFile",
    "Span",
    "add_keyword",
    "beside",
    "has_unpacking",
    "is_literal",
    "keyword_of",
    "method_call",
    "quote",
    "replace_node",
    "writes_spaces",
]
