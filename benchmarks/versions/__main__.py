"""Asks each environment whether what the rules say of its libraries is true, and fails where advice is obsolete.

    python -m benchmarks.versions old/bin/python new/bin/python

Each argument is the Python of an environment, the newest last; ptopt need not be installed there. A rule that is wrong for a version must have it
excluded by `since` or `until`. Exit status 1: at least one is not, and is named with what changed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.version import Version

from benchmarks.versions.facts import BY_HAND, Fact, of_settings
from benchmarks.versions.names import of_rules
from ptopt.rules import find_rule

_INSIDE = Path(__file__).with_name("inside.py")
_SECONDS = 600


@dataclass(frozen=True, slots=True)
class Environment:
    """What one environment answered."""

    versions: dict[str, str]
    answers: dict[str, str | None]

    def __str__(self) -> str:
        return ", ".join(f"{name} {version}" for name, version in self.versions.items())


def all_facts() -> list[Fact]:
    return [*BY_HAND, *of_settings(), *of_rules()]


def ask(python: str, facts: Iterable[Fact]) -> Environment:
    """Raises CalledProcessError where the environment cannot be asked."""
    questions = json.dumps(sorted({fact.question for fact in facts}))
    ran = subprocess.run(
        [python, "-I", str(_INSIDE)],
        input=questions,
        capture_output=True,
        text=True,
        check=True,
        timeout=_SECONDS,
    )
    read: dict[str, Any] = json.loads(ran.stdout)
    return Environment(read["versions"], read["answers"])


def applies(fact: Fact, rule_name: str, environment: Environment) -> bool:
    """Is the rule in force for the versions of the environment?"""
    version = environment.versions.get(fact.library)
    if version is None:
        return False
    rule = find_rule(rule_name)
    here = Version(Version(version).base_version)
    since = [text for text in (fact.since, rule.since.get(fact.library, "") if rule else "") if text]
    until = [text for text in (fact.until, rule.until.get(fact.library, "") if rule else "") if text]
    return all(here >= Version(text) for text in since) and all(here < Version(text) for text in until)


def broken(
    facts: Sequence[Fact], environments: Sequence[Environment]
) -> list[tuple[Environment, str, Fact, str]]:
    """(environment, rule, fact, answer) of what does not hold although the rule is in force there."""
    found = []
    for fact in facts:
        answers = {environment.answers.get(fact.question) for environment in environments}
        if fact.question.startswith("method(") and "True" not in answers:
            continue  # of an object that no library has
        if (
            fact.given
            and answers & set(fact.expected)
            and environments[-1].answers.get(fact.question) in fact.expected
        ):
            continue  # it came with a later version
        for environment in environments:
            answer = environment.answers.get(fact.question)
            if answer is None or answer in fact.expected:
                continue
            found += [
                (environment, rule, fact, answer) for rule in fact.rules if applies(fact, rule, environment)
            ]
    return found


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.versions", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("pythons", nargs="+", metavar="PYTHON", help="the Python of an environment")
    given = parser.parse_args(arguments)
    facts = all_facts()
    environments = [ask(python, facts) for python in given.pythons]
    for environment in environments:
        asked = [fact for fact in facts if environment.answers.get(fact.question) is not None]
        rules = {rule for fact in asked for rule in fact.rules}
        print(f"{environment}: {len(asked)} facts of {len(rules)} rules")
    wrong = broken(facts, environments)
    for environment, rule, fact, answer in wrong:
        version = environment.versions[fact.library]
        print(f"{rule}: {fact.says}; in {fact.library} {version} it is {answer} (`{fact.question}`)")
    print(f"{len(wrong)} of them do not hold" if wrong else "all of them hold")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
