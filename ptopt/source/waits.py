"""Where a piece of code waits for the device: reads of tensor values, copies to the host, shapes that depend on data."""

from __future__ import annotations

import ast
import re
from bisect import bisect_left, bisect_right
from functools import cached_property

from ptopt.source.bindings import Bindings
from ptopt.source.calls import CallGraph, called_name, last_name
from ptopt.source.guards import Guards
from ptopt.source.imports import Imports
from ptopt.source.index import FunctionNode, Index, Loop
from ptopt.source.values import Values

_READS = frozenset({"item", "tolist", "cpu", "numpy", "is_nonzero"})
_DATA_SHAPED = frozenset({"nonzero", "masked_select", "unique", "unique_consecutive", "argwhere", "bincount"})
# Measured, as all here: benchmarks/gpu/results/waits.md. Those of torch.linalg look at the status of a factorisation.
_CHECKED = frozenset(
    "inv inverse solve cholesky eigh eigvalsh svd pinv lstsq matrix_rank ctc_loss combinations".split()
)
_UNLESS = {  # they wait for a size or a range that these arguments would give: name -> arguments, how many are enough
    "one_hot": (("num_classes",), 2),
    "where": (("input", "other"), 3),
    "histc": (("min", "max"), 4),
    "repeat_interleave": (("output_size",), 4),
}
_TELLING = frozenset({"equal", "allclose", "is_nonzero"})  # torch functions that give a Python bool
_CASTS = frozenset({"float", "int", "bool", "print", "str"})
_BOOLS = frozenset(  # methods and torch functions that give a tensor of bool
    "bool isnan isfinite isinf logical_not logical_and logical_or eq ne gt ge lt le".split()
)
_SIZES = frozenset(
    {"range", "max", "min"}
)  # of Python: they ask a tensor for a number, or whether it is larger
_SHOWING = frozenset({"set_postfix", "set_description", "format", "info", "debug", "add_scalar", "write"})
_MASK_NAME = re.compile(r"(^|_)(mask|masks|valid|keep|is_\w+)$")
_MOST = 8  # waits of an iteration that are named: more say nothing new
_MOST_ASKED = 64  # of which are asked whether they are other ones
_DEEPEST = 2  # calls into functions of the file that are followed
_CPU = re.compile(r"""^(torch\.device\()?["']cpu["']\)?$""")


class Waits:
    """The waits of one file, by function."""

    def __init__(
        self,
        index: Index,
        imports: Imports,
        calls: CallGraph,
        values: Values,
        guards: Guards,
        bindings: Bindings,
    ) -> None:
        self._index = index
        self._imports = imports
        self._calls = calls
        self._values = values
        self._guards = guards
        self._bindings = bindings
        self._blocking: dict[Loop | FunctionNode, int] = {}
        self._iterations: dict[Loop | FunctionNode, tuple[ast.AST, ...]] = {}
        self._named: dict[Loop | FunctionNode, list[ast.AST]] = {}

    def is_wait(self, node: ast.AST) -> bool:
        """Does the expression make Python wait for the device, as far as the file tells?"""
        if isinstance(node, ast.Call):
            return self._call_waits(node)
        if isinstance(node, (ast.If, ast.While, ast.Assert, ast.IfExp)):
            return self.branch_tensor(node.test) is not None
        if isinstance(node, ast.Subscript):
            return self.selects_by_mask(node)
        if isinstance(node, (ast.For, ast.comprehension)):
            return self._on_device(node.iter)
        return False

    def is_unavoidable(self, node: ast.AST) -> bool:
        """Does it wait by what it is for: a gradient scaler's step, generation, a beam, a distribution's checks, meters?"""
        if not isinstance(node, ast.Call):
            return False
        name, func = called_name(node), node.func
        qualified = self._imports.qualified(func)
        if qualified.startswith("k2.") or name == "linear_sum_assignment":
            return True
        if qualified.startswith("torch.distributions."):
            return not any(k.arg == "validate_args" for k in node.keywords)
        if not isinstance(func, ast.Attribute):
            return False
        receiver = last_name(func.value).lower()
        if name == "step":
            return "scaler" in receiver
        if name == "update":
            named = receiver.endswith(("metric_logger", "meter", "meters"))
            return named and any(self._meter_reads(keyword) for keyword in node.keywords)
        return name == "generate" and "tokenizer" not in receiver

    def _meter_reads(self, keyword: ast.keyword) -> bool:
        """Does a meter read this one off the device: a tensor, or the values of a dictionary? A number it only adds up."""
        value = self._values.of(keyword.value)
        return self._on_device(keyword.value) or (keyword.arg is None and not value.kind)

    def _likely_mask(self, node: ast.AST) -> bool:
        """`x[mask]`, by the name alone: enough for another wait beside one that is sure."""
        if not isinstance(node, ast.Subscript) or not isinstance(node.ctx, ast.Load):
            return False
        index = node.slice.operand if isinstance(node.slice, ast.UnaryOp) else node.slice
        return bool(_MASK_NAME.search(last_name(index))) and self._values.of(node.value).kind in (
            "tensor",
            "",
        )

    def _frees(self, node: ast.AST) -> bool:
        """`torch.cuda.empty_cache()`: it frees what an iteration has left, and the driver waits before it frees memory.

        With nothing to free it does not wait, so that it is only named beside a wait that is sure.
        """
        return isinstance(node, ast.Call) and self._imports.qualified(node.func) == "torch.cuda.empty_cache"

    def branch_tensor(self, test: ast.expr) -> ast.expr | None:
        """The part of a condition whose truth is read off a device tensor, or None.

        A bare name is more often a flag, or a tensor or None, than a tensor of one element.
        """
        if isinstance(test, ast.BoolOp):
            found = (self.branch_tensor(value) for value in test.values)
            return next((tensor for tensor in found if tensor is not None), None)
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return self.branch_tensor(test.operand)
        if isinstance(test, ast.Call):
            if isinstance(test.func, ast.Name) and test.func.id == "bool" and test.args:
                return self.branch_tensor(test.args[0])
            if self.gives_bool(test):
                return test
        if not isinstance(test, (ast.Compare, ast.Call)):
            return None
        return test if self._on_device(test) else None

    def gives_bool(self, call: ast.Call) -> bool:
        """`torch.equal(a, b)`, `torch.allclose(a, b)`: a Python bool, so the device's answer is awaited."""
        name = self._imports.qualified(call.func)
        if name.startswith("torch."):
            of = call.args
            known = name.removeprefix("torch.") in _TELLING
        else:
            of = [call.func.value] if isinstance(call.func, ast.Attribute) else []
            known = bool(of) and called_name(call) in _TELLING and self._on_device(of[0])
        return known and all(self._values.of(arg).device != "cpu" for arg in of)

    def is_mask(self, expr: ast.expr, depth: int = 0, *, anywhere: bool = False) -> bool:
        """Is it a tensor of bool: a comparison of tensors, one negated or joined, or a name bound to one?

        One that is known to be on the CPU counts where it may be `anywhere`.
        """
        if depth > 4:
            return False
        if isinstance(expr, ast.UnaryOp) and isinstance(expr.op, ast.Invert):
            return self.is_mask(expr.operand, depth + 1, anywhere=anywhere)
        if isinstance(expr, ast.BinOp) and isinstance(expr.op, (ast.BitAnd, ast.BitOr)):
            return any(self.is_mask(side, depth + 1, anywhere=anywhere) for side in (expr.left, expr.right))
        if isinstance(expr, ast.Name):
            binding = self._bindings.last_before(expr)
            assigned = binding is not None and binding.kind == "assign"
            value = binding.value if assigned and binding is not None else None
            return value is not None and self.is_mask(value, depth + 1, anywhere=anywhere)
        compares = isinstance(expr, ast.Compare) or (
            isinstance(expr, ast.Call) and isinstance(expr.func, ast.Attribute) and expr.func.attr in _BOOLS
        )
        known = self._values.of(expr) if compares else None
        return known is not None and known.kind == "tensor" and (anywhere or known.device != "cpu")

    def selects_by_mask(self, node: ast.Subscript) -> bool:
        """`x[mask]` where it is read, `x[:n]` by a tensor: how many elements it has is known to the device alone.

        So it is where `x[mask] += y` and `x[mask, index] = y` write; `x[mask] = 0` alone fills without a wait.
        """
        if isinstance(node.slice, ast.Constant):
            return False
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if isinstance(node.ctx, ast.Load):
            if any(isinstance(part, ast.Slice) and self._ends_on_device(part) for part in parts):
                return True
        elif not isinstance(self._index.parent(node), ast.AugAssign):
            chosen = [part for part in parts if not isinstance(part, (ast.Slice, ast.Constant))]
            if len(chosen) < 2 or isinstance(node.ctx, ast.Del):
                return False
        kind = self._values.of(node.value).kind
        return kind in ("tensor", "") and any(
            self.is_mask(part) or (kind == "tensor" and self._is_compared(part)) for part in parts
        )

    def _is_compared(self, index: ast.expr) -> bool:
        """Is it a comparison, or a name bound to one? What indexes a tensor is then a mask: hardly one Python bool."""
        if isinstance(index, ast.Name):
            binding = self._bindings.last_before(index)
            assigned = binding is not None and binding.kind == "assign" and binding.value is not None
            index = binding.value if assigned and binding is not None and binding.value is not None else index
        return (
            isinstance(index, ast.Compare)
            and not any(isinstance(op, (ast.In, ast.NotIn, ast.Is, ast.IsNot)) for op in index.ops)
            and self._values.of(index.left).kind != "scalar"
            and self._values.of(index).kind in ("tensor", "")
            and self._values.of(index).device != "cpu"
        )

    def _ends_on_device(self, part: ast.Slice) -> bool:
        return any(end is not None and self._on_device(end) for end in (part.lower, part.upper, part.step))

    def in_iteration(self, scope: Loop | FunctionNode) -> tuple[ast.AST, ...]:
        """Every wait in one iteration of a loop, or one call of a function, in source order; rare ones left out.

        Waits in functions of the file that it calls count, as the call.
        """
        known = self._iterations.get(scope)
        if known is None:
            known = self._iterations[scope] = tuple(
                node
                for node in self._candidates_in(scope)
                if self._index.within(node, scope)
                and self._waits(node, _DEEPEST)
                and self._guards.rare(node, scope) is None
            )
        return known

    def reads_in(self, loop: Loop) -> tuple[ast.AST, ...]:
        """The waits of an iteration, and its texts that show a tensor; rare ones left out."""
        shown = (
            node
            for node in self._index.of_type(ast.FormattedValue, ast.Call)
            if self._index.within(node, loop)
            and self._shows_tensor(node)
            and self._guards.rare(node, loop) is None
        )
        return (*self.in_iteration(loop), *shown)

    def _shows_tensor(self, node: ast.FormattedValue | ast.Call) -> bool:
        if isinstance(node, ast.FormattedValue):
            return self._on_device(node.value)
        given = [*node.args, *(keyword.value for keyword in node.keywords)]
        return called_name(node) in _SHOWING and any(map(self._on_device, given))

    def _candidates_in(self, scope: Loop | FunctionNode) -> list[ast.AST]:
        """What may wait on the lines of the scope."""
        found = self._candidates.get(self._function_of(scope), [])
        start = bisect_left(found, scope.lineno, key=_line)
        return found[start : bisect_right(found, scope.end_lineno or scope.lineno, key=_line)]

    def others(self, node: ast.AST, scope: Loop | FunctionNode) -> tuple[ast.AST, ...]:
        """The first waits of the iteration that are no part of the statement of `node`, at most eight."""
        own = self._index.statement_of(node)
        compound = hasattr(own, "body")  # of an `if` or `while`, only the test is the wait
        found: list[ast.AST] = []
        for wait in self._named_in(scope)[:_MOST_ASKED]:
            apart = wait is not own if compound else self._index.statement_of(wait) is not own
            if apart and not self._index.within(wait, node) and not self._guards.exclusive(node, wait, scope):
                found.append(wait)
                if len(found) == _MOST:
                    break
        return tuple(found)

    def _named_in(self, scope: Loop | FunctionNode) -> list[ast.AST]:
        """The waits of an iteration, and what only waits beside them, in source order."""
        known = self._named.get(scope)
        if known is None:
            cleared = (
                node
                for node in self._candidates_in(scope)
                if self._frees(node)
                and self._index.within(node, scope)
                and self._guards.rare(node, scope) is None
            )
            known = self._named[scope] = sorted((*self.in_iteration(scope), *cleared), key=_line)
        return known

    def blocking_copies(self, scope: Loop | FunctionNode) -> int:
        """How many statements of the iteration copy to the device without `non_blocking`."""
        if scope not in self._blocking:
            self._blocking[scope] = len(self._blocking_statements(scope))
        return self._blocking[scope]

    def _blocking_statements(self, scope: Loop | FunctionNode) -> set[ast.stmt]:
        return {
            self._index.statement_of(call)
            for call in self._candidates_in(scope)
            if isinstance(call, ast.Call)
            and called_name(call) in ("to", "cuda")
            and self._index.within(call, scope)
            and not any(k.arg == "non_blocking" for k in call.keywords)
            and not goes_to_cpu(call)
            and self._guards.rare(call, scope) is None
        }

    def _function_of(self, scope: Loop | FunctionNode) -> FunctionNode | None:
        return (
            scope
            if isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef))
            else self._index.function_of(scope)
        )

    @cached_property
    def _candidates(self) -> dict[FunctionNode | None, list[ast.AST]]:
        """Function -> what may wait in it: calls by a telling name, conditions, calls of functions of the file."""
        table: dict[FunctionNode | None, list[ast.AST]] = {}
        names = (
            _READS
            | _DATA_SHAPED
            | _CHECKED
            | _UNLESS.keys()
            | _CASTS
            | _TELLING
            | _SIZES
            | {"synchronize", "to", "cuda", "get_scale", "empty_cache"}
        )
        for call in self._index.of_type(ast.Call):
            name = called_name(call)
            if name in names or self._calls.resolve(call) is not None or self.is_unavoidable(call):
                table.setdefault(self._index.function_of(call), []).append(call)
        for node in self._index.of_type(ast.If, ast.While, ast.Assert):
            table.setdefault(self._index.function_of(node), []).append(node)
        slices = (
            node
            for node in self._index.of_type(ast.Subscript)
            if isinstance(node.slice, ast.Slice) and not _has_plain_ends(node.slice)
        )
        for subscript in (*self._index.computed_subscripts, *slices):
            table.setdefault(self._index.function_of(subscript), []).append(subscript)
        for found in table.values():
            found.sort(key=lambda n: (n.lineno, n.col_offset))  # type: ignore[attr-defined]
        return table

    def _waits(self, node: ast.AST, depth: int) -> bool:
        if self.is_wait(node) or self.is_unavoidable(node) or self._likely_mask(node):
            return True
        target = self._calls.resolve(node) if isinstance(node, ast.Call) and depth else None
        return target is not None and self._function_waits(target, depth - 1)

    def _function_waits(self, function: FunctionNode, depth: int) -> bool:
        key = (function, depth)
        known = self._known.get(key)
        if known is None:
            self._known[key] = False  # recursion ends here
            known = self._known[key] = any(
                self._waits(node, depth) and self._guards.rare(node, function) is None
                for node in self._candidates.get(function, ())
            )
        return known

    @cached_property
    def _known(self) -> dict[tuple[FunctionNode, int], bool]:
        return {}

    def _call_waits(self, call: ast.Call) -> bool:
        name, func = called_name(call), call.func
        if name == "synchronize":
            return "torch" in (self._imports.qualified(func) or "torch")
        if isinstance(func, ast.Name) and not self._imports.qualified(func):
            if name in _SIZES:  # `max(t)` of one tensor goes over its elements: it waits as well
                return any(self._on_device(arg) for arg in call.args)
            return name in _CASTS and any(self._on_device(arg) for arg in call.args)
        if name in _TELLING and self.gives_bool(call):
            return True
        if self._imports.qualified(func).startswith("torch."):
            waits = name in _DATA_SHAPED or name in _CHECKED or self._asks_for_size(call, 0)
            return waits and any(self._on_device(arg) for arg in call.args)
        if not isinstance(func, ast.Attribute):
            return False
        if name == "get_scale":
            return "scaler" in ast.unparse(func.value).lower()
        if name == "numpy":  # of a tensor on a device it raises: what waits is the copy before it
            return isinstance(func.value, ast.Call) and self._call_waits(func.value)
        if name in _READS:
            value = self._values.of(_chain_start(func.value))
            if name == "item" and self._values.is_made_on_host(func.value):
                return False
            return value.device != "cpu" and (
                value.kind == "tensor" or (name in ("item", "cpu") and not value.kind)
            )
        if name in _DATA_SHAPED or name in _CHECKED or self._asks_for_size(call, 1):
            return self._on_device(func.value)
        return (
            name == "to" and self._on_device(func.value) and goes_to_cpu(call) and not is_asynchronous(call)
        )

    def _asks_for_size(self, call: ast.Call, bound: int) -> bool:
        """Is it a call of `_UNLESS` without those arguments? `bound`: of its arguments one is the receiver."""
        name = called_name(call)
        if name not in _UNLESS or any(isinstance(arg, ast.Starred) for arg in call.args):
            return False
        given, enough = _UNLESS[name]
        if len(call.args) + bound >= enough or any(k.arg in (None, *given) for k in call.keywords):
            return False
        if name != "repeat_interleave":
            return True
        repeats = [*call.args[1 - bound :], *(k.value for k in call.keywords if k.arg == "repeats")]
        return any(self._on_device(arg) for arg in repeats[:1])

    def _on_device(self, expr: ast.expr) -> bool:
        return self._values.is_on_device(expr)


def _line(node: ast.AST) -> int:
    return node.lineno  # type: ignore[attr-defined, no-any-return]


def goes_to_cpu(call: ast.Call) -> bool:
    """`x.to("cpu")`, `x.to(device="cpu", dtype=...)`, `x.to(torch.device("cpu"))`."""
    target = next((k.value for k in call.keywords if k.arg == "device"), call.args[0] if call.args else None)
    return target is not None and bool(_CPU.match(ast.unparse(target)))


def _has_plain_ends(part: ast.Slice) -> bool:
    plain = (ast.Constant, ast.UnaryOp, ast.Call)
    return all(end is None or isinstance(end, plain) for end in (part.lower, part.upper))


def is_asynchronous(call: ast.Call) -> bool:
    """`non_blocking=True`: what follows must wait by itself before it reads the copy."""
    return any(k.arg == "non_blocking" and ast.unparse(k.value) == "True" for k in call.keywords)


def _chain_start(expr: ast.expr) -> ast.expr:
    """`loss` of `loss.detach().cpu()`: the value that the copy starts from."""
    while (
        isinstance(expr, ast.Call)
        and isinstance(expr.func, ast.Attribute)
        and expr.func.attr in ("detach", "cpu", "float", "clone")
    ):
        expr = expr.func.value
    return expr
