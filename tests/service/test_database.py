"""The database opens the same way on SQLite and PostgreSQL, and the migrations lead to the models."""

from __future__ import annotations

import subprocess
import sys
import threading
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from click.testing import CliRunner
from sqlalchemy import Engine, func, inspect, make_url, select, text
from sqlalchemy.exc import IntegrityError

from service import database
from service.__main__ import main
from service.models import (
    Base,
    CommentRow,
    DeliveryRow,
    Installation,
    PolledPull,
    Repository,
    ReviewRow,
    Signal,
    Version,
    VersionUse,
)

NOW = datetime(2026, 11, 20, 12, tzinfo=timezone.utc)
_OLD_REVIEW = (
    "INSERT INTO reviews (id, repository_id, pull, head_sha, ptopt_version, files_reviewed, findings, received_at, "
    "posted_at) VALUES (3, 2, 7, 'abc', '0.1', 1, 5, '2026-11-20', '2026-11-20')"
)


def test_migrations_lead_to_the_models(empty_database_url: str) -> None:
    database.upgrade(empty_database_url)
    engine = database.engine(empty_database_url)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == []
    engine.dispose()


def test_what_was_stored_before_the_model_stays(empty_database_url: str) -> None:
    database.upgrade(empty_database_url, "0001")
    engine = database.engine(empty_database_url)
    with engine.begin() as connection:
        for statement in (
            "INSERT INTO installations VALUES (1, 'a', false, '2026-11-20')",
            "INSERT INTO repositories VALUES (2, 1, 'a/b', false)",
            _OLD_REVIEW,
        ):
            connection.execute(text(statement))
    with pytest.raises(database.DatabaseError, match="0001, this version needs 0008"):
        database.check(engine)
    database.upgrade(empty_database_url)
    with engine.begin() as connection:  # a worker of the version before, still at work
        connection.execute(text(_OLD_REVIEW.replace("(3,", "(4,").replace("'abc'", "'abd'")))
    with database.reading(engine) as session:
        reviews = session.scalars(select(ReviewRow).order_by(ReviewRow.id)).all()
    assert [(r.id, r.head_sha, r.findings, r.model, r.adapter, r.model_note) for r in reviews] == [
        (3, "abc", 5, "", "", ""),
        (4, "abd", 5, "", "", ""),
    ]
    engine.dispose()


def test_versions_of_the_ranker_stay(empty_database_url: str) -> None:
    database.upgrade(empty_database_url, "0007")
    engine = database.engine(empty_database_url)
    with engine.begin() as connection:
        for statement in (
            "INSERT INTO installations VALUES (1, 'a', false, '2026-11-20')",
            "INSERT INTO repositories (id, installation_id, full_name, private) VALUES (2, 1, 'a/b', false)",
            "INSERT INTO ranker_versions VALUES ('abc', 'active', '{}', '{}', '2026-11-20', '2026-11-21')",
            "INSERT INTO ranker_uses (ranker, repository_id, failed, seconds, at) VALUES ('abc', 2, false, 1.5, '2026-11-22')",
        ):
            connection.execute(text(statement))
    database.upgrade(empty_database_url)
    with database.reading(engine) as session:
        version, use = session.scalars(select(Version)).one(), session.scalars(select(VersionUse)).one()
    assert (version.subject, version.hash, version.state, version.changed_at.day) == (
        "ranker",
        "abc",
        "active",
        21,
    )
    assert (use.subject, use.version, use.repository_id, use.seconds) == ("ranker", "abc", 2, 1.5)
    engine.dispose()


def test_upgrade_twice_and_at_once(empty_database_url: str) -> None:
    failures: list[BaseException] = []

    def upgrade() -> None:
        try:
            database.upgrade(empty_database_url)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=upgrade) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    engine = database.engine(empty_database_url)
    assert {table.name for table in Base.metadata.sorted_tables} <= set(inspect(engine).get_table_names())
    database.check(engine)
    engine.dispose()


def test_many_open_a_new_file_at_once(tmp_path: Path) -> None:
    failures: list[BaseException] = []

    def open_it(start: threading.Barrier, file: Path) -> None:
        engine = database.engine(f"sqlite:///{file}")
        start.wait()
        try:
            with database.reading(engine) as session:
                session.execute(text("SELECT 1"))
        except BaseException as error:
            failures.append(error)
        finally:
            engine.dispose()

    for number in range(50):  # one in eight of such files used to fail
        start = threading.Barrier(4)
        threads = [
            threading.Thread(target=open_it, args=(start, tmp_path / f"{number}.db")) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures


def test_check_names_the_command(empty_database_url: str) -> None:
    engine = database.engine(empty_database_url)
    with pytest.raises(database.DatabaseError, match="python -m service upgrade"):
        database.check(engine)
    engine.dispose()


def test_command_line(empty_database_url: str) -> None:
    run = CliRunner().invoke
    before = run(main, ["check", "--database-url", empty_database_url])
    assert before.exit_code == 1 and "python -m service upgrade" in before.output
    if empty_database_url.startswith("sqlite"):
        assert "`python -m embedded` makes it when it starts first" in before.output
    assert run(main, ["upgrade", "--database-url", empty_database_url]).exit_code == 0
    assert run(main, ["check", "--database-url", empty_database_url]).exit_code == 0


@pytest.mark.parametrize("url", ["mysql://u:geheim@h/d", "sqlite://", "sqlite:///:memory:"])
def test_other_urls_are_refused_without_the_password(url: str) -> None:
    with pytest.raises(database.DatabaseError) as caught:
        database.engine(url)
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize("scheme", ["postgres", "postgresql"])
def test_short_postgresql_urls_are_understood(scheme: str) -> None:
    assert database.engine(f"{scheme}://u:p@h/d").dialect.driver == "psycopg"


def test_times_are_aware_and_utc(engine: Engine) -> None:
    vienna = timezone(timedelta(hours=1))
    row = DeliveryRow(guid="g", event="push", action="", received_at=NOW.astimezone(vienna))
    with database.writing(engine) as session:
        session.add(row)
    with database.reading(engine) as session:
        found = session.scalars(select(DeliveryRow)).one()
        assert found.received_at == NOW
        assert found.received_at.utcoffset() == timedelta(0)


def test_times_are_utc_wherever_the_server_is(postgres_url: str) -> None:
    there = make_url(postgres_url).update_query_dict({"options": "-c timezone=Asia/Tokyo"})
    engine = database.engine(there.render_as_string(hide_password=False))
    with database.writing(engine) as session:
        session.add(DeliveryRow(guid="g", event="push", action="", received_at=NOW))
    with database.reading(engine) as session:
        assert session.scalars(select(DeliveryRow.received_at)).one().isoformat() == NOW.isoformat()
    engine.dispose()


def test_writers_wait_for_each_other(engine: Engine) -> None:
    """Read, then write, in twelve transactions at once: on SQLite a deferred BEGIN would fail with "locked"."""
    with database.writing(engine) as session:
        session.add(Installation(id=1, account="0", created_at=NOW))
    failures: list[BaseException] = []

    def add() -> None:
        try:
            with database.writing(engine) as session:
                row = session.scalars(select(Installation).with_for_update()).one()
                row.account = str(int(row.account) + 1)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=add) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    with database.reading(engine) as session:
        assert session.scalars(select(Installation.account)).one() == "12"


def test_readers_do_not_wait_for_a_writer(engine: Engine) -> None:
    with database.writing(engine) as writer:
        writer.add(Installation(id=1, account="a", created_at=NOW))
        writer.flush()
        with database.reading(engine) as reader:
            assert reader.scalar(select(func.count()).select_from(Installation)) == 0


def test_an_error_rolls_back(engine: Engine) -> None:
    orphan = Repository(id=2, installation_id=99, full_name="a/b")
    with pytest.raises(IntegrityError), database.writing(engine) as session:
        session.add_all([Installation(id=1, account="a", created_at=NOW), orphan])
    with database.reading(engine) as session:
        assert session.scalar(select(func.count()).select_from(Installation)) == 0


def test_deleting_an_installation_deletes_its_data(engine: Engine) -> None:
    comment: dict[str, Any] = {"rule": "PT101", "fingerprint": "f", "origin": "rule", "confidence": 0.9}
    with database.writing(engine) as session:
        for number in (1, 2):
            session.add(Installation(id=number, account="a", created_at=NOW))
            session.flush()
            session.add(Repository(id=number, installation_id=number, full_name=f"a/{number}"))
            session.flush()
            session.add(PolledPull(repository_id=number, pull=7, next_poll_at=NOW))
            review = ReviewRow(
                repository_id=number,
                pull=7,
                head_sha="a" * 40,
                ptopt_version="0",
                files_reviewed=1,
                findings=1,
                received_at=NOW,
                posted_at=NOW,
            )
            session.add(review)
            session.flush()
            where = {"review_id": review.id, "repository_id": number, "pull": 7, "github_id": 3}
            row = CommentRow(path_hash="p", posted_at=NOW, **where, **comment)
            session.add(row)
            session.flush()
            told = {"kind": "reply", "value": "", "actor": "x", "source": "1"}
            session.add(Signal(comment_id=row.id, created_at=NOW, **told))
    with database.writing(engine) as session:
        session.delete(session.get_one(Installation, 1))
    with database.reading(engine) as session:
        for table in (Installation, Repository, PolledPull, ReviewRow, CommentRow, Signal):
            assert session.scalar(select(func.count()).select_from(table)) == 1


def test_the_newest_revision_is_the_one_head_of_the_migrations() -> None:
    folder = Path(database.__file__).parent / "migrations"
    assert ScriptDirectory(str(folder)).get_heads() == [database.newest_revision()]


def test_a_server_does_not_load_the_migrations() -> None:
    program = "import sys, service.database; sys.exit('alembic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
