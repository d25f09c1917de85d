"""Functions that a command line starts by their names: below a group of click, typer or sacred, or offered by `fire.Fire()`.

No code calls them, so nothing else leads to them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.audit.modules import Module, dotted_name
from ptopt.source.calls import last_name
from ptopt.source.index import FUNCTIONS, FunctionNode

_DECORATES = frozenset({"command", "callback", "main"})  # `@app.command()`; `@experiment.main` of sacred
# Calls that offer what they are given, without arguments all that the module defines: name -> package.
_OFFERS = {"Fire": "fire", "CLI": "jsonargparse", "auto_cli": "jsonargparse"}
Offered = tuple[FunctionNode, ast.AST]  # with the code that offers it


def offered(module: Module) -> list[Offered]:
    """The functions and methods of a script that a command starts by name."""
    return module.once(_offered, module.file.tree)


def _offered(module: Module, _: ast.Module) -> list[Offered]:
    return [*_decorated(module), *_by_calls(module)]


def _decorated(module: Module) -> Iterator[Offered]:
    """Below `@app.command()`, where `app` is a variable or function of the script: `@click.command()` is called by its name."""
    for definition in module.definitions.values():
        if isinstance(definition, FUNCTIONS):
            for decorator in definition.decorator_list:
                name = dotted_name(decorator.func if isinstance(decorator, ast.Call) else decorator)
                holder, _, last = name.partition(".")
                if last in _DECORATES and (holder in module.definitions or _is_variable(module, holder)):
                    yield definition, decorator
                    break


def _is_variable(module: Module, name: str) -> bool:
    return any(binding.kind == "assign" for binding in module.file.bindings.of(None, name))


def _by_calls(module: Module) -> Iterator[Offered]:
    for call in module.file.index.of_type(ast.Call):
        name = last_name(call.func)
        if name not in _OFFERS or not _is_of(module, call.func, _OFFERS[name]):
            continue
        given = call.args[0] if call.args else None
        if given is None:
            yield from ((each, call) for each in module.definitions.values() if isinstance(each, FUNCTIONS))
            continue
        named = dotted_name(given.func if isinstance(given, ast.Call) else given)
        cls = module.definitions.get(named)
        if isinstance(cls, ast.ClassDef):
            methods = [each for each in cls.body if isinstance(each, FUNCTIONS)]
            yield from ((each, call) for each in methods if not each.name.startswith("_"))


def _is_of(module: Module, func: ast.expr, package: str) -> bool:
    origin = module.imported.get(dotted_name(func).partition(".")[0])
    return origin is not None and not origin[0] and origin[1].partition(".")[0] == package


def is_offered(module: Module, function: FunctionNode) -> bool:
    return any(each is function for each, _ in offered(module))
