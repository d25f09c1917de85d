"""`python -m training retrain --demo`: the cycle of the ranker with simulated people, each step by the command that does it.

Half of the repositories of the part *work* of `benchmarks/quality/data` have readers who judged their comments; the others play
repositories that opted in. What is shown is how a retraining runs, not how good one is: the people are made up.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from pathlib import Path

import click

from ptopt.ranker.model import ENVIRONMENT
from training.feedback.evaluations import DATA
from training.ranker.rows import Row, read
from training.retrain.simulated import Simulated

_ROOT = Path(__file__).parents[2]
UNWANTED = "path:old"  # what readers never saw: a folder in which these people want no comment
_SHOWN = 60  # comments of a canary


def show() -> None:
    """Print the cycle: a canary that is rolled back, one that is promoted, and a candidate that is refused."""
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="ptopt-retrain-") as folder:
        demo = _Demo(Path(folder))
        try:
            demo.run()
        finally:
            demo.people.close()
    click.echo(f"\nIn all {time.perf_counter() - started:.0f} s.")


class _Demo:
    def __init__(self, folder: Path) -> None:
        self._folder, self._readers = folder, folder / "readers.jsonl"
        rows = read([DATA / "verdicts" / "work.jsonl"])
        self._theirs = [_placed(row, n % 2 == 0) for n, row in enumerate(rows) if _plays(row.repo)]
        judged = (row for row in rows if not _plays(row.repo))
        self._readers.write_text("".join(f"{_line(row)}\n" for row in judged), encoding="utf-8")
        url, first = f"sqlite:///{folder / 'ptopt.db'}", folder / "first.json"
        # A first ranker that has not seen the comments which are answered here: the one that ptopt carries has.
        self._environment = {**os.environ, "PTOPT_DATABASE_URL": url, ENVIRONMENT: str(first)}
        self._command("service", "upgrade")
        self._command("training", "ranker", "--work", str(self._readers), "--out", str(first))
        self.people = Simulated(url)

    def run(self) -> None:
        self._say("Some repositories are reviewed, and do not opt in; people like most of what they see")
        self._on_trial(lambda row: int(10 * sum(row.features.values())) % 10 < 7, "")
        self._say(
            "Others opt in, and answer: as readers do, but they want no comment in a folder of old code"
        )
        self._answered(self._theirs, _wanted)
        self._retrain("enough answers")
        self._say("It is tried where nobody opted in, and people dislike what it shows there")
        self._tried(lambda row: False)
        self._say("There are more answers")
        self._answered(_others(self._theirs[:_SHOWN], "newer"), _wanted)
        self._retrain("more answers")
        self._say("It is tried, and people like what it shows")
        self._tried(lambda row: True)
        self._say("Accounts in many repositories vote the opposite of what is right")
        self._answered(_others(self._theirs, "attacker"), lambda row: not row.useful)
        self._retrain("a date")
        self._say("What happened")
        self._command("service", "rankers", "list")

    def _answered(self, rows: Sequence[Row], wanted: Callable[[Row], bool]) -> None:
        click.echo(f"{self.people.answer(rows, wanted)} comments answered")

    def _on_trial(self, wanted: Callable[[Row], bool], ranker: str) -> None:
        rows = _others(self._theirs[:_SHOWN], "trial")
        number = self.people.answer(rows, wanted, ranker=ranker, learn=False)
        click.echo(f"{number} comments answered")

    def _tried(self, wanted: Callable[[Row], bool]) -> None:
        canary = self.people.version("canary")
        if not canary:
            raise click.ClickException("there is no canary to try: see above why it was refused")
        self._on_trial(wanted, canary)
        self.people.days_pass(2)
        self._command("feedback", "canary")

    def _retrain(self, reason: str) -> None:
        self._say("The ranker is trained again")
        folder = self._folder / "retraining"
        self._command(
            "training", "retrain", "--folder", str(folder), "--reason", reason, "--work", str(self._readers)
        )
        evaluation = json.loads(next(folder.glob("ranker-*/card.json")).read_text("utf-8"))["evaluation"]
        compared = [("gold", name, found) for name, found in evaluation["gold"].items()]
        compared += [("held-out feedback", "log loss", evaluation["feedback"])]
        for where, name, found in compared:
            gain = found["gain"]
            click.echo(
                f"  {where}: {name} {found['champion']:.3f} -> {found['candidate']:.3f} on {found['rows']} comments, "
                f"better by {gain['value']:+.3f} [{gain['low']:+.3f}, {gain['high']:+.3f}]"
            )

    def _command(self, module: str, *arguments: str) -> None:
        shown = " ".join(("python -m", module, *arguments)).replace(str(self._folder), "…")
        click.echo(f"$ {shown}")
        done = subprocess.run(
            [sys.executable, "-m", module, *arguments], cwd=_ROOT, env=self._environment, check=False
        )
        if done.returncode:
            raise click.ClickException(f"`{shown}` failed")

    def _say(self, text: str) -> None:
        click.secho(f"\n== {text}", bold=True)


def _plays(repo: str) -> bool:
    return int(sha256(repo.encode()).hexdigest()[24:32], 16) % 2 == 0


def _wanted(row: Row) -> bool:
    return row.useful and UNWANTED not in row.features


def _placed(row: Row, unwanted: bool) -> Row:
    """The same comment, in that folder or not."""
    return dataclasses.replace(row, features={**row.features, UNWANTED: 1.0}) if unwanted else row


def _line(row: Row) -> str:
    return json.dumps(
        {"repo": row.repo, "rule": row.rule, "verdict": row.verdict, "features": dict(row.features)}
    )


def _others(rows: Iterable[Row], prefix: str) -> list[Row]:
    """Like these, in other repositories, and different enough not to be taken for the same."""
    longer = int(sha256(prefix.encode()).hexdigest()[:4], 16) / 1e7
    size = "lines of the file"
    return [
        dataclasses.replace(
            row,
            repo=f"{prefix}/{row.repo}",
            features={**row.features, size: row.features.get(size, 0.0) + longer},
        )
        for row in rows
    ]
