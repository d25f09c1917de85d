"""A process that runs the code: it takes inputs, calls the function, and sends what came of it.

From `confine` on it can do nothing but that, whatever the code does; what it sends is checked by the referee.
"""

from __future__ import annotations
import __future__

import builtins
import gc
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy
import torch

from ptopt.prove.inside import wire
from ptopt.prove.inside.confine import confine
from ptopt.prove.names import BUILTINS

MEMORY = 1 << 30  # bytes beyond what torch takes
SECONDS = 60  # of processor time
SEED = 20
_SCOPE: dict[str, Any] = {name: getattr(builtins, name) for name in BUILTINS}
_MOST_VALUES = 10_000  # of one result
_LONG = 16  # numbers from which on a list is sent as bytes
_NUMBERS = ({float}, {int}, {bool})
_PLAIN = (bool, int, float, str, type(None))


def run(reading: int, writing: int, side: dict[str, Any], name: str) -> None:
    """Confine this process, make the function, and answer until the referee ends it."""
    gc.disable()
    confine(memory=MEMORY, seconds=SECONDS, keep={0, 1, 2, reading, writing})
    try:
        function = _function(side, name)
    except Exception as error:
        wire.send(writing, wire.packed({"error": type(error).__name__}))
        return
    wire.send(writing, wire.packed({"ready": True}))
    loaded: list[Any] = []
    results: list[Any] = []
    while True:
        head, blobs = wire.receive(reading)
        reply: wire.Message = ({}, [])
        if head["do"] == "run":
            reply = _run(function, head, blobs)
        elif head["do"] == "load":
            results = []
            torch.manual_seed(SEED)
            count = len(blobs) // head["count"] if head["count"] else 0
            loaded = [_inputs(head, blobs[i * count : (i + 1) * count])[:2] for i in range(head["count"])]
        elif head["do"] == "go":
            try:
                results = [function(*args, **named) for args, named in loaded]
            except Exception as error:
                reply = ({"error": type(error).__name__}, [])
        else:
            out = _Encoder([])
            reply = ({"results": [out.fresh(result) for result in results]}, out.blobs)
        wire.send(writing, wire.packed(*reply))


def _function(side: dict[str, Any], name: str) -> Callable[..., Any]:
    scope: dict[str, Any] = {"__builtins__": dict(_SCOPE), "__name__": "proved"}
    for local, path in side["imports"].items():
        scope[local] = _imported(path)
    code = compile(side["source"], "proved", "exec", __future__.annotations.compiler_flag)
    exec(code, scope)  # noqa: S102 - this process exists for it, and is confined
    function: Callable[..., Any] = scope[name]
    return function


def _imported(path: str) -> Any:
    """A listed module, or what is listed of one: `purity` has checked the path."""
    if path in sys.modules:
        return sys.modules[path]
    module, _, name = path.rpartition(".")
    return getattr(sys.modules[module], name)


# -- inputs --------------------------------------------------------------------------------------------------


def _inputs(head: dict[str, Any], blobs: Sequence[bytes]) -> tuple[list[Any], dict[str, Any], list[Any]]:
    """Positional arguments, named ones, and the storages below them, as the message describes them."""
    roots = [
        torch.frombuffer(bytearray(blob), dtype=torch.uint8).untyped_storage()
        if blob
        else torch.empty(0, dtype=torch.uint8).untyped_storage()
        for blob in blobs
    ]
    args: list[Any] = []
    named: dict[str, Any] = {}
    left_out = False
    for name, by_name, node in head["args"]:
        if node["t"] == "default":
            left_out = True
        elif by_name or left_out:
            named[name] = _value(node, roots)
        else:
            args.append(_value(node, roots))
    return args, named, roots


def _value(node: dict[str, Any], roots: Sequence[Any]) -> Any:
    if node["t"] == "tensor":
        tensor = torch.empty(0, dtype=getattr(torch, node["dtype"]))
        tensor.set_(roots[node["storage"]], node["offset"], node["shape"], node["strides"])
        return tensor.numpy() if node["array"] else tensor.requires_grad_(node["grad"])
    if node["t"] in ("list", "tuple"):
        items = [_value(item, roots) for item in node["items"]]
        return items if node["t"] == "list" else tuple(items)
    if node["t"] == "dtype":
        return getattr(torch, node["value"])
    return node["value"]


# -- results -------------------------------------------------------------------------------------------------


def _run(function: Callable[..., Any], head: dict[str, Any], blobs: Sequence[bytes]) -> wire.Message:
    torch.manual_seed(SEED)
    try:
        args, named, roots = _inputs(head, blobs)
        result = function(*args, **named)
        drawn = torch.rand(()).item()
        grads = _gradients(result, [*args, *named.values()])
    except Exception as error:
        return {"error": type(error).__name__}, []
    out = _Encoder(roots)
    nodes = {
        "result": out.node(result),
        "inputs": [out.node(value) for value in [*args, *named.values()]],
        "gradients": [out.node(grad) for grad in grads],
        "drawn": drawn,
    }
    return nodes, out.blobs


def _gradients(result: Any, inputs: Sequence[Any]) -> list[Any]:
    wanted = [t for t in _tensors(inputs) if t.requires_grad and t.is_leaf]
    given = [t for t in _tensors([result]) if t.requires_grad]
    if not wanted or not given:
        return []
    total = torch.zeros((), dtype=torch.float64)
    for tensor in (
        given
    ):  # weighted, so that elements in another order are not the same; grad_outputs would import more
        real = torch.view_as_real(tensor) if tensor.is_complex() else tensor
        weights = (
            torch.cos(torch.arange(real.numel(), dtype=torch.float32)).to(real.dtype).reshape(real.shape)
        )
        total = total + (real * weights).sum()
    return list(torch.autograd.grad(total, wanted, allow_unused=True))


def _tensors(values: Sequence[Any]) -> list[Any]:
    found = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found += _tensors(value)
        elif isinstance(value, dict):
            found += _tensors(list(value.values()))
    return found


class _Encoder:
    """Values as nodes of JSON and bytes. `alias` numbers the memory of tensors: that of the inputs first."""

    def __init__(self, roots: Sequence[Any]) -> None:
        self.blobs: list[bytes] = []
        self._memory = {root.data_ptr(): i for i, root in enumerate(roots) if root.nbytes()}
        self._kept: list[Any] = []
        self._values = 0

    def fresh(self, value: Any) -> dict[str, Any]:
        """The node of another result: the bound on values is that of one."""
        self._values = 0
        return self.node(value)

    def node(self, value: Any) -> dict[str, Any]:
        self._values += 1
        if self._values > _MOST_VALUES:
            return {"t": "other", "type": "many values"}
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, numpy.ndarray) and value.dtype.kind in "biufc":
            return {**self._tensor(torch.as_tensor(value)), "array": True}
        if isinstance(value, numpy.generic) and value.dtype.kind in "biufc":
            return {**self._tensor(torch.as_tensor(numpy.asarray(value).copy())), "array": True, "alias": -1}
        kind = type(value).__name__
        if isinstance(value, _PLAIN) and type(value) in _PLAIN:
            return {"t": kind, "value": value.hex() if isinstance(value, float) else str(value)}
        if isinstance(value, (list, tuple)) and len(value) >= _LONG and set(map(type, value)) in _NUMBERS:
            try:
                packed = torch.tensor(value, dtype=torch.float64 if type(value[0]) is float else torch.int64)
            except (OverflowError, RuntimeError):
                return {"t": "other", "type": "int"}
            return {
                "t": "numbers",
                "type": kind,
                "of": type(value[0]).__name__,
                "items": self._tensor(packed),
            }
        if isinstance(value, (list, tuple)):
            return {"t": "items", "type": kind, "items": [self.node(item) for item in value]}
        if isinstance(value, dict):
            return {
                "t": "items",
                "type": kind,
                "items": [self.node(i) for pair in value.items() for i in pair],
            }
        if isinstance(value, (torch.dtype, torch.device, range, slice, complex)):
            return {"t": kind, "value": str(value)}
        return {"t": "other", "type": kind}

    def _tensor(self, value: Any) -> dict[str, Any]:
        if value.layout != torch.strided or value.is_quantized or value.device.type != "cpu":
            return {"t": "other", "type": "tensor"}
        self._kept.append(value)  # or memory that is free again would be taken for the same
        storage = value.untyped_storage()
        alias = self._memory.setdefault(storage.data_ptr(), len(self._memory)) if storage.nbytes() else -1
        plain = value.detach().resolve_conj().resolve_neg()
        flat = torch.empty(plain.numel(), dtype=plain.dtype).copy_(plain.reshape(-1))
        self.blobs.append(flat.view(torch.uint8).numpy().tobytes())
        return {
            "t": "tensor", "dtype": str(value.dtype).removeprefix("torch."), "shape": list(value.shape),
            "grad": value.requires_grad, "contiguous": value.is_contiguous(), "alias": alias, "array": False,
        }  # fmt: skip
