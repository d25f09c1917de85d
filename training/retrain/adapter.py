"""The adapter cycle: dataset, fine-tuning, evaluation, gate, and the registration as a canary.

    <folder>/adapter-<run>/   rows.jsonl   data/   runs/   trained.json   evaluation-<champion>.json   adapter/   card.json

It may be killed anywhere: see `training.retrain.steps`. Fine-tuning goes on from its last checkpoint. The registry names an adapter by
the hash of its content, so that adding it twice is adding it once; what becomes of it is a transaction in the database.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ptopt.model.adapter_folder import RegistryError, content_hash, read_card, why_unusable
from ptopt.model.calibration import Calibration
from ptopt.model.interface import ModelUnavailableError
from ptopt.model.registry import CHAMPION, Registry
from training.feedback.adapter_rows import MEASURED, Dataset, Part, advised, build
from training.feedback.evaluations import DATA
from training.recipes.settings import Settings, SettingsError, find, read
from training.retrain.judged import evaluate
from training.retrain.ranker import judged_rows
from training.retrain.records import Records, Run
from training.retrain.steps import NothingToLearnError, Reached, Result, Steps, hash_of, write

SUBJECT = "adapter"
FEWEST = 20  # answers to learn from, with their code
FEWEST_ADVISED = 20  # accepted suggestions, from which on it learns to advise
_STOPPED = 143  # exit status after SIGTERM


@dataclass(frozen=True)
class Options:
    """`recipe`: settings of `training sft`, a path or one of `training/configs`. The other fields are as of the ranker."""

    database: str
    folder: Path
    recipe: str
    clones: Path
    registry: Path
    private: Collection[str] = ()
    work: Sequence[Path] = (DATA / "verdicts" / "work.jsonl",)
    fixes: Sequence[Path] = (DATA / "found" / "work.jsonl",)
    gold: Sequence[Path] = (DATA / "verdicts" / "calibrate.jsonl",)
    measured: Sequence[Path] = MEASURED
    reached: Reached = field(default=lambda point: None)

    def settings(self) -> Settings:
        """Raises SettingsError."""
        return read(find(self.recipe))


@dataclass(frozen=True, slots=True)
class Champion:
    """The adapter in use; `hash` is "" where there is none: the rules alone."""

    hash: str = ""
    folder: Path | None = None


def retrain(records: Records, run: Run, options: Options) -> Result:
    """Do what is left of the run. Raises NothingToLearnError, and LostError where another process took it over."""
    try:
        return _retrain(records, run, options)
    except (SettingsError, RegistryError, ModelUnavailableError) as error:
        raise NothingToLearnError(str(error)) from None


def _retrain(records: Records, run: Run, options: Options) -> Result:
    registry = Registry(options.registry)
    champion = champion_of(records, registry)
    steps = Steps(records, run, options.folder, options.reached)
    text = steps.text("dataset", "rows.jsonl", lambda: _dataset(run, options))
    dataset = Dataset.of_text(text)

    def train() -> tuple[str, dict[str, Any]]:
        return _trained(records, run, options, dataset, hash_of(text), champion, steps.folder)

    def is_there(trained: str) -> bool:
        return _adapter(steps.folder, trained) is not None

    trained = steps.text("fitted", "trained.json", train, is_there)
    adapter = _adapter(steps.folder, trained)
    assert adapter is not None  # noqa: S101 (it is there)
    # Another champion than before a kill is another comparison.
    name = f"evaluation-{champion.hash[:12] or 'none'}.json"
    threads = options.settings().threads
    judged = judged_rows(options.work, options.fixes, options.gold)
    found = steps.text(
        "evaluated",
        name,
        lambda: evaluate(dataset, judged, adapter, champion.folder, threads, options.reached),
    )
    figures = json.loads(found)
    made = _calibrated(adapter, steps.folder / "adapter", figures)
    hash_ = content_hash(made)
    card = _card(records, run, dataset, champion, made, figures)
    write(steps.folder / "card.json", json.dumps(card, indent=2) + "\n")
    options.reached("registering")
    if not figures["refused"]:
        registry.add(made)
    options.reached("added")
    state, reason = records.register(run, hash_, "", card, figures["refused"])
    options.reached("registered")
    return Result(state, reason, hash_, card)


def champion_of(records: Records, registry: Registry) -> Champion:
    """The active version of a retraining, else the registry's champion; none where this version of ptopt cannot use it.

    Raises RegistryError.
    """
    active = records.active(SUBJECT)
    hash_ = active[0] if active is not None else registry.target(CHAMPION)
    if hash_ is None:
        return Champion()
    folder = registry.verified(hash_)
    return Champion() if why_unusable(read_card(folder)) else Champion(hash_, folder)


def _dataset(run: Run, options: Options) -> tuple[str, dict[str, Any]]:
    made = build(
        options.database, options.clones, private=options.private, until=run.created_at, work=options.work,
        gold=options.gold, measured=options.measured,
    )  # fmt: skip
    answers = [example for example in made.of("train") if not example.judged]
    if len(answers) < FEWEST:
        why = "; ".join(f"{number} left out: {reason}" for reason, number in made.left_out.items())
        raise NothingToLearnError(
            f"{len(answers)} answers with code to learn from, fewer than {FEWEST}{f' ({why})' if why else ''}"
        )
    parts: tuple[Part, ...] = ("train", "validation", "held out", "gold")
    detail: dict[str, Any] = {part: len(made.of(part)) for part in parts}
    detail["left out"] = dict(made.left_out)
    return made.text(), detail


# -- fine-tuning --------------------------------------------------------------------------------------------------


def _trained(
    records: Records,
    run: Run,
    options: Options,
    dataset: Dataset,
    hash_: str,
    champion: Champion,
    folder: Path,
) -> tuple[str, dict[str, Any]]:
    """Fine-tune until the end. Ends the process where SIGTERM was sent; the next one goes on from the last checkpoint."""
    from training.recipes import sft

    data = _write_samples(folder / "data", dataset, hash_)
    settings = tuned(options.settings(), dataset, champion, data, folder / "runs")
    begun = sorted((folder / "runs").glob(f"{settings.name}-*"))
    resume = begun[-1] if begun else None
    if resume is not None and not (resume / "adapter").is_dir():
        _note_progress(records, run, resume)
    adapter = resume / "adapter" if resume is not None else None
    if adapter is None or not adapter.is_dir():
        options.reached("tuning")
        adapter = sft.train(settings, resume)
    if adapter is None:
        records.progressed(run)
        raise SystemExit(_STOPPED)
    card = read_card(adapter)
    trained = {"adapter": str(adapter.relative_to(folder)), "content": content_hash(adapter)}
    return json.dumps(trained, sort_keys=True) + "\n", {"metrics": card.get("metrics", {})}


def tuned(settings: Settings, dataset: Dataset, champion: Champion, data: Path, output: Path) -> Settings:
    """The recipe on this dataset: the champion is trained further, where it is one of the recipe's base."""
    learned = dataset.of("train")
    advises = advised(learned, settings.data.max_tokens) >= FEWEST_ADVISED
    views = settings.data.views
    parent = read_card(champion.folder) if champion.folder is not None else {}
    further = parent.get("base") == settings.model.base
    shown = {"judge_tokens": int(parent["judge_tokens"])} if further and parent.get("judge_tokens") else {}
    return settings.changed(
        model={"adapter": champion.folder if further else None},
        data={
            "folder": data,
            # Of the rules' sentences, people say nothing.
            "views": views.model_copy(
                update={
                    "judge": views.judge or 1.0,
                    "advise": views.advise if advises else 0.0,
                    "explain": 0.0,
                }
            ),
            "cache": data.parent / "tokens",
            **shown,
        },
        tracking={"mlflow": False},
        evaluate={"rows": 0},
    ).model_copy(update={"output": output})


def _write_samples(folder: Path, dataset: Dataset, hash_: str) -> Path:
    """The part to train on, as a dataset of `training sft`."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "samples").mkdir(parents=True)
    lines = (f"{example.sample.to_json()}\n" for example in dataset.of("train"))
    text = "".join(lines).encode("utf-8", "surrogatepass")
    (folder / "samples" / "train.jsonl").write_bytes(text)
    write(folder / "dataset.json", json.dumps({"hash": hash_, "against": dataset.against}) + "\n")
    return folder


def _note_progress(records: Records, run: Run, begun: Path) -> None:
    """A machine that is taken away again and again is no crash, as long as each of them gets further."""
    from training.recipes.run import Run as Begun

    last = Begun(begun).last_checkpoint()
    step, noted = last[1] if last is not None else 0, begun / "noted-step"
    if step > (int(noted.read_text("utf-8")) if noted.is_file() else 0):
        write(noted, f"{step}\n")
        records.progressed(run)


def _adapter(folder: Path, trained: str) -> Path | None:
    """The adapter that was trained; None where it is gone, or is another one."""
    said = json.loads(trained)
    adapter: Path = folder / said["adapter"]
    try:
        return adapter if adapter.is_dir() and content_hash(adapter) == said["content"] else None
    except (OSError, RegistryError):
        return None


# -- the result ---------------------------------------------------------------------------------------------------


def _calibrated(adapter: Path, place: Path, figures: dict[str, Any]) -> Path:
    """The adapter with its calibration and figures: the same folder whenever it is made."""
    from training.evaluation.calibrate import write as write_calibration

    part = place.with_name(f".{place.name}.part")
    for old in (part, place):
        shutil.rmtree(old, ignore_errors=True)
    shutil.copytree(adapter, part)
    calibration = Calibration.from_json(json.dumps(figures["calibration"]))
    why = figures["refused"] or "not worse on gold, better on feedback"
    compared = {name: figures[name] for name in ("gold", "feedback")}
    write_calibration(part, calibration, f"Retrained from feedback: {why}.", {"retraining": compared})
    part.rename(place)
    return place


def _card(
    records: Records, run: Run, dataset: Dataset, champion: Champion, adapter: Path, figures: dict[str, Any]
) -> dict[str, Any]:
    card = read_card(adapter)
    feedback = [example for example in dataset.examples if not example.judged]
    learned = dataset.of("train")
    return {
        "name": f"adapter-{content_hash(adapter)[:12]}",
        "made by": "python -m training retrain", "retraining": run.id, "reason": run.reason,
        "champion": champion.hash, "parent": card.get("parent"), "base": card.get("base"),
        "dataset": {
            "hash": records.step(run, "dataset"), "learned": len(learned),
            "of them answers": sum(not example.judged for example in learned),
            "calibrated on": len(dataset.of("validation")), "held out": len(dataset.of("held out")),
            "repositories": len({example.repository for example in feedback}),
            "against": dataset.against,
        },
        "training": card.get("metrics", {}).get("steps"), "evaluation": figures,
    }  # fmt: skip
