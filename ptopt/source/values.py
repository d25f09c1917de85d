"""Light local facts: is this expression a tensor, where does it live, does it carry a graph?

Flow-insensitive across branches, lexical within a function: the last binding before a use counts. What cannot
be determined is `UNKNOWN`, and rules stay silent on it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import cast

from ptopt.source.bindings import Binding, Bindings, is_self
from ptopt.source.calls import CallGraph, called_name, last_name
from ptopt.source.host import HostNames
from ptopt.source.imports import Imports
from ptopt.source.index import FUNCTIONS, FunctionNode, Index, walk
from ptopt.source.torch_names import (
    ARRAY_MODULES,
    GRADLESS_FUNCTIONS,
    KEEPS_TENSOR,
    NOT_TENSOR_FUNCTIONS,
    SCALAR_BUILTINS,
    SCALAR_METHODS,
    TENSOR_FACTORIES,
    TENSOR_ONLY_METHODS,
)


@dataclass(frozen=True, slots=True)
class Value:
    """What is known of an expression.

    kind: "tensor" | "tensors" (a sequence of tensors) | "array" | "scalar" | "text" | "list" | "module" |
    "optimizer" | "loader" | "class" | "" (unknown).
    device: "cpu" (known of some values of unknown kind, too) | "moved" (sent to a device that is not literally the CPU) |
    "" (unknown).
    graph: True when autograd history may hang on it, False when it surely does not, None when unknown.
    """

    kind: str = ""
    device: str = ""
    graph: bool | None = None


_MOST_LOSSES = 2  # arguments of what runs the backward pass: the loss, an optimizer
_MAX_DEPTH = 80  # of expressions and names that follow from each other; real code stays far below

UNKNOWN = Value()
SCALAR = Value("scalar", "cpu", False)
ON_HOST = Value("", "cpu")
_LOSS_NAME = re.compile(r"(^|_)(loss|losses)(_|$|\d)|^loss|loss$", re.I)
_CRITERION = re.compile(
    r"criterion|loss_?(fn|func|function|f)$|(^|_)(ce|mse|bce|l1|kl|gan|adv\w*)_?loss$", re.I
)
# jaxtyping: `Int[Tensor, "batch tokens"]`
_WHOLE_NUMBERS = re.compile(r"^(?:jaxtyping\.)?(?:U?Int\d*|Bool|Integer)\[\s*(?:torch\.)?Tensor\b")
_NUMBERS_OF_JAXTYPING = re.compile(
    r"^(?:jaxtyping\.)?(?:B?Float\w*|Complex\d*|Num|Real|Inexact|Shaped)\[\s*(?:torch\.)?Tensor\b"
)
_TENSORS_ANNOTATION = re.compile(
    r"(?:(?:typing\.)?(?:Optional|List|list|Tuple|tuple|Sequence|Iterable|Dict|dict|Mapping)\[(?:str, |int, )?){1,2}"
    r"(?:torch\.)?(?:Tensor|LongTensor|FloatTensor)(?:, \.\.\.|, (?:torch\.)?Tensor)*\]{1,2}$"
)
# Methods that prove a tensor whatever the name: none of NumPy, lists, modules or data frames.
_PROVES_TENSOR = frozenset(
    "unsqueeze unsqueeze_ masked_fill masked_fill_ permute expand expand_as repeat_interleave index_select scatter scatter_ "
    "scatter_add scatter_add_ masked_select topk bmm baddbmm addmm requires_grad_ new_zeros new_ones new_full new_tensor "
    "new_empty type_as is_contiguous log_softmax detach index_add_ numel backward size view dim contiguous".split()
)
_TELLING_ATTRIBUTES = (*sorted(_PROVES_TENSOR), "is_cuda", "requires_grad", "grad_fn", "device", "shape")
_SEQUENCES = frozenset({"list", "tuple"})
_NUMBERS = frozenset({"int", "float", "bool", "Number", "Real", "Integral"})
_ASKS = ("is_", "has_")  # functions and methods by these names give Python's own bool
_ANYTHING = re.compile(r"tensor|\bAny\b|\bobject\b|\bNone\b|Variable|Array|^[A-Z]\w?$", re.I)
# `torch.tensor` is a function, but people write it for the type.
_TENSOR_ANNOTATION = re.compile(
    r"(^|\.)(Tensor|FloatTensor|LongTensor|BoolTensor|IntTensor)$|^torch\.tensor$"
)


class Values:
    """Facts about expressions of one file, computed on demand and remembered."""

    def __init__(
        self,
        index: Index,
        imports: Imports,
        calls: CallGraph,
        bindings: Bindings,
        host: HostNames | None = None,
    ) -> None:
        self._index = index
        self._host = host or HostNames(index, imports, calls, bindings)
        self._bindings = bindings
        self._imports = imports
        self._calls = calls
        self._known: dict[ast.expr, Value] = {}
        self._entries: dict[tuple[FunctionNode | None, str], dict[str, list[ast.expr]]] = {}
        self._depth = 0
        self._returns: dict[FunctionNode, Value] = {}
        self._roots: dict[FunctionNode | None, frozenset[str]] = {}  # names that are backpropagated

    # -- expressions -----------------------------------------------------------------------------------

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

    def is_tensor(self, expr: ast.expr) -> bool:
        return self.of(expr).kind == "tensor"

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
            return Value("tensors", values[0].device, _graph_of(values))
        return Value("list")

    def _join(self, *parts: ast.expr) -> Value:
        values = [self.of(part) for part in parts]
        for kind in ("tensor", "array"):
            of_kind = [v for v in values if v.kind == kind]
            if of_kind:
                device = next((v.device for v in of_kind if v.device), "cpu" if ON_HOST in values else "")
                graph = _graph_of(of_kind)
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

    def is_sequence(self, expr: ast.expr) -> bool:
        """Does it stand where `isinstance` found it to be a list or a tuple?"""
        return isinstance(expr, ast.Name) and self._found_to_be(expr) == "list"

    def _found_to_be(self, name: ast.Name) -> str:
        """ "list" or "scalar" where the name stands under `isinstance(name, ...)` that says so, else ""."""
        tests = self._instance_tests.get(name.id)
        if not tests:
            return ""
        for ancestor, child in self._index.ancestors(name):
            if isinstance(ancestor, FUNCTIONS):
                break
            if isinstance(ancestor, ast.If) and ancestor.test in tests and child in ancestor.body:
                return tests[ancestor.test]
        return ""

    @cached_property
    def _instance_tests(self) -> dict[str, dict[ast.expr, str]]:
        """Name -> the calls of `isinstance` that ask whether it is a list or a tuple ("list"), or a number ("scalar")."""
        table: dict[str, dict[ast.expr, str]] = {}
        for call in self._index.of_type(ast.Call):
            if last_name(call.func) == "isinstance" and len(call.args) == 2:
                asked, types = call.args
                named = {n.id for n in walk(types) if isinstance(n, ast.Name)}
                kind = "list" if not _SEQUENCES.isdisjoint(named) else "scalar" if named <= _NUMBERS else ""
                if isinstance(asked, ast.Name) and named and kind:
                    table.setdefault(asked.id, {})[call] = kind
        return table

    def _name(self, expr: ast.Name) -> Value:
        found = self._found_to_be(expr)
        if found:
            return SCALAR if found == "scalar" else Value("list")
        binding = self._bindings.last_before(expr)
        if binding is None:
            return UNKNOWN
        if binding.kind == "assign" and binding.value is not None:
            value = self.of(binding.value)
            if not value.kind and self._backpropagated(expr):
                return Value("tensor", "", True)
            if value == ON_HOST:
                return replace(self._by_use(expr), device="cpu")
            return value if value.kind else self._by_use(expr)
        if binding.kind == "augment" and binding.value is not None:
            added = self.of(binding.value)
            earlier = self._before(expr, binding)
            if "tensor" in (added.kind, earlier.kind):
                return added if added.kind == "tensor" else earlier
            return added if added.kind == earlier.kind else UNKNOWN
        if binding.kind == "parameter":
            known = _annotated(binding.value) if binding.value is not None else UNKNOWN
            if not known.kind and _excludes_tensors(binding.value):
                return UNKNOWN
            known = known if known.kind else self._by_use(expr)
            return known if known.kind else self._checked(expr)
        if binding.kind == "item" and binding.value is not None:
            item = self._item(binding.value, binding.path)
            return item if item.kind or item == ON_HOST else self._checked(expr)
        if binding.kind == "unpack" and isinstance(binding.value, ast.Call):
            value = self._unpacked(binding.value)
            if not value.kind and self._backpropagated(expr):
                return Value("tensor", "", True)
            return value if value.kind else self._by_use(expr)
        return UNKNOWN

    def _before(self, expr: ast.Name, binding: Binding) -> Value:
        """The value a name had before an augmented assignment."""
        first = self._bindings.first_assigned(self._index.function_of(expr), expr.id)
        earlier = first is not None and first.line < binding.line
        return self.of(first.value) if earlier and first is not None and first.value is not None else UNKNOWN

    def _by_use(self, expr: ast.Name) -> Value:
        """A name of unknown value, of which its function asks what only a tensor can answer."""
        function = self._index.function_of(expr)
        return Value("tensor") if expr.id in self._used_as_tensor.get(function, ()) else UNKNOWN

    def _checked(self, expr: ast.Name) -> Value:
        """A name that stands under `if torch.is_tensor(name)` or `if isinstance(name, torch.Tensor)`."""
        if expr.id not in self._type_checks:
            return UNKNOWN
        tests = self._type_checks[expr.id]
        for ancestor, child in self._index.ancestors(expr):
            if isinstance(ancestor, ast.If) and child in ancestor.body and ancestor.test in tests:
                return Value("tensor")
            if isinstance(ancestor, FUNCTIONS):
                break
        return UNKNOWN

    @cached_property
    def _type_checks(self) -> dict[str, set[ast.expr]]:
        """Name -> the conditions that find it to be a tensor."""
        table: dict[str, set[ast.expr]] = {}
        for call in self._index.of_type(ast.Call):
            func = call.func
            if not call.args or not isinstance(call.args[0], ast.Name):
                continue
            if isinstance(func, ast.Attribute) and func.attr != "is_tensor":
                continue
            by_type = (
                isinstance(call.func, ast.Name)
                and call.func.id == "isinstance"
                and len(call.args) == 2
                and self._imports.qualified(call.args[1]) == "torch.Tensor"
            )
            if by_type or self._imports.qualified(call.func) == "torch.is_tensor":
                test: ast.AST = call
                parent = self._index.parent(call)
                if isinstance(parent, ast.BoolOp) and isinstance(parent.op, ast.And):
                    test = parent
                table.setdefault(call.args[0].id, set()).add(cast(ast.expr, test))
        return table

    def takes_tensors(self, function: FunctionNode) -> bool:
        """Is a parameter of the function a tensor, or a sequence of them, by its annotation or its use?"""
        used = self._used_as_tensor.get(function, set())
        return any(
            arg.arg in used
            or (arg.annotation is not None and _annotated(arg.annotation).kind in ("tensor", "tensors"))
            for arg in [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
        )

    @cached_property
    def _used_as_tensor(self) -> dict[FunctionNode | None, set[str]]:
        """Function -> the names on which it uses methods and attributes that only tensors have."""
        table: dict[FunctionNode | None, set[str]] = {}
        seen: dict[tuple[FunctionNode | None, str], str] = {}
        for node in self._index.attributes_named(*_TELLING_ATTRIBUTES):
            if not isinstance(node.value, ast.Name) or node.value.id in ("self", "cls", "torch", "F"):
                continue
            function, name = self._index.function_of(node), node.value.id
            called = isinstance(parent := self._index.parent(node), ast.Call) and parent.func is node
            shown = (
                node.attr in _PROVES_TENSOR
                if called
                else node.attr in ("is_cuda", "requires_grad", "grad_fn")
            )
            if called and node.attr == "backward" and isinstance(parent, ast.Call) and parent.args:
                shown = False  # `accelerator.backward(loss)`
            if node.attr in ("device", "shape"):  # arrays have the one, models and options the other
                shown = seen.setdefault((function, name), node.attr) != node.attr
            if shown and not self._imports.qualified(node):
                table.setdefault(function, set()).add(name)
        return table

    def _backpropagated(self, expr: ast.Name) -> bool:
        """Is `.backward()` called on this name somewhere in its function?"""
        function = self._index.function_of(expr)
        if function not in self._roots:
            self._roots[function] = frozenset(self._backpropagated_in(function))
        return expr.id in self._roots[function]

    def _backpropagated_in(self, function: FunctionNode | None) -> Iterator[str]:
        for call in self._calls.calls_in(function):
            func = call.func
            if isinstance(func, ast.Attribute) and func.attr in ("backward", "manual_backward", "scale"):
                # `loss.backward()`, but `accelerator.backward(loss)` and `scaler.scale(loss)`; with many arguments it is a kernel
                if len(call.args) > _MOST_LOSSES:
                    continue
                targets = call.args if call.args or func.attr == "scale" else [func.value]
                yield from (t.id for t in targets if isinstance(t, ast.Name))

    def _item(self, iterable: ast.expr, path: tuple[int, ...]) -> Value:
        """Value of a loop target, or of the part of it at `path`, over `iterable`."""
        if isinstance(iterable, ast.Call) and isinstance(iterable.func, ast.Name):
            name, args = iterable.func.id, iterable.args
            if name == "range":
                return SCALAR
            if name == "enumerate" and args and path:
                return SCALAR if path[0] == 0 else self._item(args[0], path[1:])
            if name == "zip" and path and path[0] < len(args):
                return self._item(args[path[0]], path[1:])
            if name in ("tqdm", "reversed", "list", "tuple", "iter", "track") and args:
                return self._item(args[0], path)
            if name in ("enumerate", "zip"):
                return UNKNOWN
        if isinstance(iterable, ast.Call) and isinstance(iterable.func, ast.Attribute):
            name = iterable.func.attr
            if name in ("parameters", "buffers") and not path:
                return Value("tensor", "", name == "parameters")
            if name in ("named_parameters", "named_buffers") and path:
                return Value("tensor", "", name == "named_parameters") if path == (1,) else Value("text")
        if isinstance(iterable, ast.Subscript) and not path and _is_text(iterable.slice, "params"):
            return Value("tensor", "", True)  # `for p in group["params"]`
        return self._element(iterable)

    def _element(self, iterable: ast.expr) -> Value:
        value = self.of(iterable)
        if value.kind in ("tensor", "tensors"):
            return replace(value, kind="tensor")
        return value if value.kind == "array" or value == ON_HOST else UNKNOWN

    def _unpacked(self, call: ast.Call) -> Value:
        value = self.of(call)
        if value.kind in ("tensor", "tensors", "array"):
            # `values, indices = x.max(dim=1)` and `a, b = x.chunk(2)`: every part is of the same kind.
            return replace(value, kind="tensor" if value.kind == "tensors" else value.kind)
        return UNKNOWN

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
            declared = UNKNOWN if annotation is None else _annotated(annotation)
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

    # -- calls -----------------------------------------------------------------------------------------

    def _call(self, call: ast.Call) -> Value:
        func = call.func
        qualified = self._imports.qualified(func)
        if qualified:
            return self._library_call(call, qualified)
        if isinstance(func, ast.Name):
            if func.id in SCALAR_BUILTINS:
                return SCALAR
            if func.id in ("max", "min", "sum", "abs", "round") and call.args:
                value = self.of(call.args[0])
                if value.kind in ("tensor", "tensors"):
                    return replace(value, kind="tensor")
                return value if value.kind in ("scalar", "array") else UNKNOWN
            if func.id in ("list", "tuple", "sorted", "reversed") and call.args:
                inner = self.of(call.args[0])
                return (
                    replace(inner, kind="tensors") if inner.kind in ("tensor", "tensors") else Value("list")
                )
            if func.id in ("dict", "set", "zip", "map", "filter", "enumerate", "range"):
                return Value("list")
        if isinstance(func, ast.Attribute):
            value = self._method(call, func)
            if value.kind or value == ON_HOST:
                return value
        if self.of(func).kind == "module":
            return Value("tensor", "", True)
        if isinstance(func, ast.Name) and func.id in self._module_classes:
            return Value("module")
        target = self._calls.resolve(call)
        if target is not None:
            return self._returned(target)
        name = last_name(func)
        if _CRITERION.search(name) and not name[:1].isupper():
            return Value("tensor", "", True)
        return UNKNOWN

    def _library_call(self, call: ast.Call, qualified: str) -> Value:
        root, _, rest = qualified.partition(".")
        if root == "torch":
            leaf = rest.rpartition(".")[2]
            if qualified.startswith("torch.optim."):
                return Value("optimizer") if leaf[:1].isupper() else UNKNOWN
            if qualified == "torch.utils.data.DataLoader":
                return Value("loader")
            if qualified.startswith("torch.nn.functional."):
                return Value("tensor", self._device_of_args(call), self._graph_of_args(call))
            if qualified.startswith("torch.nn."):
                return (
                    Value("module")
                    if leaf[:1].isupper() and leaf not in ("Parameter", "Buffer")
                    else (Value("tensor", "", True) if leaf == "Parameter" else UNKNOWN)
                )
            if qualified.startswith(("torch.fft.", "torch.linalg.", "torch.special.")):
                return Value("tensor", self._device_of_args(call), self._graph_of_args(call))
            if rest in ("chunk", "split", "unbind", "tensor_split", "meshgrid", "broadcast_tensors"):
                return Value("tensors", self._device_of_args(call), self._graph_of_args(call))
            if leaf.startswith(_ASKS):
                return SCALAR
            if leaf.startswith("get_"):
                return UNKNOWN
            if "." in rest or leaf in NOT_TENSOR_FUNCTIONS or leaf[:1].isupper() and leaf != "Tensor":
                return UNKNOWN if leaf != "device_count" else SCALAR
            if leaf in TENSOR_FACTORIES:
                grad = any(k.arg == "requires_grad" for k in call.keywords)
                return Value("tensor", self._factory_device(call, leaf), grad or False)
            graph = False if leaf in GRADLESS_FUNCTIONS else self._graph_of_args(call)
            return Value("tensor", self._device_of_args(call), graph)
        if root in ARRAY_MODULES:
            if rest in (
                "float32",
                "float64",
                "int64",
                "int32",
                "float16",
                "array_equal",
                "allclose",
                "isscalar",
            ):
                return SCALAR
            return Value("array", "cpu", False)
        if root == "math" or root == "time":
            return SCALAR
        return UNKNOWN

    def _method(self, call: ast.Call, func: ast.Attribute) -> Value:
        name = func.attr
        if name in ("item", "tolist"):
            return SCALAR if name == "item" else Value("list")
        if name in SCALAR_METHODS or name.startswith(_ASKS):
            return SCALAR
        base = self.of(func.value)
        if base.kind == "array":
            return base if name not in ("item", "tolist") else SCALAR
        if base.kind == "module":
            if name in ("to", "cuda", "cpu", "eval", "train", "half", "float", "bfloat16", "requires_grad_"):
                return base
            return UNKNOWN
        if base.kind in ("tensor", "") and name == "numpy":
            return Value("array", "cpu", False)
        if not base.kind and (name == "cpu" or (name == "to" and self._target_device(call, "") == "cpu")):
            return Value("tensor", "cpu", None) if self._continues_as_tensor(call) else ON_HOST
        tensor = base.kind == "tensor" or (not base.kind and name in TENSOR_ONLY_METHODS)
        if not tensor:
            stays = base == ON_HOST and name in KEEPS_TENSOR and name not in ("to", "cuda")
            return base if base.kind == "tensors" or stays else UNKNOWN
        if name == "split" and call.args and self.of(call.args[0]).kind == "text":
            return Value("list")
        if name in ("chunk", "split", "unbind", "tensor_split"):
            return Value("tensors", base.device, base.graph)
        if name in ("detach", "detach_"):
            return Value("tensor", base.device, False)
        if name == "cpu":
            return Value("tensor", "cpu", base.graph)
        if name == "cuda":
            return Value("tensor", "moved", base.graph)
        if name == "to":
            return Value("tensor", self._target_device(call, base.device), base.graph)
        if base.kind == "tensor" or name in KEEPS_TENSOR or name in TENSOR_ONLY_METHODS:
            graph = False if name in GRADLESS_FUNCTIONS else base.graph
            return Value("tensor", base.device, graph)
        return UNKNOWN

    def _continues_as_tensor(self, call: ast.Call) -> bool:
        """Is the next method of the chain one that a tensor has and a module has not: `x.cpu().numpy()`?"""
        parent = self._index.parent(call)
        return isinstance(parent, ast.Attribute) and (
            parent.attr in ("numpy", "tolist", "item") or parent.attr in TENSOR_ONLY_METHODS
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

    @cached_property
    def _module_classes(self) -> frozenset[str]:
        """Classes of the file that derive from a module by name."""
        return frozenset(
            cls.name
            for cls in self._index.of_type(ast.ClassDef)
            if any(
                ast.unparse(base).endswith(("nn.Module", "nn.Sequential", "LightningModule"))
                for base in cls.bases
            )
        )

    @cached_property
    def _return_statements(self) -> dict[FunctionNode | None, list[ast.Return]]:
        table: dict[FunctionNode | None, list[ast.Return]] = {}
        for statement in self._index.of_type(ast.Return):
            table.setdefault(self._index.function_of(statement), []).append(statement)
        return table

    def _returned(self, function: FunctionNode) -> Value:
        """What a function of this file returns, when all its returns agree."""
        known = self._returns.get(function)
        if known is not None:
            return known
        self._returns[function] = UNKNOWN
        values = [self.of(n.value) for n in self._return_statements.get(function, ()) if n.value is not None]
        answer = UNKNOWN
        if values and all(v.kind == values[0].kind for v in values):
            answer = Value(values[0].kind, values[0].device, values[0].graph)
        self._returns[function] = answer
        return answer

    def _factory_device(self, call: ast.Call, leaf: str) -> str:
        for keyword in call.keywords:
            if keyword.arg == "device":
                if isinstance(keyword.value, ast.Constant) and keyword.value.value is None:
                    return ""
                return "cpu" if self._names_cpu(keyword.value) else "moved"
            if keyword.arg is None:
                return ""
        if leaf.endswith("_like"):
            return self._device_of_args(call)
        return "cpu"

    def _target_device(self, call: ast.Call, current: str) -> str:
        target = next(
            (k.value for k in call.keywords if k.arg == "device"), call.args[0] if call.args else None
        )
        if target is None:
            return current
        if self._names_cpu(target):
            return "cpu"
        if isinstance(target, ast.Constant) and isinstance(target.value, str):
            return "moved"
        qualified = self._imports.qualified(target)
        if qualified.startswith("torch.") and not isinstance(target, ast.Call):
            return current  # a dtype
        text = ast.unparse(target)
        return "moved" if re.search(r"device|cuda|gpu|rank", text, re.I) else current

    def _names_cpu(self, device: ast.expr) -> bool:
        """`"cpu"`, `torch.device("cpu")`, or a name that is bound to nothing else?"""
        if isinstance(device, ast.Name):
            binding = self._bindings.last_before(device)
            if binding is None or binding.kind != "assign":
                return False
            others = self._bindings.of(self._index.function_of(binding.node), device.id)
            return all(
                b.kind == "assign"
                and isinstance(b.value, (ast.Constant, ast.Call))
                and self._names_cpu(b.value)
                for b in others
            )
        if isinstance(device, ast.Call) and self._imports.qualified(device.func) == "torch.device":
            return bool(device.args) and self._names_cpu(device.args[0])
        return isinstance(device, ast.Constant) and str(device.value).startswith("cpu")

    def _device_of_args(self, call: ast.Call) -> str:
        for arg in call.args:
            value = self.of(arg)
            if value.device and (value.kind in ("tensor", "tensors") or value == ON_HOST):
                return value.device
        return ""

    def _graph_of_args(self, call: ast.Call) -> bool | None:
        graphs = [v.graph for v in map(self.of, call.args) if v.kind in ("tensor", "tensors", "")]
        return True if True in graphs else False if graphs and all(g is False for g in graphs) else None


def _graph_of(parts: Iterable[Value]) -> bool | None:
    """Of what is made of all of them."""
    graphs = {part.graph for part in parts}
    return True if True in graphs else None if None in graphs else False


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


def _is_text(node: ast.expr, text: str) -> bool:
    return isinstance(node, ast.Constant) and node.value == text


@lru_cache(maxsize=4096)
def _names_tensor(text: str) -> bool:
    """Does the text of an annotation name a tensor, or a tensor or None?"""
    parts = [part.strip() for part in re.sub(r"^(?:typing\.)?Optional\[(.*)\]$", r"\1", text).split("|")]
    concrete = [part for part in parts if part != "None"]
    return bool(concrete) and all(_TENSOR_ANNOTATION.search(part) for part in concrete)


def _excludes_tensors(annotation: ast.expr | None) -> bool:
    """Does the annotation name something else than a tensor, such as `torch.Size`?"""
    return annotation is not None and not _ANYTHING.search(ast.unparse(annotation))


def _annotated(annotation: ast.expr) -> Value:
    if isinstance(annotation, ast.Name):
        return _by_annotation(annotation.id)
    if isinstance(annotation, ast.Attribute) and isinstance(annotation.value, ast.Name):
        return _by_annotation(f"{annotation.value.id}.{annotation.attr}")
    text = ast.unparse(annotation)
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return _by_annotation(annotation.value, text)
    return _by_annotation(text, text)


@lru_cache(maxsize=4096)
def _by_annotation(named: str, written: str = "") -> Value:
    if _names_tensor(named):
        return Value("tensor")
    text = (written or named).strip("'\"")
    if _TENSORS_ANNOTATION.match(text):
        return Value("tensors")
    if _WHOLE_NUMBERS.match(text):  # which have no gradient
        return Value("tensor", "", False)
    if _NUMBERS_OF_JAXTYPING.match(text):
        return Value("tensor")
    if text in ("int", "float", "bool"):
        return SCALAR
    if text in ("np.ndarray", "numpy.ndarray", "ndarray"):
        return Value("array", "cpu", False)
    return Value("text") if text == "str" else UNKNOWN
