"""An adapter folder: what a recipe writes and a back end loads. Its files, its card, and whether it can be used."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ptopt.model.prompt import PROMPT_VERSION
from ptopt.model.schema import SCHEMA_VERSION

_REQUIRED = ("adapter_config.json", "adapter_model.safetensors", "card.json")
_EXECUTABLE = (
    ".bin",
    ".ckpt",
    ".joblib",
    ".pickle",
    ".pkl",
    ".pt",
    ".pth",
    ".py",
)  # code, or pickles that can run it


class RegistryError(Exception):
    """The operation is refused; the message is one line."""


def content_hash(folder: Path) -> str:
    """SHA-256 of the list that `sha256sum` prints for all files, sorted by path.

    Of a Linux shell: `find * -type f | LC_ALL=C sort | xargs sha256sum | sha256sum`.
    """
    lines = []
    for path in files_of(folder):
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
        lines.append((path.relative_to(folder).as_posix().encode(), digest.hexdigest().encode()))
    return hashlib.sha256(b"".join(d + b"  " + name + b"\n" for name, d in sorted(lines))).hexdigest()


def check_folder(folder: Path) -> None:
    """Raise RegistryError unless this is an adapter folder that can be loaded without running anything."""
    missing = [name for name in _REQUIRED if not (folder / name).is_file()]
    if missing:
        raise RegistryError(f"{folder} is not an adapter folder: it has no {', '.join(missing)}")
    code = [path.name for path in files_of(folder) if path.suffix.lower() in _EXECUTABLE]
    if code:
        raise RegistryError(
            f"{folder} holds {code[0]}, which may run code when it is loaded: only safetensors may"
        )
    read_card(folder)


def read_card(folder: Path) -> dict[str, Any]:
    """The parsed `card.json`. Raises RegistryError."""
    path = folder / "card.json"
    try:
        card = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RegistryError(f"{path} cannot be read: {error}") from None
    if not isinstance(card, dict) or not isinstance(card.get("name"), str) or not card["name"]:
        raise RegistryError(f"{path} is no card: it must be an object with a name")
    return card


def why_outdated(card: Mapping[str, Any]) -> str:
    """Why an adapter with this card expects other prompts or another schema than ours; "" when it fits."""
    for what, ours in (("prompt", PROMPT_VERSION), ("schema", SCHEMA_VERSION)):
        theirs = card.get(f"{what}_version")
        if theirs != ours:
            return f"it was trained with {what} version {theirs}, and this version of ptopt uses {ours}"
    return ""


def why_unusable(card: Mapping[str, Any]) -> str:
    """Why this version of ptopt cannot use an adapter with this card; "" when it can."""
    if why := why_outdated(card):
        return why
    for what in ("base", "base_hash"):
        if not isinstance(card.get(what), str) or not card[what]:
            return f"its card does not say the {what.replace('_', ' ')} of the model that it belongs to"
    return ""


def files_of(folder: Path) -> Iterator[Path]:
    """The files below the folder. Raises RegistryError for a link, and for a name that is not printable."""
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise RegistryError(f"{path} is neither a file nor a folder")
        if not path.name.isprintable() or "\\" in path.name:
            raise RegistryError(f"{folder} holds a file with a name that cannot be printed: {path.name!r}")
        if path.is_file():
            yield path
