"""A draw is scored by weights that have met neither it nor what came later."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.quality.draws import scored
from benchmarks.quality.parts import part_of

EARLIER = [repo for repo in (f"early/{number}" for number in range(40)) if part_of(repo) == "work"]
FIRST, SECOND = ("first/one", "first/two"), ("second/one", "second/two")


def judged(repo: str, verdict: str, **features: float) -> dict[str, Any]:
    return {
        "repo": repo,
        "rule": "some-rule",
        "verdict": verdict,
        "features": {"stated confidence": 0.8} | features,
    }


def rows_of(repos: tuple[str, ...], verdict: str, **features: float) -> list[Mapping[str, Any]]:
    return [judged(repo, verdict, **features) for repo in repos for _ in range(10)]


def test_a_draw_is_scored_by_what_came_before_it() -> None:
    # Before the draws, comments in a loop were useful and others trivial; the first draw says the opposite, loudly.
    before = [judged(repo, "R" if n % 2 else "T", loop=float(n % 2)) for repo in EARLIER for n in range(4)]
    first = rows_of(FIRST, "T", loop=1.0) + rows_of(FIRST, "R", loop=0.0)
    second = rows_of(SECOND, "T", loop=1.0)
    draws, judged_rows = {"1": frozenset(FIRST), "2": frozenset(SECOND)}, [*before, *first, *second]
    found = scored(draws, judged_rows, [])
    assert len(found) == 60
    assert scored(draws, judged_rows, [], "2") == found[:40]  # a later draw is left out, not learned from
    in_loop = [one.useful for one in found[:20]]
    elsewhere = [one.useful for one in found[20:40]]
    assert min(in_loop) > 0.6 > 0.4 > max(elsewhere)  # as before the draws, whatever the draw itself says


def test_both_readers_count() -> None:
    before = [judged(repo, "R" if n % 2 else "T", loop=float(n % 2)) for repo in EARLIER for n in range(4)]
    twice = judged(FIRST[0], "R", loop=1.0) | {"second": {"verdict": "W"}}
    (one,) = scored({"1": frozenset(FIRST)}, [*before, twice], [])
    assert one.verdicts == ("R", "W")
    assert one.stated == 0.8


def test_more_judged_comments_are_learned_from_but_none_of_the_repositories_of_a_draw() -> None:
    before = [judged(repo, "R" if n % 2 else "T", loop=float(n % 2)) for repo in EARLIER for n in range(4)]
    drawn = [*before, *rows_of(FIRST, "T", loop=1.0)]
    opposite = [judged(f"other/{n}", "T", loop=1.0) for n in range(200)]
    of_draw = [row | {"repo": FIRST[0]} for row in opposite]
    draws = {"1": frozenset(FIRST)}
    plain = scored(draws, drawn, [])
    assert scored(draws, drawn, [], also=of_draw) == plain
    assert scored(draws, drawn, [], also=opposite)[0].useful < plain[0].useful
