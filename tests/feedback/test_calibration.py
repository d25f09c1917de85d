"""From votes to what a review takes into account: how far a rule moves, when it is quiet, and who cannot make it so."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, event
from sqlalchemy.orm import Session

from feedback import calibration
from feedback.__main__ import main
from feedback.calibration import QUIET_BELOW, RuleState, quiet_everywhere, state
from feedback.labels import Outlier, Vote, votes
from ptopt.findings import Severity
from ptopt.learned import Learned, shifted
from ptopt.rules import rules
from service.database import reading, writing
from service.models import CommentRow, Installation, Repository, ReviewRow, Signal
from tests.feedback.evidence import NOW, ROWS, Row, at, comment
from tests.feedback.test_labels import VOTES, cast_by

LEAST = 0.34
ORDINARY = next(rule.id for rule in rules() if rule.severity is not Severity.HIGH)
CRITICAL = next(rule.id for rule in rules() if rule.severity is Severity.HIGH)


def vote(person: str, good: bool, *, rule: str = ORDINARY, writes: bool = True, number: int = 1) -> Vote:
    one = comment(number, rule=rule, author=person)
    return votes(one, [Row("verdict", "good" if good else "bad", person, writes, created_at=at(number))])[0]


def one_rule(cast: list[Vote]) -> RuleState:
    (found,) = state(cast).rules
    return found


def shows(learned: Learned, rule: str, score: float = 0.5) -> bool:
    feedback = learned.of(rule, "")
    if learned.quiet(feedback, score, LEAST):
        return False
    return learned.confidence(feedback, score, LEAST) >= LEAST


def test_without_votes_nothing_moves() -> None:
    learned = state([]).learned()
    assert learned.of(ORDINARY, "sync").offset == 0 and shows(learned, ORDINARY, LEAST)


def test_a_rule_that_people_do_not_want_becomes_quiet_and_returns() -> None:
    against = [vote(f"dev{n}", False, number=n) for n in range(1, 6)]
    found = one_rule(against)
    assert found.quiet(LEAST) and found.quiet(QUIET_BELOW) and found.now < LEAST < found.before == 0.5
    assert not shows(state(against).learned(), ORDINARY)
    # What is explored is liked: by the same people, and it is back.
    again = [vote(f"dev{n}", True, number=10 + n) for n in range(1, 5)]
    assert not one_rule([*against, *again]).quiet(LEAST)
    assert shows(state([*against, *again]).learned(), ORDINARY)


def test_praise_makes_it_surer() -> None:
    found = one_rule([vote(f"dev{n}", True, number=n) for n in range(1, 6)])
    assert found.now > 0.6 and "surer here" in found.explained(LEAST)


@pytest.mark.parametrize(("rule", "people"), [(ORDINARY, 2), (CRITICAL, 3)])
def test_it_takes_people_to_make_a_rule_quiet(rule: str, people: int) -> None:
    for number in range(1, people):
        cast = [
            vote(f"dev{who}", False, rule=rule, number=n * 10 + who)
            for who in range(number)
            for n in range(20)
        ]
        learned = state(cast).learned()
        assert shows(learned, rule) and shows(learned, rule, LEAST)
        assert not one_rule(cast).quiet(LEAST)
    against = [
        vote(f"dev{who}", False, rule=rule, number=n * 10 + who)
        for who in range(people + 2)
        for n in range(3)
    ]
    assert one_rule(against).quiet(LEAST)


@given(st.integers(1, 40), st.integers(1, 5))
def test_strangers_make_no_rule_quiet(number: int, times: int) -> None:
    ring = [
        vote(f"ring{who}", False, writes=False, number=who * 10 + n)
        for who in range(number)
        for n in range(times)
    ]
    assert state(ring).rules == () and state(ring).offsets.repository == 0
    honest = [vote("dev", True, number=999), vote("rev", True, number=998)]
    assert one_rule([*ring, *honest]).now > 0.45


@given(VOTES, st.randoms(use_true_random=False))
def test_neither_order_nor_copies_matter(cast: list[Vote], chance: Any) -> None:
    again = cast * 2
    chance.shuffle(again)
    assert state(again) == state(cast)


@given(VOTES, st.floats(0, 1), st.floats(0.05, 1))
def test_a_confidence_stays_one_and_is_explained(cast: list[Vote], score: float, least: float) -> None:
    found = state(cast)
    learned = found.learned("seed")
    for one in found.rules:
        feedback = learned.of(one.rule, "")
        moved = learned.confidence(feedback, score, least)
        assert 0 <= moved <= 1
        if not one.may_quiet and score >= least:
            assert moved >= least
        if moved >= least > score:  # what is proposed at all reaches down to it
            assert score >= learned.floor(least) - 1e-9
        assert one.explained(least).startswith(("quiet here: ", "less sure", "surer"))
        assert one.reached(least) == pytest.approx(learned.confidence(feedback, one.before, least))


def test_votes_of_two_repositories_are_refused() -> None:
    mixed = [
        *votes(comment(1, repository=1), [Row("verdict", "bad")]),
        *votes(comment(2, repository=2), [Row("verdict", "bad")]),
    ]
    with pytest.raises(ValueError, match="different repositories"):
        state(mixed)


def test_quiet_in_most_repositories_is_for_maintainers_to_decide() -> None:
    quiet = state([vote(f"dev{n}", False, number=n) for n in range(1, 6)]).rules
    assert quiet_everywhere({(at, at): quiet for at in range(5)}, LEAST) == [ORDINARY]
    assert quiet_everywhere({(at, at): quiet for at in range(4)}, LEAST) == []


def test_an_organisation_with_many_repositories_does_not_speak_for_all() -> None:
    quiet = state([vote(f"dev{n}", False, number=n) for n in range(1, 6)]).rules
    liked = state([vote(f"dev{n}", True, number=n) for n in range(1, 6)]).rules
    one_account = {(1, at): quiet for at in range(50)}
    others = {(at, at): liked for at in range(100, 102)}
    assert quiet_everywhere(one_account, LEAST) == []
    assert quiet_everywhere(one_account | others, LEAST) == []
    # Nor does it keep a rule off the list: it counts as three repositories either way.
    against = {(at, at): quiet for at in range(200, 213)}
    assert quiet_everywhere(against | {(1, at): liked for at in range(50)}, LEAST) == [ORDINARY]


def test_people_are_asked_again_when_nobody_was_for_long() -> None:
    """Not at random: after some thirty votes on other rules it is certain, and long before that it is not likelier."""
    against = [vote(f"dev{n}", False, number=n) for n in range(1, 6)]
    shares = []
    for number in (0, 10, 30):
        others = [vote(f"dev{n}", True, rule=CRITICAL, number=50 + n) for n in range(number)]
        (found,) = [one for one in state([*against, *others]).rules if one.rule == ORDINARY]
        shares.append(found.explore)
        part = "" if number == 30 else f"{found.explore:.0%} of "
        assert found.quiet(LEAST) and f"except for {part}its surest ones" in found.explained(LEAST)
        assert ("as nobody was asked for 30 votes" in found.explained(LEAST)) == (number == 30)
        rises = f"all of them after {30 - number} more votes on other rules, if it gets none until then"
        assert (rises in found.explained(LEAST)) == (number < 30)
    at_once, soon, due = shares
    assert at_once == calibration.EXPLORE and soon == pytest.approx(at_once, abs=0.02) and due == 1.0


def test_doubtful_findings_are_asked_about_before_fifty_votes_are_over() -> None:
    """Else a rule whose findings are all doubtful does not return when people change their minds. Until then it is not asked about."""
    against = [vote(f"dev{n}", False, number=n) for n in range(1, 6)]
    shares = []
    for number in (25, 43):
        others = [vote(f"dev{n}", True, rule=CRITICAL, number=50 + n) for n in range(number)]
        learned = state([*against, *others]).learned()
        shares.append(learned.explored(learned.of(ORDINARY, ""), 0.25))
    early, due = shares
    assert early < calibration.EXPLORE and due == 1.0


def test_exploration_is_a_small_share_that_a_push_does_not_change() -> None:
    learned = state([vote(f"dev{n}", False, number=n) for n in range(1, 6)]).learned("7#3")
    share = learned.of(ORDINARY, "").explore
    drawn = [learned.explores(f"{n}", share) for n in range(4000)]
    assert share == calibration.EXPLORE
    assert share * 0.6 < sum(drawn) / 4000 < share * 1.4
    assert drawn == [learned.explores(f"{n}", share) for n in range(4000)]


# -- the database -------------------------------------------------------------------------------------------------


@pytest.fixture
def two_tenants(engine: Engine) -> Engine:
    """Each with a repository and three comments of the same rule."""
    with writing(engine) as session:
        for number in (1, 2):
            session.add(Installation(id=number, account=f"a{number}", created_at=NOW))
            session.flush()
            session.add(Repository(id=number, installation_id=number, full_name=f"a{number}/r"))
            session.flush()
            for pull in (1, 2, 3):
                key = {"repository_id": number, "pull": pull}
                done = {
                    "ptopt_version": "0",
                    "files_reviewed": 1,
                    "findings": 1,
                    "received_at": NOW,
                    "posted_at": NOW,
                }
                review = ReviewRow(head_sha="a" * 40, **key, **done)
                session.add(review)
                session.flush()
                told = {
                    "rule": ORDINARY,
                    "fingerprint": "f",
                    "origin": "rule",
                    "path_hash": "p",
                    "posted_at": NOW,
                }
                more = {"confidence": 0.4, "score": 0.5, "author": "author"}
                session.add(CommentRow(review_id=review.id, github_id=pull, **key, **told, **more))
    return engine


def say(engine: Engine, repository: int, kind: str, value: str, actor: str, writes: bool | None) -> None:
    with writing(engine) as session:
        for one in session.query(CommentRow).filter_by(repository_id=repository):
            row = Signal(comment_id=one.id, kind=kind, value=value, actor=actor, actor_writes=writes)
            row.source, row.created_at = f"s{one.pull}", at(one.pull)
            session.add(row)


def test_the_votes_of_a_repository_are_read_in_one_query(two_tenants: Engine) -> None:
    for who in ("dev", "rev", "ann"):
        say(two_tenants, 1, "verdict", "bad", who, True)
    statements: list[str] = []
    event.listen(two_tenants, "before_cursor_execute", lambda *args: statements.append(args[2]))
    with reading(two_tenants) as session:
        found = calibration.of_repository(session, 1)
    assert len([s for s in statements if s.startswith("SELECT")]) == 1
    (rule,) = found.rules
    assert (rule.rule, rule.before, rule.people, rule.against) == (ORDINARY, 0.5, 3, 3)
    assert rule.now == pytest.approx(shifted(0.5, rule.offset)) and rule.quiet(LEAST)


def test_no_person_moves_the_repository_of_another_tenant(two_tenants: Engine) -> None:
    with reading(two_tenants) as session:
        before = calibration.of_repository(session, 2)
    for who in ("dev", "rev", "ann", "author"):
        say(two_tenants, 1, "verdict", "bad", who, True)
    with reading(two_tenants) as session:
        assert calibration.of_repository(session, 2) == before
        assert calibration.of_repository(session, 1) != before
    assert before.rules == ()


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(1, 3), ROWS), max_size=12))
def test_whatever_happens_in_one_repository_stays_there(
    two_tenants: Engine, told: list[tuple[int, Row]]
) -> None:
    with Session(two_tenants) as session:  # never committed
        mine = {one.pull: one.id for one in session.query(CommentRow).filter_by(repository_id=1)}
        before = calibration.of_repository(session, 2)
        for number, (pull, row) in enumerate(told):
            more = {"source": f"{row.source}-{number}", "created_at": row.created_at}
            said = {"kind": row.kind, "value": row.value, "actor": row.actor}
            session.add(Signal(comment_id=mine[pull], actor_writes=row.actor_writes, **said, **more))
        session.flush()
        assert calibration.of_repository(session, 2) == before
        voted = {vote.comment.repository for vote in calibration.cast_in(session, [1])}
        assert voted <= {1}


def test_comments_of_before_the_column_count_with_their_confidence(two_tenants: Engine) -> None:
    with writing(two_tenants) as session:
        for one in session.query(CommentRow).filter_by(repository_id=1):
            one.score = None
    say(two_tenants, 1, "verdict", "bad", "dev", True)
    with reading(two_tenants) as session:
        (rule,) = calibration.of_repository(session, 1).rules
    assert rule.before == pytest.approx(0.4)


def test_of_one_voter_there_is_one_opinion_however_often_it_is_cast() -> None:
    assert one_rule(cast_by("dev", False, 20)).votes == one_rule(cast_by("dev", False, 1)).votes


def test_a_good_word_on_a_quiet_rule_is_followed_up() -> None:
    against = [vote(f"dev{n}", False, number=n) for n in range(1, 8)]
    stranger = vote("eve", True, number=20, writes=False)
    assert one_rule([*against, stranger]).explore == calibration.EXPLORE
    found = one_rule([*against, vote("dev9", True, number=21)])
    assert found.quiet(LEAST) and found.explore == 1.0


@given(st.integers(1, 40), st.integers(1, 3), st.integers(0, 6))
def test_strangers_do_not_help_to_make_a_rule_quiet(number: int, times: int, devs: int) -> None:
    """What those who may write did not make quiet stays so, whatever strangers say of this rule and others of its family."""
    honest = [vote(f"dev{n}", n % 3 > 0, number=500 + n) for n in range(devs)]
    ring = [
        vote(f"ring{who}", False, writes=False, rule=rule, number=who * 10 + n)
        for who in range(number)
        for n in range(times)
        for rule in (ORDINARY, CRITICAL)
    ]
    for rule in (ORDINARY, CRITICAL):
        assert shows(state([*honest, *ring]).learned(), rule) >= shows(state(honest).learned(), rule)


def test_the_operator_is_told_of_outliers_and_of_rules_that_are_quiet_everywhere(
    two_tenants: Engine, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PTOPT_DATABASE_URL", database_url)

    def told(command: str) -> str:
        result = CliRunner().invoke(main, [command])
        assert result.exit_code == 0
        return result.output.strip()

    assert told("outliers") == "no outliers" and told("quiet") == "no rule is quiet in most repositories"
    monkeypatch.setattr(
        "feedback.__main__.outliers_of",
        lambda cast: [Outlier(1, tuple(f"h{n}" for n in range(7)), "a ring")] if cast else [],
    )
    say(two_tenants, 2, "verdict", "bad", "dev", True)
    assert told("outliers") == "a2/r: h0 h1 h2 h3 h4 ...: a ring"
    for repository in (1, 2):
        for who in ("dev", "rev", "ann", "bob"):
            say(two_tenants, repository, "ignored", "rule", who, True)
    monkeypatch.setattr(calibration, "quiet_everywhere", partial(quiet_everywhere, fewest=2))
    assert told("quiet") == ORDINARY
