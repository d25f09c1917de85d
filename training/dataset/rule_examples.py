"""The rules' own examples and benchmarks as samples: small, exact, and ours."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from ptopt.rules import rules
from ptopt.rules.base import SURE, Rule
from ptopt.rules.examples import PRELUDE, plain
from training.dataset.regions import Region
from training.dataset.rows import Sample, Speedup
from training.dataset.synthesis import Origin, review, sample_of
from training.sandbox.execute import Outcome, Pair

ORIGIN = Origin("ptopt", "Apache-2.0", "ptopt", "ptopt")


def examples() -> Iterator[Sample]:
    """One sample for each example of each rule that is on by default, where the review agrees with it."""
    for rule in rules():
        if rule.default:
            for number, code in enumerate(rule.VALID):
                yield from _example(rule, code, f"valid-{number}", bad=False)
            for number, invalid in enumerate(rule.INVALID):
                yield from _example(rule, invalid.code, f"invalid-{number}", bad=True)


def _example(rule: Rule, code: str, name: str, *, bad: bool) -> Iterator[Sample]:
    text = plain(code)
    context = "" if text.startswith(("import ", "from ")) else PRELUDE
    region = Region(f"examples/{rule.name}/{name}.py", "", context, text, method=False)
    found = [f for f in review(region.path, region.as_file()) if f.confidence >= SURE]
    if bad == any(f.name == rule.name for f in found) and (bad or not found):
        yield sample_of(region, ORIGIN, found, kind="example", main_rule=rule.name)


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
