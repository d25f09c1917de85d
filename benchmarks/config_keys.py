"""Reads the setting names of libraries from their own source, and writes the table that ptopt checks keys against.

The sources are wheels, sdists or folders of installed packages; nothing of them is imported:

    pip download --no-deps -d sources transformers accelerate lightning llamafactory axolotl deepspeed torchtune vllm
    python -m benchmarks.config_keys sources

A library that is not among the sources keeps what the table says of it.
"""

from __future__ import annotations

import argparse
import ast
import datetime
import json
import re
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

TABLE = Path(__file__).parents[1] / "ptopt/configs/keys.json"
_READ = (".py", ".yaml")
_NAME = re.compile(r"[a-z][a-z0-9_]{2,60}")
Sources = Mapping[str, str]  # path in the package -> text


def _open(place: Path) -> tuple[str, str, Sources]:
    """Name, version, code and recipes of a wheel, an sdist or an unpacked package with its metadata beside it."""
    if place.is_dir():
        info = next(place.parent.glob(f"{place.name}*.dist-info"))
        version = info.name.removesuffix(".dist-info").rpartition("-")[2]
        files = {f.relative_to(place.parent).as_posix(): f for f in place.rglob("*.py")}
        return place.name, version, {name: f.read_text("utf-8") for name, f in files.items()}
    name, version = re.split(r"-(?=\d)", place.name.removesuffix(".tar.gz"), maxsplit=1)
    version = version.split("-")[0]
    if place.suffix == ".whl":
        with zipfile.ZipFile(place) as wheel:
            return name, version, {n: wheel.read(n).decode() for n in wheel.namelist() if n.endswith(_READ)}
    with tarfile.open(place) as archive:
        found = {}
        for member in archive:
            content = archive.extractfile(member) if member.name.endswith(_READ) else None
            if content is not None:
                found[member.name.partition("/")[2]] = content.read().decode("utf-8", "replace")
        return name, version, found


def _classes(text: str) -> Iterator[ast.ClassDef]:
    return (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef))


def _fields(cls: ast.ClassDef) -> Iterator[str]:
    """Annotated names of a class, and the aliases of pydantic fields."""
    for node in cls.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            if not node.target.id.startswith("_"):
                yield node.target.id
            for keyword in node.value.keywords if isinstance(node.value, ast.Call) else ():
                if keyword.arg in ("alias", "validation_alias") and isinstance(keyword.value, ast.Constant):
                    yield str(keyword.value.value)


def _of(sources: Sources, pattern: str, only: str = "") -> set[str]:
    """The fields of the classes (`only`: of the one with this name) in the files that match."""
    return {
        field
        for path, text in sources.items()
        if re.search(pattern, path)
        for cls in _classes(text)
        if not only or cls.name == only
        for field in _fields(cls)
    }


def _texts(sources: Sources, pattern: str) -> set[str]:
    """The names that stand in quotes in the files: keys that code looks up without a field for them."""
    return {
        node.value
        for path, text in sources.items()
        if re.search(pattern, path)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _NAME.fullmatch(node.value)
    }


def _parameters(sources: Sources, path: str, cls: str) -> set[str]:
    """Of the constructor of a class."""
    return {
        argument.arg
        for node in _classes(sources[path])
        if node.name == cls
        for function in node.body
        if isinstance(function, ast.FunctionDef) and function.name == "__init__"
        for argument in (*function.args.args, *function.args.kwonlyargs)
        if argument.arg != "self"
    }


def _written(sources: Sources, pattern: str) -> set[str]:
    """Top-level keys of YAML files."""
    texts = (text for path, text in sources.items() if re.search(pattern, path))
    return {key for text in texts for key in re.findall(r"^(\w+):", text, re.MULTILINE)}


_HF = r"transformers/training_args(_seq2seq)?\.py$"
READERS: Mapping[str, Callable[[Sources], dict[str, set[str]]]] = {
    "transformers": lambda s: {"transformers": _of(s, _HF)},
    "llamafactory": lambda s: {
        "llamafactory": _of(s, r"llamafactory/hparams/\w+\.py$") | _texts(s, r"hparams/parser\.py$")
    },
    "axolotl": lambda s: {
        "axolotl": _of(s, r"axolotl/(?:utils/schemas|integrations)/.*\.py$")
        | _texts(s, r"axolotl/utils/schemas/\w+\.py$")
    },
    "accelerate": lambda s: {
        "accelerate": _of(s, r"config/config_args\.py$") | _texts(s, r"config/(cluster|config_args)\.py$")
    },
    "lightning": lambda s: {"lightning": _parameters(s, "lightning/pytorch/trainer/trainer.py", "Trainer")},
    "deepspeed": lambda s: {
        "deepspeed": _texts(s, r"deepspeed/(?:.*constants|runtime/config)\.py$"),
        "deepspeed.zero_optimization": _of(s, r"runtime/zero/config\.py$", "DeepSpeedZeroConfig"),
    },
    "torchtune": lambda s: {"torchtune": _written(s, r"recipes/configs/.*\.yaml$")},
    "vllm": lambda s: {"vllm": {name.replace("_", "-") for name in _of(s, r"vllm/engine/arg_utils\.py$")}},
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.config_keys", description=__doc__)
    parser.add_argument(
        "sources", type=Path, nargs="+", help="a folder of wheels and sdists, or an installed package"
    )
    places = [
        place
        for given in parser.parse_args().sources
        for place in (sorted(given.iterdir()) if not (given / "__init__.py").exists() else [given])
        if place.is_dir() or place.name.endswith((".whl", ".tar.gz"))
    ]
    table = json.loads(TABLE.read_text("utf-8")) if TABLE.exists() else {"libraries": {}}
    for place in places:
        name, version, sources = _open(place)
        if name not in READERS:
            continue
        for kind, keys in READERS[name](sources).items():
            table["libraries"][kind] = {"library": name, "version": version, "keys": sorted(keys)}
            print(f"{kind}: {len(keys)} keys of {name} {version}")
    table["made"] = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    TABLE.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
