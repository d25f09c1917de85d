"""Names that a piece of code uses and nothing shows: an answer with one of them cannot be worked out from what is asked."""

from __future__ import annotations

import ast
import builtins
from dataclasses import dataclass

_BUILTINS = frozenset(dir(builtins))
_OF_TENSORS = frozenset("shape device dtype data grad T mT ndim is_cuda requires_grad".split())


@dataclass(frozen=True, slots=True)
class Names:
    """What a piece of code names: plain names, attributes of `self`, attributes of other objects; and which it sets."""

    used: frozenset[str]
    own: frozenset[str]
    read: frozenset[str]
    set: frozenset[str]

    @classmethod
    def of(cls, tree: ast.AST) -> Names:
        used: set[str] = set()
        own: set[str] = set()
        read: set[str] = set()
        bound: set[str] = set()
        called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
        modules: set[str] = set()
        for node in ast.walk(tree):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                modules.update(alias.asname or alias.name.partition(".")[0] for alias in node.names)
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                (used if isinstance(node.ctx, ast.Load) else bound).add(node.id)
            elif isinstance(node, ast.arg):
                bound.add(node.arg)
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                bound.add(node.name)
                own.add(node.name)
            elif isinstance(node, ast.Attribute):
                root: ast.expr = node
                while isinstance(root, ast.Attribute):
                    root = root.value
                name = root.id if isinstance(root, ast.Name) else ""
                if isinstance(node.value, ast.Name) and name == "self":
                    own.add(node.attr)
                elif name not in modules and name != "torch" and id(node) not in called:
                    read.add(node.attr)
        return cls(frozenset(used), frozenset(own), frozenset(read - _OF_TENSORS), frozenset(bound | modules))

    def unknown_in(self, code: ast.AST) -> frozenset[str]:
        """What `code` names that stands nowhere here, and that it does not set itself."""
        other = Names.of(code)
        names = other.used - self.used - self.set - other.set - _BUILTINS
        return names | (other.own - self.own) | (other.read - self.read - self.own)
