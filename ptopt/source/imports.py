"""What the names of a file mean: local aliases resolved to qualified names of the libraries."""

from __future__ import annotations

import ast
from functools import cached_property
from typing import TYPE_CHECKING

from ptopt.source.index import FUNCTIONS, FunctionNode, Index, walk

if TYPE_CHECKING:
    from ptopt.source.uses import Uses

# The same object under several public names; the right-hand side is the one that rules ask for.
_CANONICAL = {
    "torch.utils.data.dataloader.DataLoader": "torch.utils.data.DataLoader",
    "torch.utils.data.dataset.TensorDataset": "torch.utils.data.TensorDataset",
    "torch.autograd.no_grad": "torch.no_grad",
    "torch.autograd.inference_mode": "torch.inference_mode",
    "torch.autograd.grad_mode.no_grad": "torch.no_grad",
    "torch.autograd.grad_mode.inference_mode": "torch.inference_mode",
    "torch.autograd.grad_mode.set_grad_enabled": "torch.set_grad_enabled",
    "torch.autograd.set_grad_enabled": "torch.set_grad_enabled",
    "torch.optim.adamw.AdamW": "torch.optim.AdamW",
    "torch.optim.adam.Adam": "torch.optim.Adam",
    "torch.optim.sgd.SGD": "torch.optim.SGD",
    "torch.cuda.amp.autocast_mode.autocast": "torch.cuda.amp.autocast",
    "torch.nn.modules.activation.MultiheadAttention": "torch.nn.MultiheadAttention",
}

# What these names stand for where they come through `from .parts import *`: everybody means the same by them.
_THROUGH_STAR = {
    "torch": "torch",
    "nn": "torch.nn",
    "F": "torch.nn.functional",
    "np": "numpy",
    "DataLoader": "torch.utils.data.DataLoader",
}


def _is_store(name: ast.Name) -> bool:
    return name.ctx.__class__ is ast.Store  # it is not deleted


class Imports:
    """Import table of one file: aliases, `from` imports, relative imports, names that were bound again."""

    def __init__(self, index: Index, uses: Uses) -> None:
        self._index = index
        self._uses = uses
        self._names: dict[str, str] = {}
        for plain in index.of_type(ast.Import):
            for alias in plain.names:
                if alias.asname:
                    self._names.setdefault(alias.asname, alias.name)
                else:
                    root = alias.name.partition(".")[0]
                    self._names.setdefault(root, root)
        for origin in index.of_type(ast.ImportFrom):
            module = "." * origin.level + (origin.module or "")
            for alias in origin.names:
                if alias.name != "*":
                    joined = f"{module}{'' if module.endswith('.') else '.'}{alias.name}"
                    self._names.setdefault(alias.asname or alias.name, joined)
        if any(alias.name == "*" for origin in index.of_type(ast.ImportFrom) for alias in origin.names):
            self._names = {**_THROUGH_STAR, **self._names}
        self._locals: dict[FunctionNode, frozenset[str]] = {}
        self._rebound = self._names_bound_again()

    def _names_bound_again(self) -> frozenset[str]:
        index, names = self._index, self._names
        bound = {node.arg for node in index.of_type(ast.arg)}
        bound.update(name for name in names if any(map(_is_store, self._uses.stored(name))))
        bound.update(n.name for n in index.of_type(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        return frozenset(bound & names.keys())

    def imports(self, root: str) -> bool:
        """Does the file import the package `root` or a part of it?"""
        within = f"{root}."
        return any(full == root or full.startswith(within) for full in self._names.values())

    def local_names(self) -> dict[str, str]:
        """Local name -> qualified name, as imported."""
        return dict(self._names)

    def qualified(self, node: ast.expr) -> str:
        """`F.softmax` -> "torch.nn.functional.softmax"; "" when the root is not an import in this scope."""
        current: ast.expr = node
        while current.__class__ is ast.Attribute:
            current = current.value
        origin = self._names.get(current.id) if current.__class__ is ast.Name else None
        if origin is None or not isinstance(current, ast.Name):
            return ""
        if current.id in self._rebound and self._shadowed(current):
            return ""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        parts.append(origin)
        full = ".".join(reversed(parts))
        return _CANONICAL.get(full, full)

    def _shadowed(self, name: ast.Name) -> bool:
        """Is the name a parameter, a local or a module-level definition where it is used?"""
        for ancestor, _ in self._index.ancestors(name):
            if isinstance(ancestor, FUNCTIONS) and name.id in self._bound_in(ancestor):
                return True
        return name.id in self._defined

    @cached_property
    def _defined(self) -> frozenset[str]:
        """Names that the module itself defines."""
        found: set[str] = set()
        for stmt in self._index.tree.body:
            if isinstance(stmt, (*FUNCTIONS, ast.ClassDef)):
                found.add(stmt.name)
            elif isinstance(stmt, ast.Assign):
                found.update(t.id for t in stmt.targets if isinstance(t, ast.Name))
        return frozenset(found)

    def _bound_in(self, function: FunctionNode) -> frozenset[str]:
        known = self._locals.get(function)
        if known is None:
            args = function.args
            every = [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]
            names = {a.arg for a in every if a is not None}
            names.update(
                n.id for n in walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
            )
            known = self._locals[function] = frozenset(names)
        return known
