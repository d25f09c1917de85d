"""`python -m training retrain`."""

from __future__ import annotations

import dataclasses
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from datetime import datetime, timezone
from pathlib import Path

import click

from training.retrain import ranker
from training.retrain.records import LostError, Records, RecordsError, Run
from training.retrain.steps import NothingToLearnError, Result
from training.sources.base import SourceError

LEASE = 60.0  # seconds after which a process that went silent is thought dead
Cycle = Callable[[Records, Run], Result]
_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


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
    "--work", multiple=True, type=_FILE, envvar="PTOPT_RETRAIN_WORK", show_envvar=True,
    help="Judged comments to learn from besides, in place of those of `benchmarks/quality/data` (see `training ranker`).",
)  # fmt: skip
@click.option(
    "--gold", multiple=True, type=_FILE, envvar="PTOPT_RETRAIN_GOLD", show_envvar=True,
    help="Judged comments that nothing is learned from, in place of those of `benchmarks/quality/data`.",
)  # fmt: skip
@click.option(
    "--adapter", envvar="PTOPT_RETRAIN_ADAPTER", show_envvar=True, metavar="RECIPE",
    help="Train the adapter again, too: a recipe of `training sft`.",
)  # fmt: skip
@click.option(
    "--clones", type=click.Path(path_type=Path, exists=True, file_okay=False), envvar="PTOPT_RETRAIN_CLONES",
    show_envvar=True, help="Folder of git clones, as OWNER/NAME or OWNER+NAME, which the adapter's code is read from.",
)  # fmt: skip
@click.option(
    "--registry", type=click.Path(path_type=Path, file_okay=False), envvar="PTOPT_MODEL_REGISTRY", show_envvar=True,
    help="The registry of adapters.",
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
    gold: tuple[Path, ...],
    adapter: str | None,
    clones: Path | None,
    registry: Path | None,
    reason: str,
    wait: float,
    lease: float,
    demo: bool,
) -> None:
    """Train the ranker, and with --adapter the adapter, again from what people did about comments; put them to a trial.

    A retraining that was stopped goes on where it was. What it makes is tried in a share of the repositories first; the
    service promotes it, or takes it back.
    """
    if demo:
        from training.retrain.demo import show

        show()
        return
    if database is None:
        raise click.ClickException("name the service's database: --database, or PTOPT_DATABASE_URL")
    options = ranker.Options(database, folder, private, reached=_report)
    if work:
        options = dataclasses.replace(options, work=work, fixes=())
    if gold:
        options = dataclasses.replace(options, gold=gold)
    cycles: dict[str, Cycle] = {ranker.SUBJECT: lambda records, run: ranker.retrain(records, run, options)}
    if adapter:
        cycles["adapter"] = _adapter_cycle(options, adapter, clones, registry)
    # So that the lease is given back: the next process need not wait for its end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        records = Records(database)
    except RecordsError as error:
        raise click.ClickException(str(error)) from None
    try:
        _run_all(records, cycles, reason, lease, wait)
    finally:
        records.close()


def _adapter_cycle(options: ranker.Options, recipe: str, clones: Path | None, registry: Path | None) -> Cycle:
    if clones is None or registry is None:
        raise click.ClickException("the adapter needs --clones and --registry, too")
    try:
        from training.recipes.settings import SettingsError
        from training.retrain import adapter
    except ModuleNotFoundError as error:
        raise click.ClickException(
            f"the adapter needs the package {error.name}: pip install '.[training]'"
        ) from None
    given = adapter.Options(
        options.database, options.folder, recipe, clones, registry, options.private, options.work, options.fixes,
        options.gold,
        reached=options.reached,
    )  # fmt: skip
    try:
        given.settings()
    except SettingsError as error:
        raise click.ClickException(str(error)) from None
    return lambda records, run: adapter.retrain(records, run, given)


def _run_all(records: Records, cycles: Mapping[str, Cycle], reason: str, lease: float, wait: float) -> None:
    """One run after the other. All are begun at first, so that whoever goes on after a kill knows what is left: the last
    ones, where the first is over.
    """
    left = records.running(cycles)
    wanted = left if left and next(iter(cycles)) not in left else cycles
    runs = {subject: _claimed(records, subject, reason, lease, wait) for subject in wanted}
    failed = []
    with ExitStack() as leases:
        for run in runs.values():
            if run is not None:
                leases.enter_context(records.kept(run, lease))
        for subject, run in runs.items():
            if run is None:
                click.echo(f"{subject}: another process works on it")
                continue
            try:
                result = _work(records, run, cycles[subject])
                click.echo(f"{result.card['name']}: {result.state}: {result.reason}")
            except click.ClickException as error:
                failed.append(f"{subject}: {error.message}")
    if failed:
        raise click.ClickException("; ".join(failed))


def _report(point: str) -> None:
    step, _, what = point.partition(" ")
    if what in ("noted", "kept"):
        click.echo(f"{step}: {'done before' if what == 'kept' else 'done'}")


def _claimed(records: Records, subject: str, reason: str, lease: float, wait: float) -> Run | None:
    """The run, once no other process works on it; None where one still does after `wait` seconds."""
    end = time.monotonic() + wait
    while True:
        found = records.claim(subject, reason, lease)
        if isinstance(found, Run):
            return found
        left = min(end - time.monotonic(), max(0.1, (found - datetime.now(timezone.utc)).total_seconds()))
        if left <= 0:
            return None
        time.sleep(left)


def _work(records: Records, run: Run, cycle: Cycle) -> Result:
    """Raises ClickException where the run failed, or is another process's now; what nobody expected is raised as it is."""
    try:
        return cycle(records, run)
    except LostError:
        raise click.ClickException("another process works on it now") from None
    except (NothingToLearnError, SourceError) as error:
        records.fail(run, str(error))
        raise click.ClickException(str(error)) from None
    except Exception:
        records.fail(run, traceback.format_exc()[-4_000:])
        raise
