"""Frameworks whose loop is not read, and that train what a script hands them as it is: what the script's own code decides.

None of them replaces the attention of a network, adds activation checkpointing, or starts a second process unless it is
called or launched to do so.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from ptopt.audit.live import Live
from ptopt.audit.modules import Module, qualified
from ptopt.audit.origins import Origins
from ptopt.source.index import FUNCTIONS

_PACKAGES: Mapping[str, str] = {
    "homura": "homura", "fastai": "fastai", "Ignite": "ignite", "skorch": "skorch", "Poutyne": "poutyne", "torchnet": "torchnet",
}  # fmt: skip
FOREIGN = frozenset(_PACKAGES)


def calls_of(live: Live, framework: str) -> Iterator[tuple[Module, ast.Call, str]]:
    """The calls that run of what the script imports from the framework, with the dotted name of what is called."""
    package = _PACKAGES.get(framework)
    for module, call, name in live.found(_of_frameworks) if package is not None else ():
        if name.partition(".")[0] == package:
            yield module, call, name


def hands_over_network(live: Live, framework: str) -> bool:
    """Does the framework get a network that the repository defines, and of which no part is of the framework?"""
    package = _PACKAGES.get(framework, "")
    of_framework = {call: module for module, call, _ in calls_of(live, framework)}
    handed = False
    for call, module in of_framework.items():
        for given in (*call.args, *(k.value for k in call.keywords)):
            made = _made_of(live, given, module, with_given=False)
            if any(isinstance(each, ast.ClassDef) and _has_forward(each) for each in made.definitions):
                handed = True
                parts = _made_of(live, given, module, with_given=True)
                if made.lost or not parts.of_others.isdisjoint(of_framework):
                    return False
    defining = (module for function, module in live.functions.items() if function.name == "forward")
    return handed and not any(_imports(module, package) for module in defining)


def _made_of(live: Live, given: ast.expr, module: Module, with_given: bool) -> Origins:
    """Also of what the functions return that are called."""
    origins = Origins(live, with_given)
    origins.follow(given, module)
    seen: set[ast.AST] = set()
    while waiting := [each for each in origins.definitions.items() if each[0] not in seen]:
        for definition, holder in waiting:
            seen.add(definition)
            if isinstance(definition, FUNCTIONS):
                for answer in holder.file.index.of_type(ast.Return):
                    if holder.file.index.function_of(answer) is definition:
                        origins.follow(answer, holder)
    return origins


def _of_frameworks(module: Module, call: ast.Call) -> str | None:
    """The name of what is called, also of `DATASET_REGISTRY("cifar10")(batch_size)`, where one of the packages has it."""
    func = call.func
    while isinstance(func, ast.Call):
        func = func.func
    name = qualified(module, func)
    while isinstance(func, ast.Attribute):
        func = func.value
    imported = isinstance(func, ast.Name) and func.id in module.imported
    return name if imported and name.partition(".")[0] in _PACKAGES.values() else None


def _imports(module: Module, package: str) -> bool:
    return any(not level and name.partition(".")[0] == package for level, name, _ in module.imports)


def _has_forward(cls: ast.ClassDef) -> bool:
    return any(isinstance(part, FUNCTIONS) and part.name == "forward" for part in cls.body)
