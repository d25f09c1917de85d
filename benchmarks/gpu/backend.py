"""How many regions a second the in-process back end serves, beside bare forward passes of the same model.

    python -m benchmarks.gpu.backend --base FOLDER --data data/demo [--prompts N] [--device cuda|cpu]

Judging is measured against the same forward passes without a client; answers in a schema against free ones.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from ptopt.model import prompt
from ptopt.model.backends.encoding import encode_judge
from ptopt.model.backends.local import TransformersBackend
from ptopt.model.interface import JudgePrompt
from ptopt.model.region import ADVISE_TOKENS, JUDGE_TOKENS, Region, fit
from training.dataset.files import samples
from training.dataset.views import judge_regions

_REPEATS = 3
_ANSWER = 64  # tokens: long enough for the rate of decoding, which does not depend on what is said


def measure(base: str, data: Path, count: int, device: str) -> dict[str, Any]:
    """Regions a second by task; the best of three runs each."""
    backend = TransformersBackend(base, device=device)
    regions = list(itertools.islice(_regions(data), count))
    judged = [one for region in regions for one in prompt.judge(fit(region, JUDGE_TOKENS))]
    answered = [
        dataclasses.replace(prompt.advise(fit(region, ADVISE_TOKENS)), max_tokens=_ANSWER)
        for region in regions[: max(1, count // 8)]
    ]
    free = [dataclasses.replace(one, schema=None) for one in answered]
    score = _best(lambda: backend.score(judged))
    bare = _best(lambda: _bare(backend, judged))
    in_schema = _best(lambda: backend.complete(answered))
    plain = _best(lambda: backend.complete(free))
    return {
        "base": Path(base).name if Path(base).is_dir() else base,
        "regions": len(regions),
        "judge_prompts_per_s": round(len(judged) / score, 2),
        "bare_forward_prompts_per_s": round(len(judged) / bare, 2),
        "judge_overhead": round(score / bare - 1, 4),
        "answers_in_schema_per_s": round(len(answered) / in_schema, 3),
        "free_answers_per_s": round(len(answered) / plain, 3),
        "tokens_an_answer": _ANSWER,
    }


def _regions(data: Path) -> Iterator[Region]:
    for sample in samples(data, "train"):
        yield from judge_regions(sample)


def _bare(backend: TransformersBackend, prompts: list[JudgePrompt]) -> None:
    """The decoder alone on the same tokens, padded in the same batches; what it finds stays on the device."""
    tokenizer, decoder = backend._tokenizer, backend._decoder
    rows = sorted((encode_judge(tokenizer, one)[0] for one in prompts), key=len, reverse=True)
    start = 0
    with torch.inference_mode():
        while start < len(rows):
            width = len(rows[start])
            batch = rows[start : start + max(1, backend._batch_tokens // width)]
            ids = torch.tensor([row + [0] * (width - len(row)) for row in batch], device=backend._device)
            decoder(ids, use_cache=False)
            start += len(batch)
    _wait()


def _best(call: Callable[[], object]) -> float:
    found = []
    for _ in range(_REPEATS):
        _wait()
        start = time.perf_counter()
        call()
        _wait()
        found.append(time.perf_counter() - start)
    return min(found)


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--base", required=True)
    parser.add_argument("--data", type=Path, default=Path("data/demo"))
    parser.add_argument("--prompts", type=int, default=256, help="regions to ask about")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    options = parser.parse_args()
    json.dump(measure(options.base, options.data, options.prompts, options.device), sys.stdout)


if __name__ == "__main__":
    main()
