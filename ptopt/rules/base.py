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
from ptopt.rules.code import (
    add_keyword,
    beside,
    first_call,
    has_unpacking,
    is_call_of,
    is_literal,
    keyword_of,
    method_call,
    quote,
    replace_node,
    writes_spaces,
)
from ptopt.rules.examples import MARK, Invalid, plain
from ptopt.source.file import SourceFile

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
    "first_call",
    "has_unpacking",
    "is_call_of",
    "is_literal",
    "keyword_of",
    "method_call",
    "quote",
    "replace_node",
    "writes_spaces",
]
