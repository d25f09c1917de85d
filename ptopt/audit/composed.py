"""Hydra's composition of configurations: the files that the `defaults` of a primary configuration choose.

What the command line or a launcher changes is not seen: it is the default run. Interpolations stay text.
"""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Iterator, Mapping

from ptopt.audit.modules import Module, dotted_name
from ptopt.configs.values import Document, Scalar, Sequence
from ptopt.configs.values import Mapping as Table
from ptopt.source.index import FUNCTIONS

_MOST_FILES = 100
_GLOBAL = re.compile(r"^#\s*@package\s+_global_", re.M)
Part = tuple[tuple[str, ...], str, Document]  # where it is put, its path, the file


def composed(files: Mapping[str, Document], script: Module) -> list[Part] | None:
    """The files of the default run, in the order in which they override each other; None where Hydra is not used."""
    primary = _primary(files, script)
    if primary is None:
        return None
    folder, path = primary
    parts: list[Part] = []
    _collect(files, folder, "", path, parts)
    return parts


def chosen(path: str, document: Document) -> Iterator[str]:
    """Where the files may lie that the `defaults` of a file choose: below its folder, or below one above it."""
    folder = posixpath.dirname(path)
    for group, name in _defaults(document):
        base = folder
        while name != "_self_":
            inner = posixpath.normpath(posixpath.join(base, group.strip("/"), name))
            yield from (inner, f"{inner}.yaml", f"{inner}.yml")
            if not base:
                break
            base = posixpath.dirname(base)


def _primary(files: Mapping[str, Document], script: Module) -> tuple[str, str] | None:
    """The folder of the configurations and the primary one, of `@hydra.main(config_path=..., config_name=...)`."""
    for function in script.file.index.of_type(*FUNCTIONS):
        for decorator in function.decorator_list:
            if not isinstance(decorator, ast.Call) or dotted_name(decorator.func) not in (
                "hydra.main",
                "main",
            ):
                continue
            given = {k.arg: k.value.value for k in decorator.keywords if isinstance(k.value, ast.Constant)}
            where, name = given.get("config_path"), given.get("config_name")
            if not isinstance(name, str):
                continue
            here = posixpath.dirname(script.path)
            folder = posixpath.normpath(posixpath.join(here, where)) if isinstance(where, str) else here
            folder = "" if folder == "." else folder
            path = _file(files, folder, name)
            if path is not None:
                return folder, path
    return None


def _file(files: Mapping[str, Document], folder: str, name: str) -> str | None:
    base = posixpath.normpath(posixpath.join(folder, name))
    return next((p for p in (base, f"{base}.yaml", f"{base}.yml") if p in files), None)


def _collect(files: Mapping[str, Document], root: str, group: str, path: str, parts: list[Part]) -> None:
    """The file, and what its defaults choose, in the order of Hydra: its own values last unless `_self_` stands before."""
    if len(parts) >= _MOST_FILES or any(known == path for _, known, _ in parts):
        return
    document = files[path]
    package = () if _GLOBAL.search(document.text) else tuple(part for part in group.split("/") if part)
    own: Part = (package, path, document)
    placed = False
    for chosen_group, name in _defaults(document):
        if name == "_self_":
            parts.append(own)
            placed = True
            continue
        inner = posixpath.join(group, chosen_group).strip("/")
        if chosen_group.startswith("/"):
            inner = chosen_group.strip("/")
        found = _file(files, posixpath.join(root, inner), name)
        if found is not None:
            _collect(files, root, posixpath.dirname(posixpath.join(inner, name)), found, parts)
    if not placed:
        parts.append(own)


def _defaults(document: Document) -> Iterator[tuple[str, str]]:
    """(group, name) of each entry of the list of defaults."""
    table = document.root
    listed = table.get("defaults") if table is not None else None
    for item in listed.items if isinstance(listed, Sequence) else ():
        if isinstance(item, Scalar) and isinstance(item.value, str):
            yield "", item.value
        elif isinstance(item, Table):
            for entry in item:
                group = entry.key.text.split()[-1].partition("@")[0]
                names = entry.value.items if isinstance(entry.value, Sequence) else (entry.value,)
                for name in names:
                    if isinstance(name, Scalar) and isinstance(name.value, str):
                        yield group, name.value
