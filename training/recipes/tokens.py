"""From samples to token rows: what a recipe trains on, in the same ids as in serving.

A row has `input_ids` and `labels` of one length, `labels[i]` being what should follow `input_ids[:i]`, or -100.

- *judge*: the prompt as it is served. The label after each piece is " yes" or " no", while the input there is the next
  piece: the model never reads an answer. One token more ends the row, so that the last label has a position.
- *advise* and *explain*: the chat as it is served, then the answer and the end of the turn; labels on these two.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ptopt.model.backends.encoding import answer_ids, encode_chat, encode_judge, without_special
from ptopt.model.interface import ChatPrompt, JudgePrompt
from ptopt.model.prompt import PROMPT_VERSION
from ptopt.model.region import JUDGE_TOKENS
from ptopt.model.schema import SCHEMA_VERSION
from training.dataset.rows import VIEWS, Sample
from training.dataset.shards import fingerprint
from training.recipes.settings import Data, SettingsError

if TYPE_CHECKING:
    from datasets import Dataset

IGNORED = -100
STAGES = 4  # of the curriculum
_FRAME = 4  # tokens that open and end a row
_SPARE = (
    2.0  # how many samples are read for each row that is wanted, as some have no such view or are too long
)
Row = dict[str, list[int]]


def judge_row(tokenizer: Any, prompt: JudgePrompt, answers: Sequence[bool]) -> Row:
    """One answer a piece, in the order of the pieces."""
    ids, positions = encode_judge(tokenizer, prompt)
    yes, no = answer_ids(tokenizer)
    ids = [*ids, tokenizer.eos_token_id]
    labels = [IGNORED] * len(ids)
    for position, answer in zip(positions, answers, strict=True):
        labels[position + 1] = yes if answer else no
    return {"input_ids": ids, "labels": labels}


def chat_row(tokenizer: Any, prompt: ChatPrompt, answer: str) -> Row:
    question = encode_chat(tokenizer, prompt)
    completion = answer_tokens(tokenizer, answer)
    return {"input_ids": question + completion, "labels": [IGNORED] * len(question) + completion}


def answer_tokens(tokenizer: Any, answer: str) -> list[int]:
    """An answer as the model writes it: plain text, and the token that ends its turn."""
    plain = without_special(tokenizer, answer)
    return [*tokenizer(plain, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]


def rows_of(
    tokenizer: Any, sample: Sample, view: str, max_tokens: int, judge_tokens: int = JUDGE_TOKENS
) -> Iterator[Row]:
    """The rows of one view of a sample; none where it has no such view, or is longer than `max_tokens`.

    A judge reads `judge_tokens` of code.
    """
    from training.dataset.views import advise_example, explain_example, judge_examples

    def count(text: str) -> int:
        return len(tokenizer(text, add_special_tokens=False)["input_ids"])

    if view == "judge":
        examples = judge_examples(sample, max_tokens - _FRAME, count, judge_tokens)
        rows = [judge_row(tokenizer, *example) for example in examples]
    else:
        example = {"advise": advise_example, "explain": explain_example}[view](
            sample, max_tokens - _FRAME, count
        )
        rows = [chat_row(tokenizer, *example)] if example is not None else []
    for row in rows:
        if len(row["input_ids"]) <= max_tokens and any(label != IGNORED for label in row["labels"][1:]):
            yield row


def token_rows(
    data: Data,
    tokenizer: Any,
    base_hash: str,
    split: str,
    *,
    seed: int,
    limit: int | None,
    cache: Path | None = None,
) -> Dataset:
    """The rows of a split in the shares of `data.views`, memory-mapped; at most `limit` of them.

    Raises SettingsError where there are none. Tokenised once for each dataset, tokenizer and prompt version; read from the cache after that.
    """
    from datasets import concatenate_datasets

    from training.dataset.files import read_info

    if data.decontaminated and not read_info(data.folder).get("against"):
        raise SettingsError(
            f"{data.folder} may hold code of the evaluation: build it with --against (or set data.decontaminated=false)"
        )
    shares = {view: share for view in VIEWS if (share := getattr(data.views, view))}
    total = sum(shares.values())
    parts = {}
    for view, share in shares.items():
        wanted = None if limit is None else max(1, round(limit * share / total))
        parts[view] = _tokenised(
            data, tokenizer, base_hash, split, view, seed, wanted, cache or data.cache or _cache()
        )
    empty = [view for view, rows in parts.items() if not len(rows)]
    if empty:
        raise SettingsError(
            f"{data.folder}: no {split} rows of at most {data.max_tokens} tokens for {', '.join(empty)}"
        )
    # As many rows as there are for these shares: the view that runs out first decides.
    scale = min(len(parts[view]) / share for view, share in shares.items())
    chosen = [parts[view].select(range(max(1, int(scale * share)))) for view, share in shares.items()]
    rows = concatenate_datasets(chosen).shuffle(seed=seed)
    return rows if limit is None else rows.select(range(min(limit, len(rows))))


def arrange(rows: Dataset, data: Data, seed: int) -> Dataset:
    """The rows in the order of training, packed where that is wanted.

    A packed row holds whole rows only, and their lengths in `seq_lengths`: the collator numbers positions from 0 in each,
    and attention stops at each start.
    """
    from datasets import concatenate_datasets
    from trl import pack_dataset

    stages = [rows]
    if data.order == "curriculum":
        ordered = rows.sort("length")
        parts = min(STAGES, len(rows))
        stages = [ordered.shard(parts, n, contiguous=True).shuffle(seed=seed) for n in range(parts)]
    if data.packing:
        columns = ["input_ids", "labels"]
        width = data.pack_to or data.max_tokens
        stages = [pack_dataset(s.select_columns(columns), width).shuffle(seed=seed) for s in stages]
    return concatenate_datasets(stages)


def _tokenised(
    data: Data,
    tokenizer: Any,
    base_hash: str,
    split: str,
    view: str,
    seed: int,
    wanted: int | None,
    cache: Path,
) -> Dataset:
    from datasets import Dataset, load_dataset
    from filelock import FileLock

    samples = data.folder / "samples" / f"{split}.jsonl"
    if not samples.is_file():
        raise SettingsError(
            f"{data.folder} holds no {split} samples; make a dataset with: "
            f"python -m training data build --preset demo --out {data.folder}"
        )
    key = [
        dataset_hash(data.folder),
        base_hash,
        PROMPT_VERSION,
        SCHEMA_VERSION,
        fingerprint(),
        split,
        view,
        seed,
    ]
    key += [wanted, data.max_tokens, data.judge_tokens, _own_code()]
    place = cache / hashlib.sha256(json.dumps(key).encode()).hexdigest()[:32]
    cache.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{place}.lock"):
        if not place.is_dir():
            scratch = Path(tempfile.mkdtemp(prefix=".tokens-", dir=cache))
            try:
                lines = load_dataset(
                    "text", data_files=str(samples), split="train", cache_dir=str(scratch / "text")
                )
                lines = lines.shuffle(seed=seed)
                if wanted is not None:
                    lines = lines.select(range(min(len(lines), int(wanted * _SPARE) + 8)))
                made = lines.map(
                    _batch,
                    batched=True,
                    batch_size=64,
                    remove_columns=["text"],
                    fn_kwargs={
                        "tokenizer": tokenizer,
                        "view": view,
                        "max_tokens": data.max_tokens,
                        "judge_tokens": data.judge_tokens,
                    },
                    num_proc=data.processes if data.processes > 1 else None,
                    desc=f"Tokenising {split} {view}",
                )
                if wanted is not None:
                    made = made.select(range(min(wanted, len(made))))
                if not len(made):  # could be saved, and not be read again
                    return Dataset.from_dict({"input_ids": [], "labels": []})
                made.save_to_disk(scratch / "rows")
                (scratch / "rows").rename(place)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
    return Dataset.load_from_disk(place)


def _batch(
    batch: Mapping[str, list[str]], tokenizer: Any, view: str, max_tokens: int, judge_tokens: int
) -> dict[str, list[Any]]:
    samples = [Sample.from_json(line) for line in batch["text"]]
    rows = [row for sample in samples for row in rows_of(tokenizer, sample, view, max_tokens, judge_tokens)]
    return {
        "input_ids": [row["input_ids"] for row in rows],
        "labels": [row["labels"] for row in rows],
        "length": [len(row["input_ids"]) for row in rows],
    }


def dataset_hash(folder: Path) -> str:
    """What `dataset.json` says; of the bytes, where `folder` is a file of rows."""
    if folder.is_file():
        return hashlib.sha256(folder.read_bytes()).hexdigest()
    from training.dataset.files import read_info

    return str(read_info(folder)["hash"])


def _own_code() -> str:
    """Of the files that make a row."""
    import ptopt.model
    from training.dataset import views

    model = Path(str(ptopt.model.__file__)).parent
    files = [*sorted(model.glob("*.py")), model / "backends" / "encoding.py"]
    files += [Path(__file__), Path(views.__file__)]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "ptopt" / "training" / "tokens"
