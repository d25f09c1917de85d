"""Rows of a dataset for readers: answers with the code before and after, and questions of a judge without their answers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from training.dataset.files import samples
from training.dataset.rows import Positive, Sample, numbered
from training.dataset.split import SPLITS
from training.dataset.views import advise_example, judge_examples


def write_sheets(folder: Path, out: Path, size: int, readers: int, seed: int) -> dict[str, int]:
    """Draw `size` answers and `size` questions of the dataset and deal them to files of Markdown in `out`.

    `answers-N.md` and `judge-N.md` are for reader N; `judge-key.jsonl` holds the answers to the questions, and what both
    kinds of rows are about. Returns how many rows of each kind were drawn: fewer where the dataset has fewer.
    """
    out.mkdir(parents=True, exist_ok=True)
    everything = [sample for split in SPLITS for sample in samples(folder, split)]
    answers = _drawn(_answers(everything), size, seed)
    questions = _drawn(_questions(everything), size, seed)
    for name, rows in (("answers", answers), ("judge", questions)):
        for reader in range(readers):
            text = "\n".join(row["text"] for row in rows[reader::readers])
            (out / f"{name}-{reader + 1}.md").write_text(text, encoding="utf-8")
        key = [json.dumps({k: v for k, v in row.items() if k != "text"}) + "\n" for row in rows]
        (out / f"{name}-key.jsonl").write_text("".join(key), encoding="utf-8")
    return {"answers": len(answers), "judge": len(questions)}


def _drawn(rows: Iterable[dict[str, Any]], size: int, seed: int) -> list[dict[str, Any]]:
    """Random rows, each with its number in the text."""
    different = {row["id"]: row for row in rows}.values()  # two examples may be corrected to the same code
    ordered = sorted(different, key=lambda r: hashlib.sha256(f"{seed}:{r['id']}".encode()).digest())
    return [{**row, "text": f"## {row['id']}\n\n{row['text']}\n"} for row in ordered[:size]]


def _answers(everything: Sequence[Sample]) -> Iterator[dict[str, Any]]:
    for sample in everything:
        if advise_example(sample) is None:
            continue
        for at, p in enumerate(sample.positives):
            if p.replacement is not None:
                about = {"rule": p.rule, "kind": sample.kind, "provenance": sample.provenance}
                yield {"id": f"a-{sample.hash[:12]}-{at}", **about, "text": _answer_text(sample, p)}


def _answer_text(sample: Sample, p: Positive) -> str:
    lines = sample.text.rstrip("\n").split("\n")
    new = p.replacement.split("\n") if p.replacement else []
    after = "\n".join([*lines[: p.fix_start - 1], *new, *lines[p.fix_end :]])
    answer = "\n".join(new) if new else "(deleted)"
    return (
        f"`{p.rule}` in `{sample.path}`, lines {p.start} to {p.end}: {p.message}\n\n"
        f"Above the code:\n{_fenced(sample.context)}\nBefore:\n{_fenced(numbered(sample.text))}\n"
        f"Answer, in place of lines {p.fix_start} to {p.fix_end}:\n{_fenced(answer)}\nAfter:\n{_fenced(after)}"
    )


def _questions(everything: Sequence[Sample]) -> Iterator[dict[str, Any]]:
    for sample in everything:
        for number, (question, answers) in enumerate(judge_examples(sample)):
            head, _, first = question.pieces[0].rpartition("\n")
            for at, (piece, answer) in enumerate(
                zip((f"\n{first}", *question.pieces[1:]), answers, strict=True)
            ):
                about = {"answer": "yes" if answer else "no", "kind": sample.kind, "rule": piece.strip()}
                name = f"j-{sample.hash[:12]}-{number}-{at}"
                yield {
                    "id": name, **about, "provenance": sample.provenance, "text": _fenced(f"{head}{piece}")
                }  # fmt: skip


def _fenced(text: str) -> str:
    body = text.strip("\n")
    return f"~~~~~~text\n{body}\n~~~~~~\n"
