"""Modules of the project that what runs imports, and that are not among its files.

The name of a package that is installed looks like that of a module that is missing. Only names that modules of a project
have, and hardly a package, count.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

from ptopt.audit.live import Live
from ptopt.audit.modules import Module, text_of
from ptopt.source.index import FUNCTIONS

_OWN = frozenset(
    "model models modeling net nets network networks module modules layers backbone util utils helper helpers misc common "
    "core lib libs src config configs cfg options opts arguments settings hparams params loss losses criterion dataset "
    "dataloader dataloaders data_loader data_utils data train training trainer engine optim_utils transforms metrics "
    "evaluation preprocess".split()
)
# Built or written when the project is installed.
_MADE = re.compile(r"^_|version|_pb2(_grpc)?$|_(cuda|cpp|ext)$")


def absent(live: Live, may_run: Callable[[Module, ast.AST], bool]) -> tuple[str, ...]:
    """Their names, as they are imported, in the order of the code; those of which an import `may_run` by default."""
    found: dict[str, None] = {}
    for module in live.read.values():
        for node in module.file.index.of_type(ast.Import, ast.ImportFrom):
            missing = [
                (level, name) for level, name in _imported(node) if _is_absent(live, module, level, name)
            ]
            if missing and live.runs(module, node) and not _may_fail(module, node) and may_run(module, node):
                for level, name in missing:
                    found["." * level + name] = None
    return tuple(found)


def imported_from_above(live: Live, above: frozenset[str]) -> str:
    """The first module that what is read imports from the folders `above` those that are audited; "" where there is none."""
    for module in live.read.values() if above else ():
        for level, name, _ in module.imports:
            here = module.path.count("/") + 1 - level  # folders that are left
            ours = name.partition(".")[0] in above if not level else here < live.modules.depth
            if ours and live.modules.find(name, level, module.path) is None:
                return "." * level + name
    return ""


def _imported(node: ast.Import | ast.ImportFrom) -> list[tuple[int, str]]:
    """Level and name of each module."""
    if isinstance(node, ast.Import):
        return [(0, alias.name) for alias in node.names]
    return (
        [(node.level, node.module)] if node.module else []
    )  # `from . import x`: a module, or a name of the package


def _is_absent(live: Live, module: Module, level: int, name: str) -> bool:
    root, last = name.partition(".")[0], name.rpartition(".")[2]
    if _MADE.search(last) or live.modules.has_part(name.partition(".")[0]):
        return False
    return (level > 0 or root in _OWN) and live.modules.find(name, level, module.path) is None


def _may_fail(module: Module, node: ast.AST) -> bool:
    """Does the code go on without it, or import it for types alone?"""
    for ancestor, child in module.file.index.ancestors(node):
        if isinstance(ancestor, FUNCTIONS):
            return False
        if isinstance(ancestor, ast.Try) and child in ancestor.body and ancestor.handlers:
            return True
        if isinstance(ancestor, ast.If) and "TYPE_CHECKING" in text_of(ancestor.test):
            return True
    return False
