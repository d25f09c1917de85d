"""What is in the database after all that people can do: no code, no path, and nobody's name but the owner's."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import func, select

from fake_github import FakeGitHub, Pull
from fake_github.repos import Repo
from service.database import reading
from service.models import CommentRow, Job, Signal
from tests.worker.pulls import SLOW, now
from tests.worker.service import Service
from worker import periodic_tasks

SECRET = SLOW.replace(b"images", b"confidential_scans").replace(b"total", b"secret_sum")
HIDDEN = (
    "confidential",
    "secret_sum",
    "loss.",
    "hidden_folder",
    "private_model",
    "walter",
    "jessie",
    "Heisenberg",
)


def everything(service: Service, repo: Repo) -> Pull:
    """All that leaves a signal."""
    repo.permission("walter", "write")
    repo.permission("jessie", "read")
    pull = repo.pull(files={"hidden_folder/private_model.py": SECRET}, author="jessie", title="Heisenberg")
    service.catch_up()
    comment = pull.review_comments[0].id
    pull.reply("walter", comment, "Is it confidential? Heisenberg")
    pull.reply("walter", comment, "/ptopt feedback bad it runs once")
    pull.resolve("jessie", comment)
    pull.resolve("jessie", comment, False)
    pull.react("walter", comment, "-1")
    service.catch_up()
    pull.accept(comment, "jessie")
    service.catch_up()
    pull.reply("walter", comment, "/ptopt ignore here")
    pull.comment("walter", "/ptopt review --full\n/ptopt explain private_model")
    service.catch_up()
    pull.close(merged=True)
    periodic_tasks.poll(service.resources, now() + timedelta(days=1))
    service.catch_up()
    return pull


def test_nothing_that_people_wrote_but_the_reason(service: Service, repo: Repo) -> None:
    everything(service, repo)
    assert service.signal_values() == [
        ("reply", "question"),
        ("verdict", "bad"),
        ("thread", "resolved"),
        ("thread", "unresolved"),
        ("applied", "exact"),
        ("thread", "resolved"),
        ("ignored", "here"),
        ("merged", "exact"),
        ("reaction", "-1"),
    ]
    writes = {s.kind: s.actor_writes for s in service.signals()}
    assert writes["verdict"] is writes["ignored"] is writes["reply"] is True and writes["thread"] is False
    assert [s.note for s in service.signals() if s.note] == ["it runs once"]
    periodic_tasks.prune(service.resources, now() + timedelta(hours=3))
    text = service.stored()
    assert "it runs once" in text and "octo/models" in text
    assert [word for word in HIDDEN if word in text] == []


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_nor_in_what_sqlite_leaves_in_its_file(service: Service, repo: Repo, tmp_path: Path) -> None:
    everything(service, repo)
    periodic_tasks.prune(service.resources, now() + timedelta(hours=3))
    with service.resources.engine.connect() as connection:
        connection.exec_driver_sql("COMMIT")
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.exec_driver_sql("BEGIN")
    data = (tmp_path / "ptopt.db").read_bytes()
    assert b"it runs once" in data
    assert [word for word in HIDDEN if word.encode() in data] == []


def test_uninstalling_deletes_it(service: Service, github: FakeGitHub, repo: Repo) -> None:
    everything(service, repo)
    assert repo.installation is not None
    github.uninstall(repo.installation)
    service.catch_up()
    with reading(service.resources.engine) as session:
        for table in (Signal, CommentRow):
            assert session.scalar(select(func.count()).select_from(table)) == 0
        assert session.scalars(select(Job.kind)).all() == ["installation"]
    assert "it runs once" not in service.stored() and "octo/models" not in service.stored()
