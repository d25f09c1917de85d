"""For the operator: the schema of the database, the settings, and the jobs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone

import click
from sqlalchemy import Engine, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from ptopt.report.text import one_line, visible
from service import database, leases, settings_table, versions
from service.database import reading, writing
from service.environment import read_settings, read_web_settings
from service.jobs import words
from service.models import Job, JobState, LearningEvent, Version, VersionState, worth_listing

_URL = click.option(
    "--database-url",
    default=lambda: os.environ.get("PTOPT_DATABASE_URL", "sqlite:///ptopt.db"),
    help="SQLAlchemy URL; default: PTOPT_DATABASE_URL, else sqlite:///ptopt.db.",
)


@contextmanager
def _database() -> Iterator[Engine]:
    try:
        engine = database.engine(read_settings().database_url)
        try:
            database.check(engine)
            yield engine
        finally:
            engine.dispose()
    except database.DatabaseError as error:
        raise click.ClickException(f"PTOPT_DATABASE_URL: {error}") from None
    except SQLAlchemyError as error:
        raise click.ClickException(f"the database cannot be used: {error}") from None


@click.group(help=__doc__)
def main() -> None:
    pass


@main.command()
@_URL
def upgrade(database_url: str) -> None:
    """Bring the database to the newest schema."""
    try:
        database.upgrade(database_url)
    except (database.DatabaseError, SQLAlchemyError) as error:
        raise click.ClickException(str(error)) from None
    click.echo("The database schema is up to date.")


@main.command()
@_URL
def check(database_url: str) -> None:
    """Fail unless the database has the newest schema."""
    try:
        engine = database.engine(database_url)
        try:
            database.check(engine)
        finally:
            engine.dispose()
    except (database.DatabaseError, SQLAlchemyError) as error:
        raise click.ClickException(str(error)) from None
    click.echo("The database schema is up to date.")


@main.command()
@click.option("--docs", is_flag=True, help="Print the table of all settings instead.")
def settings(docs: bool) -> None:
    """Check the settings of this environment, and say what is missing."""
    if docs:
        click.echo(settings_table.markdown(), nl=False)
        return
    values = read_web_settings()
    if values.app_id is None and values.setup_token is None and values.secret_key is None:
        raise click.ClickException(
            "no GitHub App is configured. Set PTOPT_SETUP_TOKEN, PTOPT_SECRET_KEY and PTOPT_PUBLIC_URL to create one with "
            "/setup,\nor PTOPT_APP_ID, PTOPT_PRIVATE_KEY and PTOPT_WEBHOOK_SECRET to use an existing one."
        )
    click.echo("The settings are valid.")
    for note in settings_table.incomplete(values):
        click.echo(f"Note: {note}")


@main.command()
@click.option("--dead", is_flag=True, help="Only dead jobs: those out of retries.")
@click.option("--id", "job_id", type=int, help="One job, with its full error.")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1))
@click.option("--polls", is_flag=True, help="Also those that only look for reactions, and are not dead.")
def jobs(dead: bool, job_id: int | None, limit: int, polls: bool) -> None:
    """List jobs, newest first."""
    wanted = select(Job).order_by(Job.id.desc()).limit(limit)
    if not polls and job_id is None:
        wanted = wanted.where(worth_listing())
    if dead:
        wanted = wanted.where(Job.state == JobState.DEAD.value)
    if job_id is not None:
        wanted = wanted.where(Job.id == job_id)
    with _database() as engine, reading(engine) as session:
        found = list(session.scalars(wanted))
    for job in found:
        where = f"{job.repository}#{job.pull}" if job.pull else job.repository
        head = job.head_sha[:7]
        shown = (
            job.id,
            job.state,
            words(job.kind),
            where,
            head,
            f"attempts={job.attempts}",
            f"{job.due_at:%FT%TZ}",
        )
        click.echo(" ".join(str(word) for word in shown if word != ""))
        if job.error and job_id is None:
            click.echo("    " + one_line(job.error.strip().rsplit("\n", 1)[-1])[:300])
        elif job.error:
            click.echo("".join(f"    {visible(line)}\n" for line in job.error.rstrip().split("\n")), nl=False)
    if not found:
        click.echo("No dead jobs." if dead else "No jobs.")


@main.command()
@click.argument("job_id", metavar="ID", type=int)
def retry(job_id: int) -> None:
    """Run a dead job again, with all its attempts."""
    with _database() as engine:
        queued = leases.retry(engine, job_id, datetime.now(timezone.utc))
    if not queued:
        raise click.ClickException(
            f"job {job_id} is not dead: `python -m service jobs --dead` lists those that are"
        )
    click.echo(f"Job {job_id} is queued.")


@main.group("rankers")
def rankers_() -> None:
    """Versions of the ranker that retrainings made, and which of them is in use."""


@main.group("adapters")
def adapters_() -> None:
    """Versions of the adapter that retrainings made, and which of them is in use."""


def _add_commands(group: click.Group, subject: str) -> None:
    """The commands for the versions of a subject."""

    @group.command("list")
    @click.option(
        "--limit", default=20, show_default=True, type=click.IntRange(1), help="Events that are shown."
    )
    def list_(limit: int) -> None:
        """List the versions, and the newest events."""
        _list_versions(subject, limit)

    @group.command()
    def rollback() -> None:
        """Take the canary back, or without one the active version: the one before it is in use again."""
        click.echo(f"{_moved(versions.roll_back, subject)[:12]} is rolled back.")

    @group.command()
    def promote() -> None:
        """Use the canary in all repositories now, without waiting for the end of its trial."""
        click.echo(f"{_moved(versions.promote, subject)[:12]} is active.")


def _list_versions(subject: str, limit: int) -> None:
    wanted = select(Version).where(Version.subject == subject).order_by(Version.created_at)
    events = select(LearningEvent).where(LearningEvent.subject == subject)
    with _database() as engine, reading(engine) as session:
        known = [(v.hash, v.state, v.changed_at) for v in session.scalars(wanted)]
        happened = list(session.scalars(events.order_by(LearningEvent.id.desc()).limit(limit)))
    if not any(state == VersionState.ACTIVE.value for _, state, _ in known):
        click.echo("built-in     active" if subject == versions.RANKER else "registry     active")
    for hash_, state, at in known:
        click.echo(f"{hash_[:12]} {state:11} since {at:%FT%TZ}")
    for event in reversed(happened):
        reason = event.detail.get("reason", "")
        words = (f"{event.at:%FT%TZ}", event.subject, event.kind, event.hash[:12], reason)
        click.echo(one_line(" ".join(str(word) for word in words if word != "")))


def _moved(move: Callable[[Session, str, datetime, dict[str, str]], str], subject: str) -> str:
    """The hash of what was moved."""
    with _database() as engine, writing(engine) as session:
        try:
            return move(session, subject, datetime.now(timezone.utc), {"reason": "by the operator"})
        except versions.VersionError as error:
            raise click.ClickException(str(error)) from None


_add_commands(rankers_, versions.RANKER)
_add_commands(adapters_, versions.ADAPTER)


if __name__ == "__main__":
    main(prog_name="python -m service")
