from __future__ import annotations

import random

from training.dataset.rows import Positive, Sample
from training.dataset.split import PER_GROUP, Sizes, assign, select

SIZES = Sizes(800, 120, 80)


def words(seed: int) -> str:
    draw = random.Random(seed)
    return "\n".join("".join(draw.choices("abcdefghij", k=6)) for _ in range(40)) + "\n"


def sample(number: int, rule: str, *, bad: bool, group: str = "", difficulty: str = "easy") -> Sample:
    return Sample(
        text=words(number), context="", path="a.py", project="p", licence="MIT", source="s", provenance="",
        kind="mutated" if bad else "original", main_rule=rule, difficulty=difficulty, group=group or str(number),
        positives=(Positive(rule, 1, 1, ""),) if bad else (), negatives=() if bad else (rule,),
    )  # fmt: skip


def test_small_splits_get_their_share_and_large_projects_train() -> None:
    weights = {f"p{n}": 100 for n in range(40)} | {"huge": 2000}
    split_of = assign(weights, SIZES, seed=3, train_only=frozenset({"p0"}))
    assert set(split_of) == set(weights)
    assert split_of["huge"] == split_of["p0"] == "train"
    counts = {
        s: sum(weights[p] for p in weights if split_of[p] == s) for s in ("train", "validation", "test")
    }
    assert counts["validation"] >= 0.12 * sum(weights.values())
    assert counts["test"] >= 0.08 * sum(weights.values())
    assert assign(weights, SIZES, seed=3, train_only=frozenset({"p0"})) == split_of
    assert assign(weights, SIZES, seed=4) != split_of


def test_rules_take_turns() -> None:
    pool = [sample(n, "often", bad=True) for n in range(100)] + [
        sample(200 + n, "seldom", bad=True) for n in range(15)
    ]
    pool += [sample(400 + n, "often", bad=False) for n in range(60)]
    chosen = select(pool, 80, seed=0)
    bad = [s for s in chosen if s.positives]
    assert sum(s.main_rule == "seldom" for s in bad) == 15
    assert sum(s.main_rule == "often" for s in bad) <= 25
    assert len({s.hash for s in chosen}) == len(chosen)
    assert [s.hash for s in select(reversed(pool), 80, seed=0)] == [s.hash for s in chosen]
    assert {s.hash for s in select(pool, 80, seed=1)} != {s.hash for s in chosen}


def test_difficulties_take_turns() -> None:
    pool = [sample(n, "r", bad=True, difficulty="easy" if n < 80 else "hard") for n in range(90)]
    chosen = select(pool, 24, seed=0)
    assert sum(s.difficulty == "hard" for s in chosen) >= 5


def test_one_piece_of_code_is_not_used_too_often() -> None:
    pool = [sample(n, f"rule-{n}", bad=True, group="same") for n in range(20)]
    assert len(select(pool, 40, seed=0)) == PER_GROUP


def test_near_duplicates_about_one_rule_are_left_out() -> None:
    first = sample(1, "r", bad=True)
    from dataclasses import replace

    again = replace(first, text=first.text + "one more line\n", group="other")
    assert len(select([first, again], 10, seed=0)) == 1
