"""A review with the feedback of a repository: quieter, surer, explored, and each decision with its reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from ptopt.change import Change, whole_file
from ptopt.config import Config
from ptopt.findings import Finding, Review
from ptopt.learned import FEEDBACK, NOTHING_LEARNED, SURE, Learned, RuleFeedback, log_odds, shifted
from ptopt.project.facts import NO_FACTS
from ptopt.report import render
from ptopt.review import review_change

EXAMPLE = Path(__file__).parents[1] / "examples" / "pull-request" / "head"
CHANGE = Change(
    tuple(whole_file(name, (EXAMPLE / name).read_bytes()) for name in ("model.py", "train.py")), ()
)


def reviewed(learned: Learned, budget: int = 50) -> Review:
    return review_change(CHANGE, config=Config(budget=budget), facts=NO_FACTS, learned=learned)


PLAIN = reviewed(NOTHING_LEARNED)
BEST = next(
    found for found in PLAIN.findings if not found.also
)  # votes on one of two rules may swap their places


def of_rule(review: Review, rule: str) -> list[Finding]:
    return [finding for finding in review.findings if finding.rule == rule]


def quiet(rule: str, explore: float = 0.0) -> Learned:
    return Learned({rule: RuleFeedback(-4.0, by_writers=-3.5, explore=explore)})


def test_nothing_learned_changes_nothing() -> None:
    assert reviewed(Learned({"PTO999": RuleFeedback(-4.0, -3.5)})) == PLAIN


def test_a_quiet_rule_is_left_out_with_the_reason() -> None:
    review = reviewed(quiet(BEST.rule))
    assert of_rule(PLAIN, BEST.rule) and not of_rule(review, BEST.rule)
    left_out = [finding for finding in review.quieted if finding.rule == BEST.rule]
    assert left_out and all(f.reasons[0][0] == FEEDBACK and f.reasons[0][1] < -3 for f in left_out)
    assert any(f.score == pytest.approx(BEST.confidence, abs=0.01) for f in left_out)
    others = [f.fingerprint for f in PLAIN.findings if f.rule != BEST.rule]
    assert set(others) <= {f.fingerprint for f in review.findings}


def test_too_few_people_make_it_less_sure_alone() -> None:
    review = reviewed(Learned({BEST.rule: RuleFeedback(-4.0)}))
    (first, *_) = of_rule(review, BEST.rule)
    assert first.confidence < BEST.confidence and review.quieted == ()
    assert review.findings[0].rule != BEST.rule


def test_votes_of_strangers_make_no_rule_quiet() -> None:
    review = reviewed(Learned({BEST.rule: RuleFeedback(-4.0, by_writers=0.0)}))
    assert of_rule(review, BEST.rule) and review.quieted == ()


def test_one_quiet_finding_is_explored_where_there_is_room() -> None:
    review = reviewed(quiet(BEST.rule, explore=1.0))
    explored = [finding for finding in review.findings if finding.explored]
    assert [f.rule for f in explored] == [BEST.rule] and review.findings[-1] is explored[0]
    assert explored[0] not in review.quieted
    full = reviewed(quiet(BEST.rule, explore=1.0), budget=1)
    assert not full.findings[0].explored and full.over_limit


def test_praise_brings_what_was_below_the_threshold() -> None:
    config = Config(budget=50).model_copy(update={"min_confidence": 0.8})
    plain = review_change(CHANGE, config=config, facts=NO_FACTS)
    review = review_change(CHANGE, config=config, facts=NO_FACTS, learned=Learned(others=3.0))
    sure = {finding.fingerprint for finding in plain.findings}
    assert sure < {finding.fingerprint for finding in review.findings}
    assert all(f.reasons[0][0] == FEEDBACK for f in review.findings)


def test_the_family_speaks_for_rules_without_votes() -> None:
    review = reviewed(Learned(families={BEST.family: 1.0}, others=-1.0))
    by = {f.fingerprint: f for f in review.findings}
    same = {f.fingerprint for f in PLAIN.findings if f.family == BEST.family and not f.also}
    assert by[BEST.fingerprint].confidence == pytest.approx(shifted(BEST.confidence, 1.0), abs=0.02)
    assert all(by[f].reasons[0][1] > 0 for f in same)


def test_explain_shows_it() -> None:
    review = reviewed(Learned({BEST.rule: RuleFeedback(1.0)}))
    assert f"{FEEDBACK} +1.0" in " ".join(render("terminal", review, width=200, explain=True).split())


def test_doubtful_findings_are_explored_less() -> None:
    learned, feedback = NOTHING_LEARNED, RuleFeedback(-4.0, by_writers=-3.5, explore=0.1)
    assert learned.explored(feedback, 0.9) == learned.explored(feedback, SURE) == 0.1
    # Seven tenths, where it was a third: useful findings that the ranker thinks little of waited too long.
    assert learned.explored(feedback, SURE / 2) == pytest.approx(0.1 * 0.5**0.5)
    assert learned.explored(RuleFeedback(-4.0, -3.5, 0.1, hopeful=True), SURE / 2) == 1.0


def test_doubtful_findings_wait_longer_until_somebody_is_asked() -> None:
    def explored(due: float, confidence: float) -> float:
        return NOTHING_LEARNED.explored(RuleFeedback(-4.0, by_writers=-3.5, due=due), confidence)

    assert explored(0.5, SURE) < 0.1 and explored(1.0, SURE) == explored(9.0, SURE) == 1.0
    assert explored(1.0, SURE / 2) < 0.1 and explored(3.0, SURE / 2) == 1.0


@pytest.mark.parametrize("probability", [0.01, 0.34, 0.5, 0.99])
def test_shifting_there_and_back(probability: float) -> None:
    assert shifted(shifted(probability, 1.5), -1.5) == pytest.approx(probability)
    assert log_odds(shifted(probability, 1.5)) - log_odds(probability) == pytest.approx(1.5)
