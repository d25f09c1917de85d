"""What reviews with a general model would read and write: the prompts of real commits, counted and sent nowhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from ptopt.config import Config
from ptopt.inputs import CheckoutError, change_between
from ptopt.inputs.git import output
from ptopt.model.advisor import Advisor
from ptopt.model.calibration import Calibration, JudgeFit
from ptopt.model.general import JUDGE_TOKENS, Example, advice, questions, read_general
from ptopt.model.interface import ChatPrompt, JudgePrompt, ModelUnavailableError
from ptopt.model.region import estimate
from ptopt.project.facts import NO_FACTS
from ptopt.review import review_change

EVERYTHING = Calibration(JudgeFit(0.0, 1.0, 0.0), advise_threshold=1.0, explain=True, change_threshold=1.0)
_PER_MESSAGE = 8  # tokens of a chat template around each of the two messages


@dataclass(slots=True)
class Counting:
    """A back end that answers nothing and counts: `written` is at most so many, as each prompt allows."""

    examples: Sequence[Example]
    read: int = 0
    written: int = 0
    requests: int = 0
    name: str = "counting"

    def score(self, prompts: Sequence[JudgePrompt]) -> list[tuple[float, ...]]:
        for prompt in prompts:
            for chat in questions(prompt, self.examples):
                self._count(chat)
        return [(0.0,) * len(prompt.pieces) for prompt in prompts]

    def complete(self, prompts: Sequence[ChatPrompt]) -> list[str]:
        for prompt in prompts:
            self._count(advice(prompt, self.examples))
        return ['{"findings": []}' for _ in prompts]

    def close(self) -> None:
        pass

    def _count(self, chat: ChatPrompt) -> None:
        self.requests += 1
        self.read += estimate(chat.system) + estimate(chat.user) + 2 * _PER_MESSAGE
        self.written += chat.max_tokens


def counted(
    repository: Path, commits: Sequence[str], calibration: Calibration, examples: Sequence[Example]
) -> list[Counting]:
    """One count for each commit. Raises CheckoutError."""
    found = []
    for commit in commits:
        one = Counting(examples)
        advisor = Advisor(one, calibration, judge_tokens=JUDGE_TOKENS)
        change = change_between(repository, f"{commit}~1", commit)
        review_change(change, config=Config(), facts=NO_FACTS, advisor=advisor)
        found.append(one)
    return found


def recent(repository: Path, number: int) -> list[str]:
    """The newest commits that change Python code, without merges and the first. Raises CheckoutError."""
    wanted = ("--no-merges", "--min-parents=1", f"-{number}", "--format=%H", "HEAD", "--", "*.py")
    return output(repository, "log", *wanted).decode("ascii").split()


@click.command()
@click.argument("repository", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option(
    "--last", type=click.IntRange(1), default=50, show_default=True, help="Commits that change Python code."
)
@click.option(
    "--model", help="File of `training calibrate` [default: all that a model may do, without examples]."
)
@click.option("--price-in", type=click.FloatRange(0), help="Of a million tokens read.")
@click.option("--price-out", type=click.FloatRange(0), help="Of a million tokens written.")
def cost(
    repository: Path, last: int, model: str | None, price_in: float | None, price_out: float | None
) -> None:
    """Count the tokens of reviews of a REPOSITORY's last commits; nothing is sent.

    Each commit counts as a pull request. Tokens are estimated, rather too high than too low; written ones are what the
    prompts allow at most. The checks of what a model finds in a change as a whole come on top: one for each claim, and two more for each that stands.
    """
    try:
        known = None if model is None else read_general(model)
        calibration, examples = (EVERYTHING, ()) if known is None else (known.calibration, known.examples)
        found = counted(repository, recent(repository, last), calibration, examples)
    except (CheckoutError, ModelUnavailableError) as error:
        raise click.ClickException(str(error)) from None
    if not found:
        raise click.ClickException(f"{repository} has no commit that changes Python code")
    asked = [one for one in found if one.requests]
    click.echo(f"{len(found)} commits, the model asked in {len(asked)}")
    for name in ("requests", "read", "written"):
        values = sorted(int(getattr(one, name)) for one in found)
        mean, high = sum(values) / len(values), values[int(0.9 * (len(values) - 1))]
        click.echo(f"{name}: {mean:,.0f} on average, {high:,} in one of ten, {values[-1]:,} at most")
    if price_in is not None and price_out is not None:
        total = sum(one.read * price_in + one.written * price_out for one in found) / 1e6
        click.echo(f"cost of a pull request: {total / len(found):.6f} on average, at most")
