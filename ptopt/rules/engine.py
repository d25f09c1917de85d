"""Runs rules over a file: substring pre-filter, version gates, one dispatch over the nodes of the index."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from ptopt.change import ChangedFile
from ptopt.findings import Span
from ptopt.project.added import ADDED
from ptopt.project.facts import ProjectFacts
from ptopt.rules.base import SURE, Problem, Rule
from ptopt.source.file import SourceFile
from ptopt.source.searchable import Searchable
from ptopt.source.work import WorkLimitError

_FEW = 8
_IDENTIFIER = re.compile(r"\w+")
_FUSED = frozenset({"ops"})  # families about single kernels, which a compiler merges
# Versions that all advice may take for granted where a project pins nothing.
_BASELINE = {"torch": "2.4", "transformers": "4.45", "lightning": "2.0"}


@dataclass(frozen=True, slots=True)
class Hit:
    """A problem, the rule that saw it, and where: lines of `SourceFile.text`, the symbol around them, their code.

    `of_change`: it was seen in what the change took out, and stands beside that.
    """

    rule: Rule
    problem: Problem
    span: Span
    symbol: str
    code: str
    of_change: bool = False

    @classmethod
    def of(cls, rule: Rule, problem: Problem, file: SourceFile, of_change: bool = False) -> Hit:
        span = problem.span or file.span(problem.node)
        code = "\n".join(file.line(number) for number in span.lines())
        return cls(rule, problem, span, file.index.symbol_of(problem.node), code, of_change)


class Prefilter:
    """Picks the rules whose words occur in a file, before the file is parsed.

    `loss` is found in any identifier that contains it; `.item()`, `max(` and `torch.load(` only as whole identifiers. Words
    without a letter, such as ` @ `, are looked up in the text. A rule that only looks at calls needs the name of one.

    With `least`, a rule is picked only where it can state so much confidence, but for those that `asked` names by id.
    """

    def __init__(self, rules: Sequence[Rule], least: float = 0.0, asked: Collection[str] = ()) -> None:
        self._rules = [
            (rule, _groups(rule, least > SURE and rule.id not in asked))
            for rule in rules
            if rule.id in asked or states(rule, least)
        ]
        self._if_sure = frozenset(r.id for r, _ in self._rules if least > SURE and r.id not in asked)
        libraries = frozenset(library for rule, _ in self._rules for library in rule.libraries)
        self._libraries = [(library, library.encode()) for library in sorted(libraries)]
        self._of: dict[
            frozenset[str], list[tuple[Rule, list[_Words]]]
        ] = {}  # the libraries in a file -> rules

    def __call__(self, content: bytes | Searchable) -> list[Rule]:
        text = content if isinstance(content, Searchable) else Searchable(content)
        data = text.data
        # Most files hold no library, and need no vocabulary: they are looked through themselves.
        holds = text.holds if b"torch" in data else data.__contains__
        present = frozenset(library for library, word in self._libraries if holds(word))
        candidates = self._of.get(present)
        if candidates is None:
            candidates = self._of[present] = [
                (rule, groups) for rule, groups in self._rules if not present.isdisjoint(rule.libraries)
            ]
        if len(candidates) < _FEW:  # too few to be worth a vocabulary: the text itself will do
            found = (rule for rule, groups in candidates if all(words.in_text(data) for words in groups))
            return [rule for rule in found if rule.id not in self._if_sure or rule.may_be_sure_of(data)]
        identifiers, vocabulary = text.identifiers, text.vocabulary
        seen: dict[_Words, bool] = {}
        wanted = []
        for rule, groups in candidates:
            for words in groups:
                known = seen.get(words)
                if known is None:
                    known = seen[words] = words.among(identifiers, vocabulary, data)
                if not known:
                    break
            else:
                wanted.append(rule)
        return [rule for rule in wanted if rule.id not in self._if_sure or rule.may_be_sure_of(data)]


class _Words:
    """Words of which a file must hold one, sorted by how they are looked up."""

    def __init__(self, words: tuple[str, ...]) -> None:
        parts = [frozenset(part.encode() for part in _IDENTIFIER.findall(word)) for word in words]
        self._parts = parts
        self._whole = frozenset().union(*(p for p in parts if len(p) == 1))
        self._joined = [p for p in parts if len(p) > 1]
        self._inside = [word.encode() for word in words if word.isidentifier()]
        self._plain = [word.encode() for word, p in zip(words, parts, strict=True) if not p]

    def in_text(self, data: bytes) -> bool:
        return any(all(part in data for part in parts) for parts in self._parts)

    def among(self, identifiers: frozenset[bytes], vocabulary: bytes, data: bytes) -> bool:
        if not self._whole.isdisjoint(identifiers):
            return True
        for parts in self._joined:
            if parts <= identifiers:
                return True
        for word in self._inside:
            if word in vocabulary:
                return True
        return bool(self._plain) and any(word in data for word in self._plain)  # most have none


@functools.cache
def _words(words: tuple[str, ...]) -> _Words:
    return _Words(words)


def _groups(rule: Rule, sure: bool) -> list[_Words]:
    """Groups of words; the file must hold one of each. Those that many rules share come first."""
    called = tuple(f"{name}(" for name in sorted(rule.calls)) if rule.nodes == (ast.Call,) else ()
    needed = (rule.sure_triggers if sure else (), rule.requires, called, rule.triggers)
    return [_words(words) for words in needed if words]


def states(rule: Rule, least: float) -> bool:
    """Can the rule state so much confidence? What a rule of another package states is its own affair."""
    return rule.foreign or rule.most_stated >= least


def that_may_be_sure(
    rules: Iterable[Rule],
    file: SourceFile,
    failed: list[tuple[Rule, Exception]] | None = None,
    asked: Collection[str] = (),
) -> list[Rule]:
    """Those of which `Rule.may_be_sure` holds, and those that `asked` names by id.

    One that raises is left out, and lands in `failed`; without `failed`, the exception goes up, as in `run`.
    """
    found = []
    for rule in rules:
        try:
            if rule.id in asked or rule.may_be_sure(file):
                found.append(rule)
        except Exception as error:
            if failed is None:
                raise
            failed.append((rule, error))
    return found


def applies(rule: Rule, facts: ProjectFacts) -> bool:
    """Does the advice hold for the library versions that the project admits?

    Unknown versions count as current ones: since-gates pass, until-gates do not.
    """
    if not rule.since and not rule.until:
        return True
    if any(facts.at_least(package, version) is False for package, version in rule.since.items()):
        return False
    return all(facts.at_least(package, version) is False for package, version in rule.until.items())


def is_lacking(rule: Rule, texts: Iterable[str], facts: ProjectFacts) -> bool:
    """Does an advice of the rule name what a version that the project admits does not have?

    `texts` are what it says and what it writes. Rules leave such a part out where the rest stands by itself.
    """
    lacking = [ADDED[name] for name in rule.partly if not facts.has(name)]
    return bool(lacking) and any(added.is_named_in(text) for text in texts for added in lacking)


def assumptions(rule: Rule, facts: ProjectFacts) -> str:
    """What the rule takes for granted about versions: "torch >= 2.5", or "" when it is known or goes without saying."""
    open_gates = [
        f"{package} >= {version}"
        for package, version in sorted(rule.since.items())
        if facts.at_least(package, version) is None
        and _release(version) > _release(_BASELINE.get(package, "0"))
    ]
    return " and ".join(open_gates)


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _texts(problem: Problem) -> Iterator[str]:
    yield problem.message
    yield from (edit.replacement for edit in problem.fix.edits) if problem.fix is not None else ()


def run(
    file: SourceFile,
    rules: Sequence[Rule],
    failed: list[tuple[Rule, Exception]] | None = None,
    change: ChangedFile | None = None,
) -> list[Hit]:
    """Every problem that `rules` see in the file, and in the change where one is given, in source order.

    A rule that raises lands in `failed`, and the others go on, unless the work that the file may cost is spent; without
    `failed`, the exception goes up.
    """
    hits: list[Hit] = []
    for rule in rules:
        if not applies(rule, file.own_facts):
            continue
        try:
            for node in rule.candidates(file):
                problems = list(rule.check(node, file))
                if problems and (not rule.since or applies(rule, file.facts)):
                    hits += [
                        Hit.of(rule, problem, file)
                        for problem in problems
                        if not file.guards.unreachable(problem.node)
                        and not (rule.partly and is_lacking(rule, _texts(problem), file.facts))
                        and not (rule.family in _FUSED and file.context.is_compiled(problem.node))
                    ]
            if change is not None:
                hits += [Hit.of(rule, problem, file, True) for problem in rule.check_change(file, change)]
        except Exception as error:
            if failed is None:
                raise
            failed.append((rule, error))
            if isinstance(error, WorkLimitError):
                break  # nothing is left for the others either
    hits.sort(key=lambda hit: (hit.problem.node.lineno, hit.problem.node.col_offset, hit.rule.id))  # type: ignore[attr-defined]
    return hits
