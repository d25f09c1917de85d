"""Code that sets the bias of whatever module it is given, and so fails on one that has none."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from ptopt.rules.base import SourceFile
from ptopt.source.bindings import is_self
from ptopt.source.index import FUNCTIONS, FunctionNode, walk

_IN_TEXT = re.compile(rb"\b(?!self\b)\w+\.bias\b(\.|\s*,|\s*\))")
_ASKS = re.compile(r"\b(\w+)\.bias\b|getattr\(\s*(\w+)\s*,\s*[\"']bias")
_KIND = re.compile(r"^_?[A-Z]\w*$")
_MODULES = frozenset({"Module", "_ConvNd", "_ConvTransposeNd"})
_MOST_FILES = 4
_LEAVES = (ast.Return, ast.Continue)


@dataclass(frozen=True, slots=True)
class Initialiser:
    """A place that writes to `module.bias`. `kinds`: what a test says of the module, in words; none where it says nothing."""

    path: str
    line: int
    kinds: frozenset[str]

    def takes(self, layer: str) -> bool:
        """May it be given a layer of that class, such as `Conv2d`?"""
        return not self.kinds or any(
            kind in _MODULES or kind.lower() in layer.lower() or layer in kind for kind in self.kinds
        )


def bias_initialiser(layer: ast.Call, leaf: str, file: SourceFile) -> Initialiser | None:
    """A place of this file, or of another that names the class around the layer, that would fail without the bias."""
    own = next((one for one in file.once(_initialisers) if one.takes(leaf)), None)
    owner = _owner(layer, file)
    return own if own is not None or not owner else _elsewhere(leaf, owner, file)


def may_fail_elsewhere(layer: ast.Call, leaf: str, file: SourceFile) -> bool:
    """May code that contains the layer set its bias, as far as can be seen?

    So it may where nothing shows who builds the class around the layer, or another file sets the bias of such layers.
    """
    owner = _owner(layer, file)
    if not owner:
        return False
    made = re.compile(rb"\b%b\s*\(" % re.escape(owner.encode()))
    built = bool(file.calls_named(owner)) or file.repository.matches(
        made, having=owner.encode(), besides=file.path
    )
    return not built or _elsewhere(leaf, "", file) is not None


def _owner(layer: ast.Call, file: SourceFile) -> str:
    owner = file.index.class_of(layer) or file.index.function_of(layer)
    return owner.name if owner is not None else ""


def _elsewhere(leaf: str, name: str, file: SourceFile) -> Initialiser | None:
    """The first place of another file, one that holds the name, that sets the bias of such a layer."""
    for other in file.repository.holding(file, _IN_TEXT, b".bias", name.encode(), _MOST_FILES):
        for one in other.once(_initialisers):
            if one.takes(leaf):
                return one
    return None


def _initialisers(file: SourceFile) -> tuple[Initialiser, ...]:
    found = []
    for bias in file.index.attributes_named("bias"):
        function = file.index.function_of(bias)
        if (
            isinstance(bias.ctx, ast.Load)
            and isinstance(bias.value, ast.Name)
            and not is_self(bias)
            and _fails_on_none(bias, file)
            and _may_be_any(bias.value, function, file)
            and not _asked_before(bias, bias.value.id, file)
        ):
            found.append(Initialiser(file.path, bias.lineno, _kinds(bias, bias.value.id, file)))
    return tuple(found)


def _fails_on_none(bias: ast.Attribute, file: SourceFile) -> bool:
    """`m.bias.data.zero_()`, `nn.init.zeros_(m.bias)`"""
    parent = file.index.parent(bias)
    if isinstance(parent, ast.Attribute):
        return True
    return (
        isinstance(parent, ast.Call)
        and bias in parent.args
        and file.imports.qualified(parent.func).startswith("torch.nn.init.")
    )


def _may_be_any(module: ast.Name, function: FunctionNode | None, file: SourceFile) -> bool:
    """Is it what a loop over modules gives, or a parameter, as of `init(m)` in `net.apply(init)`?"""
    bindings = file.bindings.of(function, module.id)
    return bool(bindings) and all(binding.kind in ("item", "parameter") for binding in bindings)


def _asked_before(bias: ast.Attribute, name: str, file: SourceFile) -> bool:
    """Does a condition ask whether there is a bias: around the place, or one that leaves before it?"""
    for ancestor, child in file.index.ancestors(bias):
        if isinstance(ancestor, FUNCTIONS):
            break
        tests: list[ast.expr] = []
        if isinstance(ancestor, (ast.If, ast.IfExp)) and child is not ancestor.test:
            tests = [ancestor.test]
        elif isinstance(ancestor, ast.BoolOp):
            tests = [value for value in ancestor.values if value is not child]
        if any(name in _asked_in(test, file) for test in tests):
            return True
    left = file.once(_leaves_without).get((file.index.function_of(bias), name))
    return left is not None and left < bias.lineno


def _asked_in(test: ast.expr, file: SourceFile) -> set[str]:
    """Names of the modules that a condition asks for their bias."""
    return {one or other for one, other in _ASKS.findall(file.source(test))}


def _leaves_without(file: SourceFile) -> dict[tuple[FunctionNode | None, str], int]:
    """(function, name of a module) -> the first line that leaves, or goes on with the next, where it has no bias."""
    table: dict[tuple[FunctionNode | None, str], int] = {}
    for statement in file.index.of_type(ast.If):
        if isinstance(statement.body[-1], _LEAVES):
            for name in _asked_in(statement.test, file):
                table.setdefault((file.index.function_of(statement), name), statement.lineno)
    return table


def _kinds(bias: ast.Attribute, name: str, file: SourceFile) -> frozenset[str]:
    """What the innermost condition that speaks of kinds says: `isinstance(m, nn.Conv2d)`, `classname.find("Linear") != -1`."""
    for ancestor, child in file.index.ancestors(bias):
        if isinstance(ancestor, FUNCTIONS):
            break
        if isinstance(ancestor, ast.If) and child in ancestor.body:
            kinds = set()
            for part in walk(ancestor.test):
                if isinstance(part, (ast.Name, ast.Attribute)):
                    kinds.add(part.id if isinstance(part, ast.Name) else part.attr)
                elif isinstance(part, ast.Constant) and isinstance(part.value, str):
                    kinds.add(part.value)
            kinds = {kind for kind in kinds if _KIND.match(kind)}
            if kinds:
                return frozenset(kinds)
    return frozenset()
