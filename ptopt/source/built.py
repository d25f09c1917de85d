"""Where the code builds what the advice of a profile is about: its optimizers and its loaders."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping

from ptopt.profiles.built import Built
from ptopt.source.file import SourceFile
from ptopt.syntax import ParseError

_FUSED = frozenset(
    f"torch.optim.{name}" for name in ("Adagrad", "Adam", "AdamW", "SGD")
)  # have such an update
_LOADER = "torch.utils.data.DataLoader"
_WORDS = ("optim", "DataLoader")
_LARGEST = 2 << 20


def built(files: Mapping[str, str], named: Collection[str] = ()) -> Built:
    """Of `files` (path -> code) those that a trace names, where one of them builds such a thing, else all."""
    found = {
        path: _in_file(path, text) for path, text in files.items() if any(word in text for word in _WORDS)
    }
    return Built(
        *(
            _of([path for path in found if path in named], found, kind)
            or _of([path for path in found if path not in named], found, kind)
            for kind in (0, 1)
        )
    )


def _of(
    paths: Collection[str], found: Mapping[str, tuple[list[int], list[int]]], kind: int
) -> tuple[str, ...]:
    return tuple(f"{path}:{line}" for path in sorted(paths) for line in found[path][kind])


def _in_file(path: str, text: str) -> tuple[list[int], list[int]]:
    """The lines of its optimizers and of its loaders; none where it cannot be parsed."""
    optimizers: list[int] = []
    loaders: list[int] = []
    for name, call in _calls(path, text):
        if name == _LOADER:
            loaders.append(call.lineno)
        elif name in _FUSED and not any(k.arg in ("fused", None) for k in call.keywords):
            optimizers.append(call.lineno)
    return sorted(optimizers), sorted(loaders)


def _calls(path: str, text: str) -> Iterator[tuple[str, ast.Call]]:
    if len(text) > _LARGEST:
        return
    try:
        file = SourceFile.parse(path, text.encode())
    except (ParseError, RecursionError, MemoryError):
        return
    for call in file.index.of_type(ast.Call):
        yield file.imports.qualified(call.func), call
