"""What a name holds: by its last binding, by what is asked of it, by the tests that it stands under."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import cast

from ptopt.source.annotations import annotated, excludes_tensors
from ptopt.source.bindings import Binding, Bindings
from ptopt.source.calls import CallGraph
from ptopt.source.imports import Imports
from ptopt.source.index import FUNCTIONS, FunctionNode, Index, walk
from ptopt.source.value import ON_HOST, SCALAR, UNKNOWN, Value
from ptopt.source.values_of_calls import ValuesOfCalls

_MOST_LOSSES = 2  # arguments of what runs the backward pass: the loss, an optimizer
# Methods that prove a tensor whatever the name: none of NumPy, lists, modules or data frames.
_PROVES_TENSOR = frozenset(
    "unsqueeze unsqueeze_ masked_fill masked_fill_ permute expand expand_as repeat_interleave index_select scatter scatter_ "
    "scatter_add scatter_add_ masked_select topk bmm baddbmm addmm requires_grad_ new_zeros new_ones new_full new_tensor "
    "new_empty type_as is_contiguous log_softmax detach index_add_ numel backward size view dim contiguous".split()
)
_TELLING_ATTRIBUTES = (*sorted(_PROVES_TENSOR), "is_cuda", "requires_grad", "grad_fn", "device", "shape")
_SEQUENCES = frozenset({"list", "tuple"})
_NUMBERS = frozenset({"int", "float", "bool", "Number", "Real", "Integral"})


class ValuesOfNames(ValuesOfCalls):
    """Of one file."""

    def __init__(self, index: Index, imports: Imports, calls: CallGraph, bindings: Bindings) -> None:
        super().__init__(index, imports, calls, bindings)
        self._roots: dict[FunctionNode | None, frozenset[str]] = {}  # names that are backpropagated

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
        for call in self._calls.named("isinstance"):
            if len(call.args) == 2:
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
            known = annotated(binding.value) if binding.value is not None else UNKNOWN
            if not known.kind and excludes_tensors(binding.value):
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
        for call in self._calls.named("isinstance", "is_tensor"):
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
            or (arg.annotation is not None and annotated(arg.annotation).kind in ("tensor", "tensors"))
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


def _is_text(node: ast.expr, text: str) -> bool:
    return isinstance(node, ast.Constant) and node.value == text
