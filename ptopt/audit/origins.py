"""What an expression is made of: the classes and functions of the repository, and the calls of other packages, that it comes from.

More than that may be named, as every way that a value may take is followed. Where one is lost, `lost` says so.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Callable, Iterator
from typing import ClassVar

from ptopt.audit.calling import callers, lineage
from ptopt.audit.known import default_of, position_of
from ptopt.audit.live import Live
from ptopt.audit.modules import Module, dotted_name
from ptopt.source.bindings import Binding, is_self
from ptopt.source.calls import last_name
from ptopt.source.index import FUNCTIONS, FunctionNode

_DEEPEST = 60
_MOST_SITES = 24  # calls of one function
# Attributes that are numbers, names or settings, and no part of a network.
_NUMBERS = re.compile(
    r"dim|size|channel|num|width|height|depth|length|dtype|device|config|classes|vocab|shape|name|type|args|opts?$"
)
_SETTINGS = re.compile(r"^_?(args?|arguments|opts?|options|cfg|conf|config|hparams|hps|params|flags)$", re.I)
_ADDING = frozenset({"append", "extend", "add_module", "insert", "update", "add_param_group"})
_OF_TENSORS = frozenset(
    "parameters named_parameters to cuda cpu train eval float half items values keys modules state_dict children".split()
)
_BY_NAME = frozenset({"eval", "globals", "instantiate", "instantiate_from_config", "import_module", "locate"})


class Origins:
    """Of one or more expressions."""

    def __init__(self, live: Live, with_given: bool = True) -> None:
        """`with_given`: what a class or function of the repository is given may be a part of it."""
        self._live = live
        self._with_given = with_given
        self.definitions: dict[ast.AST, Module] = {}  # classes and functions
        self.calls: set[ast.AST] = set()
        self.of_others: set[ast.AST] = set()  # those of other packages
        self.lost = False
        self._seen: set[tuple[object, ...]] = set()

    def follow(self, expr: ast.AST | None, module: Module, depth: int = 0) -> None:
        if (
            expr is None
            or isinstance(expr, (ast.Constant, ast.Compare, ast.JoinedStr))
            or (expr,) in self._seen
        ):
            return
        self._seen.add((expr,))
        if depth > _DEEPEST:
            self.lost = True
            return
        step = self._steps.get(type(expr))
        if step is not None:
            step(self, expr, module, depth + 1)
            return
        for part in _parts(expr):
            self.follow(part, module, depth + 1)

    def _call(self, call: ast.Call, module: Module, depth: int) -> None:
        func = call.func
        name = dotted_name(func)
        found = self._live.modules.resolve(module, name) if name else None
        if found is not None and found[1] is not None:
            self.definitions[found[1]] = found[0]
        elif isinstance(func, ast.Attribute) and name.partition(".")[0] not in module.imported:
            self._method(func, module, depth)
        elif isinstance(func, ast.Name) and name not in module.imported and not hasattr(builtins, name):
            self.follow(func, module, depth)
        elif not name:
            self.follow(func, module, depth)
        self.calls.add(call)
        if found is None:
            self.of_others.add(call)
        last = name.rpartition(".")[2]
        # `getattr(models, name)` is asked for a part that no text names.
        computed = last == "getattr" and len(call.args) > 1 and not isinstance(call.args[1], ast.Constant)
        self.lost |= computed or last in _BY_NAME
        if found is not None and found[1] is not None and not self._with_given:
            return
        for given in (*call.args, *(k.value for k in call.keywords)):
            self.follow(given, module, depth)

    def _method(self, func: ast.Attribute, module: Module, depth: int) -> None:
        self.follow(func.value, module, depth)
        if func.attr not in _OF_TENSORS:
            for method, holder in self._live.methods_named(func.attr):
                self.definitions[method] = holder

    def _attribute(self, expr: ast.Attribute, module: Module, depth: int) -> None:
        name = dotted_name(expr)
        found = self._live.modules.resolve(module, name) if name else None
        if found is not None:
            self._take(*found)
            return
        if expr.attr == "__dict__" and self._take_all(expr.value, module):
            return
        if _NUMBERS.search(expr.attr) or (
            isinstance(expr.value, ast.Name) and _SETTINGS.match(expr.value.id)
        ):
            return
        if is_self(expr):
            self._of_self(expr, module, depth)
        elif name.partition(".")[0] not in module.imported:
            self.follow(expr.value, module, depth)

    def _take(self, module: Module, definition: ast.AST | None) -> None:
        if definition is None:
            self.lost = True  # a module that is handed on: any part of it may be asked for
        else:
            self.definitions[definition] = module

    def _take_all(self, holder: ast.expr, module: Module) -> bool:
        """`models.__dict__[name]`: any definition of the module; False where it is none of the repository."""
        found = self._live.modules.resolve(module, dotted_name(holder)) if dotted_name(holder) else None
        if found is None or found[1] is not None:
            return False
        self.lost |= bool(found[0].stars)
        for name in (*found[0].definitions, *found[0].imported):
            inner = self._live.modules.resolve(found[0], name)
            if inner is not None and inner[1] is not None:
                self.definitions[inner[1]] = inner[0]
        return True

    def _of_self(self, expr: ast.Attribute, module: Module, depth: int) -> None:
        cls = module.file.index.class_of(expr)
        key = (cls, expr.attr)
        if key in self._seen:
            return
        self._seen.add(key)
        found = False
        for holder, owner in self._family(module, cls):
            for node in holder.file.index.attributes_named(expr.attr):
                if not is_self(node) or holder.file.index.class_of(node) is not owner:
                    continue
                parent = holder.file.index.parent(node)
                if isinstance(parent, (ast.Tuple, ast.List)) and isinstance(node.ctx, ast.Store):
                    parent = holder.file.index.parent(parent)
                if isinstance(parent, (ast.Assign, ast.AnnAssign, ast.AugAssign)) and isinstance(
                    node.ctx, ast.Store
                ):
                    found = True
                    self.follow(parent.value, holder, depth)
                elif (added := _added(holder, node)) is not None:
                    for given in added.args:
                        self.follow(given, holder, depth)
        if not found and cls is not None:  # a property, a method, or what a base of another package has
            self.definitions[cls] = module

    def _family(self, module: Module, cls: ast.ClassDef | None) -> Iterator[tuple[Module, ast.ClassDef]]:
        """The class, what it derives from, and what derives from it."""
        yield from lineage(self._live, module, cls)
        for other, holder in self._live.classes.items():
            if other is not cls and any(each is cls for _, each in lineage(self._live, holder, other)):
                yield holder, other

    def _name(self, name: ast.Name, module: Module, depth: int) -> None:
        if _SETTINGS.match(name.id):
            return
        scope = module.file.index.function_of(name)
        while not (found := module.file.bindings.of(scope, name.id)) and scope is not None:
            scope = module.file.index.function_of(scope)
        if not found or (scope is None and name.id in module.definitions):
            self._global(name.id, module, depth)
            return
        key = (scope, name.id, module.path)
        if key in self._seen:
            return
        self._seen.add(key)
        for binding in found:
            self._bound(binding, name.id, scope, module, depth)
        for held in module.file.index.of_type(ast.Name):
            if held.id == name.id and module.file.index.function_of(held) is module.file.index.function_of(
                name
            ):
                added = _added(module, held)
                for given in () if added is None else (*added.args, *(k.value for k in added.keywords)):
                    self.follow(given, module, depth)
                if isinstance(held.ctx, ast.Load) and isinstance(
                    part := module.file.index.parent(held), ast.Subscript
                ):
                    stored = module.file.index.parent(part)
                    if isinstance(stored, ast.Assign) and part in stored.targets:
                        self.follow(stored.value, module, depth)

    def _bound(
        self, binding: Binding, name: str, scope: FunctionNode | None, module: Module, depth: int
    ) -> None:
        if binding.kind != "parameter":
            value = _prepared(binding)
            self.lost |= value is None
            self.follow(value, module, depth)
        elif isinstance(scope, FUNCTIONS):
            self._parameter(scope, name, module, depth)
        else:
            self.lost = True

    def _parameter(self, function: FunctionNode, name: str, module: Module, depth: int) -> None:
        owner = module.file.index.parent(function)
        position = position_of(function, name)
        if isinstance(owner, ast.ClassDef) and position == 0 and name in ("self", "cls"):
            for holder, cls in self._family(module, owner):
                self.definitions[cls] = holder
            return
        calls = callers(self._live, function, module)
        self.lost |= not calls or len(calls) > _MOST_SITES
        for other, call, shift in calls[:_MOST_SITES]:
            at = None if position is None else position - shift
            given = next((k.value for k in call.keywords if k.arg == name), None)
            if given is None and at is not None and 0 <= at < len(call.args):
                given = call.args[at]
            if given is None:
                given = default_of(function, name)
                self.lost |= given is None or any(k.arg is None for k in call.keywords)
                self.follow(given, module, depth)
            else:
                self.follow(given, other, depth)

    def _global(self, name: str, module: Module, depth: int) -> None:
        found = self._live.modules.resolve(module, name)
        if found is not None:
            self._take(*found)
            return
        if name in module.imported:
            self._imported(name, module, depth)
        else:
            self.lost |= not hasattr(builtins, name)

    def _imported(self, name: str, module: Module, depth: int) -> None:
        """What a variable holds that is imported."""
        level, origin, attribute = module.imported.get(name, (0, "", ""))
        if depth > _DEEPEST or (not origin and not level):
            self.lost = True
            return
        path = self._live.modules.find(origin, level, module.path)
        other = self._live.modules.parse(path) if path is not None else None
        if other is None or not attribute:
            return  # of another package
        values = [b.value for b in other.file.bindings.of(None, attribute) if b.value is not None]
        if not values:  # a package hands on what its modules hold
            self._imported(attribute, other, depth + 1)
        for value in values:
            self.follow(value, other, depth)

    def _subscript(self, expr: ast.Subscript, module: Module, depth: int) -> None:
        self.follow(expr.value, module, depth)

    def _choice(self, expr: ast.IfExp, module: Module, depth: int) -> None:
        self.follow(expr.body, module, depth)
        self.follow(expr.orelse, module, depth)

    def _sum(self, expr: ast.BinOp, module: Module, depth: int) -> None:
        if isinstance(expr.op, (ast.Add, ast.BitOr)):  # of lists, of tables
            self.follow(expr.left, module, depth)
            self.follow(expr.right, module, depth)

    def _listed(
        self, expr: ast.ListComp | ast.GeneratorExp | ast.SetComp, module: Module, depth: int
    ) -> None:
        self.follow(expr.elt, module, depth)  # names that it binds lead to what it runs over

    def _table(self, expr: ast.DictComp, module: Module, depth: int) -> None:
        self.follow(expr.value, module, depth)

    _steps: ClassVar[dict[type[ast.AST], Callable[..., None]]] = {
        ast.Call: _call, ast.Attribute: _attribute, ast.Name: _name, ast.Subscript: _subscript, ast.IfExp: _choice,
        ast.BinOp: _sum, ast.ListComp: _listed, ast.GeneratorExp: _listed, ast.SetComp: _listed, ast.DictComp: _table,
    }  # fmt: skip


def _prepared(binding: Binding) -> ast.expr | None:
    """Of `model, loader = accelerator.prepare(model, loader)`, which gives back each argument, the one that the name gets."""
    value = binding.value
    if not (
        isinstance(value, ast.Call)
        and last_name(value.func) in ("prepare", "setup")
        and len(binding.path) == 1
    ):
        return value
    at, plain = binding.path[0], not any(isinstance(given, ast.Starred) for given in value.args)
    return value.args[at] if plain and at < len(value.args) else value


def _parts(expr: ast.AST) -> Iterator[ast.AST]:
    if isinstance(expr, ast.Dict):
        yield from expr.values
    elif isinstance(expr, ast.Lambda):
        yield expr.body
    else:
        yield from ast.iter_child_nodes(expr)


def _added(module: Module, held: ast.expr) -> ast.Call | None:
    """The call of `parts.append(part)`, of what holds the parts."""
    method = module.file.index.parent(held)
    call = (
        module.file.index.parent(method)
        if isinstance(method, ast.Attribute) and method.attr in _ADDING
        else None
    )
    return call if isinstance(call, ast.Call) and call.func is method else None
