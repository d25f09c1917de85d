"""Where a base model and an adapter come from: a folder, an installed package, or the model hub.

Only weights in safetensors are read (GGUF inside a package, to convert it once); code that comes with a model
never runs.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ptopt.model.interface import ModelUnavailableError
from ptopt.model.region import JUDGE_TOKENS

PACKAGE, HUB = "package:", "hub:"
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(@[\w./-]+)?")
_HUB_FILES = ["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja"]
_SOURCE = "ptopt-source.json"
_MAX_JSON = 1 << 20


@dataclass(frozen=True, slots=True)
class AdapterFolder:
    """A LoRA adapter with its card, and what was measured on it."""

    path: Path
    card: dict[str, Any]
    calibration: str | None  # calibration.json as it stands there
    content: str  # SHA-256 (hex) of weights, configuration and card

    @property
    def base(self) -> str:
        """The specification of the base model it was trained on."""
        return str(self.card["base"])

    @property
    def name(self) -> str:
        return str(self.card.get("name") or self.path.name)

    @property
    def judge_tokens(self) -> int:
        """How much code it was trained to judge from, in tokens."""
        tokens = self.card.get("judge_tokens")
        return tokens if isinstance(tokens, int) and tokens > 0 else JUDGE_TOKENS

    @property
    def served_name(self) -> str:
        """What a server loads it as: the same name never means other weights."""
        return self.content[:16]


def is_adapter(spec: str | os.PathLike[str]) -> bool:
    """Is it a folder with an adapter? A package and a model on the hub never are, whatever lies in this folder."""
    if str(spec).startswith((PACKAGE, HUB)):
        return False
    return (Path(spec).expanduser() / "adapter_config.json").is_file()


def read_adapter(path: str | os.PathLike[str]) -> AdapterFolder:
    """Raises ModelUnavailableError where the folder is not an adapter that may be loaded."""
    folder = Path(path).expanduser().resolve()
    if not (folder / "adapter_model.safetensors").is_file():
        if (folder / "adapter_model.bin").exists():
            raise ModelUnavailableError(
                f"{folder}: adapter_model.bin is a pickle, which could run code; save it as safetensors"
            )
        raise ModelUnavailableError(f"{folder}: adapter_model.safetensors is missing")
    config = _read_json(folder / "adapter_config.json")
    if config.get("peft_type") != "LORA":
        raise ModelUnavailableError(
            f"{folder}: only LoRA adapters are supported, not {config.get('peft_type')!r:.40}"
        )
    card = _read_json(folder / "card.json")
    if not isinstance(card.get("base"), str) or not card["base"]:
        raise ModelUnavailableError(
            f"{folder / 'card.json'}: 'base' is missing: the model that the adapter belongs to"
        )
    calibration = folder / "calibration.json"
    return AdapterFolder(
        path=folder,
        card=card,
        calibration=_read_text(calibration) if calibration.is_file() else None,
        content=_hash(
            [folder / n for n in ("adapter_model.safetensors", "adapter_config.json", "card.json")]
        ),
    )


def rank(folder: AdapterFolder) -> int:
    """The largest rank of the adapter's matrices, which engines must know beforehand, as a power of two from 8 on."""
    config = _read_json(folder.path / "adapter_config.json")
    pattern = config.get("rank_pattern")
    ranks = [config.get("r"), *(pattern.values() if isinstance(pattern, dict) else ())]
    largest = max((r for r in ranks if isinstance(r, int)), default=8)
    return max(8, 1 << (largest - 1).bit_length())


def resolve_base(spec: str) -> Path:
    """The folder with the configuration, the tokenizer and the weights of a base model.

    spec: a folder, `package:NAME` (an installed package that carries one GGUF file), or a name on the model
    hub, `org/name` or `hub:org/name`, with `@revision` if wanted. A relative folder of two names is written
    `./org/name`: a checkout under review must not bring the weights that a hub name asks for.
    Raises ModelUnavailableError.
    """
    if spec.startswith(PACKAGE):
        return _from_package(spec.removeprefix(PACKAGE))
    if spec.startswith(HUB):
        return _from_hub(spec.removeprefix(HUB))
    folder = Path(spec).expanduser()
    if folder.is_dir() and _HUB_NAME.fullmatch(spec):
        raise ModelUnavailableError(
            f"{spec:.200} is a folder here and a name on the model hub: write ./{spec:.200} or {HUB}{spec:.200}"
        )
    if folder.is_dir():
        return _checked(folder.resolve())
    if _HUB_NAME.fullmatch(spec):
        return _from_hub(spec)
    raise ModelUnavailableError(
        f"no model at {spec!r:.200}: give a folder, {PACKAGE}NAME or a hub name ORG/NAME"
    )


def base_hash(folder: Path) -> str:
    """SHA-256 (hex) of the weights and the tokenizer; of the GGUF file where they were converted from one."""
    source = folder / _SOURCE
    if source.is_file():
        return str(_read_json(source)["sha256"])
    return _hash([*sorted(folder.glob("*.safetensors")), folder / "tokenizer.json"])


def models_cache() -> Path:
    """Where converted models are kept: `$XDG_CACHE_HOME/ptopt/models`."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "ptopt" / "models"


def _checked(folder: Path) -> Path:
    if not (folder / "config.json").is_file():
        raise ModelUnavailableError(f"{folder}: config.json is missing: not a model folder")
    if not any(folder.glob("*.safetensors")):
        pickled = any(folder.glob("*.bin")) or any(folder.glob("*.pt")) or any(folder.glob("*.pth"))
        why = (
            "its weights are pickles, which could run code; save them as safetensors"
            if pickled
            else "it has no *.safetensors"
        )
        raise ModelUnavailableError(f"{folder}: {why}")
    return folder


def _from_package(name: str) -> Path:
    try:
        files = importlib.metadata.files(name) or []
    except importlib.metadata.PackageNotFoundError:
        raise ModelUnavailableError(
            f"the package {name!r:.100} is not installed: pip install {name:.100}"
        ) from None
    found = [Path(str(f.locate())) for f in files if f.suffix == ".gguf"]
    if len(found) != 1:
        raise ModelUnavailableError(
            f"the package {name!r} has {len(found)} GGUF files; exactly one is needed"
        )
    gguf = found[0]
    sha256 = _hash([gguf])
    folder = models_cache() / f"{name}-{sha256[:16]}"
    if (folder / _SOURCE).is_file():
        return folder
    return _convert(gguf, sha256, folder)


def _convert(gguf: Path, sha256: str, folder: Path) -> Path:
    """Dequantised, as bf16 safetensors beside the tokenizer; whole or not there at all."""
    import torch
    from filelock import FileLock
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
    from transformers.utils import logging

    logging.disable_progress_bar()

    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if (folder / _SOURCE).is_file():
            return folder
        scratch = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        try:
            model = AutoModelForCausalLM.from_pretrained(
                gguf.parent,
                gguf_file=gguf.name,
                dtype=torch.float32,
                quantization_config=GgufConfig(dequantize=True),
            )
            model.to(torch.bfloat16).save_pretrained(scratch)
            AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(scratch)
            (scratch / _SOURCE).write_text(json.dumps({"file": gguf.name, "sha256": sha256}) + "\n", "utf-8")
            scratch.rename(folder)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return folder


def _from_hub(name: str) -> Path:
    from huggingface_hub import snapshot_download

    if not _HUB_NAME.fullmatch(name):
        raise ModelUnavailableError(f"{name!r:.200} is not a name on the model hub (ORG/NAME)")
    repo, _, revision = name.partition("@")
    try:
        folder = snapshot_download(repo, revision=revision or None, allow_patterns=_HUB_FILES)
    except Exception as error:  # what it raises depends on the transport that the hub client uses
        why = str(error).strip().partition("\n")[0]
        raise ModelUnavailableError(
            f"{name} could not be fetched from the model hub ({type(error).__name__}: {why:.200})"
        ) from None
    return _checked(Path(folder))


def _read_text(path: Path) -> str:
    try:
        if path.stat().st_size > _MAX_JSON:
            raise ModelUnavailableError(f"{path} is larger than {_MAX_JSON >> 20} MiB")
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise ModelUnavailableError(f"{path} cannot be read: {why}") from None


def _read_json(path: Path) -> dict[str, Any]:
    text = _read_text(path)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ModelUnavailableError(f"{path} is not JSON: {error!s:.200}") from None
    if not isinstance(value, dict):
        raise ModelUnavailableError(f"{path} is not a JSON object")
    return value


def _hash(paths: Iterable[Path]) -> str:
    """SHA-256 of names, sizes and contents; the content alone where it is one file."""
    paths = list(paths)
    digest = hashlib.sha256()
    for path in paths:
        try:
            with path.open("rb") as file:
                if len(paths) > 1:
                    digest.update(f"{path.name}\0{path.stat().st_size}\0".encode())
                while block := file.read(1 << 20):
                    digest.update(block)
        except OSError as error:
            raise ModelUnavailableError(f"{path} cannot be read: {error.strerror}") from None
    return digest.hexdigest()
