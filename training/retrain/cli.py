"""`python -m training retrain`."""

from __future__ import annotations

import dataclasses
import signal
import sys
import time
import traceback
from datetime import datetime, timezone
from pathlib import Path

import click

from training.retrain import ranker
from training.retrain.records import LostError, Records, RecordsError, Run
from training.sources.base import SourceError

LEASE = 60.0  # seconds after which a process that went silent is thought dead


@click.command()
@click.option(
    "--database", envvar="PTOPT_DATABASE_URL", show_envvar=True, metavar="URL", help="The service's database.",
)  # fmt: skip
@click.option(
    "--folder", type=click.Path(path_type=Path, file_okay=False), default=Path("retraining"), show_default=True,
    envvar="PTOPT_RETRAIN_FOLDER", show_envvar=True, help="Where datasets and cards are kept.",
)  # fmt: skip
@click.option(
    "--private", multiple=True, metavar="OWNER/NAME",
    help="A private repository whose feedback may be learned from; it must set `learn = true`, too.",
)  # fmt: skip
@click.option(
    "--work", multiple=True, type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Judged comments to learn from besides, in place of those of `benchmarks/quality/data` (see `training ranker`).",
)  # fmt: skip
@click.option("--reason", default="requested", show_default=True, help="Recorded with the run.")
@click.option(
    "--wait", type=click.FloatRange(0), default=2 * LEASE, show_default=True,
    help="Seconds to wait for a process that works on it, or that was killed.",
)  # fmt: skip
@click.option("--lease", type=click.FloatRange(0.1), default=LEASE, hidden=True)
@click.option("--demo", is_flag=True, help="The whole cycle with simulated people, in a database of its own.")
def retrain(
    database: str | None,
    folder: Path,
    private: tuple[str, ...],
    work: tuple[Path, ...],
    reason: str,
    wait: float,
    lease: float,
    demo: bool,
) -> None:
    """Train the ranker again from what people did about comments, and put it to a trial.

    A retraining that was stopped goes on where it was. What it makes is tried in a share of the repositories first; the
    service promotes it, or takes it back.
    """
    if demo:
        from training.retrain.demo import show

        show()
        return
    if database is None:
        raise click.ClickException("name the service's database: --database, or PTOPT_DATABASE_URL")
    # So that the lease is given back: the next process need not wait for its end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        records = Records(database)
    except RecordsError as error:
        raise click.ClickException(str(error)) from None
    try:
        run = _claimed(records, reason, lease, wait)
        if run is None:
            click.echo("another process works on it")
            return
        options = ranker.Options(database, folder, private, reached=_report)
        if work:
            options = dataclasses.replace(options, work=work, fixes=())
        _work(records, run, options, lease)
    finally:
        records.close()


def _report(point: str) -> None:
    step, _, what = point.partition(" ")
    if what in ("noted", "kept"):
        click.echo(f"{step}: {'done before' if what == 'kept' else 'done'}")


def _claimed(records: Records, reason: str, lease: float, wait: float) -> Run | None:
    """The run, once no other process works on it; None where one still does after `wait` seconds."""
    end = time.monotonic() + wait
    while True:
        found = records.claim(ranker.SUBJECT, reason, lease)
        if isinstance(found, Run):
            return found
        left = min(end - time.monotonic(), max(0.1, (found - datetime.now(timezone.utc)).total_seconds()))
        if left <= 0:
            return None
        time.sleep(left)


def _work(records: Records, run: Run, options: ranker.Options, lease: float) -> None:
    try:
        with records.kept(run, lease):
            try:
                result = ranker.retrain(records, run, options)
            except (ranker.NothingToLearnError, SourceError) as error:
                records.fail(run, str(error))
                raise click.ClickException(str(error)) from None
            except (LostError, click.ClickException):
                raise
            except Exception:
                records.fail(run, traceback.format_exc()[-4_000:])
                raise
    except LostError:
        raise click.ClickException("another process works on it now") from None
    click.echo(f"{result.card['name']}: {result.state}: {result.reason}")
