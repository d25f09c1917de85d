"""`python -m training demo`: the base model beside the fine-tuned one, on code that neither has seen.

A slow training loop (`examples/training/resnet.py`) and the first functions, by hash, of the dataset's held-out
projects: nothing is chosen by hand, and what a model gets wrong is shown as wrong.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from ptopt.findings import Finding
    from ptopt.model.interface import Backend
    from ptopt.model.region import Region
    from ptopt.source.file import SourceFile
    from training.dataset.rows import Sample

EXAMPLE = Path(__file__).parents[1] / "examples" / "training" / "resnet.py"
REAL = (
    "mutated",
    "corrected",
    "guarded",
    "judged",
    "organic",
)  # kinds of samples whose code a project wrote
LONGEST_JSON = 14  # lines of an answer that are shown


@dataclass(frozen=True)
class Case:
    """A function that is shown to both models, and whether each of its candidates is a problem there."""

    title: str
    source: SourceFile
    region: Region
    truth: dict[str, bool]


@dataclass(frozen=True)
class CaseAnswer:
    """The answer of one model on one case."""

    chance: dict[str, float]  # probability of each candidate
    answer: str  # the JSON of its own findings, as it came
    valid: bool  # conforms to the schema
    offered: int  # findings in it
    kept: tuple[Finding, ...]  # those that hold


@dataclass(frozen=True)
class ModelAnswers:
    """The answers of one model on all cases."""

    title: str
    answers: tuple[CaseAnswer, ...]
    seconds: float
    cpu_s: float


@click.command()
@click.option(
    "--adapter", type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Folder of the adapter [default: the newest of --runs; without one, it is fine-tuned first].",
)  # fmt: skip
@click.option("--data", type=click.Path(path_type=Path), default=Path("data/demo"), show_default=True,
              help="Folder of the dataset; built when it is not there.")  # fmt: skip
@click.option(
    "--config", default="configs/smollm2-cpu.yaml", show_default=True, help="Recipe to fine-tune with."
)
@click.option("--runs", type=click.Path(path_type=Path), default=Path("runs/demo"), show_default=True,
              help="Folder for the runs of the demo.")  # fmt: skip
@click.option(
    "--functions",
    type=click.IntRange(0),
    default=3,
    show_default=True,
    help="Functions of held-out projects.",
)
@click.option(
    "--threads", type=click.IntRange(1), default=1, show_default=True, help="CPU threads of the models."
)
@click.argument("changes", nargs=-1, metavar="[KEY=VALUE]...")
def demo(
    adapter: Path | None, data: Path, config: str, runs: Path, functions: int, threads: int, changes: tuple[str, ...]
) -> None:  # fmt: skip
    """Show the base model and the fine-tuned one side by side. From nothing: builds the data and fine-tunes first.

    KEY=VALUE changes settings of the fine-tuning.
    """
    from rich.console import Console

    from ptopt.model.interface import ModelUnavailableError
    from training.recipes.settings import SettingsError, find, read

    console = Console(highlight=False)
    started = time.perf_counter()
    try:
        adapter = adapter or newest(runs)
        if not (data / "dataset.json").is_file():
            _run("data", "build", "--preset", "demo", "--out", str(data))
        if adapter is None:
            given = [*changes, f"data.folder={data}", f"output={runs}"]
            read(find(config), given)  # an error is reported before minutes of work
            _run("sft", config, *given)
            adapter = newest(runs)
            if adapter is None:
                raise click.ClickException(f"the fine-tuning left no adapter in {runs}")
        show(console, adapter, [*example(EXAMPLE), *held_out_cases(data, functions)], threads)
    except (SettingsError, ModelUnavailableError) as error:
        raise click.ClickException(str(error)) from None
    console.print(f"\nIn all {time.perf_counter() - started:.0f} s, {sum(os.times()[:4]):.0f} CPU s.")


def newest(runs: Path) -> Path | None:
    """The adapter of the run that ended last."""
    found = [card.parent for card in runs.glob("*/adapter/card.json")]
    return max(found, key=lambda folder: (folder / "card.json").stat().st_mtime, default=None)


def _run(*arguments: str) -> None:
    """A command of this package in a process of its own: it handles signals, and gives its memory back."""
    done = subprocess.run([sys.executable, "-m", "training", *arguments], check=False)
    if done.returncode:
        raise click.ClickException(f"`training {' '.join(arguments)}` failed")


# -- what is shown -------------------------------------------------------------------------------------------


def example(file: Path) -> Iterator[Case]:
    """The functions of a file that its labels speak of.

    `NAME.json` beside it: function -> rule -> [words of the line that the rule speaks of, whether it is a problem].
    """
    from ptopt.model.region import Candidate, regions_of
    from ptopt.source.file import SourceFile

    source = SourceFile.parse(file.name, file.read_bytes())
    labels: dict[str, dict[str, tuple[str, bool]]] = json.loads(
        file.with_suffix(".json").read_text(encoding="utf-8")
    )
    for region in regions_of(source, None, []):
        labelled = labels.get(region.symbol, {})
        candidates = tuple(
            Candidate(rule, tuple(line.number for line in region.lines if words in line.text))
            for rule, (words, _) in labelled.items()
        )
        if candidates:
            truth = {rule: problem for rule, (_, problem) in labelled.items()}
            yield Case(f"{file.name}: {region.symbol}", source, replace(region, candidates=candidates), truth)


def held_out_cases(data: Path, functions: int) -> list[Case]:
    """The first functions of the test split, in the order of their hashes, that there is a question about."""
    from training.dataset.files import samples

    found: list[Case] = []
    for sample in sorted(samples(data, "test"), key=lambda sample: sample.hash):
        if len(found) == functions:
            break
        if sample.kind in REAL:
            found += list(_cases(sample))[:1]
    return found


def _cases(sample: Sample) -> Iterator[Case]:
    from training.dataset.views import judge_regions, source_of

    source = source_of(sample)
    if source is None:
        return
    present = {p.rule for p in sample.positives}
    title = f"{sample.project}: {sample.path} ({sample.kind})"
    for region in judge_regions(sample):
        yield Case(title, source, region, {c.rule: c.rule in present for c in region.candidates})


# -- the answers --------------------------------------------------------------------------------------------


def ask(backend: Backend, title: str, cases: Sequence[Case], judge_tokens: int) -> ModelAnswers:
    """Both questions on each case: how likely each candidate is, and findings of the model's own."""
    from ptopt.model import prompt, schema
    from ptopt.model.advice import Adviser
    from ptopt.model.advisor import Advisor
    from ptopt.model.calibration import Calibration
    from ptopt.model.region import ADVISE_TOKENS, fit

    wall, cpu = time.perf_counter(), time.process_time()
    regions = [case.region for case in cases]
    log_odds = Advisor(backend, Calibration.off(), judge_tokens=judge_tokens).judge(regions)
    shown = [fit(region, ADVISE_TOKENS) for region in regions]
    answers = backend.complete([prompt.advise(region) for region in shown])
    found = []
    for case, region, verdict, answer in zip(cases, shown, log_odds, answers, strict=True):
        advice = schema.parse(answer, region)
        adviser = Adviser(case.source, None, [], title)
        kept = tuple(f for one in advice if (f := adviser.finding(region, one)) is not None)
        chance = {rule: 1 / (1 + math.exp(-max(-50.0, min(50.0, x)))) for rule, x in verdict.items()}
        found.append(CaseAnswer(chance, answer, schema.is_valid(answer, region), len(advice), kept))
    return ModelAnswers(title, tuple(found), time.perf_counter() - wall, time.process_time() - cpu)


def show(console: Console, adapter: Path, cases: Sequence[Case], threads: int) -> None:
    """Ask the base model and the adapter, and print their answers side by side. Raises ModelUnavailableError."""
    from ptopt.model.backends.loading import read_adapter
    from ptopt.model.backends.open import open_backend

    folder = read_adapter(adapter)
    console.print(f"base: {folder.base}\nfine-tuned: {adapter}", soft_wrap=True)
    models = []
    for title, model in (("base model", folder.base), ("fine-tuned", str(adapter))):
        backend = open_backend(model, threads=threads)
        try:
            models.append(ask(backend, title, cases, folder.judge_tokens))
        finally:
            backend.close()
    for number, case in enumerate(cases):
        console.print()
        _print_case(console, case, [(one.title, one.answers[number]) for one in models])
    console.print("\nCandidates answered right (probability above one half for a problem, below for none):")
    for one in models:
        console.print(
            f"  {one.title:11} {summary(one, cases)}; {one.seconds:.1f} s, {one.cpu_s:.1f} CPU s",
            soft_wrap=True,
        )


def summary(model: ModelAnswers, cases: Sequence[Case]) -> str:
    pairs = [
        (answer.chance[rule] > 0.5, true)
        for case, answer in zip(cases, model.answers, strict=True)
        for rule, true in case.truth.items()
        if rule in answer.chance
    ]
    right = sum(yes == true for yes, true in pairs)
    valid = sum(answer.valid for answer in model.answers)
    offered, kept = (
        sum(answer.offered for answer in model.answers),
        sum(len(answer.kept) for answer in model.answers),
    )
    return f"{right} of {len(pairs)}; valid JSON {valid} of {len(model.answers)}; own findings kept {kept} of {offered}"


def _print_case(console: Console, case: Case, answers: Sequence[tuple[str, CaseAnswer]]) -> None:
    from rich.rule import Rule
    from rich.syntax import Syntax
    from rich.table import Table

    from ptopt.model.region import render

    code = render(case.region)
    if not console.is_terminal:
        console.print(f"== {case.title}\n{code}", markup=False, soft_wrap=True)
        for title, one in answers:
            console.print(f"-- {title}\n" + "\n".join(lines(case, one)), markup=False, soft_wrap=True)
        return
    console.print(Rule(case.title))
    console.print(Syntax(code, "python", word_wrap=True, background_color="default"))
    table = Table(*(title for title, _ in answers), expand=True, show_lines=False)
    for column in table.columns:
        column.ratio = 1
    table.add_row(*(_cell(lines(case, one)) for _, one in answers))
    console.print(table)


def _cell(texts: Iterable[str]) -> RenderableType:
    from rich.text import Text

    text = Text(overflow="fold")
    for line in texts:
        style = {"right": "green", "WRONG": "red"}.get(line.partition(" ")[0].strip(), "")
        text.append(f"{line}\n", style=style)
    return text


def lines(case: Case, answer: CaseAnswer) -> Iterator[str]:
    """The answer of a model, line by line: its verdicts against the truth, its JSON, and what of that was kept."""
    for rule, chance in answer.chance.items():
        true = case.truth[rule]
        mark = "right" if (chance > 0.5) == true else "WRONG"
        yield f"{mark} {chance:4.0%} {rule} ({'a problem' if true else 'none'} here)"
    try:
        text = json.dumps(json.loads(answer.answer), indent=1, ensure_ascii=False)
    except (ValueError, RecursionError):
        text = answer.answer
    shown = text.splitlines()
    yield f"advice, {'valid' if answer.valid else 'INVALID'} JSON:"
    yield from (f"  {line}" for line in shown[:LONGEST_JSON])
    if len(shown) > LONGEST_JSON:
        yield f"  … {len(shown) - LONGEST_JSON} more lines"
    yield f"kept by verification: {len(answer.kept)} of {answer.offered}"
    for finding in answer.kept:
        yield f"  line {finding.span.start}: {finding.name}"
