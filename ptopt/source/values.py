"""Light local facts: is this expression a tensor, where does it live, does it carry a graph?

Flow-insensitive across branches, lexical within a function: the last binding before a use counts. What cannot
be determined is `UNKNOWN`, and rules stay silent on it.
"""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from functools import cached_property

from ptopt.source.annotations import annotated
from ptopt.source.bindings import Bindings, is_self
from ptopt.source.calls import CallGraph, called_name, last_name
from ptopt.source.host import Anywhere, HostNames
from ptopt.source.imports import Imports
from ptopt.source.index import FunctionNode, Index
from ptopt.source.torch_names import KEEPS_TENSOR
from ptopt.source.value import ON_HOST, SCALAR, UNKNOWN, Value, graph_of
from ptopt.source.values_of_names import ValuesOfNames

_MAX_DEPTH = 80  # of expressions and names that follow from each other; real code stays far below
_LOSS_NAME = re.compile(r"(^|_)(loss|losses)(_|$|\d)|^loss|loss$", re.I)


class Values(ValuesOfNames):
    """Facts about expressions of one file, computed on demand and remembered."""

    def __init__(
        self,
        index: Index,
        imports: Imports,
        calls: CallGraph,
        bindings: Bindings,
        host: HostNames | Anywhere | None = None,
        *,
        in_full: bool = False,
    ) -> None:
        super().__init__(index, imports, calls, bindings)
        self._in_full = in_full  # as of `Repository`
        self._host = host or HostNames(index, imports, calls, bindings)
        self._known: dict[ast.expr, Value] = {}
        self._entries: dict[tuple[FunctionNode | None, str], dict[str, list[ast.expr]]] = {}
        self._depth = 0

    def of(self, expr: ast.expr) -> Value:
        known = self._known.get(expr)
        if known is not None:
            return known
        if self._depth > _MAX_DEPTH:
            return UNKNOWN
        self._known[expr] = UNKNOWN  # recursion (x = f(x) in a loop) ends here
        self._depth += 1
        try:
            value = self._known[expr] = self._evaluate(expr)
        finally:
            self._depth -= 1
        return value

    def is_made_on_host(self, expr: ast.expr) -> bool:
        """`psnr(truth, image)` of an array, `psnr(made.cpu(), truth)`: what takes one works on the host.

        Torch mixes no tensors of the host with those of a device.
        """
        if isinstance(expr, ast.Name):
            binding = self._bindings.last_before(expr)
            made = binding.value if binding is not None and binding.kind == "assign" else None
            return isinstance(made, ast.Call) and self.is_made_on_host(made)
        if not isinstance(expr, ast.Call):
            return False
        given = [self.of(argument) for argument in expr.args]
        if not given and _stays(expr) and isinstance(expr.func, ast.Attribute):
            return isinstance(expr.func.value, ast.Call) and self.is_made_on_host(expr.func.value)
        if any(map(_is_host_copy, [*expr.args, *(keyword.value for keyword in expr.keywords)])):
            return True
        return any(value.kind == "array" for value in given) or (
            bool(given) and all(value.kind == "tensor" and value.device == "cpu" for value in given)
        )

    def is_a(self, expr: ast.expr, *kinds: str) -> bool:
        """Is it of one of these kinds? Where names lie, which takes callers in other files to find out, is asked last."""
        if self._in_full or expr in self._known:
            return self.of(expr).kind in kinds
        return self._unplaced.of(expr).kind in kinds and self.of(expr).kind in kinds

    def is_tensor(self, expr: ast.expr) -> bool:
        return self.is_a(expr, "tensor")

    def is_on_device(self, expr: ast.expr) -> bool:
        """Is it a tensor that may be on a device?"""
        return self.is_a(expr, "tensor") and self.of(expr).device != "cpu"

    @cached_property
    def _unplaced(self) -> Values:
        """The values as if nothing showed that a name lies on the host."""
        return Values(self._index, self._imports, self._calls, self._bindings, Anywhere(self._host))

    def _evaluate(self, expr: ast.expr) -> Value:
        if isinstance(expr, ast.Constant):
            return Value("text") if isinstance(expr.value, (str, bytes)) else SCALAR
        if isinstance(expr, ast.Name):
            return self._placed(expr, self._name(expr))
        if isinstance(expr, ast.Attribute):
            return self._attribute_value(expr)
        if isinstance(expr, ast.Call):
            return self._call(expr)
        if isinstance(expr, ast.BinOp):
            if isinstance(expr.op, ast.Add) and (_is_list(expr.left) or _is_list(expr.right)):
                return Value("list")  # `[0] + ends`
            return self._join(expr.left, expr.right)
        if isinstance(expr, ast.UnaryOp):
            return SCALAR if isinstance(expr.op, ast.Not) else self.of(expr.operand)
        if isinstance(expr, ast.Compare):
            if any(isinstance(op, (ast.Is, ast.IsNot, ast.In, ast.NotIn)) for op in expr.ops):
                return SCALAR
            if any(_is_shape(side) for side in (expr.left, *expr.comparators)):
                return SCALAR  # sizes are Python numbers, whatever they are compared with
            joined = self._join(expr.left, *expr.comparators)
            if joined.kind in ("tensor", "array"):
                return replace(joined, graph=False)
            return SCALAR if joined.kind else joined
        if isinstance(expr, ast.Subscript):
            if isinstance(expr.value, ast.Attribute) and expr.value.attr == "shape":
                return Value("list") if isinstance(expr.slice, ast.Slice) else SCALAR
            if isinstance(expr.value, ast.Attribute) and expr.value.attr == "data" and _is_zero(expr.slice):
                return SCALAR  # `loss.data[0]`, as `loss.item()` was written before torch 0.4
            base = self.of(expr.value)
            if base.kind in ("tensor", "array") or base == ON_HOST:
                return base
            return replace(base, kind="tensor") if base.kind == "tensors" else self._entry(expr)
        if isinstance(expr, (ast.List, ast.Tuple, ast.ListComp, ast.GeneratorExp)):
            return self._sequence(expr)
        if isinstance(expr, ast.IfExp):
            body, other = self.of(expr.body), self.of(expr.orelse)
            return body if body.kind == other.kind else UNKNOWN
        if isinstance(expr, (ast.JoinedStr, ast.FormattedValue)):
            return Value("text")
        if isinstance(expr, ast.NamedExpr):
            return self.of(expr.value)
        if isinstance(expr, (ast.Dict, ast.Set, ast.DictComp, ast.SetComp)):
            return Value("list")
        return UNKNOWN

    def _entry(self, expr: ast.Subscript) -> Value:
        """`cache["index"]` of a name that the function gives a dictionary with that key, or several that agree."""
        key, name = expr.slice, expr.value
        if not (isinstance(key, ast.Constant) and isinstance(key.value, str) and isinstance(name, ast.Name)):
            return UNKNOWN
        if (name.id, key.value) in self._stored_entries:
            return UNKNOWN
        place = (self._index.function_of(expr), name.id)
        if place not in self._entries:
            table = self._entries[place] = {}
            for binding in self._bindings.of(*place):
                if binding.kind == "assign" and isinstance(binding.value, ast.Dict):
                    for each, value in zip(binding.value.keys, binding.value.values, strict=True):
                        if isinstance(each, ast.Constant) and isinstance(each.value, str):
                            table.setdefault(each.value, []).append(value)
        given = {self.of(value) for value in self._entries[place].get(key.value, ())}
        return given.pop() if len(given) == 1 else UNKNOWN

    @cached_property
    def _stored_entries(self) -> frozenset[tuple[str, str]]:
        """Name and key of each `d["key"] = ...` of the file."""
        return frozenset(
            (part.value.id, part.slice.value)
            for part in self._index.of_type(ast.Subscript)
            if part.ctx.__class__ is not ast.Load
            and isinstance(part.value, ast.Name)
            and isinstance(part.slice, ast.Constant)
            and isinstance(part.slice.value, str)
        )

    def _sequence(self, expr: ast.List | ast.Tuple | ast.ListComp | ast.GeneratorExp) -> Value:
        elements = [expr.elt] if isinstance(expr, (ast.ListComp, ast.GeneratorExp)) else expr.elts
        values = [self.of(e) for e in elements]
        if values and all(v.kind == "tensor" for v in values):
            return Value("tensors", values[0].device, graph_of(values))
        return Value("list")

    def _join(self, *parts: ast.expr) -> Value:
        values = [self.of(part) for part in parts]
        for kind in ("tensor", "array"):
            of_kind = [v for v in values if v.kind == kind]
            if of_kind:
                device = next((v.device for v in of_kind if v.device), "cpu" if ON_HOST in values else "")
                graph = graph_of(of_kind)
                if any(v is UNKNOWN for v in values) and graph is False:
                    graph = None
                return Value(kind, device, graph)
        if all(v.kind == "scalar" for v in values):
            return SCALAR
        return ON_HOST if ON_HOST in values else UNKNOWN

    def _placed(self, name: ast.Name, value: Value) -> Value:
        """The value of a name, and that it lies on the host where the code around it shows so."""
        if value.kind not in ("", "tensor", "tensors") or value.device:
            return value
        if self._host.is_python_data(name):
            return Value("array", "cpu", False)
        if self._host.is_on_host(name) or self._in_host_code(name):
            return replace(value, device="cpu")
        return value

    def _in_host_code(self, name: ast.Name) -> bool:
        """Does the name stand in a data set, or in a function whose results its callers send to the device?"""
        cls = self._index.class_of(name)
        if cls is not None and any(last_name(base).endswith("Dataset") for base in cls.bases):
            return True
        function = self._index.function_of(name)
        return function is not None and self._host.works_on_host(function)

    def is_array(self, expr: ast.expr) -> bool:
        """Is it a NumPy array by what it was made of? That a tensor is made of it says no more than that it is none yet."""
        value = self._name(expr) if isinstance(expr, ast.Name) else self.of(expr)
        return value.kind == "array"

    def _attribute_value(self, expr: ast.Attribute) -> Value:
        if expr.attr in (
            "shape",
            "ndim",
            "dtype",
            "device",
            "is_cuda",
            "requires_grad",
            "itemsize",
            "nbytes",
            "names",
        ):
            return SCALAR
        base = self.of(expr.value)
        if base.kind in ("tensor", "array") and expr.attr in ("T", "mT", "H", "data", "grad", "real", "imag"):
            return replace(base, graph=False) if expr.attr in ("data", "grad") else base
        if is_self(expr):
            cls = self._index.class_of(expr)
            assigned = self._bindings.attribute(cls, expr.attr) if cls is not None else None
            annotation = self._bindings.declared(cls, expr.attr) if cls is not None else None
            declared = UNKNOWN if annotation is None else annotated(annotation)
            if declared.kind == "tensor" and (assigned is None or declared.graph is False):
                return declared
            if assigned is not None:
                return self.of(assigned)
            if cls is not None and (cls, expr.attr) in self._buffers:
                return Value("tensor", "moved", False)
        if expr.attr in ("loss", "logits", "last_hidden_state") and isinstance(expr.value, ast.Name):
            source = self._bindings.last_before(expr.value)
            if source is not None and isinstance(source.value, ast.Call):
                return Value("tensor", "", True)
        qualified = self._imports.qualified(expr)
        return (
            SCALAR if qualified in ("math.pi", "math.inf", "numpy.inf", "numpy.pi", "torch.inf") else UNKNOWN
        )

    @cached_property
    def _buffers(self) -> set[tuple[ast.ClassDef, str]]:
        """(class, name) of what `self.register_buffer("name", ...)` registers: it moves with the module."""
        return {
            (owner, str(call.args[0].value))
            for method in self._index.attributes_named("register_buffer")
            if isinstance(call := self._index.parent(method), ast.Call)
            and call.func is method
            and call.args
            and isinstance(call.args[0], ast.Constant)
            and (owner := self._index.class_of(call)) is not None
        }


def is_loss_name(name: str) -> bool:
    """Is the name one that people give to a loss?"""
    return bool(_LOSS_NAME.search(name))


def _is_host_copy(expr: ast.expr) -> bool:
    """`x.cpu()`, `x.detach().cpu().float()`: a copy on the host that is made right here."""
    while isinstance(expr, ast.Call) and isinstance(expr.func, ast.Attribute):
        if expr.func.attr == "cpu" and not expr.args:
            return True
        if not _stays(expr):
            return False
        expr = expr.func.value
    return False


def _stays(call: ast.Call) -> bool:
    """Does a method give a tensor where its own is?"""
    name = called_name(call)
    return name in KEEPS_TENSOR and name not in ("to", "cuda", "cpu")


def _is_list(node: ast.expr) -> bool:
    """Is it a list as it is written, or one made longer: `[0] + ends`?"""
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        node = node.left
    return isinstance(node, (ast.List, ast.ListComp))


def _is_zero(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 0


def _is_shape(node: ast.expr) -> bool:
    """`x.shape`, `x.shape[:2]`, `x.size()`"""
    if isinstance(node, ast.Subscript):
        node = node.value
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) and node.func.attr == "size" and not node.args
    return isinstance(node, ast.Attribute) and node.attr == "shape"
