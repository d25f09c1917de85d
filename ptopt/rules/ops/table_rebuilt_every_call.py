from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import ClassVar

from ptopt.rules.base import Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import quote
from ptopt.rules.ops._pure import TABLES, changes, fixed_attributes, is_deferred
from ptopt.rules.shared.places import frequency_evidence
from ptopt.source.bindings import is_self
from ptopt.source.calls import called_name
from ptopt.source.frequency import Often
from ptopt.source.index import COMPREHENSIONS, FunctionNode, children_of, walk

_FACTORIES = TABLES | {"ones", "zeros", "full"}
_RICH = frozenset("tril triu meshgrid stack cat outer exp sin cos pow".split())
_FEATURES = frozenset({"shape", "device", "dtype"})
_ASKS = frozenset(
    {"size", "dim", "numel", "len", "int", "float", "range", "max", "min", "device", "finfo", "get_device"}
)
_VIEWS = frozenset(
    "view reshape unsqueeze squeeze to type_as float long int half double bool expand expand_as t permute transpose flatten "
    "contiguous cuda cpu type detach".split()
)
_MOVES = frozenset({"to", "type_as", "cuda", "expand", "expand_as", "repeat"})


class TableRebuiltEveryCall(Rule):
    """A table that never changes is computed again in each call.

    ## What it does
    Finds chains of two and more operations in a `forward`, a loss or a training step that start from `arange`, `linspace`,
    `ones`, `eye`, ... and use only numbers, attributes that `__init__` sets, and shapes, devices and types of the inputs:
    position encodings, grids, masks, powers, windows.

    ## Why it is slow
    Each call launches all kernels of the chain for values that were known before.

    ## When this is wrong
    When the shapes differ in each call, or the function is compiled and the chain fused.

    ## Example
    ```python
    def forward(self, x):
        powers = 2 ** torch.arange(self.bits, device=x.device)
        return (x * powers).sum(-1)
    ```

    ## Use instead
    ```python
    def __init__(self, bits):
        super().__init__()
        self.register_buffer("powers", 2 ** torch.arange(bits), persistent=False)
    ```

    ## Fix safety
    No fix: the table moves to `__init__`, or into a cache by length.

    ## Sources
    - [nn.Module.register_buffer](https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html)
    """

    id = "PTO474"
    name = "table-rebuilt-every-call"
    family = "ops"
    most_stated = 0.45
    partly: ClassVar[frozenset[str]] = frozenset({"persistent=False"})
    nodes = (ast.Call,)
    calls = _FACTORIES
    when_wrong = "the shapes differ in each call, or the code is compiled"

    VALID = (
        """
        class Detect(nn.Module):
            def forward(self, x):
                for i in range(len(x)):
                    ny, nx = x[i].shape[2:4]
                    if self.grid[i].shape[2:4] != x[i].shape[2:4]:
                        self.grid[i] = self.make_grid(nx, ny).to(x[i].device)
                    x[i] = x[i] + self.grid[i]
                return x

            def make_grid(self, nx, ny):
                yv, xv = torch.meshgrid([torch.arange(ny), torch.arange(nx)])
                return torch.stack((xv, yv), 2).view((1, 1, ny, nx, 2)).float()
        """,
        """
        class Net(nn.Module):
            def forward(self, x):
                out = torch.zeros(x.shape[0], device=x.device)
                return out + x.sum(-1)
        """,
        """
        class Net(nn.Module):
            def __init__(self, bits):
                super().__init__()
                self.register_buffer("powers", 2 ** torch.arange(bits))
        """,
        """
        class Net(nn.Module):
            def forward(self, x, lengths):
                return torch.arange(x.size(1), device=x.device)[None, :] < lengths[:, None]
        """,
    )
    INVALID = (
        Invalid("""
            class Net(nn.Module):
                def __init__(self, bits):
                    super().__init__()
                    self.bits = bits

                def forward(self, x):
                    powers = 2 ** torch.arange(self.bits, device=x.device)  # !
                    return (x * powers).sum(-1)
        """),
        Invalid("""
            class Attention(nn.Module):
                def forward(self, x):
                    n = x.shape[1]
                    mask = torch.triu(torch.ones(n, n, device=x.device), diagonal=1)  # !
                    return x.masked_fill(mask.bool(), 0)
        """),
        Invalid("""
            class Time(nn.Module):
                def forward(self, t):
                    freqs = torch.exp(-math.log(10000) * torch.arange(0, 128, device=t.device) / 128)  # !
                    return torch.cos(t[:, None] * freqs)
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call) or not _is_torch(node, file) or is_deferred(node, file):
            return
        function = file.index.function_of(node)
        frequency = file.frequencies.of(node)
        if function is None or frequency.often < Often.EVALUATION or _kept(node, function, file):
            return
        callers = [file.index.function_of(call) for call in file.calls.callers(function)]
        if callers and all(caller is not None and "cache" in file.source(caller) for caller in callers):
            return
        table = _Table(function, file)
        root = table.climb(node)
        if root is None or table.first is not node:
            return
        rich = any(
            isinstance(n, ast.Call)
            and called_name(n) in _RICH
            or isinstance(n, ast.BinOp)
            and isinstance(n.op, ast.Pow)
            for n in walk(root)
        )
        if table.operations < (1 if rich else 2 if table.by_shape or called_name(node) not in TABLES else 1):
            return
        through = f", through `{function.name}`"  # the sentence names it already
        yield Problem(
            node,
            f"The table {quote(file, root)} follows from "
            f"{'sizes and ' if table.by_shape else ''}values that do not change between calls, yet `{function.name}` "
            f"computes it {frequency.reason.replace(through, '') or 'in each call'} ({table.operations + 1} operations). "
            + (
                "Keep it by length (a cache, or a buffer for the longest input that is sliced)."
                if table.by_shape
                else "Compute it once in `__init__` and keep it with `register_buffer`."
            ),
            0.3 if table.by_shape else 0.45,
            (frequency_evidence(frequency),) if frequency.line else (),
            subject=root,
            facts={"operations": table.operations + 1, "by_shape": table.by_shape, "copied": table.moves},
        )


class _Table:
    """The largest constant expression around a factory call, followed through local names."""

    def __init__(self, function: FunctionNode, file: SourceFile) -> None:
        self.file, self.function = file, function
        self.operations = 0  # kernels after the factory
        self.moves = 0
        self.by_shape = False
        self.first: ast.AST | None = None
        self._attributes = fixed_attributes(file.index.class_of(function), file)
        self._names: dict[str, bool] = {}
        self._in_factory = 0  # a parameter that is a size there is a number

    def climb(self, node: ast.Call) -> ast.expr | None:
        if not self.constant(node):
            return None
        root: ast.expr = node
        for parent, _ in self.file.index.ancestors(node):
            if isinstance(parent, ast.keyword):
                continue
            if (
                not isinstance(parent, ast.expr)
                or isinstance(parent, (ast.Tuple, ast.List))
                or not self.constant(parent)
            ):
                break
            root = parent
        factories = [n for n in walk(root) if isinstance(n, ast.Call) and _is_torch(n, self.file)]
        self.first = min(factories, key=lambda n: (n.lineno, n.col_offset), default=None)
        for n in walk(root):
            if isinstance(n, ast.BinOp) and not self._is_number(n) or isinstance(n, ast.Compare):
                self.operations += 1
            elif isinstance(n, ast.Call) and n is not self.first:
                name = called_name(n)
                self.moves += name in ("to", "cuda")
                self.operations += name not in _ASKS and name not in _VIEWS or name in ("to", "cuda")
        return root

    def _is_number(self, node: ast.BinOp) -> bool:
        """Arithmetic on sizes, which launches nothing."""
        return not any(isinstance(n, ast.Call) and called_name(n) in _FACTORIES for n in walk(node))

    def constant(self, expr: ast.AST) -> bool:
        """Does its value follow from numbers, fixed attributes, shapes, devices and types alone?"""
        if isinstance(expr, ast.Constant):
            return True
        if isinstance(expr, ast.Attribute):
            if expr.attr in _FEATURES:
                self.by_shape |= expr.attr == "shape"
                return True
            if isinstance(expr.value, ast.Name) and expr.value.id == "self":
                return expr.attr in self._attributes and self._plain(expr)
            return bool(self.file.imports.qualified(expr))
        if isinstance(expr, ast.Name):
            return self._name(expr)
        if isinstance(expr, ast.Call):
            return self._call(expr)
        if (
            isinstance(expr, ast.Subscript)
            and isinstance(expr.value, ast.Attribute)
            and expr.value.attr == "shape"
        ):
            self.by_shape = True
            return True
        if isinstance(
            expr,
            (ast.BinOp, ast.UnaryOp, ast.Compare, ast.Subscript, ast.Tuple, ast.List, ast.Slice, ast.Starred),
        ):
            return all(self.constant(child) for child in children_of(expr))
        return False

    def _plain(self, attribute: ast.Attribute) -> bool:
        """A number, and no module, parameter or buffer that training changes."""
        cls = self.file.index.class_of(self.function)
        value = self.file.bindings.attribute(cls, attribute.attr) if cls is not None else None
        if value is None or any(isinstance(n, COMPREHENSIONS) for n in walk(value)):
            return False
        return self.file.values.of(value).kind in ("scalar", "") and not any(
            isinstance(n, ast.Call) and called_name(n)[:1].isupper() for n in walk(value)
        )

    def _name(self, name: ast.Name) -> bool:
        if self.file.imports.qualified(name):
            return True
        known = self._names.get(name.id)
        if known is None:
            self._names[name.id] = False  # recursion ends here
            bindings = self.file.bindings.of(self.function, name.id)
            known = len(bindings) == 1 and name.id not in changes(self.function, self.file).in_place
            if known and bindings[0].kind == "parameter":
                known = self._in_factory > 0 and self.file.values.of(name).kind in ("", "scalar")
                self.by_shape |= known
            elif known and bindings[0].kind == "unpack" and bindings[0].value is not None:
                known = self._size(bindings[0].value)
            elif known:
                known = (
                    bindings[0].kind == "assign"
                    and bindings[0].value is not None
                    and self.constant(bindings[0].value)
                )
            if name.id == "device" or name.id == "dtype":
                known = True
            self._names[name.id] = known
        return known

    def _size(self, expr: ast.expr) -> bool:
        sized = (
            isinstance(expr, ast.Attribute)
            and expr.attr == "shape"
            or (isinstance(expr, ast.Call) and called_name(expr) == "size")
        )
        self.by_shape |= sized
        return sized

    def _call(self, call: ast.Call) -> bool:
        name, func = called_name(call), call.func
        if name in ("size", "numel", "dim") and isinstance(func, ast.Attribute) or name == "len":
            self.by_shape = True
            return True
        arguments = [*call.args, *(k.value for k in call.keywords)]
        qualified = self.file.imports.qualified(func)
        if qualified or isinstance(func, ast.Name):
            known = (
                qualified.startswith(("torch.", "math.", "numpy."))
                and not name[:1].isupper()
                or name in _ASKS
            )
            if "rand" in name or name in (
                "normal",
                "bernoulli",
                "multinomial",
                "load",
                "empty",
                "empty_like",
            ):
                return False
            self._in_factory += name in _FACTORIES
            known = known and all(self.constant(a) for a in arguments)
            self._in_factory -= name in _FACTORIES
            return known
        if not isinstance(func, ast.Attribute) or not self.constant(func.value) or name.endswith("_"):
            return False
        return name in _MOVES or all(self.constant(a) for a in arguments)


def _is_torch(call: ast.Call, file: SourceFile) -> bool:
    return called_name(call) in _FACTORIES and file.imports.qualified(call.func).startswith("torch.")


def _kept(node: ast.AST, function: FunctionNode, file: SourceFile) -> bool:
    """Is it kept for the next call already, or built in a loop, which is the business of another rule?"""
    if (
        next(file.index.loops_of(node), None) is not None
        or function.decorator_list
        and any("cache" in ast.unparse(d) or "fixture" in ast.unparse(d) for d in function.decorator_list)
    ):
        return True
    if _kept_by_callers(function, file):
        return True
    stored = changes(function, file).at
    return any(key.startswith("self.") for key in stored) or any(
        isinstance(n, ast.Call) and called_name(n) in ("register_buffer", "Parameter", "setattr")
        for n in file.calls.calls_in(function)
    )


def _kept_by_callers(function: FunctionNode, file: SourceFile) -> bool:
    """Do all calls that are known keep the result in an attribute, under a test of what that holds:
    `if self.grid.shape != x.shape: self.grid = self.make(x)`?
    """
    calls = file.calls.callers(function)
    return bool(calls) and all(_is_refill(call, file) for call in calls)


def _is_refill(call: ast.Call, file: SourceFile) -> bool:
    statement = file.index.statement_of(call)
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    kept = {name for target in targets if (name := _attribute(target))}
    return any(
        isinstance(ancestor, ast.If)
        and child in ancestor.body
        and any(isinstance(n, ast.Attribute) and _attribute(n) in kept for n in walk(ancestor.test))
        for ancestor, child in file.index.ancestors(statement)
    )


def _attribute(target: ast.expr) -> str:
    """`grid` of `self.grid` and `self.grid[i]`; else ""."""
    while isinstance(target, ast.Subscript):
        target = target.value
    return target.attr if isinstance(target, ast.Attribute) and is_self(target) else ""
