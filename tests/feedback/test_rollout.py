"""A ranker on trial is promoted where it does no harm, and taken back where it does."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from hashlib import sha256

import pytest
from sqlalchemy import Engine, select

from feedback import rollout
from feedback.rollout import Trial, decide, harm_of
from service import versions
from service.database import reading, writing
from service.models import (
    CommentRow,
    Installation,
    LearningEvent,
    Repository,
    ReviewRow,
    Signal,
    Version,
    VersionState,
    VersionUse,
)

NOW = datetime(2026, 11, 20, 12, tzinfo=timezone.utc)
DAY = timedelta(days=1)


@pytest.mark.parametrize(
    ("canary", "before", "age", "move"),
    [
        (Trial(45, 50), Trial(45, 50), 2 * DAY, "promote"),
        (Trial(45, 50), Trial(45, 50), DAY / 2, "wait"),
        (Trial(30, 39), Trial(45, 50), 2 * DAY, "wait"),
        (Trial(3, 19), Trial(45, 50), 2 * DAY, "wait"),
        (Trial(25, 50), Trial(45, 50), DAY / 2, "roll back"),
        (Trial(45, 50), Trial(0, 0), 2 * DAY, "promote"),
        (Trial(5, 5), Trial(45, 50), 31 * DAY, "roll back"),
        (Trial(45, 50, 5, 40), Trial(45, 50, 0, 400), 2 * DAY, "roll back"),
        (Trial(45, 50, 2, 40), Trial(45, 50, 0, 400), 2 * DAY, "promote"),
        (Trial(45, 50, 0, 30, (5.0,) * 30), Trial(45, 50, 0, 30, (2.0,) * 30), 2 * DAY, "roll back"),
        (Trial(45, 50, 0, 30, (0.5,) * 30), Trial(45, 50, 0, 30, (0.2,) * 30), 2 * DAY, "promote"),
    ],
)
def test_decisions(canary: Trial, before: Trial, age: timedelta, move: str) -> None:
    assert decide(canary, before, age).move == move


def test_harm_needs_certainty() -> None:
    assert harm_of(Trial(16, 20), Trial(90, 100)) == ""
    assert "answered comments were good" in harm_of(Trial(10, 20), Trial(90, 100))


class Service:
    """Versions, reviews and answers in a database."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.number = engine, 0
        with writing(engine) as session:
            session.add(Installation(id=1, account="acme", created_at=NOW))
            session.flush()
            for number in range(1, 41):
                session.add(
                    Repository(id=number, installation_id=1, full_name=f"acme/r{number}", private=False)
                )

    def version(self, weights: str, state: VersionState = VersionState.CANARY) -> str:
        hash_ = sha256(weights.encode()).hexdigest()
        with writing(self.engine) as session:
            session.add(
                Version(
                    subject="ranker",
                    hash=hash_,
                    state=state.value,
                    weights=weights,
                    card={},
                    created_at=NOW,
                    changed_at=NOW,
                )
            )
        return hash_

    def reviews(self, ranker: str, good: int, bad: int, repository: int = 1, at: datetime = NOW) -> None:
        """Reviews with one comment each, and a reaction to it."""
        with writing(self.engine) as session:
            for n in range(good + bad):
                self.number += 1
                review = ReviewRow(
                    repository_id=repository, pull=self.number, head_sha=f"{self.number:040}", github_id=1,
                    ptopt_version="1", files_reviewed=1, findings=1, ranker=ranker, received_at=at, posted_at=at,
                )  # fmt: skip
                session.add(review)
                session.flush()
                comment = CommentRow(
                    review_id=review.id, repository_id=repository, pull=self.number, github_id=self.number,
                    rule="PTO101", fingerprint="f", origin="rule", confidence=0.5, path_hash="h", posted_at=at,
                )  # fmt: skip
                session.add(comment)
                session.flush()
                session.add(
                    Signal(
                        comment_id=comment.id, kind="reaction", value="+1" if n < good else "-1",
                        actor=f"dev{n}", actor_writes=True, source="r", created_at=at,
                    )
                )  # fmt: skip
                use = {
                    "subject": "ranker",
                    "version": ranker,
                    "repository_id": repository,
                    "failed": False,
                    "seconds": 1.0,
                }
                session.add(VersionUse(**use, at=at))

    def watch(self, now: datetime) -> rollout.Decision | None:
        with writing(self.engine) as session:
            return rollout.watch(session, "ranker", now)

    def in_use(self) -> versions.InUse:
        with reading(self.engine) as session:
            return versions.in_use(session, "ranker")

    def events(self) -> list[tuple[str, str]]:
        with reading(self.engine) as session:
            found = session.execute(select(LearningEvent.kind, LearningEvent.hash).order_by(LearningEvent.id))
            return [(kind, hash_) for kind, hash_ in found]


@pytest.fixture
def service(engine: Engine) -> Service:
    return Service(engine)


def test_no_canary(service: Service) -> None:
    assert service.watch(NOW) is None and service.events() == []


def test_a_good_one_is_promoted_once(service: Service) -> None:
    first = service.version("one")
    service.reviews("", 30, 20, at=NOW - DAY)
    service.reviews(first, 35, 10, at=NOW + DAY)
    decision = service.watch(NOW + 2 * DAY)
    assert decision is not None and decision.move == "promote"
    assert service.in_use() == versions.InUse(first, "")
    assert service.watch(NOW + 2 * DAY) is None
    assert service.events() == [("promoted", first)]


def test_a_harmful_one_is_taken_back_without_a_person(service: Service) -> None:
    good = service.version("good", VersionState.ACTIVE)
    harmful = service.version("harmful")
    service.reviews(good, 30, 10, at=NOW - DAY)
    service.reviews(harmful, 10, 9, at=NOW + DAY)
    undecided = service.watch(NOW + DAY)
    assert undecided is not None and undecided.move == "wait"
    service.reviews(harmful, 2, 15, at=NOW + DAY)
    decision = service.watch(NOW + DAY)
    assert decision is not None and decision.move == "roll back"
    assert service.in_use() == versions.InUse(good, "")
    with reading(service.engine) as session:
        event = session.scalars(select(LearningEvent)).one()
    assert event.detail["canary"]["answered"] == 36 and event.detail["before"]["good"] == 30
    assert "12 of 36 answered comments were good" in event.detail["reason"]


def test_it_is_compared_in_the_same_repositories_first(service: Service) -> None:
    """Where few people like any comment, a canary that they like as little does no harm."""
    canary = service.version("canary")
    service.reviews("", 200, 10, repository=2, at=NOW - DAY)
    service.reviews("", 10, 30, repository=1, at=NOW - DAY)
    service.reviews(canary, 12, 33, repository=1, at=NOW + DAY)
    decision = service.watch(NOW + 2 * DAY)
    assert decision is not None and decision.move == "promote"


def test_what_was_promoted_can_be_taken_back(service: Service) -> None:
    first = service.version("first", VersionState.ACTIVE)
    second = service.version("second")
    with writing(service.engine) as session:
        assert versions.promote(session, "ranker", NOW, {}) == second
    assert service.in_use() == versions.InUse(second)
    with writing(service.engine) as session:
        assert versions.roll_back(session, "ranker", NOW, {}) == second
    assert service.in_use() == versions.InUse(first)
    with writing(service.engine) as session:
        assert versions.roll_back(session, "ranker", NOW, {}) == first
    assert service.in_use() == versions.InUse(), "the one that ptopt carries"
    with (
        writing(service.engine) as session,
        pytest.raises(versions.VersionError, match="nothing to roll back"),
    ):
        versions.roll_back(session, "ranker", NOW, {})


def test_shares_are_of_repositories_and_only_grow() -> None:
    some = {n for n in range(1000) if versions.in_canary(n, 0.1)}
    more = {n for n in range(1000) if versions.in_canary(n, 0.3)}
    assert some < more and 60 < len(some) < 140 and 250 < len(more) < 350
    assert not any(versions.in_canary(n, 0) for n in range(100)) and versions.in_canary(7, 1)
    assert versions.InUse("a", "").of(7, 1) == "a" and versions.InUse("a", "c").of(7, 1) == "c"


@pytest.mark.parametrize(("age", "move"), [(1, "wait"), (2, "promote")])
def test_an_adapter_is_compared_with_what_the_operator_chose(service: Service, age: int, move: str) -> None:
    """Its canary and that of the ranker are two trials."""
    ranker = service.version("ranker")
    with writing(service.engine) as session:
        row = {"state": "canary", "weights": "", "card": {"champion": "registry"}}
        session.add(Version(subject="adapter", hash="tried", **row, created_at=NOW, changed_at=NOW))
        for number in range(1, 101):
            adapter = "registry" if number % 2 else "tried"
            at = NOW - DAY if number % 2 else NOW + DAY / 2
            of_review = {
                "repository_id": 1,
                "pull": number,
                "received_at": at,
                "posted_at": at,
                "adapter": adapter,
            }
            review = ReviewRow(
                **of_review, head_sha=str(number), ptopt_version="1", files_reviewed=1, findings=1
            )
            session.add(review)
            session.flush()
            comment = CommentRow(
                review_id=review.id, repository_id=1, pull=number, github_id=number, rule="PTO101", fingerprint="f",
                origin="rule", confidence=0.5, path_hash="h", posted_at=at,
            )  # fmt: skip
            session.add(comment)
            session.flush()
            said = {"kind": "reaction", "value": "+1", "actor_writes": True, "source": "r", "created_at": at}
            session.add(Signal(comment_id=comment.id, actor=f"dev{number}", **said))
            use = {"subject": "adapter", "version": adapter, "repository_id": 1, "at": at}
            session.add(VersionUse(**use, failed=False, seconds=1.0 if adapter == "registry" else 3.0))
    with writing(service.engine) as session:
        decision = rollout.watch(session, "adapter", NOW + age * DAY / 2)
    assert decision is not None and decision.move == move
    assert "before 50 of 50" in decision.reason or move == "wait"
    with reading(service.engine) as session:
        adapters = versions.in_use(session, "adapter")
    assert adapters == (versions.InUse("tried") if move == "promote" else versions.InUse("", "tried"))
    assert service.in_use() == versions.InUse("", ranker)


def test_a_model_may_take_some_seconds_and_no_more() -> None:
    slower = Trial(45, 50, 0, 30, (4.0,) * 30), Trial(45, 50, 0, 30, (1.0,) * 30)
    slow = Trial(45, 50, 0, 30, (7.0,) * 30), Trial(45, 50, 0, 30, (1.0,) * 30)
    assert decide(*slower, 2 * DAY, "adapter").move == "promote"
    assert decide(*slow, 2 * DAY, "adapter").move == "roll back"


def test_weights_that_were_changed_are_not_used(service: Service) -> None:
    hash_ = service.version("weights")
    with reading(service.engine) as session:
        assert versions.weights(session, hash_) == "weights"
    with writing(service.engine) as session:
        session.get_one(Version, hash_).weights = "others"
    with reading(service.engine) as session, pytest.raises(versions.VersionError, match="changed"):
        versions.weights(session, hash_)
