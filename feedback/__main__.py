"""For the operator: `python -m feedback canary` looks at the ranker on trial now, as the scheduler does each minute."""

from __future__ import annotations

from datetime import datetime, timezone

import click
from sqlalchemy.exc import SQLAlchemyError

from feedback import rollout
from service import database
from service.environment import read_settings


@click.group(help=__doc__)
def main() -> None:
    pass


@main.command()
def canary() -> None:
    """Promote the ranker on trial, take it back, or try it longer; and say why."""
    try:
        engine = database.engine(read_settings().database_url)
        database.check(engine)
        with database.writing(engine) as session:
            decision = rollout.watch(session, datetime.now(timezone.utc))
        engine.dispose()
    except database.DatabaseError as error:
        raise click.ClickException(f"PTOPT_DATABASE_URL: {error}") from None
    except SQLAlchemyError as error:
        raise click.ClickException(f"the database cannot be used: {error}") from None
    click.echo("no canary" if decision is None else f"{decision.move}: {decision.reason}")


if __name__ == "__main__":
    main(prog_name="python -m feedback")
