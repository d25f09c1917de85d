"""What one rule writes about a piece of code."""

from __future__ import annotations

from ptopt.project.facts import NO_FACTS, ProjectFacts
from ptopt.rules import find_rule
from ptopt.rules.base import Problem
from ptopt.rules.engine import run
from ptopt.rules.examples import as_file
from ptopt.source.file import SourceFile


def messages(name: str, code: str, facts: ProjectFacts = NO_FACTS) -> list[str]:
    """The messages of the rule of that name, in source order."""
    return [problem.message for problem in hits(name, code, facts)]


def hits(name: str, code: str, facts: ProjectFacts = NO_FACTS) -> list[Problem]:
    """What the rule of that name finds, in source order."""
    rule = find_rule(name)
    assert rule is not None
    file = SourceFile.parse("train.py", as_file(code).encode(), facts)
    return [hit.problem for hit in run(file, [rule()])]
