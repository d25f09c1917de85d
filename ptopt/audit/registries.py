"""Tables that decorators fill with the classes and functions below them: `@register("edsr")`, `@MODELS.register_module()`.

What a script takes from such a table by a name it runs, though nothing in the code names it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from ptopt.audit.modules import Definition, Module, Modules, dotted_name
from ptopt.source.index import FUNCTIONS, FunctionNode

_MOST_HOPS = 8  # imports from one module to the next
_REGISTERS = re.compile(r"^_?register", re.I)
_REGISTRY = re.compile(r"Registr(y|ar)$|Register$|Factory$")  # what makes a table of another package
_PARTS = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Table:
    """A variable of a module, or a class, that holds definitions by their names."""

    path: str
    name: str


@dataclass(frozen=True, slots=True)
class Registered:
    """A definition below a decorator that puts it into a table. `kind`: "model" of `@registry.register_model`."""

    table: Table
    kind: str
    keys: tuple[str, ...]
    module: Module
    definition: Definition

    def is_named_by(self, words: frozenset[str]) -> bool:
        """Do the words hold one of its keys, of which each may consist of several: `edsr-baseline`?"""
        return any(words.issuperset(_PARTS.findall(key)) for key in self.keys)

    def is_asked_by(self, method: str) -> bool:
        """Does a method of the table ask for things of this kind: not `get_processor` for a model?"""
        return self.kind in ("", "module", "class") or self.kind in method.lower() or "_" not in method


def registered(modules: Modules, module: Module) -> list[Registered]:
    """What decorators of the module put into tables."""
    found = []
    for definition in module.definitions.values():
        for decorator in definition.decorator_list:
            called = decorator.func if isinstance(decorator, ast.Call) else decorator
            name = dotted_name(called)
            table = _filled_by(modules, module, name) if name else None
            if table is not None:
                kind = _REGISTERS.sub("", name.rpartition(".")[2]).strip("_").lower() if "." in name else ""
                found.append(Registered(table, kind, _keys(decorator, definition), module, definition))
    return found


def _keys(decorator: ast.expr, definition: Definition) -> tuple[str, ...]:
    given = (
        [*decorator.args, *(k.value for k in decorator.keywords)] if isinstance(decorator, ast.Call) else []
    )
    texts = [node.value for node in given if isinstance(node, ast.Constant)]
    return tuple(text for text in texts if isinstance(text, str)) or (definition.name,)


def _filled_by(modules: Modules, module: Module, name: str) -> Table | None:
    """The table into which a decorator of this name puts what stands below it; None where it is none that is known."""
    found = modules.resolve(module, name)
    if found is not None and isinstance(found[1], FUNCTIONS):
        held = found[0].once(_stores_in, found[1])
        return Table(found[0].path, held) if held else None
    holder, _, method = name.rpartition(".")
    if not holder or not _REGISTERS.match(method):
        return None
    own = modules.resolve(module, holder)
    if own is not None:
        return Table(own[0].path, own[1].name) if isinstance(own[1], ast.ClassDef) else None
    variable = variable_of(modules, module, holder)
    if variable is None or variable[2]:
        return None
    where, held, _ = variable
    makers = [b.value for b in where.file.bindings.of(None, held) if b.kind == "assign"]
    made = makers[0] if len(makers) == 1 else None
    if not isinstance(made, ast.Call):
        return None
    kind = modules.resolve(where, dotted_name(made.func)) if dotted_name(made.func) else None
    if kind is not None and isinstance(kind[1], ast.ClassDef):
        methods = {part.name for part in kind[1].body if isinstance(part, FUNCTIONS)}
        return Table(where.path, held) if method in methods else None
    return Table(where.path, held) if _REGISTRY.search(dotted_name(made.func)) else None


def _stores_in(module: Module, function: FunctionNode) -> str:
    """The dictionary of the module in which a function, or one nested in it, puts what it is given; "" where there is none."""
    given = {
        parameter.arg
        for each in ast.walk(function)
        if isinstance(each, FUNCTIONS)
        for parameter in (*each.args.posonlyargs, *each.args.args)
    }
    for assign in ast.walk(function):
        if not isinstance(assign, ast.Assign) or not isinstance(assign.value, ast.Name):
            continue
        for target in assign.targets:
            held = target.value if isinstance(target, ast.Subscript) else None
            if isinstance(held, ast.Name) and assign.value.id in given and _is_table(module, held.id):
                return held.id
    return ""


def _is_table(module: Module, name: str) -> bool:
    made = [b.value for b in module.file.bindings.of(None, name) if b.kind == "assign"]
    return bool(made) and all(
        isinstance(value, ast.Dict)
        or (isinstance(value, ast.Call) and "dict" in dotted_name(value.func).lower())
        for value in made
    )


def variable_of(
    modules: Modules, module: Module, name: str, hops: int = 0
) -> tuple[Module, str, list[str]] | None:
    """The variable that a dotted name means, with its module and the attributes behind it; None of anything else."""
    first, *rest = name.split(".")
    if hops > _MOST_HOPS:
        return None
    if any(binding.kind == "assign" for binding in module.file.bindings.of(None, first)):
        return module, first, rest
    level, origin, attribute = module.imported.get(first, (0, "", ""))
    path = modules.find(origin, level, module.path) if attribute else None
    other = modules.parse(path) if path is not None and path != module.path else None
    if other is not None:
        found = variable_of(modules, other, ".".join([attribute, *rest]), hops + 1)
        if found is not None:
            return found
    for taken in range(1, len(rest) + 1):
        inner = modules.resolve(module, ".".join([first, *rest][:taken]))
        if inner is not None and inner[1] is None and inner[0] is not module:
            return variable_of(modules, inner[0], ".".join([first, *rest][taken:]), hops + 1)
    return None


def asked(
    modules: Modules, module: Module, names: list[tuple[str, ast.AST]], tables: Collection[Table]
) -> Iterator[tuple[Table, str, ast.AST]]:
    """The tables that functions take something from, each with the method that is called and where that stands."""
    by_name = {table.name for table in tables}
    for name, node in names:
        if by_name.isdisjoint(name.split(".")):
            continue
        function = module.file.index.function_of(node)
        if function is None:
            continue
        own = modules.resolve(module, name) or modules.resolve(module, name.rpartition(".")[0])
        if own is not None and isinstance(own[1], ast.ClassDef):
            table, rest = Table(own[0].path, own[1].name), name.split(".")[1:]
        else:
            found = variable_of(modules, module, name)
            if found is None:
                continue
            table, rest = Table(found[0].path, found[1]), found[2]
        if table not in tables or (rest and _REGISTERS.match(rest[0])):
            continue
        if not rest and module.path == table.path and _is_filled_in(module, function, table.name):
            continue
        yield table, rest[0] if rest else "", node


def _is_filled_in(module: Module, function: FunctionNode, name: str) -> bool:
    """Is it the function that fills the table, or one nested in it?"""
    outer: FunctionNode | None = function
    while outer is not None:
        if module.once(_stores_in, outer) == name:
            return True
        outer = module.file.index.function_of(outer)
    return False
