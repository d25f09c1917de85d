"""Replay: the reviewer learns from simulated people who vote on judged comments of real commits.

Each run is one repository of the part `judge` (which the ranker was not fitted on), with people, tastes and chance of its own.
Pull requests bring candidates of that repository's commits, up to five; what the review shows is answered by some; an *event* is an
answer that counts. At each checkpoint 60 such pull requests are reviewed, and nobody votes on them: *addressed* is the share of
useful comments (R) among those shown, explored ones included; *lost* the share of the useful ones that is not shown.

*broad* starts from all candidates (`min-confidence = 0`), *default* from the threshold of the shipped ranker. *held out* is
a repository that voted on the comments of half of its commits alone, at those of the other half.
"""

from __future__ import annotations

import argparse
import math
import random
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import stdev

from benchmarks.learning import rows
from benchmarks.learning.people import Attack, Repository
from benchmarks.learning.rows import Candidate, family_of
from feedback.calibration import RepositoryState
from ptopt.learned import Learned
from ptopt.ranker.model import threshold

CHECKPOINTS = (0, 25, 50, 100, 200, 400)
_IN_REVIEW = 5
_REVIEWS = 60  # pull requests of a repository that are looked at at a checkpoint
_FEWEST = 8  # candidates of a repository that is simulated
_MOST_PULLS = 3_000  # where nothing is shown, nobody answers
_DRIFT_AT = 200
_MOST_LOST = 0.03  # of the useful findings: the bar
_AFTER_DRIFT = (0, 10, 25, 50, 100)
_SHARES = (0.0, 0.35, 0.6, 0.999, 1.0)  # of the findings of a rule that are useful
HONEST = Attack("nobody")
ATTACKS = (
    HONEST,
    Attack("10 % of the people vote the opposite", members=0.1),
    Attack("a ring of 20 accounts, without write access", ring=20),
    Attack("5 % of the signals turned round", poisoned=0.05),
    Attack("a ring of 20 accounts with write access", ring=20, ring_writes=True),
)


@dataclass(slots=True)
class Tally:
    """Comments of a pull request on average, summed over repositories: what reviews show, what of it is useful, and what is useful
    of all candidates."""

    shown: float = 0.0
    good: float = 0.0
    useful: float = 0.0

    def add(
        self, repository: Repository, learned: Learned, candidates: Sequence[Candidate], least: float
    ) -> None:
        """What reviews of candidates show, which are drawn alike each time: of those that are quiet one at most."""
        chance = random.Random(0)
        shown = good = useful = 0
        for _ in range(_REVIEWS):
            drawn = list(dict.fromkeys(chance.choices(candidates, k=_IN_REVIEW)))
            made = list(_review(drawn, learned, least, chance))
            shown += len(made)
            good += sum(map(repository.useful, made))
            useful += sum(map(repository.useful, drawn))
        self.shown += shown / _REVIEWS
        self.good += good / _REVIEWS
        self.useful += useful / _REVIEWS

    def add_each(
        self, repository: Repository, learned: Learned, candidates: Sequence[Candidate], least: float
    ) -> None:
        """Each candidate once, as if it were alone in a review: what is explored counts by its share."""
        for one in candidates:
            share = shows(learned, one, least)
            useful = repository.useful(one)
            self.shown += share
            self.good += share * useful
            self.useful += useful

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.shown + other.shown, self.good + other.good, self.useful + other.useful)

    @property
    def addressed(self) -> float:
        return self.good / self.shown if self.shown else 0.0

    @property
    def lost(self) -> float:
        return 1 - self.good / self.useful if self.useful else 0.0


def shows(learned: Learned, one: Candidate, least: float) -> float:
    """The probability that a review shows the candidate, as `ptopt.review` decides."""
    feedback = learned.of(one.rule, family_of(one.rule))
    if learned.quiet(feedback, one.score, least):
        return learned.explored(feedback, one.score) if one.score >= least else 0.0
    return 1.0 if learned.confidence(feedback, one.score, least) >= least else 0.0


def _review(
    drawn: Iterable[Candidate], learned: Learned, least: float, chance: random.Random
) -> Iterator[Candidate]:
    """What a review of these shows: of those that are quiet one at most, as `ptopt.review` does."""
    explored = False
    for one in drawn:
        if chance.random() < shows(learned, one, least):
            quiet = learned.quiet(learned.of(one.rule, family_of(one.rule)), one.score, least)
            if not (quiet and explored):
                yield one
            explored |= quiet


def run(
    repository: Repository, candidates: Sequence[Candidate], least: float, events: Sequence[int]
) -> Iterator[RepositoryState]:
    """Pull requests until so many answers were given; the state at each number of them."""
    given = pulls = 0
    for wanted in events:
        current = repository.state()
        learned = current.learned()
        while given < wanted and pulls < _MOST_PULLS:
            drawn = repository.chance.choices(candidates, k=_IN_REVIEW)
            shown = list(_review(dict.fromkeys(drawn), learned, least, repository.chance))
            pulls += 1
            answered = repository.pull_request(shown)
            if answered:
                given += answered
                current = repository.state()
                learned = current.learned()
        yield current


def repositories(
    by_repo: Mapping[str, Sequence[Candidate]], seeds: Iterable[int], attack: Attack, other: str = ""
) -> Iterator[tuple[Repository, Sequence[Candidate]]]:
    """Each repository once for a seed, with people and chance of its own: `other` ones for another text."""
    for seed in seeds:
        for number, (name, candidates) in enumerate(by_repo.items()):
            if len(candidates) >= _FEWEST:
                chance = random.Random(f"{seed} {name} {attack.name}{other}")
                yield Repository(number, candidates, attack, chance), candidates


def learning(
    by_repo: Mapping[str, Sequence[Candidate]], seeds: Sequence[int], least: float, held_out: bool = False
) -> list[Tally]:
    """The tally at each checkpoint."""
    tallies = [Tally() for _ in CHECKPOINTS]
    for repository, candidates in repositories(by_repo, seeds, HONEST):
        voted_on, judged = candidates, candidates
        if held_out:
            commits = sorted({c.sha for c in candidates})
            repository.chance.shuffle(commits)
            half = set(commits[: len(commits) // 2])
            voted_on = [c for c in candidates if c.sha in half]
            judged = [c for c in candidates if c.sha not in half]
            if not voted_on or not judged:
                continue
        for tally, current in zip(tallies, run(repository, voted_on, least, CHECKPOINTS), strict=True):
            tally.add(repository, current.learned(), judged, least)
    return tallies


def drift(
    by_repo: Mapping[str, Sequence[Candidate]],
    seeds: Sequence[int],
    least: float,
    *,
    returns: bool,
    known: bool = False,
) -> tuple[Tally, list[Tally]]:
    """After 200 events people change their minds about a third of the rules that find what is useful: they do not want
    them any more, or, with `returns`, want them from then on. First the tally of people who never thought otherwise, at as
    many events; then that at numbers of events after the drift. `known`: the reviewer knows when, which no review can."""
    settled, after = Tally(), [Tally() for _ in _AFTER_DRIFT]
    changing = repositories(by_repo, seeds, HONEST)
    for (repository, candidates), (fresh, _) in zip(
        changing, repositories(by_repo, seeds, HONEST, " settled"), strict=True
    ):
        liked = sorted({c.rule for c in candidates if c.useful})
        changed = frozenset(repository.chance.sample(liked, math.ceil(len(liked) / 3)))
        now = frozenset() if returns else changed
        fresh.unwanted = now
        (current,) = run(fresh, candidates, least, [_DRIFT_AT])
        settled.add(fresh, current.learned(), candidates, least)
        repository.unwanted = changed - now
        for _ in run(repository, candidates, least, [_DRIFT_AT]):
            repository.unwanted = now
        if known:
            repository.minds_changed()
        for tally, current in zip(after, run(repository, candidates, least, _AFTER_DRIFT), strict=True):
            tally.add(repository, current.learned(), candidates, least)
    return settled, after


def best_by_rule(by_repo: Mapping[str, Sequence[Candidate]], most_lost: float) -> Tally:
    """What a filter would reach that knows what is useful, and may only leave out rules of a repository as a whole: those with the
    smallest share of useful findings first, until the next would lose more than this share of them all."""
    cells = [cell for several in by_repo.values() if len(several) >= _FEWEST for cell in _by_rule(several)]
    cells.sort(key=lambda cell: sum(one.useful for one in cell) / len(cell))
    useful = sum(one.useful for cell in cells for one in cell)
    found = Tally(sum(map(len, cells)), useful, useful)
    for cell in cells:
        left = found.good - sum(one.useful for one in cell)
        if left < (1 - most_lost) * useful:
            break
        found = Tally(found.shown - len(cell), left, useful)
    return found


def where_lost(by_repo: Mapping[str, Sequence[Candidate]], seeds: Sequence[int], least: float) -> list[Tally]:
    """Of which rules the findings are that are lost after 200 events: for each of `_SHARES`, the tally of the rules of which
    at most this share is useful in the repository, and more than the share before."""
    tallies = [Tally() for _ in _SHARES]
    for repository, candidates in repositories(by_repo, seeds, HONEST):
        (current,) = run(repository, candidates, least, [200])
        learned = current.learned()
        for cell in _by_rule(candidates):
            useful = sum(one.useful for one in cell) / len(cell)
            tallies[bisect_left(_SHARES, useful)].add_each(repository, learned, cell, least)
    return tallies


def _by_rule(candidates: Iterable[Candidate]) -> Iterable[list[Candidate]]:
    of_rule: defaultdict[str, list[Candidate]] = defaultdict(list)
    for one in candidates:
        of_rule[one.rule].append(one)
    return of_rule.values()


def damage(
    by_repo: Mapping[str, Sequence[Candidate]], seeds: Sequence[int], least: float, attack: Attack
) -> tuple[int, int, Tally]:
    """Runs, those that lose a good rule (at least two findings, most of them useful) at 200 events, and the tally."""
    runs = lost = 0
    tally = Tally()
    for repository, candidates in repositories(by_repo, seeds, attack):
        (current,) = run(repository, candidates, least, [200])
        learned = current.learned()
        tally.add(repository, learned, candidates, least)
        good = [
            cell
            for cell in _by_rule(candidates)
            if len(cell) >= 2
            and sum(c.useful for c in cell) >= 0.6 * len(cell)
            and any(c.score >= least for c in cell)
        ]
        if good:
            runs += 1
            lost += any(all(shows(learned, c, least) < 1 for c in cell) for cell in good)
    return runs, lost, tally


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.learning",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seeds", type=int, default=4, help="runs of each repository")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the seed of the first run")
    parser.add_argument(
        "--part", choices=("work", "calibrate", "judge"), action="append", help="[default: judge]"
    )
    parser.add_argument("--tastes", type=int, metavar="SEED", help="draw what is useful [default: as judged]")
    options = parser.parse_args(arguments)
    by_repo = rows.read(options.part or rows.UNSEEN)
    if options.tastes is not None:
        by_repo = rows.with_other_tastes(by_repo, options.tastes)
    used = [c for several in by_repo.values() if len(several) >= _FEWEST for c in several]
    seeds = range(options.first, options.first + options.seeds)
    print(
        f"{sum(len(s) >= _FEWEST for s in by_repo.values())} repositories, {len(used)} judged comments, "
        f"{sum(c.useful for c in used) / len(used):.0%} of them useful; {options.seeds} runs of each\n"
    )
    shipped = threshold(None)
    print(f"{'addressed / lost after events':42}" + "".join(f"{n:>13}" for n in CHECKPOINTS))
    for name, least, held_out in (
        ("broad", 0.0, False),
        ("default", shipped, False),
        ("broad, held out", 0.0, True),
        ("default, held out", shipped, True),
    ):
        each = [learning(by_repo, [seed], least, held_out) for seed in seeds]
        tallies = [sum(column, Tally()) for column in zip(*each, strict=True)]
        if name == "broad":
            at_200, *at_200_each = (run[CHECKPOINTS.index(200)] for run in (tallies, *each))
        print(f"{name:42}" + "".join(f"{t.addressed:8.0%}/{t.lost:4.0%}" for t in tallies))
    for most_lost in (0.0, _MOST_LOST):
        best = best_by_rule(by_repo, most_lost)
        name = f"oracle of whole rules, at most {most_lost:.0%} lost"
        print(f"{name:42}{best.addressed:8.0%}/{best.lost:4.0%}")
    print(
        f"\n{'broad, 200 events: rules of which':42}{'useful':>13}{'lost':>13}{'shown for nothing':>22}   (a run)"
    )
    by_share = where_lost(by_repo, seeds, 0.0)
    for most, tally in zip(_SHARES, by_share, strict=True):
        numbers = (tally.useful, tally.useful - tally.good, tally.shown - tally.good)
        useful, lost, idle = (number / options.seeds for number in numbers)
        print(f"{f'at most {most:.4g} is useful':42}{useful:13.1f}{lost:13.1f}{idle:22.1f}")
    alone = sum(by_share, Tally())
    print(f"each comment alone, not in reviews: addressed {alone.addressed:.1%}, lost {alone.lost:.1%}")
    print(
        f"\n{'broad, events after a change of minds':42}{'settled':>13}"
        + "".join(f"{n:>13}" for n in _AFTER_DRIFT)
    )
    recovered: dict[str, list[float]] = {}
    at_best: dict[str, list[float]] = {}
    at_50 = _AFTER_DRIFT.index(50)
    for name, returns, what, share_of in (
        ("a third of the rules unwanted", False, "unwanted: addressed", _addressed_of),
        ("a third of the rules wanted again", True, "wanted again: found", _found_of),
    ):
        for known, shares in ((False, recovered), (True, at_best)):
            drifts = [drift(by_repo, [seed], 0.0, returns=returns, known=known) for seed in seeds]
            settled = sum((first for first, _ in drifts), Tally())
            after = [sum(column, Tally()) for column in zip(*(then for _, then in drifts), strict=True)]
            shares[what] = [share_of(first, then[at_50]) for first, then in ((settled, after), *drifts)]
            line = "  oracle that knows when" if known else name
            print(f"{line:42}" + "".join(f"{t.addressed:8.0%}/{t.lost:4.0%}" for t in (settled, *after)))
    print(f"\n{'attack':46}{'runs':>6}{'lose a good rule':>18}{'addressed':>11}{'lost':>6}")
    harmed = {}
    for attack in ATTACKS:
        runs, lost, tally = damage(by_repo, seeds, 0.0, attack)
        harmed[attack.name] = lost / max(runs, 1)
        print(f"{attack.name:46}{runs:6}{lost / max(runs, 1):18.1%}{tally.addressed:11.0%}{tally.lost:6.0%}")
    bars = (
        (
            "addressed after 200 events, from all candidates",
            f"{at_200.addressed:.1%}",
            _within([run.addressed for run in at_200_each]),
            ">= 60 %",
            at_200.addressed >= 0.6,
        ),
        (
            "useful findings lost then",
            f"{at_200.lost:.1%}",
            _within([run.lost for run in at_200_each]),
            "<= 3 %",
            at_200.lost <= _MOST_LOST,
        ),
        *(
            (
                f"50 events after rules became {what}, of the settled share",
                f"{share:.1%}",
                _within(each),
                ">= 95 %",
                share >= 0.95,
            )
            for what, (share, *each) in recovered.items()
        ),
        *(
            (f"runs that lose a good rule: {name}", f"{share:.1%}", "", "< 2 %", share < 0.02)
            for name, share in harmed.items()
            if name not in (HONEST.name, ATTACKS[-1].name)
        ),
    )
    print()
    for what, (share, *in_runs) in at_best.items():
        name = f"oracle that knows when: 50 events after rules became {what}"
        print(f"{name:75}{share:>8.1%}{_within(in_runs):>7}")
    for what, value, within, bar, reached in bars:
        print(f"{what:75}{value:>8}{within:>7}   bar {bar:8} {'reached' if reached else 'MISSED'}")
    print("±: 95 % over people and chance, the repositories being what they are")
    return 0


def _addressed_of(settled: Tally, after: Tally) -> float:
    return after.addressed / settled.addressed if settled.addressed else 0.0


def _found_of(settled: Tally, after: Tally) -> float:
    return (1 - after.lost) / (1 - settled.lost) if settled.lost < 1 else 0.0


def _within(each: Sequence[float]) -> str:
    """Half of the 95 % interval of their mean, in points."""
    return f"± {196 * stdev(each) / math.sqrt(len(each)):.1f}" if len(each) > 1 else ""
