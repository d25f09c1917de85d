"""The tables that a scoring command prints."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.quality.score import Outcome, table, wilson


def print_case(one: Outcome) -> None:
    """One case and what was said of it."""
    verdict = (
        f"found {one.found}/{one.wanted}" if one.wanted else "clean" if not one.comments else "COMMENTED"
    )
    mode = f" ({one.mode})" if one.mode else ""
    print(f"{one.name} {one.label}{mode} {one.category} {one.difficulty}: {verdict}")
    for said in one.said:
        print(f"    {said}")


def print_summary(outcomes: Sequence[Outcome], *, families: bool = True, cases: bool = True) -> None:
    """Recall in parts and in total, clean commits commented, comments per case.

    `families` splits the total by kind of rule; without `cases`, no case is named.
    """
    problems = [o for o in outcomes if o.label == "problem"]
    clean = [o for o in outcomes if o.label == "clean"]
    for key in ("category", "difficulty", "mode"):
        rows = table(outcomes, key)
        if key == "mode" and not any(value for value, _, _ in rows):
            continue
        print(f"\nrecall by {key}")
        for value, found, wanted in rows:
            print(f"  {value or '-':34} {found:3}/{wanted:<3} {found / wanted:5.0%}")
    wanted = sum(o.wanted for o in problems)
    print(f"\nproblems found          {share(sum(o.found for o in problems), wanted)}")
    if families:
        print(f"  without regressions   {share(sum(o.found_by_others for o in problems), wanted)}")
        print(f"  by regressions        {share(sum(o.found_by_regressions for o in problems), wanted)}")
    commented = [o for o in clean if o.comments]
    print(f"clean commits commented {share(len(commented), len(clean))}")
    for one in commented if cases else ():
        print(f"    {one.name} {one.category}: {'; '.join(one.said)}")
    print(f"comments per case       {_mean(problems):.2f} (problems), {_mean(clean):.2f} (clean)")
    for one in outcomes if cases else ():
        if one.label == "whole":
            goal = f"found {one.found}/{one.wanted}" if one.wanted else "should be silent"
            print(f"whole file {one.name}: {one.comments} comments, {goal}")


def share(part: int, whole: int) -> str:
    """A share with its Wilson interval."""
    if not whole:
        return "0/0"
    low, high = wilson(part, whole)
    return f"{part}/{whole} {part / whole:.1%} [{low:.1%}, {high:.1%}]"


def _mean(outcomes: list[Outcome]) -> float:
    return sum(o.comments for o in outcomes) / len(outcomes) if outcomes else 0.0
