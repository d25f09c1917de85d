"""One walk over a file's tree: who is whose parent, and which nodes there are of each type.

Everything else that ptopt knows about a file is looked up in this index; no rule walks the tree again.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import chain
from typing import Any, TypeVar, overload

from ptopt.source import work

N = TypeVar("N", bound=ast.AST)
M = TypeVar("M", bound=ast.AST)
K = TypeVar("K", bound=ast.AST)
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
Loop = ast.For | ast.AsyncFor | ast.While
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
LOOPS = (ast.For, ast.AsyncFor, ast.While)
_SCOPES = (*FUNCTIONS, ast.Lambda, ast.ClassDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)

# Fields that hold no node worth visiting: names, operators. Without them, and annotations, the walk is a third cheaper.
_LEAF_FIELDS = frozenset(
    "ctx op ops id attr name arg asname module names level kind type_comment is_async simple conversion "
    "type_ignores kwd_attrs rest tag str".split()
)
_ANNOTATIONS = frozenset({"annotation", "returns", "type_params"})
# Fields that hold code, annotations too, in the order of the source.
CODE_FIELDS: dict[type[ast.AST], tuple[str, ...]] = {
    cls: tuple(f for f in cls._fields if f not in _LEAF_FIELDS)
    for cls in vars(ast).values()
    if isinstance(cls, type) and issubclass(cls, ast.AST)
}
CODE_FIELDS[ast.Constant] = ()
CODE_FIELDS[ast.ExceptHandler] = ("type", "body")  # `name` is text here
CODE_FIELDS[ast.MatchSingleton] = ()
_FIELDS = {cls: tuple(f for f in fields if f not in _ANNOTATIONS) for cls, fields in CODE_FIELDS.items()}
# `walk` also visits annotations, after the rest of a node.
_WALKED = {cls: tuple(sorted(fields, key=_ANNOTATIONS.__contains__)) for cls, fields in CODE_FIELDS.items()}
_PLACELESS = (ast.comprehension, ast.arguments, ast.withitem, ast.match_case)  # without a line
_NONE: list[ast.AST] = []
_SHARED = object()


class Index:
    """Parents and nodes by type, in source order."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self._parent: dict[ast.AST, ast.AST] = {}
        self._class_of: dict[FunctionNode, ast.ClassDef | None] = {}
        self._nodes: defaultdict[type, list[ast.AST]] = defaultdict(list)
        parent, nodes, fields = self._parent, self._nodes, _FIELDS
        names, constants = nodes[ast.Name], nodes[ast.Constant]
        stack: list[ast.AST] = [tree]
        while stack:
            node = stack.pop()
            cls = node.__class__
            nodes[cls].append(node)
            if cls is ast.Name or cls is ast.Constant:  # half of all nodes, and hold no others
                continue
            inner: list[ast.AST] = []
            held = node.__dict__
            for field in fields[cls]:
                child: Any = held.get(field)
                kind = child.__class__
                if kind is list:
                    for element in child:
                        if (
                            element is not None
                        ):  # the key of `**rest` in a dictionary, a parameter without default
                            parent[element] = node
                            inner.append(element)
                elif kind is ast.Name:
                    parent[child] = node
                    names.append(child)
                elif kind is ast.Constant:
                    parent[child] = node
                    constants.append(child)
                elif child is not None:
                    parent[child] = node
                    inner.append(child)
            inner.reverse()
            stack += inner

    @overload
    def of_type(self, a: type[N], /) -> Iterator[N]: ...
    @overload
    def of_type(self, a: type[N], b: type[M], /) -> Iterator[N | M]: ...
    @overload
    def of_type(self, a: type[N], b: type[M], c: type[K], /) -> Iterator[N | M | K]: ...
    @overload
    def of_type(self, *types: type[ast.AST]) -> Iterator[ast.AST]: ...
    def of_type(self, *types: type[ast.AST]) -> Iterator[ast.AST]:
        """Nodes of exactly these classes, in source order within each class."""
        lists = [self._nodes.get(cls, _NONE) for cls in types]
        work.current().charge(sum(map(len, lists)))
        return iter(lists[0]) if len(lists) == 1 else chain.from_iterable(lists)

    @cached_property
    def stored_names(self) -> list[ast.Name]:
        """The names that are given a value or deleted, in source order."""
        load = ast.Load
        return [name for name in self.of_type(ast.Name) if name.ctx.__class__ is not load]

    @cached_property
    def _attributes(self) -> dict[str, list[ast.Attribute]]:
        table: dict[str, list[ast.Attribute]] = {}
        for node in self.of_type(ast.Attribute):
            table.setdefault(node.attr, []).append(node)
        return table

    def attributes_named(self, *names: str) -> list[ast.Attribute]:
        """The attributes of one of these names, in source order of each."""
        return [node for name in names for node in self._attributes.get(name, ())]

    def calls_with(self, *names: str) -> list[ast.Call]:
        """The calls with a keyword argument of one of these names, each once, in source order."""
        calls = (self.parent(keyword) for keyword in self.of_type(ast.keyword) if keyword.arg in names)
        return [call for call in dict.fromkeys(calls) if isinstance(call, ast.Call)]

    @cached_property
    def computed_subscripts(self) -> list[ast.AST]:
        """The subscripts that are no constant and no plain slice."""
        plain = (ast.Constant, ast.Slice)
        return [node for node in self.of_type(ast.Subscript) if node.slice.__class__ not in plain]

    def parent(self, node: ast.AST) -> ast.AST | None:
        return self._parent.get(node)

    def ancestors(self, node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
        """Pairs (ancestor, the child of it that leads to `node`), innermost first."""
        account = work.current()
        child, parent = node, self._parent.get(node)
        while parent is not None:
            account.charge(1)
            yield parent, child
            child, parent = parent, self._parent.get(parent)

    def above(self, node: ast.AST) -> dict[ast.AST, ast.AST]:
        """Each ancestor with the child of it that leads to `node`."""
        parents = self._parent
        found: dict[ast.AST, ast.AST] = {}
        child, parent = node, parents.get(node)
        while parent is not None:
            found[parent] = child
            child, parent = parent, parents.get(parent)
        work.current().charge(len(found))
        return found

    def enclosing(self, node: ast.AST, types: tuple[type[N], ...]) -> N | None:
        """The innermost ancestor of one of `types`; `node` itself does not count."""
        for ancestor, _ in self.ancestors(node):
            if isinstance(ancestor, types):
                return ancestor
        return None

    def function_of(self, node: ast.AST) -> FunctionNode | None:
        """The function in whose body `node` runs. A decorator or a default runs outside of its function."""
        lines, line = self._functions_by_line, getattr(node, "lineno", 0)
        if line < len(lines) and lines[line] is not _SHARED:
            known: FunctionNode | None = lines[line]
            return known
        for ancestor, child in self.ancestors(node):
            if isinstance(ancestor, FUNCTIONS) and child in ancestor.body:
                return ancestor
        return None

    def functions_of(self, nodes: Iterable[N]) -> Iterator[tuple[FunctionNode | None, N]]:
        """Each node with the function in whose body it runs: `function_of`, for many."""
        lines, shared = self._functions_by_line, _SHARED
        for node in nodes:
            known = lines[getattr(node, "lineno", 0)]
            yield (self.function_of(node) if known is shared else known), node

    @cached_property
    def _functions_by_line(self) -> list[Any]:
        """By line, the function whose body it belongs to; `_SHARED` where a header shares it with a body, and for no line."""
        last = max((stmt.end_lineno or 0 for stmt in self.tree.body), default=0)
        table: list[Any] = [_SHARED] + [None] * last
        for function in sorted(self.of_type(*FUNCTIONS), key=lambda f: (f.lineno, -(f.end_lineno or 0))):
            start, end = function.body[0].lineno, function.end_lineno or function.lineno
            if _end_of_header(function) < start:
                table[start : end + 1] = [function] * (end + 1 - start)
            else:
                table[function.lineno : end + 1] = [_SHARED] * (end + 1 - function.lineno)
        return table

    def class_of(self, node: ast.AST) -> ast.ClassDef | None:
        """The innermost class that `node` stands in."""
        parents, known = self._parent, self._class_of
        current = parents.get(node)
        passed: list[FunctionNode] = []
        found: ast.ClassDef | None = None
        steps = 1
        while current is not None:
            if isinstance(current, ast.ClassDef):
                found = current
                break
            if isinstance(current, FUNCTIONS):
                if current in known:
                    found = known[current]
                    break
                passed.append(current)
            current = parents.get(current)
            steps += 1
        work.current().charge(steps)
        known.update(dict.fromkeys(passed, found))
        return found

    def statement_of(self, node: ast.AST) -> ast.stmt:
        """The innermost statement that holds `node` (itself when it is one)."""
        current: ast.AST | None = node
        while current is not None and not isinstance(current, ast.stmt):
            current = self._parent.get(current)
        if current is None:
            raise ValueError(f"{type(node).__name__} stands in no statement")
        return current

    def within(self, node: ast.AST, container: ast.AST) -> bool:
        current: ast.AST | None = node
        steps = 1
        while current is not None and current is not container:
            current = self._parent.get(current)
            steps += 1
        work.current().charge(steps)
        return current is not None

    def loops_of(self, node: ast.AST) -> Iterator[Loop]:
        """Loops of the same function that run `node` once per iteration, innermost first."""
        if getattr(node, "lineno", None) not in self._loop_lines and not isinstance(node, _PLACELESS):
            return
        for ancestor, child in self.ancestors(node):
            if isinstance(ancestor, _SCOPES):
                return
            if isinstance(ancestor, (ast.For, ast.AsyncFor)):
                if (
                    child is not ancestor.iter
                    and child is not ancestor.target
                    and child not in ancestor.orelse
                ):
                    yield ancestor
            elif isinstance(ancestor, ast.While) and child not in ancestor.orelse:
                yield ancestor

    def may_be_in_loop(self, node: ast.stmt | ast.expr) -> bool:
        """Does it start on a line of a loop? Where it does not, no loop runs it."""
        return node.lineno in self._loop_lines

    @cached_property
    def _loop_lines(self) -> frozenset[int]:
        """The lines of all loops."""
        return frozenset(
            line
            for loop in self.of_type(*LOOPS)
            for line in range(loop.lineno, (loop.end_lineno or loop.lineno) + 1)
        )

    def symbol_of(self, node: ast.AST) -> str:
        """Dotted name of the functions and classes around `node`, itself included; "" at module level."""
        names = [node.name] if isinstance(node, (*FUNCTIONS, ast.ClassDef)) else []
        names += [a.name for a, _ in self.ancestors(node) if isinstance(a, (*FUNCTIONS, ast.ClassDef))]
        return ".".join(reversed(names))


def _end_of_header(function: FunctionNode) -> int:
    """The last line of what is evaluated where the function is defined: of parts in source order, that of the last one."""
    args = function.args
    lists = (args.posonlyargs, args.args, args.kwonlyargs, args.defaults, args.kw_defaults)
    last = [parts[-1] for parts in lists if parts]
    ends = [part.end_lineno or 0 for part in (*last, args.vararg, args.kwarg, function.returns) if part]
    return max(function.lineno, *ends, 0)


def is_main_test(test: ast.expr) -> bool:
    """`__name__ == "__main__"`, or what else is asked of the name of the module."""
    return isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and test.left.id == "__name__"


def children_of(node: ast.AST) -> list[ast.AST]:
    """The child nodes of `node` in source order, without operators and contexts."""
    children: list[ast.AST] = []
    for field in _FIELDS[node.__class__]:
        value = getattr(node, field, None)
        if value.__class__ is list:
            children += [child for child in value if child is not None]
        elif value is not None:
            children.append(value)
    work.current().charge(1 + len(children))
    return children


def names_under(roots: Iterable[ast.AST]) -> list[ast.Name]:
    """The names among the nodes and all below them, in no order, without those of annotations; what many analyses look for."""
    fields = _FIELDS
    found: list[ast.Name] = []
    stack = list(roots)
    visited = 0
    while stack:
        node = stack.pop()
        visited += 1
        cls = node.__class__
        if cls is ast.Name:
            found.append(node)  # type: ignore[arg-type]
            continue
        held = node.__dict__
        for field in fields[cls]:
            child: Any = held.get(field)
            kind = child.__class__
            if kind is list:
                stack += [element for element in child if element is not None]
            elif kind is ast.Name:
                visited += 1
                found.append(child)
            elif child is not None and kind is not ast.Constant:
                stack.append(child)
    work.current().charge(visited)
    return found


def walk(root: ast.AST) -> Iterator[ast.AST]:
    """`ast.walk` without operators and contexts, charged."""
    account, fields = work.current(), _WALKED
    level = [root]
    while level:
        account.charge(len(level))
        below: list[ast.AST] = []
        for node in level:
            yield node
            for field in fields[node.__class__]:
                child = getattr(node, field, None)
                if child.__class__ is list:
                    below += [element for element in child if element is not None]
                elif child is not None:
                    below.append(child)
        level = below


def own_nodes(root: ast.AST) -> Iterator[ast.AST]:
    """The nodes under `root` in source order, without those of functions and classes nested in it."""
    account = work.current()
    stack = children_of(root)[::-1]
    while stack:
        node = stack.pop()
        yield node
        cls = node.__class__
        if cls is ast.Name or cls is ast.Constant:
            account.charge(1)
        elif cls not in _SCOPES:
            stack += children_of(node)[::-1]
