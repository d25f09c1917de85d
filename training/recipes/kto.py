"""Training on feedback (KTO): good answers become likelier, bad ones less likely.

    python -m training kto configs/kto-cpu.yaml model.adapter=runs/RUN/adapter data.folder=feedback.jsonl

Each row of a judge becomes a "yes" or a "no" in turns (a bad "yes" is a good "no"), so that a batch holds both.

Unlike with pairs, one verdict on one answer is enough, as feedback on comments gives. `data.folder` is a file
of JSON lines `{"prompt": ..., "completion": ..., "label": true|false}`, as `python -m training feedback rows` makes them
from the service's database: the prompt is a text that ends in "Answer" with a completion "yes" or "no" (judge), or
`{"system": ..., "user": ...}` with the answer (advise, explain). TRL's KTOTrainer runs the loop and
compares the new adapter with a frozen copy of the one it starts from.
"""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from accelerate import PartialState
from datasets import Dataset
from transformers import PrinterCallback
from trl import KTOConfig, KTOTrainer

from ptopt.model.backends.encoding import answer_ids, encode_chat, encode_judge
from ptopt.model.interface import ChatPrompt, JudgePrompt
from training.recipes.finish import finish
from training.recipes.live import LiveView
from training.recipes.metrics import MetricsCallback
from training.recipes.run import Run
from training.recipes.settings import Settings, SettingsError
from training.recipes.setup import Setup, open_run, quiet
from training.recipes.tokens import answer_tokens
from training.recipes.trace import TraceCallback
from training.recipes.tracking import Tracker
from training.recipes.trainer import StopCallback, TrainerMixin, until_it_fits

LEAST_ROWS = 2  # at once: the divergence is estimated from answers to other prompts of the batch


class Trainer(TrainerMixin, KTOTrainer):  # type: ignore[misc]
    """KTOTrainer on rows that are token ids already."""

    def _prepare_dataset(self, dataset: Any, processing_class: Any, args: Any, dataset_name: str) -> Any:
        return dataset.map(_with_another_answer, batched=True, batch_size=args.per_device_train_batch_size)


def _with_another_answer(batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
    answers = batch["completion_ids"]
    return {**batch, "KL_completion_ids": answers[-1:] + answers[:-1]}


def train(settings: Settings, resume: Path | None = None) -> Path | None:
    """Run the recipe; returns the adapter folder, or None where SIGTERM ended it (go on with `resume`)."""
    quiet()
    setup = Setup(settings)
    setup.notes.append(
        "data.packing, data.order, data.views, evaluate: KTO reads its rows in fixed batches, padded"
    )
    run = open_run(settings, resume)
    tokenizer = setup.tokenizer()
    rows = feedback_rows(settings.data.folder, tokenizer, settings.data.max_tokens, settings.data.rows)
    rows = in_turns(rows.shuffle(seed=settings.seed), *answer_ids(tokenizer))
    view = LiveView(f"{settings.name} (kto)") if PartialState().is_main_process else None
    log = view.print if view is not None else lambda text: None
    tracker = Tracker.of(run.folder, settings) if view is not None else None
    good = sum(rows["label"])
    log(f"run: {run.folder}\nbase: {settings.model.base}, {setup.dtype}, attention {setup.attention}")
    log(f"rows: {good} good, {len(rows) - good} bad")
    log("not applied here:" + "".join(f"\n  - {note}" for note in setup.notes))

    def attempt(settings: Settings) -> Path | None:
        setup.settings = settings
        return _train(setup, run, tokenizer, rows, view, tracker)

    return until_it_fits(settings, attempt, log, least=LEAST_ROWS)


def feedback_rows(file: Path, tokenizer: Any, max_tokens: int, limit: int | None = None) -> Dataset:
    """Columns `prompt_ids`, `completion_ids`, `label`. Raises SettingsError that names the line that is wrong."""
    yes, no = answer_ids(tokenizer)
    rows: list[dict[str, Any]] = []
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                row = json.loads(line)
                text, completion, label = row["prompt"], row["completion"], row["label"]
                if not isinstance(label, bool) or not isinstance(completion, str):
                    raise TypeError("completion must be a text, and label true or false")
                if isinstance(text, str):
                    prompt, _ = encode_judge(tokenizer, JudgePrompt((text,)))
                    answer = [{"yes": yes, "no": no}[completion.strip()]]
                else:
                    prompt = encode_chat(tokenizer, ChatPrompt(text["system"], text["user"]))
                    answer = answer_tokens(tokenizer, completion)
            except (ValueError, TypeError, KeyError) as error:
                raise SettingsError(f"{file}:{number}: not a row of feedback: {error!r:.200}") from None
            if len(prompt) + len(answer) <= max_tokens:
                rows.append({"prompt_ids": prompt, "completion_ids": answer, "label": label})
    if len(rows) < LEAST_ROWS:
        raise SettingsError(f"{file}: at least {LEAST_ROWS} rows of at most {max_tokens} tokens are needed")
    return Dataset.from_list(rows[:limit])


def in_turns(rows: Dataset, yes: int, no: int) -> Dataset:
    """The rows with the judge's answers turned into yes and no by turns; who calls one bad calls the other good.

    The divergence is estimated from the answers to other prompts: were all of them the same, it would be the reward
    itself, and nothing would be learned. Raises SettingsError where all answers are the same even so.
    """
    other = {yes: no, no: yes}

    def turned(row: dict[str, Any], number: int) -> dict[str, Any]:
        answer, label = row["completion_ids"], row["label"]
        wanted = yes if number % 2 == 0 else no
        if len(answer) == 1 and answer[0] in other and answer[0] != wanted:
            return {"completion_ids": [wanted], "label": not label}
        return {"completion_ids": answer, "label": label}

    made = rows.map(turned, with_indices=True)
    if len({tuple(answer) for answer in made["completion_ids"]}) < 2:
        raise SettingsError("all answers of the feedback are the same: KTO learns from answers that differ")
    return made


def weights(settings: Settings, rows: Dataset) -> tuple[float, float]:
    """Of the good and of the bad answers: as set, or such that both kinds count the same in all."""
    good = max(1, sum(rows["label"]))
    bad = max(1, len(rows) - good)
    given = settings.kto
    return (
        given.desirable_weight or max(1.0, bad / good),
        given.undesirable_weight or max(1.0, good / bad),
    )


def _train(
    setup: Setup, run: Run, tokenizer: Any, rows: Dataset, view: LiveView | None, tracker: Tracker | None
) -> Path | None:
    settings = setup.settings
    run.begin()
    last = run.last_checkpoint()
    if tracker is not None:
        tracker.back_to(last[1] if last else 0)
    desirable, undesirable = weights(settings, rows)
    arguments = KTOConfig(
        **{**setup.arguments(run), "eval_strategy": "no"},
        beta=settings.kto.beta,
        desirable_weight=desirable,
        undesirable_weight=undesirable,
        train_sampling_strategy="sequential",
        dataloader_drop_last=True,
    )
    trainer = Trainer(
        model=setup.model(),
        args=arguments,
        train_dataset=rows,
        processing_class=tokenizer,
        peft_config=setup.lora(),
    )
    trainer.remove_callback(PrinterCallback)
    trainer.attach(run, settings.checkpoint.keep)
    watch, stop = (
        MetricsCallback(trainer, settings, view, tracker),
        StopCallback(trainer, settings.limits.minutes),
    )
    trainer.add_callback(watch)
    trainer.add_callback(stop)
    if settings.tracking.trace:
        trainer.add_callback(TraceCallback(run.folder, settings.tracking.trace))
    with view or nullcontext():
        trainer.train(resume_from_checkpoint=str(last[0]) if last else None)
    if stop.terminated:
        if view is not None and tracker is not None:
            tracker.finish([], "KILLED")
            view.print(f"stopped at step {trainer.state.global_step}; to go on: --resume {run.folder}")
        return None
    return finish("kto", setup, run, trainer, watch.totals(), view, tracker)


if __name__ == "__main__":
    from training.recipes.cli import kto

    kto()
