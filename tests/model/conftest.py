"""The small real model, and adapters for it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ptopt.model.prompt import PROMPT_VERSION
from ptopt.model.schema import SCHEMA_VERSION
from tests.model import weights
from tests.model.weights import SPEC


@pytest.fixture(scope="session")
def base_model() -> Path:
    return weights.real()


@pytest.fixture(scope="session")
def make_adapter(base_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`make_adapter(seed, scale=1.0)`: a folder with a random LoRA adapter, as the training would write it."""
    torch = pytest.importorskip("torch")
    peft = pytest.importorskip("peft")
    from transformers import AutoConfig, AutoModelForCausalLM

    from ptopt.model.backends.loading import base_hash

    def make(seed: int, scale: float = 1.0) -> Path:
        folder = tmp_path_factory.mktemp(f"adapter-{seed}-")
        config = peft.LoraConfig(
            r=8, lora_alpha=16, target_modules=["q_proj", "v_proj", "down_proj"], layers_to_transform=list(range(15)),
            init_lora_weights=False, task_type="CAUSAL_LM",
        )  # fmt: skip
        with torch.device("meta"):  # the adapter needs the shapes of the base model only
            model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(base_model))
            model = peft.get_peft_model(model, config)
        generator = torch.Generator().manual_seed(seed)
        state = {
            key: torch.randn(value.shape, generator=generator) * 0.05 * scale
            for key, value in peft.get_peft_model_state_dict(model).items()
        }
        config.inference_mode, config.base_model_name_or_path = True, SPEC
        config.save_pretrained(folder)
        from safetensors.torch import save_file

        save_file(state, folder / "adapter_model.safetensors")
        card = {
            "name": f"random-{seed}", "base": SPEC, "base_hash": base_hash(base_model), "dataset_hash": "0" * 64,
            "recipe": {}, "prompt_version": PROMPT_VERSION, "schema_version": SCHEMA_VERSION, "metrics": {}, "parent": None,
            "created": "2026-01-01T00:00:00Z",
        }  # fmt: skip
        (folder / "card.json").write_text(json.dumps(card), "utf-8")
        return folder

    return make


@pytest.fixture(scope="session")
def adapter(make_adapter: Callable[..., Path]) -> Path:
    return make_adapter(1)
