"""Of which class the object is that a method is called on, as far as one file shows: a name alone is little evidence."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from ptopt.source.bindings import Binding, Bindings, is_self
from ptopt.source.imports import Imports
from ptopt.source.index import FunctionNode, Index

# Names that so many classes have, of libraries too, that a call alone tells nothing about which one it is.
COMMON_METHODS = frozenset(
    "forward step update reset get set run call main add append close open load save read write init setup start stop "
    "compute backward train eval to cpu cuda parameters items keys values log print build create fit transform".split()
)
_ALSO_COMMON = frozenset("sample generate encode decode predict evaluate process".split())
# Packages whose classes no repository under review defines. `copy` and the like return what they are given.
_HANDS_ON = frozenset(
    "builtins contextlib copy functools importlib itertools operator pickle typing weakref".split()
)
_LIBRARIES = (sys.stdlib_module_names - _HANDS_ON) | frozenset(
    "torch torchvision torchaudio numpy scipy sklearn pandas PIL cv2 tqdm wandb tensorboardX apex accelerate".split()
)
_MAKERS = frozenset(
    "tqdm trange defaultdict deque profile getLogger".split()
)  # are classes, or return their own
_BUILTINS = frozenset("dict enumerate float frozenset int list open range set sorted str tuple zip".split())
_RETURN_THEMSELVES = frozenset("to cuda cpu train eval half float double bfloat16 requires_grad_".split())
_DISPLAYS = (ast.Dict, ast.List, ast.Set, ast.Tuple, ast.ListComp, ast.SetComp, ast.DictComp, ast.JoinedStr)
_DEEPEST = 5  # names that stand for one another
_MOST_BINDINGS = 16  # of a name; what is bound more often may be anything


class Class(NamedTuple):
    """What is known of the class of an object: neither a definition nor a name, where nothing is."""

    here: ast.ClassDef | None = None  # the class of this file
    qualified: str = ""  # of another one, or the module itself, as imported
    exact: bool = True  # False: may be a subclass


_UNKNOWN = Class()


class Receivers:
    """Of one file."""

    def __init__(self, index: Index, imports: Imports, bindings: Bindings) -> None:
        self._index = index
        self._imports = imports
        self._bindings = bindings
        self._found: dict[tuple[ast.expr, int], tuple[Class, ...]] = {}
        self._answers: dict[tuple[Class, ast.ClassDef], bool | None] = {}

    def may_run(self, call: ast.Call, holder: ast.ClassDef) -> bool:
        """May `x.m()` run `m` of `holder`, the only class of this file that has it?

        Where nothing shows the class of `x`, a common name of a method needs a receiver that is named after the class.
        """
        func = call.func
        if not isinstance(func, ast.Attribute):
            return False
        answers = [self._is_of(found, holder) for found in self._of(func.value, _DEEPEST)]
        if True in answers:
            return True
        if answers and None not in answers:
            return False
        common = func.attr in COMMON_METHODS or func.attr in _ALSO_COMMON
        return not common or _named_after(func.value, holder, func.attr)

    def classes_of(self, expr: ast.expr) -> tuple[Class, ...]:
        """Of each object that the expression may be, what is known of its class; () where it is only ever None."""
        return self._of(expr, _DEEPEST)

    def lineage(self, cls: ast.ClassDef) -> list[ast.ClassDef]:
        """The class and its ancestors in this file."""
        return list(self._lineage(cls))

    def is_of_library(self, call: ast.Call) -> bool:
        """Does the call run code of a library: a function of one, or a method of its object?"""
        if _from_library(self._imports.qualified(call.func)):
            return True
        if not isinstance(call.func, ast.Attribute):
            return False
        found = self._of(call.func.value, _DEEPEST)
        return bool(found) and all(one.exact and _from_library(one.qualified) for one in found)

    def _is_of(self, found: Class, holder: ast.ClassDef) -> bool | None:
        """Is it of the class, or of one that inherits from it? None: not known."""
        if (found, holder) not in self._answers:
            self._answers[found, holder] = self._inherits(found, holder)
        return self._answers[found, holder]

    def _inherits(self, found: Class, holder: ast.ClassDef) -> bool | None:
        if found.qualified:
            plain = all(ast.unparse(base) == "object" for base in holder.bases)
            return False if found.exact or plain else None
        if found.here is None:
            return None
        lineage = list(self._lineage(found.here))
        if holder in lineage or (not found.exact and found.here in self._lineage(holder)):
            return True
        hands_on = any(
            isinstance(stmt, ast.FunctionDef) and stmt.name == "__getattr__"
            for c in lineage
            for stmt in c.body
        )
        return None if hands_on else False

    def _lineage(self, cls: ast.ClassDef) -> Iterator[ast.ClassDef]:
        """The class and its ancestors in this file."""
        seen, left = {cls}, [cls]
        while left:
            one = left.pop()
            yield one
            named = [
                self._classes[base.id]
                for base in one.bases
                if isinstance(base, ast.Name) and base.id in self._classes
            ]
            left += [base for base in named if base not in seen]
            seen.update(named)

    @cached_property
    def _classes(self) -> dict[str, ast.ClassDef]:
        return {cls.name: cls for cls in self._index.of_type(ast.ClassDef)}

    # -- what an expression is -------------------------------------------------------------------------

    def _of(self, expr: ast.expr, depth: int) -> tuple[Class, ...]:
        """Of each object that the expression may be, its class, each once; `None` left out."""
        known = self._found.get((expr, depth))
        if known is None:
            known = self._found[expr, depth] = tuple(dict.fromkeys(self._classes_of(expr, depth)))
        return known

    def _classes_of(self, expr: ast.expr, depth: int) -> Sequence[Class]:
        if depth == 0:
            return [_UNKNOWN]
        if isinstance(expr, ast.Constant) and expr.value is None:
            return []
        if isinstance(expr, (ast.Constant, *_DISPLAYS)):
            return [Class(qualified="builtins")]
        if isinstance(expr, ast.IfExp):
            return [*self._of(expr.body, depth), *self._of(expr.orelse, depth)]
        if isinstance(expr, ast.BoolOp):
            return [found for value in expr.values for found in self._of(value, depth)]
        if isinstance(expr, ast.Call):
            return self._made(expr, depth)
        qualified = self._imports.qualified(expr)
        if qualified:  # a field of an imported object may be anything
            return (
                [Class(qualified=qualified)]
                if isinstance(expr, ast.Name) or _from_library(qualified)
                else [_UNKNOWN]
            )
        if isinstance(expr, ast.Attribute) and is_self(expr):
            owner = self._index.class_of(expr)
            value = self._bindings.attribute(owner, expr.attr) if owner is not None else None
            return [_UNKNOWN] if value is None else self._of(value, depth - 1)
        return self._named(expr, depth) if isinstance(expr, ast.Name) else [_UNKNOWN]

    def _made(self, call: ast.Call, depth: int) -> Sequence[Class]:
        """What a call returns, where that is a new object of a known class."""
        func = call.func
        qualified = self._imports.qualified(func)
        if qualified:
            *_, before, leaf = ["", *qualified.split(".")]
            made = leaf[:1].isupper() or before[:1].isupper() or leaf in _MAKERS or qualified == "wandb.init"
            return [Class(qualified=qualified) if made else _UNKNOWN]
        if isinstance(func, ast.Name):
            if func.id in self._classes:
                return [Class(self._classes[func.id])]
            unbound = not self._bindings_of(func)[0]
            return [Class(qualified="builtins") if unbound and func.id in _BUILTINS else _UNKNOWN]
        if isinstance(func, ast.Attribute):
            if isinstance(func.value, ast.Name) and func.value.id in self._classes:
                return [Class(self._classes[func.value.id], exact=False)]  # as `Net.from_pretrained()`
            if func.attr in _RETURN_THEMSELVES:
                return self._of(func.value, depth - 1)
        return [_UNKNOWN]

    def _bindings_of(self, name: ast.Name) -> tuple[list[Binding], FunctionNode | None]:
        """The bindings in the innermost function that has one, and that function."""
        scope = self._index.function_of(name)
        while not (found := self._bindings.of(scope, name.id)) and scope is not None:
            scope = self._index.function_of(scope)
        return found, scope

    def _named(self, name: ast.Name, depth: int) -> list[Class]:
        found, _ = self._bindings_of(name)
        if not found:
            return [Class(self._classes[name.id]) if name.id in self._classes else _UNKNOWN]
        if len(found) > _MOST_BINDINGS:
            return [_UNKNOWN]
        return [one for binding in found for one in self._bound(binding, name.id, depth - 1)]

    def _bound(self, binding: Binding, name: str, depth: int) -> Sequence[Class]:
        if binding.kind == "parameter":
            return [_UNKNOWN if binding.value is None else self._annotated(binding.value)]
        if binding.kind == "assign" and binding.value is not None:
            return self._of(binding.value, depth)
        if isinstance(binding.node, (ast.With, ast.AsyncWith)):
            for item in binding.node.items:
                if isinstance(item.optional_vars, ast.Name) and item.optional_vars.id == name:
                    return self._of(item.context_expr, depth)
        return [_UNKNOWN]

    def _annotated(self, annotation: ast.expr) -> Class:
        if isinstance(annotation, ast.BinOp) and isinstance(annotation.right, ast.Constant):  # `Net | None`
            return self._annotated(annotation.left)
        name = annotation.value if isinstance(annotation, ast.Constant) else None
        if isinstance(annotation, ast.Name):
            name = annotation.id
        if isinstance(name, str) and name in self._classes:
            return Class(self._classes[name], exact=False)
        qualified = self._imports.qualified(annotation)
        if _from_library(qualified):
            return Class(qualified=qualified, exact=qualified == "torch.Tensor")
        return Class(qualified="builtins") if name in _BUILTINS else _UNKNOWN


def _from_library(qualified: str) -> bool:
    root = qualified.partition(".")[0]
    return root in _LIBRARIES or root == "builtins"


def _named_after(receiver: ast.expr, holder: ast.ClassDef, method: str) -> bool:
    """Is the receiver named after the class, or after what it inherits from?

    `model.train()` is a switch of every module, whatever the class inherits from; `trainer.train()` is of `Trainer`.
    """
    leaf = ast.unparse(receiver).rpartition(".")[2].lower().replace("_", "").rstrip("s0123456789")
    bases = (
        [] if method in ("train", "eval") else [ast.unparse(base).rpartition(".")[2] for base in holder.bases]
    )
    names = [name.lower().replace("_", "") for name in (holder.name, *bases) if name != "Module"]
    own = names[0].rstrip("s0123456789")
    return len(leaf) > 1 and (
        any(name.rstrip("s0123456789").endswith(leaf) for name in names) or (len(own) > 2 and own in leaf)
    )
