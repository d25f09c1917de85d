"""`python -m embedded`: web application, worker and scheduler in one process, on SQLite, without a broker."""

from __future__ import annotations

import logging
import os
import sys

import click
from sqlalchemy.exc import SQLAlchemyError

from bot import setup
from bot.server import run
from embedded.service import Embedded
from service import allocator, database, logs
from service.environment import read_web_settings


@click.command(help=__doc__)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", default=8000, show_default=True, type=click.IntRange(0, 65535))
def main(host: str, port: int) -> None:
    allocator.return_freed_memory()
    settings = read_web_settings()
    logs.configure(settings.log_level, settings.log_format)
    # That it is connected to its own memory is no news.
    logging.getLogger("celery.worker.consumer.connection").setLevel(logging.WARNING)
    try:
        embedded = Embedded(settings)
        embedded.start()
    except database.DatabaseError as error:
        raise click.ClickException(f"PTOPT_DATABASE_URL: {error}") from None
    except SQLAlchemyError as error:
        raise click.ClickException(f"the database cannot be used: {error}") from None
    try:
        setup.announce(settings, embedded.resources.engine)
        run(embedded.app(), host, port, seconds_to_stop=1)
    finally:
        done = embedded.stop()
        if not done:
            # The interpreter would wait for the threads of jobs, which are in the database again by now.
            logging.shutdown()
            sys.stdout.flush()
            os._exit(0 if sys.exc_info()[0] is None else 1)


if __name__ == "__main__":
    main(prog_name="python -m embedded")
