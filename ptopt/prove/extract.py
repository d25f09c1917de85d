"""The two functions that are compared: the one that a fix changes, and what the fix makes of it."""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ptopt.findings import Finding
from ptopt.prove.given import Given
from ptopt.prove.names import MODULES
from ptopt.prove.parameters import Parameter, parameters_of
from ptopt.prove.purity import check
from ptopt.prove.reasons import Reason, RefusedError
from ptopt.verify import EditError, apply_edits

_NONE: Given = MappingProxyType({})
_ROOTS = frozenset(module.partition(".")[0] for module in MODULES)
_MOST_HELPERS = 8
_FOLDED = "self", "cls"  # first parameters of methods; they may be there, unread


@dataclass(frozen=True, slots=True)
class Side:
    """Source of a function with the constants and functions that it reads; `imports` maps names to what they import."""

    source: str
    imports: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Pair:
    """What is compared. `name` is the function that is called, `symbol` the name that people know."""

    name: str
    symbol: str
    before: Side
    after: Side
    parameters: tuple[Parameter, ...]


def pair_of(finding: Finding, text: str, given: Given = _NONE) -> Pair:
    """The pair of a finding's fix in the file `text`; raises `RefusedError`. What is `given` is not inferred."""
    if finding.fix is None:
        raise RefusedError(Reason.NO_FIX)
    try:
        return compared(text, apply_edits(text, finding.fix.edits), given)
    except (EditError, SyntaxError, ValueError, RecursionError):
        raise RefusedError(Reason.NOT_ONE_FUNCTION, "the file cannot be read as Python") from None


def compared(before: str, after: str, given: Given = _NONE) -> Pair:
    """The pair of the one function in which two versions of a file differ; raises `RefusedError`."""
    old, new = _Module(before), _Module(after)
    changed = [name for name in old.functions if _differs(old.functions[name], new.functions.get(name))]
    if len(changed) != 1 or old.functions.keys() != new.functions.keys() or old.rest() != new.rest():
        raise RefusedError(Reason.NOT_ONE_FUNCTION)
    symbol = changed[0]
    sides = old.side(symbol), new.side(symbol)
    function = old.callable(symbol)
    if ast.dump(function.args) != ast.dump(new.callable(symbol).args):
        raise RefusedError(Reason.NOT_ONE_FUNCTION, "the parameters differ")
    return Pair(function.name, symbol, *sides, parameters_of(function, given.get(symbol, {})))


def _differs(a: ast.FunctionDef, b: ast.FunctionDef | None) -> bool:
    return b is None or ast.dump(a) != ast.dump(b)


class _Module:
    """One version of a file: its functions and methods, imports, and literal constants."""

    def __init__(self, text: str) -> None:
        self.tree = ast.parse(text)
        self.functions = dict(self._functions())
        self.imports = dict(self._imports())
        self.stores = Counter(n.id for n in ast.walk(self.tree) if isinstance(n, ast.Name) and _stored(n))
        self.constants = self._constants()

    def _functions(self) -> Iterator[tuple[str, ast.FunctionDef]]:
        for node in self.tree.body:
            if isinstance(node, ast.FunctionDef):
                yield node.name, node
            elif isinstance(node, ast.ClassDef):
                for item in node.body:
                    if isinstance(item, ast.FunctionDef):
                        yield f"{node.name}.{item.name}", item

    def _imports(self) -> Iterator[tuple[str, str]]:
        for node in self.tree.body:
            if isinstance(node, ast.Import):
                for item in node.names:
                    path = item.name if item.asname else item.name.partition(".")[0]
                    yield item.asname or path, path
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for item in node.names:
                    yield item.asname or item.name, f"{node.module}.{item.name}"

    def _constants(self) -> dict[str, ast.Assign]:
        """Names that the file binds once, to a literal that nothing can change."""
        found = {}
        for node in self.tree.body:
            if isinstance(node, ast.Assign):
                target, value = node.targets[0], node.value
            elif isinstance(node, ast.AnnAssign) and node.value is not None:
                target, value = node.target, node.value
            else:
                continue
            if isinstance(target, ast.Name) and _literal(value) and self.stores[target.id] == 1:
                found[target.id] = ast.Assign([target], value, lineno=0)
        return found

    def rest(self) -> list[str]:
        """All that is neither a function nor an import, for comparison."""
        inner = {id(function) for function in self.functions.values()}
        return [
            ast.dump(item)
            for node in self.tree.body
            if id(node) not in inner and not isinstance(node, (ast.Import, ast.ImportFrom))
            for item in (
                [i for i in node.body if id(i) not in inner] if isinstance(node, ast.ClassDef) else [node]
            )
        ]

    def callable(self, symbol: str) -> ast.FunctionDef:
        """The function as it can be called by itself: a method without an object that it does not read."""
        node = self.functions[symbol]
        function = copy.copy(node)
        if "." not in symbol:
            return function
        static = [d for d in node.decorator_list if isinstance(d, ast.Name) and d.id == "staticmethod"]
        function.decorator_list = [d for d in node.decorator_list if d not in static]
        if static:
            return function
        positional = [*node.args.posonlyargs, *node.args.args]
        first = positional[0].arg if positional else ""
        reads = any(isinstance(n, ast.Name) and n.id in (first, "super") for n in ast.walk(node))
        if first not in _FOLDED or reads:
            raise RefusedError(Reason.NEEDS_OBJECT)
        function.args = copy.copy(node.args)
        if node.args.posonlyargs:
            function.args.posonlyargs = node.args.posonlyargs[1:]
        else:
            function.args.args = node.args.args[1:]
        return function

    def side(self, symbol: str) -> Side:
        """Source of the function and of what it reads of the file; raises `RefusedError` where it is not pure."""
        wanted = [symbol]
        functions: dict[str, ast.FunctionDef] = {}
        constants: dict[str, ast.Assign] = {}
        imports = {n: p for n, p in self.imports.items() if p.partition(".")[0] in _ROOTS}
        plain = {name for name in self.functions if "." not in name and not self.stores[name]}
        used: dict[str, str] = {}
        while wanted:
            name = wanted.pop()
            if name in functions:
                continue
            if len(functions) > _MOST_HELPERS:
                raise RefusedError(Reason.NOT_PURE, "it calls many functions")
            function = functions[name] = self.callable(name)
            for read in check(function, self.imports, frozenset(plain | self.constants.keys())):
                if read in imports:
                    used[read] = imports[read]
                elif read in plain:
                    wanted.append(read)
                elif read in self.constants:
                    constants[read] = self.constants[read]
        body: list[ast.stmt] = [*constants.values(), *reversed(functions.values())]
        if any(name in imports or name in constants for name in functions):
            raise RefusedError(Reason.NOT_PURE, "a function has the name of something else")
        text = "\n\n".join(ast.unparse(ast.fix_missing_locations(node)) for node in body)
        return Side(f"{text}\n", used)


def _stored(node: ast.Name) -> bool:
    return not isinstance(node.ctx, ast.Load)


def _literal(node: ast.expr) -> bool:
    if isinstance(node, ast.Tuple):
        return all(map(_literal, node.elts))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node = node.operand
    return isinstance(node, ast.Constant)
