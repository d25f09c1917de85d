"""What a call gives: of a library, of a method, of a function or class of the file."""

from __future__ import annotations

import ast
import re
from abc import ABC, abstractmethod
from dataclasses import replace
from functools import cached_property

from ptopt.source.bindings import Bindings
from ptopt.source.calls import CallGraph, last_name
from ptopt.source.imports import Imports
from ptopt.source.index import FunctionNode, Index
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
from ptopt.source.value import ON_HOST, SCALAR, UNKNOWN, Value

_CRITERION = re.compile(
    r"criterion|loss_?(fn|func|function|f)$|(^|_)(ce|mse|bce|l1|kl|gan|adv\w*)_?loss$", re.I
)
_ASKS = ("is_", "has_")  # functions and methods by these names give Python's own bool


class ValuesOfCalls(ABC):
    """Of one file. What an expression is, a subclass knows."""

    def __init__(self, index: Index, imports: Imports, calls: CallGraph, bindings: Bindings) -> None:
        self._index = index
        self._bindings = bindings
        self._imports = imports
        self._calls = calls
        self._returns: dict[FunctionNode, Value] = {}

    @abstractmethod
    def of(self, expr: ast.expr) -> Value:
        """What is known of the expression."""

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
