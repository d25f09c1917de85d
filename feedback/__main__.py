"""For the operator: `python -m feedback canary` looks at what is on trial now, as the scheduler does each minute."""

from __future__ import annotations

from datetime import datetime, timezone

import click
from sqlalchemy.exc import SQLAlchemyError

from feedback import rollout
from service import database, versions
from service.environment import read_settings


@click.group(help=__doc__)
def main() -> None:
    pass


@main.command()
def canary() -> None:
    """Promote the ranker or the adapter on trial, take it back, or try it longer; and say why."""
    try:
        engine = database.engine(read_settings().database_url)
        database.check(engine)
        with database.writing(engine) as session:
            now = datetime.now(timezone.utc)
            found = {subject: rollout.watch(session, subject, now) for subject in versions.SUBJECTS}
        engine.dispose()
    except database.DatabaseError as error:
        raise click.ClickException(f"PTOPT_DATABASE_URL: {error}") from None
    except SQLAlchemyError as error:
        raise click.ClickException(f"the database cannot be used: {error}") from None
    for subject, decision in found.items():
        if decision is not None:
            click.echo(f"{subject}: {decision.move}: {decision.reason}")
    if not any(found.values()):
        click.echo("no canary")


if __name__ == "__main__":
    main(prog_name="python -m feedback")
