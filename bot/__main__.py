"""The web application: deliveries, `/setup`, health and metrics.

It only accepts work: `celery -A worker worker` does it. `python -m embedded` is both in one process.
"""

from __future__ import annotations

import click
import structlog
from sqlalchemy.exc import SQLAlchemyError

from bot import setup
from bot.app import create_app
from bot.server import run
from service import allocator, database, logs
from service.environment import read_web_settings


@click.command(help=__doc__)
# Not PTOPT_PORT: Kubernetes sets that itself, to something else, beside a Service named ptopt.
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", default=8000, show_default=True, type=click.IntRange(0, 65535))
def main(host: str, port: int) -> None:
    allocator.return_freed_memory()
    values = read_web_settings()
    logs.configure(values.log_level, values.log_format)
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
    main(prog_name="python -m bot")
