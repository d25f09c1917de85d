"""`python -m training feedback rows`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

from ptopt.model.region import JUDGE_TOKENS


@click.group()
def feedback() -> None:
    """Learn from what people said of the service's comments."""


@feedback.command()
@click.option(
    "--database", envvar="PTOPT_DATABASE_URL", show_envvar=True, required=True, metavar="URL",
    help="The service's database.",
)  # fmt: skip
@click.option(
    "--clones", type=click.Path(path_type=Path, exists=True, file_okay=False), required=True,
    help="Folder of git clones, as OWNER/NAME or OWNER+NAME.",
)  # fmt: skip
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("feedback.jsonl"),
    show_default=True,
)
@click.option(
    "--private",
    multiple=True,
    metavar="OWNER/NAME",
    help="A private repository whose code may be used for training.",
)
@click.option(
    "--adapter", type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="The adapter to train: the rows show as much code as it reads.",
)  # fmt: skip
@click.option(
    "--most-per-person", type=click.IntRange(1), default=1, show_default=True,
    help="Comments of one rule on which one person counts.",
)  # fmt: skip
@click.option(
    "--least-people", type=click.IntRange(1), default=1, show_default=True,
    help="Different people who must say good (or bad) of a rule before it counts.",
)  # fmt: skip
def rows(
    database: str, clones: Path, out: Path, private: tuple[str, ...], adapter: Path | None, most_per_person: int,
    least_people: int,
) -> None:  # fmt: skip
    """Make rows for `kto` from the signals of the database and the code of the clones."""
    from ptopt.model.backends.loading import read_adapter
    from ptopt.model.interface import ModelUnavailableError
    from training.feedback import rows
    from training.sources.base import SourceError

    try:
        judge_tokens = read_adapter(adapter).judge_tokens if adapter else JUDGE_TOKENS
        made = rows.build_rows(
            database, clones, private=private, judge_tokens=judge_tokens, most_per_person=most_per_person,
            least_people=least_people,
        )  # fmt: skip
    except ModuleNotFoundError as error:
        raise click.ClickException(f"{error.name} is missing: pip install '.[training-data]'") from None
    except (SourceError, ModelUnavailableError) as error:
        raise click.ClickException(str(error)) from None
    for reason, number in sorted(made.left_out.items()):
        click.echo(f"left out: {number:,}: {reason}", err=True)
    if not made.rows:
        raise click.ClickException("there is no row to write")
    part = out.with_name(f".{out.name}.part")
    part.write_text("".join(json.dumps(row) + "\n" for row in made.rows), encoding="utf-8")
    os.replace(part, out)
    good = sum(row["label"] for row in made.rows)
    click.echo(f"{out}: {good:,} good, {len(made.rows) - good:,} bad")
