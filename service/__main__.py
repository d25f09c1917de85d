"""`python -m service upgrade` and `check`: the schema of the database. `python -m service settings`: the settings."""

from __future__ import annotations

import os

import click
from sqlalchemy.exc import SQLAlchemyError

from service import database, settings_table
from service.environment import read_settings

_URL = click.option(
    "--database-url",
    default=lambda: os.environ.get("PTOPT_DATABASE_URL", "sqlite:///ptopt.db"),
    help="SQLAlchemy URL; default: PTOPT_DATABASE_URL, else sqlite:///ptopt.db.",
)


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
    click.echo("The database has the newest schema.")


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
    click.echo("The database has the newest schema.")


@main.command()
@click.option("--docs", is_flag=True, help="Print the table of all settings instead.")
def settings(docs: bool) -> None:
    """Check the settings of this environment."""
    if docs:
        click.echo(settings_table.markdown(), nl=False)
        return
    read_settings()
    click.echo("The settings are good.")


if __name__ == "__main__":
    main(prog_name="python -m service")
