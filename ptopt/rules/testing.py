"""A rule held against its own examples: for the tests of a package with rules, as for ours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ptopt.rules.base import SURE, Invalid, Rule
from ptopt.rules.engine import Hit, Prefilter, run
from ptopt.rules.examples import PRELUDE, as_change, as_file, expected_lines
from ptopt.source.file import SourceFile
from ptopt.verify import apply_edits, verified

_PATH = "example.py"


def faults(rule: Rule) -> list[str]:
    """What is wrong with the rule or its examples, a sentence each; [] where each example is as the rule says.

    `VALID` is left alone, `INVALID` is reported on the lines that end in `# !`, its fix gives `fixed`, and `instead` is left
    alone again.
    """
    return [*_in_each(rule.VALID, "VALID", rule), *_in_each(rule.INVALID, "INVALID", rule)]


def _in_each(cases: Sequence[str | Invalid], kind: str, rule: Rule) -> Iterator[str]:
    for number, case in enumerate(cases):
        found = fault_of_valid(rule, case) if isinstance(case, str) else fault_of_invalid(rule, case)
        if found:
            yield f"{rule.id} {kind}[{number}]: {found}"


def fault_of_valid(rule: Rule, code: str) -> str:
    """Why the valid example is none; "" where the rule leaves it alone."""
    found = [f"line {hit.span.start}: {hit.problem.message}" for hit in _sure(_hits(rule, as_file(code)))]
    return f"is reported: {'; '.join(found)}" if found else ""


def fault_of_invalid(rule: Rule, case: Invalid) -> str:
    """Why the invalid example is none, or its fix is not the stated one; "" where both are right."""
    expected = expected_lines(case.code)
    if not expected:
        return "no line of it is marked with `# !`"
    text = as_file(case.code)
    file = SourceFile.parse(_PATH, text.encode(), rule.PROJECT)
    hits = _hits(rule, text, file)
    hits = _sure(hits) or hits  # where it says nothing, what it only proposes to the ranker
    lines = sorted({hit.span.start for hit in hits})
    if lines != expected:
        return f"is reported on the lines {lines} of the example with its imports, not on {expected}"
    if case.instead is not None and _hits(rule, as_file(case.instead)):
        return "what to write instead is reported again"
    return _fault_of_fix(rule, case, text, file, hits)


def _fault_of_fix(rule: Rule, case: Invalid, text: str, file: SourceFile, hits: Sequence[Hit]) -> str:
    before = len(run(file, [rule]))
    fixes = [fix for hit in hits if (fix := verified(file, rule, hit.problem, before)) is not None]
    if case.fixed is None:
        return "has a fix, and states no fixed code" if fixes else ""
    if len(fixes) != len(hits):
        return "a fix of it does not pass its own verification"
    fixed = apply_edits(text, sorted({edit for fix in fixes for edit in fix.edits}))
    if _without_prelude(fixed) != _without_prelude(as_file(case.fixed)):
        return f"the fix gives other code than the stated one:\n{_without_prelude(fixed)}"
    return "the fixed code is reported again" if _sure(_hits(rule, fixed)) else ""


def _hits(rule: Rule, text: str, file: SourceFile | None = None) -> list[Hit]:
    file = file or SourceFile.parse(_PATH, text.encode(), rule.PROJECT)
    return run(file, Prefilter([rule])(text.encode()), change=as_change(_PATH, text))


def _sure(hits: Sequence[Hit]) -> list[Hit]:
    return [hit for hit in hits if hit.problem.confidence >= SURE]


def _without_prelude(text: str) -> str:
    """The code but for the usual imports, which a fix takes out when it leaves them unused."""
    usual = PRELUDE.split("\n")
    return "\n".join(line for line in text.split("\n") if line not in usual or not line).strip("\n")
