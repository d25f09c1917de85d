"""The web application: deliveries, `/setup`, health and metrics. Without a command it is served.

It only accepts work: `celery -A worker worker` does it. `python -m worker.embedded` is both in one process.
"""

from __future__ import annotations

import sys

import click
import structlog
from pydantic import ValidationError

from bot import logs, settings_table
from bot.settings import Settings
from feedback import database


@click.group(invoke_without_command=True, help=__doc__)
# Not PTOPT_PORT: Kubernetes sets that itself, to something else, beside a Service named ptopt.
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", default=8000, show_default=True, type=click.IntRange(0, 65535))
@click.pass_context
def main(context: click.Context, host: str, port: int) -> None:
    if context.invoked_subcommand is None:
        serve(host, port)


@main.command()
@click.option("--docs", is_flag=True, help="Print the table of all settings instead.")
def settings(docs: bool) -> None:
    """Check the settings of this environment."""
    if docs:
        click.echo(settings_table.markdown(), nl=False)
        return
    read_settings()
    click.echo("The settings are good.")


def read_settings() -> Settings:
    """The settings; ends the process with a sentence about each that is wrong. Values are not shown."""
    for name, likely in settings_table.unknown():
        hint = f" Is it {likely}?" if likely else ""
        click.echo(f"There is no setting {name}, it is ignored.{hint}", err=True)
    try:
        return Settings()
    except ValidationError as error:
        lines = []
        for item in error.errors(include_url=False, include_input=False):
            name = f"PTOPT_{item['loc'][0]}: ".upper() if item["loc"] else ""
            lines.append(name + item["msg"].removeprefix("Value error, "))
        raise click.ClickException("\n".join(lines)) from None


def read_web_settings() -> Settings:
    """`read_settings` of a process that takes deliveries."""
    values = read_settings()
    if values.app_id is not None and values.webhook_secret is None:
        raise click.ClickException(
            "PTOPT_APP_ID is set without PTOPT_WEBHOOK_SECRET: no delivery could be believed"
        )
    return values


def serve(host: str, port: int) -> None:
    values = read_web_settings()
    logs.configure(values.log_level, values.log_format)
    # They load the database and Celery, which the other commands do not need.
    from sqlalchemy.exc import SQLAlchemyError

    from bot import setup
    from bot.app import create_app
    from bot.server import run

    try:
        engine = database.engine(values.database_url)
        database.check(engine)
        setup.announce(values, engine)
    except database.DatabaseError as error:
        raise click.ClickException(f"PTOPT_DATABASE_URL: {error}") from None
    except SQLAlchemyError as error:  # it may come up later; until then we are not ready
        structlog.get_logger(__name__).warning("the database cannot be reached", error=str(error))
    run(create_app(values, engine=engine), host, port)


if __name__ == "__main__":
    sys.exit(main(prog_name="python -m bot"))
