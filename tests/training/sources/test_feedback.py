from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pytest
from sqlalchemy.orm import Session

from feedback.signals import SignalKind, record
from service import database
from service.models import CommentRow, Installation, Repository, ReviewRow
from training.sources.base import SourceError
from training.sources.feedback import Feedback

NOW = datetime(2026, 5, 1, tzinfo=timezone.utc)


class Service:
    """The service's own database, at its newest schema."""

    def __init__(self, path: Path) -> None:
        self.url = f"sqlite:///{path}"
        database.upgrade(self.url)
        self.engine = database.engine(self.url)
        with Session(self.engine) as session:
            session.add(Installation(id=1, account="acme", created_at=NOW))
            session.flush()
            for number, (name, private) in enumerate([("acme/open", False), ("acme/closed", True)], 1):
                session.add(
                    Repository(id=number, installation_id=1, full_name=name, private=private, learn=True)
                )
                session.flush()
                session.add(
                    ReviewRow(
                        id=number, repository_id=number, pull=7, head_sha="f" * 40, github_id=1, ptopt_version="1",
                        files_reviewed=1, findings=1, received_at=NOW, posted_at=NOW, model="base+judge",
                        adapter="a" * 64, prompt_version="1", schema_version="1",
                        model_note="the model is away" if private else "",
                    )
                )  # fmt: skip
            session.commit()

    def comment(
        self, number: int, *said: tuple[SignalKind, str, str], repository: int = 1, writes: bool | None = True
    ) -> None:
        with Session(self.engine) as session:
            comment = CommentRow(
                id=number, review_id=repository, repository_id=repository, pull=7, github_id=number, rule="PTO101",
                fingerprint=f"f{number}", origin="rule", confidence=0.9, path_hash="h", suggestion={}, posted_at=NOW,
            )  # fmt: skip
            session.add(comment)
            session.flush()
            for n, (kind, value, actor) in enumerate(said):
                source = "r" if kind in (SignalKind.REACTION, SignalKind.WITHDRAWN) else str(n)
                record(
                    session,
                    comment,
                    kind,
                    value,
                    actor=actor,
                    source=source + actor,
                    now=NOW,
                    actor_writes=writes,
                )
            session.commit()


@pytest.fixture
def service(tmp_path: Path):
    service = Service(tmp_path / "ptopt.db")
    yield service
    service.engine.dispose()


def labels(service: Service, **options):
    pages = list(Feedback(service.url, **options).pull(None, 100))
    return {d.id: (d.raw["label"], d.raw["votes"], d.raw["by"]) for page in pages for d in page.documents}


UP, DOWN = (SignalKind.REACTION, "+1"), (SignalKind.REACTION, "-1")


@pytest.mark.parametrize(
    ("said", "label"),
    [
        ([(*UP, "a")], ("good", [1, 0], "reaction")),
        ([(*UP, "a"), (*DOWN, "b"), (*DOWN, "c")], ("bad", [1, 2], "reaction")),
        ([(*UP, "a"), (*DOWN, "b")], None),
        ([(*DOWN, "a"), (*DOWN, "b"), (SignalKind.APPLIED, "exact", "c")], ("good", [1, 0], "applied")),
        ([(SignalKind.VERDICT, "bad", "a"), (*UP, "b")], ("bad", [0, 1], "verdict")),
        ([(SignalKind.IGNORED, "rule", "a")], ("bad", [0, 1], "ignored")),
        ([(*UP, "a"), (SignalKind.WITHDRAWN, "+1", "a")], None),
        ([(SignalKind.THREAD, "resolved", "a")], None),
        ([(SignalKind.REACTION, "eyes", "a")], None),
        ([], None),
    ],
)
def test_what_signals_add_up_to(service: Service, said, label):
    service.comment(1, *said)
    assert labels(service) == ({"1": label} if label else {})


def test_people_who_may_not_write_do_not_count(service: Service):
    service.comment(1, (*UP, "a"), writes=False)
    service.comment(2, (*UP, "a"), writes=None)
    assert set(labels(service)) == {"2"}


def test_a_private_repository_is_left_out_unless_named(service: Service):
    service.comment(1, (*UP, "a"), repository=2)
    service.comment(2, (*UP, "a"))
    assert set(labels(service)) == {"2"}
    assert set(labels(service, private=["acme/closed"])) == {"1", "2"}


def test_a_label_holds_no_code_and_no_person(service: Service, clock):
    service.comment(1, (*UP, "hash-of-a-person"))
    ((document,),) = [page.documents for page in Feedback(service.url, clock=clock).pull(None, 9)]
    assert document.blocks == () and document.text == ""
    assert document.raw["rule"] == "PTO101" and document.provenance == f"acme/open#7@{'f' * 40}"
    assert "hash-of-a-person" not in document.to_json()


def test_a_label_names_the_adapter_that_had_a_say(service: Service):
    service.comment(1, (*UP, "a"))
    service.comment(2, (*UP, "a"), repository=2)
    (page,) = Feedback(service.url, private=["acme/closed"]).pull(None, 9)
    assert [d.raw["adapter"] for d in page.documents] == ["a" * 64, ""]
    assert [d.raw["model"] for d in page.documents] == ["base+judge", ""]


def test_a_schema_of_before(service: Service):
    with service.engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE reviews DROP COLUMN adapter")
    with pytest.raises(SourceError, match="python -m service upgrade"):
        list(Feedback(service.url).pull(None, 9))


def test_the_cursor(service: Service):
    for number in range(1, 4):
        service.comment(number, (*UP, "a"))
    source = Feedback(service.url)
    (page,) = source.pull({"comment": 2}, 9)
    assert [d.id for d in page.documents] == ["3"] and page.cursor == {"comment": 3}
    assert list(source.pull(page.cursor, 9)) == []


@pytest.mark.parametrize("url", ["sqlite://", "nonsense", "sqlite:////nowhere/at/all.db"])
def test_a_database_that_is_none(url):
    with pytest.raises(SourceError, match="database"):
        list(Feedback(url).pull(None, 9))
