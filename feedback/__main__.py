"""For the operator: what is on trial, and what only a person can decide on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from typing import TypeVar

import click
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from feedback import calibration, rollout
from feedback.labels import Vote
from feedback.labels import outliers as outliers_of
from ptopt.ranker.model import threshold
from service import database, versions
from service.environment import read_settings
from service.models import Repository

_NAMED = 5  # people of a ring whose hashes are shown
T = TypeVar("T")


@click.group(help=__doc__)
def main() -> None:
    pass


@main.command()
def canary() -> None:
    """Promote the ranker or the adapter on trial, take it back, or try it longer; and say why."""

    def watch(session: Session) -> dict[str, rollout.Decision | None]:
        now = datetime.now(timezone.utc)
        return {subject: rollout.watch(session, subject, now) for subject in versions.SUBJECTS}

    found = _in_database(watch)
    for subject, decision in found.items():
        if decision is not None:
            click.echo(f"{subject}: {decision.move}: {decision.reason}")
    if not any(found.values()):
        click.echo("no canary")


@main.command()
def outliers() -> None:
    """People, by their hash, who disagree with the others more often than chance explains, and rings. Nothing follows from it
    by itself."""

    def look(session: Session) -> list[str]:
        return [
            f"{name}: {' '.join(one.people[:_NAMED])}{' ...' if len(one.people) > _NAMED else ''}: {one.reason}"
            for _, name, cast in _by_repository(session)
            for one in outliers_of(cast)
        ]

    click.echo("\n".join(_in_database(look)) or "no outliers")


@main.command()
def quiet() -> None:
    """Rules that are quiet in most of the repositories that voted on them, of which an organisation counts as three at most. They
    stay on elsewhere until a person decides."""

    def look(session: Session) -> list[str]:
        states = {key: calibration.state(cast).rules for key, _, cast in _by_repository(session)}
        return calibration.quiet_everywhere(states, threshold(None))

    click.echo("\n".join(_in_database(look)) or "no rule is quiet in most repositories")


def _by_repository(session: Session) -> Iterator[tuple[tuple[int, int], str, tuple[Vote, ...]]]:
    """The organisation and the id of each repository, its name, and the votes in it."""
    known = select(Repository.installation_id, Repository.id, Repository.full_name).order_by(Repository.id)
    for organisation, key, name in session.execute(known):
        yield (organisation, key), name, calibration.cast_in(session, [key])


def _in_database(work: Callable[[Session], T]) -> T:
    """What `work` finds, in one transaction. Raises ClickException where the database cannot be used."""
    try:
        engine = database.engine(read_settings().database_url)
        database.check(engine)
        with database.writing(engine) as session:
            found = work(session)
        engine.dispose()
    except database.DatabaseError as error:
        raise click.ClickException(f"PTOPT_DATABASE_URL: {error}") from None
    except SQLAlchemyError as error:
        raise click.ClickException(f"the database cannot be used: {error}") from None
    return found


if __name__ == "__main__":
    main(prog_name="python -m feedback")
