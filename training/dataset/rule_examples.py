"""The rules' own examples and benchmarks as samples: small, exact, and ours."""

from __future__ import annotations

import ast
import dataclasses
import functools
import textwrap
from collections.abc import Iterator

from ptopt.rules import rules
from ptopt.rules.base import SURE, Invalid, Rule
from ptopt.rules.examples import PRELUDE, plain
from training.dataset.regions import Region
from training.dataset.rows import Sample, Speedup
from training.dataset.synthesis import Origin, corrected, review, sample_of
from training.sandbox.execute import Outcome, Pair

ORIGIN = Origin("ptopt", "Apache-2.0", "ptopt", "ptopt")


@functools.cache
def examples() -> tuple[Sample, ...]:
    """Samples of the examples of each rule that is on by default, where the review agrees with them. Worked out once.

    A fixed example is a "no" to its rule. A valid one is not: many only say where the rule keeps silent.
    """
    return tuple(_examples())


def _examples() -> Iterator[Sample]:
    for rule in rules():
        if rule.default:
            for number, code in enumerate(rule.VALID):
                yield from _example(rule, code, f"valid-{number}")
            for number, invalid in enumerate(rule.INVALID):
                yield from _example(rule, invalid.code, f"invalid-{number}", invalid)


def _example(rule: Rule, code: str, name: str, invalid: Invalid | None = None) -> Iterator[Sample]:
    text = plain(code)
    fixed = plain(invalid.fixed) if invalid is not None and invalid.fixed is not None else None
    if rule.name.endswith("-removed") or any(line.lstrip().startswith("# - ") for line in text.split("\n")):
        return  # about what a change removed, which a file does not show
    context = "" if text.startswith(("import ", "from ")) else _imports(f"{text}\n{fixed or ''}")
    region = Region(f"examples/{rule.name}/{name}.py", "", context, text, method=False)
    proposed = review(region.path, region.as_file())
    found = [f for f in proposed if f.confidence >= SURE]
    if invalid is None:
        if not proposed:
            sample = sample_of(region, ORIGIN, found, kind="example", main_rule=rule.name)
            yield dataclasses.replace(sample, negatives=())
    elif any(f.name == rule.name for f in found):
        sample = sample_of(region, ORIGIN, found, kind="example", main_rule=rule.name, after=fixed)
        yield sample
        yield from corrected(sample)


def _imports(text: str) -> str:
    """The lines of `PRELUDE` that the text needs."""
    used = {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
    lines = []
    for node in ast.parse(PRELUDE).body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            node.names = [a for a in node.names if (a.asname or a.name.partition(".")[0]) in used]
            lines += [ast.unparse(node)] if node.names else []
    return "\n".join(lines) + "\n\n" if lines else ""


def pairs() -> Iterator[tuple[Rule, Pair]]:
    """The benchmarks of the rules: what runs before and after the advice."""
    for rule in rules():
        if rule.BENCHMARK is not None:
            bench = rule.BENCHMARK
            yield (
                rule,
                Pair(*(textwrap.dedent(code).strip() for code in (bench.setup, bench.before, bench.after))),
            )


def measured(rule: Rule, pair: Pair, outcome: Outcome) -> Sample | None:
    """The pair as a sample, if it ran, gave the same, and was faster."""
    if not outcome.keep:
        return None
    text = f"{pair.setup}\n\n{pair.before}\n"
    region = Region(f"benchmarks/{rule.name}.py", "", "", text, method=False)
    found = [f for f in review(region.path, text) if f.confidence >= SURE and f.name == rule.name]
    if not found:
        return None
    after = f"{pair.setup}\n\n{pair.after}\n"
    return sample_of(
        region, ORIGIN, found, kind="pair", main_rule=rule.name, after=after,
        speedup=Speedup(outcome.factor, f"measured in a sandbox: {outcome.how}"),
    )  # fmt: skip
