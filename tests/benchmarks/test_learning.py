"""The replay bench: simulated people vote, and the tables and bars are printed."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from benchmarks.learning import accepted, prior, replay, rows
from benchmarks.learning.histories import KINDS
from benchmarks.learning.people import Repository
from benchmarks.learning.rows import Candidate, family_of
from feedback import wanted
from feedback.calibration import STRENGTHS
from ptopt.learned import Learned, RuleFeedback

GOOD = [Candidate("a/b", f"s{n}", "item-every-step", 0.4, True) for n in range(6)]
BAD = [Candidate("a/b", f"s{n}", "host-copy-every-step", 0.25, False) for n in range(10)]


def test_the_judged_comments_have_scores_and_families() -> None:
    by_repo = rows.read(("calibrate",))
    candidates = [c for several in by_repo.values() for c in several]
    assert len(candidates) > 300 and all(0 < c.score < 1 for c in candidates)
    assert all(family_of(c.rule) for c in candidates)


def test_other_tastes_are_drawn_around_the_ranker_s_score() -> None:
    drawn = rows.with_other_tastes({"a/b": GOOD * 300, "c/d": GOOD * 300}, deviation=0.0)
    assert drawn == rows.with_other_tastes({"a/b": GOOD * 300, "c/d": GOOD * 300}, deviation=0.0)
    assert [c.useful for c in drawn["a/b"]] != [c.useful for c in drawn["c/d"]]
    for several in drawn.values():
        assert sum(c.useful for c in several) / len(several) == pytest.approx(0.4, abs=0.05)


def test_people_teach_what_is_not_wanted() -> None:
    before, *_, after = replay.learning({"a/b": [*GOOD, *BAD]}, range(6), 0.0)
    assert (
        before.addressed == pytest.approx(6 / 16, abs=0.04) and before.lost == 0
    )  # of reviews that are drawn
    assert (
        after.addressed > 0.5 and after.lost < 0.01
    )  # the rest is explored: of one rule that is quiet, one in a review


def test_what_is_unwanted_from_now_on_becomes_quiet() -> None:
    settled, (at_once, *_, later) = replay.drift({"a/b": [*GOOD, *BAD]}, range(1), 0.0, returns=False)
    assert settled.good == at_once.good == later.good == 0  # there is nothing left that they want
    assert later.shown < at_once.shown


def test_who_knows_that_minds_changed_asks_at_once() -> None:
    """About each quiet rule until somebody answers; nothing is different before, or for the settled."""
    again = {"a/b": [*(replace(one, useful=True) for one in BAD[:4]), *GOOD]}
    alone, oracle = (
        replay.drift(again, range(12), 0.0, returns=True, known=known) for known in (False, True)
    )
    assert oracle[0] == alone[0]
    assert alone[1][0].lost > 0.3 > oracle[1][1].lost
    assert oracle[1][1].lost < alone[1][1].lost  # ten events later


def test_of_which_rules_findings_are_lost() -> None:
    never, *between, always = replay.where_lost({"a/b": [*GOOD, *BAD]}, range(2), 0.0)
    assert never.useful == 0 < never.shown and always.useful == 12
    assert all(tally.shown == 0 for tally in between)


def test_what_a_filter_of_whole_rules_reaches_at_best() -> None:
    mixed = [Candidate("a/b", f"m{n}", "sync", 0.3, n == 0) for n in range(10)]
    by_repo = {"a/b": [*GOOD, *BAD, *mixed], "too/few": GOOD}
    assert replay.best_by_rule(by_repo, 0.0) == replay.Tally(16, 7, 7)
    assert replay.best_by_rule(by_repo, 0.15) == replay.Tally(6, 6, 7)  # one of seven is 14 %
    assert replay.best_by_rule(by_repo, 0.14) == replay.Tally(16, 7, 7)


def test_a_voter_has_one_vote_on_a_rule_in_a_pull_request() -> None:
    """As in production, where the same filter gets the votes all at once."""
    repository = Repository(1, GOOD, replay.ATTACKS[2], random.Random(3))
    for number in range(1, 40):
        repository.pull_request(GOOD[:3])
        cast = [vote for several in repository._cast.values() for vote in several]
        assert repository.pull == number and repository._votes == len(wanted.counted(cast))
    assert repository._votes < len([vote for vote in cast if vote.writes])
    found = repository.state().rules
    assert [one.by_writers for one in found] == [
        pytest.approx(wanted.estimates(cast)[one.rule].offset) for one in found
    ]


def test_the_interval_of_a_mean() -> None:
    assert replay._within([0.6]) == "" and replay._within([0.5, 0.5]) == "± 0.0"
    assert replay._within([0.4, 0.6]) == "± 19.6"


def test_no_two_runs_are_alike() -> None:
    people = [
        [(p.name, p.writes, p.errs) for p in repository.people]
        for other in ("", " settled")
        for repository, _ in replay.repositories({"a/b": [*GOOD, *BAD]}, range(3), replay.HONEST, other)
    ]
    assert len(people) == 6 and all(people.count(each) == 1 for each in people)


def test_a_review_explores_one_comment() -> None:
    hopeful = Learned({one.rule: RuleFeedback(-4.0, -4.0, hopeful=True) for one in BAD}, quiet_below=0.2)
    shown = list(replay._review([*BAD, *GOOD], hopeful, 0.0, random.Random(1)))
    assert shown == [BAD[0], *GOOD]


def test_what_is_counted_is_what_reviews_show() -> None:
    """Of ten quiet findings, all of which are due, a review shows one; each of them alone would be shown."""
    due = Learned({one.rule: RuleFeedback(-4.0, -4.0, due=9.0) for one in BAD}, quiet_below=0.2)
    repository = Repository(1, BAD, replay.HONEST, random.Random(1))
    reviewed, alone = replay.Tally(), replay.Tally()
    reviewed.add(repository, due, BAD, 0.0)
    alone.add_each(repository, due, BAD, 0.0)
    assert reviewed.shown == pytest.approx(1.0) and alone.shown == len(BAD)
    again = replay.Tally()
    again.add(repository, due, BAD, 0.0)
    assert again == reviewed


def test_a_run_is_the_same_each_time() -> None:
    def states() -> list[object]:
        repository = Repository(1, GOOD, replay.ATTACKS[1], random.Random(3))
        return list(replay.run(repository, [*GOOD, *BAD], 0.0, [10, 40]))

    assert states() == states()


def test_votes_on_other_commits_predict_better_than_none() -> None:
    by_repo = {name: several for name, several in rows.read(("calibrate",)).items() if len(several) > 15}
    assert prior.loss(by_repo, STRENGTHS) < prior.loss(by_repo, (1e9, 1e9, 1e9))


@pytest.mark.slow
def test_the_command_prints_the_bars(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    few = dict(list(rows.read(("calibrate",)).items())[:4])
    monkeypatch.setattr(rows, "read", lambda parts: few)
    assert replay.main(["--seeds", "1"]) == 0
    out = capsys.readouterr().out
    assert "broad, held out" in out and out.count("   bar ") == 7


def test_accepted_suggestions_are_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert accepted.main(["--histories", "16", "--seed", "1"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("16 histories") and out.count("   bar ") == 2 and all(kind in out for kind in KINDS)


@pytest.mark.slow
def test_the_bars_of_200_histories() -> None:
    found = list(accepted.verdicts(KINDS, accepted.HISTORIES, 0))
    assert {(v.kind, v.accepted) for v in found} == {(kind, each) for kind in KINDS for each in (True, False)}
    precision, recall = accepted.precision_recall(found)
    assert precision >= accepted.PRECISION and recall >= accepted.RECALL


def test_what_counts_as_precision_and_recall() -> None:
    found = [
        accepted.Verdict("", "", *said) for said in ((True, True), (True, True), (False, True), (True, False))
    ]
    assert accepted.precision_recall(found) == (pytest.approx(2 / 3), pytest.approx(2 / 3))
    assert accepted.precision_recall([accepted.Verdict("", "", False, False)]) == (1.0, 1.0)
