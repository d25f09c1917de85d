"""The dataset for the ranker: who is in it, who is not, and that who leaves is gone."""

from __future__ import annotations

import random
from datetime import datetime, timedelta, timezone
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine, delete, update

from feedback.labels import TIERS
from service.database import writing
from service.models import CommentRow, Installation, Repository, ReviewRow, Signal
from training.feedback import MOST_PER_ORGANISATION, ranker_rows
from training.feedback.evaluations import Evaluations, evaluations, key
from training.feedback.ranker_rows import WEIGHTS, Answer, build, scaled
from training.sources.feedback import _LABELS

NOW = datetime(2026, 11, 20, 12, tzinfo=timezone.utc)
NOTHING = Evaluations(frozenset(), frozenset(), frozenset())


class Service:
    """Repositories with comments and answers. Installation `n` has the repositories 10n and 10n + 1."""

    def __init__(self, url: str, engine: Engine) -> None:
        self.url, self.engine, self.number = url, engine, 0

    def repository(self, number: int, *, private: bool = False, learn: bool = True) -> int:
        with writing(self.engine) as session:
            if session.get(Installation, number // 10) is None:
                session.add(Installation(id=number // 10, account=f"a{number // 10}", created_at=NOW))
                session.flush()
            row = {"installation_id": number // 10, "full_name": f"a{number // 10}/r{number}"}
            session.add(Repository(id=number, **row, private=private, learn=learn))
        return number

    def comment(
        self, repository: int, *said: tuple[str, str, str], features: dict[str, Any] | None = None,
        pull: int | None = None, at: datetime = NOW, writes: bool | None = True, origin: str = "rule",
        rule: str = "PTO101", head: str = "",
    ) -> None:  # fmt: skip
        self.number += 1
        head = head or sha256(str(self.number).encode()).hexdigest()[:40]
        with writing(self.engine) as session:
            review = ReviewRow(
                repository_id=repository, pull=pull or self.number, head_sha=head, github_id=1, ptopt_version="1",
                files_reviewed=1, findings=1, received_at=at, posted_at=at,
            )  # fmt: skip
            session.add(review)
            session.flush()
            known = {"stated confidence": 0.5, "n": float(self.number)} if features is None else features
            comment = CommentRow(
                review_id=review.id, repository_id=repository, pull=pull or self.number, github_id=self.number,
                rule=rule, fingerprint="f", origin=origin, confidence=0.5, path_hash="h", features=known,
                posted_at=at,
            )  # fmt: skip
            session.add(comment)
            session.flush()
            for kind, value, actor in said:
                row = {"kind": kind, "value": value, "actor": actor, "actor_writes": writes}
                session.add(Signal(comment_id=comment.id, **row, source=actor, created_at=at))

    def build(self, **options: Any) -> ranker_rows.Dataset:
        return build(self.url, **{"against": NOTHING, **options})


UP, DOWN = ("reaction", "+1", "dev"), ("reaction", "-1", "dev")


@pytest.fixture
def service(database_url: str, engine: Engine) -> Service:
    return Service(database_url, engine)


def test_only_repositories_that_opted_in(service: Service) -> None:
    service.comment(service.repository(10), UP)
    service.comment(service.repository(11, learn=False), UP)
    service.comment(service.repository(20, private=True), DOWN)
    service.comment(service.repository(21, private=True, learn=False), DOWN)
    made = service.build()
    assert [answer.good for answer in made.answers] == [True]
    assert made.left_out == {ranker_rows.PRIVATE: 1}
    named = service.build(private=["a2/r20", "a2/r21", "a1/r11"])
    assert sorted(answer.good for answer in named.answers) == [False, True], "to be named is not enough"


def test_a_deleted_installation_is_gone_from_the_next_build(service: Service) -> None:
    for repository in (10, 11, 20):
        service.comment(service.repository(repository), UP)
    before = service.build()
    assert len(before.answers) == 3
    with writing(service.engine) as session:
        session.execute(delete(Installation).where(Installation.id == 1))
    (left,) = service.build().answers
    gone = {answer.repository for answer in before.answers} - {left.repository}
    assert len(gone) == 2 and left.repository in {answer.repository for answer in before.answers}
    assert not any(repository in service.build().text() for repository in gone)


def test_so_is_who_opts_out(service: Service) -> None:
    service.comment(service.repository(10), UP)
    with writing(service.engine) as session:
        session.execute(update(Repository).values(learn=False))
    assert service.build().answers == ()


def test_what_cannot_be_learned_from(service: Service) -> None:
    repository = service.repository(10)
    service.comment(repository, UP, features={})
    service.comment(repository, UP, features={"x": "a text"})
    service.comment(repository, UP, origin="model")
    service.comment(repository, UP, ("reaction", "-1", "rev"))
    service.comment(repository, UP, writes=False)
    service.comment(repository)
    assert service.build().answers == ()
    assert service.build().left_out == {
        ranker_rows.NOT_RECORDED: 2, ranker_rows.BY_MODEL: 1, ranker_rows.DRAW: 1,
    }  # fmt: skip


def test_the_same_finding_counts_once_and_not_at_all_where_people_disagree(service: Service) -> None:
    one, other = service.repository(10), service.repository(20)
    for repository, said, features in (
        (one, UP, {"x": 1.0, "zero": 0.0}), (other, ("reaction", "+1", "rev"), {"x": 1.0}),
        (one, UP, {"x": 2.0}), (other, DOWN, {"x": 2.0}),
    ):  # fmt: skip
        service.comment(repository, said, features=features)
    made = service.build()
    assert [answer.features["x"] for answer in made.answers] == [1.0]
    assert made.left_out == {ranker_rows.DUPLICATE: 1, ranker_rows.DISAGREED: 2}


def test_nothing_of_an_evaluation_set(service: Service) -> None:
    measured = Evaluations(frozenset({"a1/r10"}), frozenset({"c" * 40}), frozenset({key({"x": 1.0})}))
    service.comment(service.repository(10), UP)
    fork = service.repository(20)
    service.comment(fork, UP, head="c" * 40)
    service.comment(fork, UP, features={"x": 1.0, "y": 0.0})
    service.comment(fork, UP, features={"x": 3.0})
    made = service.build(against=measured)
    assert [answer.features for answer in made.answers] == [{"x": 3.0}]
    assert made.left_out == {ranker_rows.MEASURED: 3}


def test_the_evaluation_sets_that_come_with_ptopt_are_known() -> None:
    known = evaluations()
    assert len(known.repositories) > 40 and len(known.commits) > 500 and len(known.findings) > 1000
    assert all(name == name.lower() and "/" in name for name in known.repositories)


def test_one_person_one_pull_and_one_account_have_a_limited_share(service: Service) -> None:
    repository = service.repository(10)
    for _ in range(8):
        service.comment(repository, UP, pull=1)
    assert len(service.build().answers) == 1, "one vote of a person on a rule in a pull request"
    for _ in range(8):
        service.comment(repository, UP)
    assert len(service.build().answers) == ranker_rows.MOST_PER_PERSON
    for n in range(40):
        service.comment(repository, ("reaction", "+1", f"dev{n}"))
    assert len(service.build().answers) == MOST_PER_ORGANISATION


def test_repositories_and_the_newest_pull_requests_are_held_out(service: Service) -> None:
    for repository in range(10, 50):
        service.repository(repository)
        for n in range(4):
            service.comment(
                repository, ("reaction", "+1", f"d{n}"), at=NOW + timedelta(hours=n), rule=f"PTO{repository}"
            )
    made = service.build()
    sides: dict[str, set[bool]] = {}
    for answer in made.answers:
        sides.setdefault(answer.repository, set()).add(answer.held_out)
    whole = [repository for repository, found in sides.items() if found == {True}]
    assert 2 <= len(whole) <= 16
    partly = [a for a in made.answers if a.repository not in whole]
    newest_learned = max(a.at for a in partly if not a.held_out)
    assert all(a.at >= newest_learned for a in partly if a.held_out)
    assert 0.1 < sum(a.held_out for a in partly) / len(partly) < 0.3
    pulls = {a.pull for a in made.learned} & {a.pull for a in made.held_out}
    assert not pulls, "a pull request is on one side"


def test_until(service: Service) -> None:
    repository = service.repository(10)
    service.comment(repository, UP, at=NOW)
    before = service.build(until=NOW).text()
    service.comment(repository, UP, at=NOW + timedelta(seconds=1))
    assert service.build(until=NOW).text() == before and len(service.build().answers) == 2


def test_what_is_written_is_read_again(service: Service) -> None:
    repository = service.repository(10)
    for kind, value in (
        ("merged", "exact"),
        ("hidden", "hidden"),
        ("changed", "suggested"),
        ("reply", "intentional"),
    ):
        service.comment(repository, (kind, value, f"dev-{kind}"))
    made = service.build()
    again = ranker_rows.Dataset.of_text(made.text())
    assert again.answers == made.answers
    assert sorted((a.good, a.weight) for a in made.answers) == [
        (False, 0.8), (False, 0.8), (True, 0.9), (True, 1.0),
    ]  # fmt: skip


@given(st.lists(st.floats(0.1, 1.0), max_size=50), st.floats(1, 100))
def test_feedback_never_outweighs_what_it_may(weights: list[float], most: float) -> None:
    answers = [Answer("r", "o", str(n), "x", True, w, "", {"n": n}) for n, w in enumerate(weights)]
    rows = scaled([answer.row() for answer in answers], most)
    assert sum(row.weight for row in rows) <= most + 1e-9
    assert not any(row.judged or row.drawn for row in rows)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_two_tenants_are_told_apart_by_who_opted_in(service: Service) -> None:
    """Of generated tenants, a build holds exactly what those gave who opted in and whom nobody has to name."""
    chance = random.Random(7)
    expected = set()
    for number in range(100, 400, 7):
        private, learn = chance.random() < 0.4, chance.random() < 0.5
        service.repository(number, private=private, learn=learn)
        for n in range(chance.randrange(3)):
            features = {"tenant": float(number), "n": float(n)}
            service.comment(number, ("reaction", "+1", f"d{number}"), features=features)
            if learn and not private:
                expected.add((float(number), float(n)))
    found = {(a.features["tenant"], a.features.get("n", 0.0)) for a in service.build().answers}
    assert found == expected and len(expected) > 5


def test_signals_are_trusted_as_the_labels_of_the_service_trust_them() -> None:
    """The training may not import `feedback`, and has its weights again."""
    assert {tier.kind: tier.weight for tier in TIERS if tier.kind in WEIGHTS} == WEIGHTS
    said = {(tier.kind, value): good for tier in TIERS for value, good in tier.says.items()}
    assert {key: good for labels in _LABELS for key, good in labels.items()} == said
    order = [next(iter(labels))[0] for labels in _LABELS]
    assert order == [tier.kind for tier in TIERS if tier.kind in order]
