"""Runs rules over a file: substring pre-filter, version gates, one dispatch over the nodes of the index."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ptopt.rules.base import Problem, Rule
from ptopt.source.file import SourceFile
from ptopt.source.project import ProjectFacts

_IDENTIFIER = re.compile(r"\w+")
_TO_WORDS = bytes(c if chr(c).isalnum() or c == ord("_") or c > 127 else ord(" ") for c in range(256))

# Versions that all advice may take for granted where a project pins nothing.
_BASELINE = {"torch": "2.4"}


@dataclass(frozen=True, slots=True)
class Hit:
    """A problem and the rule that saw it."""

    rule: Rule
    problem: Problem


class Prefilter:
    """Picks the rules whose trigger words occur in a file, before the file is parsed.

    A word of punctuation is looked up in the text, any other by its identifiers in the file's vocabulary, which is a
    fraction of the text. That may let a file through that the text would not: rules look closer anyway.
    """

    def __init__(self, rules: Sequence[Rule]) -> None:
        # The words that many rules share are looked up first.
        self._rules = [
            (rule, [words for words in (rule.libraries, rule.requires, rule.triggers) if words])
            for rule in rules
        ]
        self._parts = {
            word: tuple(part.encode() for part in _IDENTIFIER.findall(word))
            for _, groups in self._rules
            for words in groups
            for word in words
        }

    def __call__(self, data: bytes) -> list[Rule]:
        identifiers = frozenset(data.translate(_TO_WORDS).split())
        vocabulary = b" ".join(identifiers)
        seen: dict[str, bool] = {}

        def holds(word: str) -> bool:
            known = seen.get(word)
            if known is None:
                parts = self._parts[word]
                if not parts:
                    known = word.encode() in data
                elif word.startswith("."):  # a whole attribute name
                    known = identifiers.issuperset(parts)
                else:
                    known = all(part in vocabulary for part in parts)
                seen[word] = known
            return known

        return [rule for rule, groups in self._rules if all(any(map(holds, words)) for words in groups)]


def applies(rule: Rule, facts: ProjectFacts) -> bool:
    """Does the advice hold for the library versions that the project admits?

    Unknown versions count as current ones: since-gates pass, until-gates do not.
    """
    if any(facts.at_least(package, version) is False for package, version in rule.since.items()):
        return False
    return all(facts.at_least(package, version) is False for package, version in rule.until.items())


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


def run(
    file: SourceFile, rules: Sequence[Rule], failed: list[tuple[Rule, Exception]] | None = None
) -> list[Hit]:
    """Every problem that `rules` see in the file, in source order.

    A rule that raises lands in `failed`, and the others go on; without `failed`, the exception goes up.
    """
    hits: list[Hit] = []
    for rule in rules:
        if not applies(rule, file.facts):
            continue
        try:
            hits += [
                Hit(rule, problem)
                for node in file.index.of_type(*rule.nodes)
                for problem in rule.check(node, file)
            ]
        except Exception as error:
            if failed is None:
                raise
            failed.append((rule, error))
    hits.sort(key=lambda hit: (hit.problem.node.lineno, hit.problem.node.col_offset, hit.rule.id))  # type: ignore[attr-defined]
    return hits
