"""Traces of a GPU run as Kineto writes them, made without a GPU.

A host that launches, and a GPU that works through a queue, are simulated; what happens is written with the fields of a real trace:
`cpu_op`, `user_annotation`, `python_function`, `cuda_runtime`, `kernel`, `gpu_memcpy`, with `correlation`, `device`, `stream` and
`bytes` in `args`. The seed moves all durations, so that no two traces are alike.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas"
SGEMM = "ampere_sgemm_128x64_tn"
ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, at::detail::Array<char*, 3> >(int, ...)"
NORM = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int, float, float const*, ...)"
ADAM = (
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedAdamMathFunctor<float, 4> >(...)"
)
ALLREDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long, ncclWork*)"
HTOD = "Memcpy HtoD (Pageable -> Device)"
KINDS = ("data", "host", "communication", "memory", "compute")
PID, TID, BACKWARD_TID = 4711, 4711, 4799
COMPUTE, COMM = 7, 20
CODE = """\
import torch
import torch.nn.functional as F


def train(model, loader, optimizer, profiler):
    for x, y in loader:
        x = x.cuda()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        print(loss.item())
        profiler.step()
"""


_CALL = 0.3  # microseconds to enter or leave something


class Run:
    """A simulated process: its clock in microseconds, the queues of its GPU, and the events so far."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.clock = 1_000_000.0
        self.events: list[dict[str, Any]] = []
        self._queue: dict[int, float] = {}
        self._link = 100
        self.thread = TID
        self.node = 1000  # of autograd

    def wait(self, time: float) -> None:
        """The host does something that takes about this long."""
        self.clock += time * self._random.uniform(0.8, 1.2)

    @contextmanager
    def span(self, category: str, name: str, node: int | None = None) -> Iterator[None]:
        """An event around what happens inside; `node` is the number of a node of autograd."""
        start = self.clock
        args = {"External id": self._link}
        if node is not None:
            args["Sequence number"] = node
        self.clock += _CALL
        yield
        self.clock += _CALL
        self._add(category, name, start, self.clock - start, args)
        self.clock += _CALL

    def backward(self, name: str, node: int, work: Callable[[], None]) -> None:
        """What the engine runs for a node."""
        with self.span("cpu_op", f"autograd::engine::evaluate_function: {name}", node):
            work()

    def python(self, name: str) -> AbstractContextManager[None]:
        """A call in Python, as the stacks have it."""
        return self.span("python_function", name)

    def operator(
        self,
        name: str,
        kernel: str,
        time: float,
        *,
        stream: int = COMPUTE,
        host: float = 8.0,
        node: int | None = None,
    ) -> None:
        """An operator that launches one kernel."""
        with self.span("cpu_op", name, node):
            self.wait(host / 2)
            self.launch("cudaLaunchKernel", "kernel", kernel, time, stream)
            self.wait(host / 2)

    def launch(self, call: str, category: str, name: str, time: float, stream: int, size: int = 0) -> None:
        self._link += 1
        start = self.clock
        self.wait(4.0)
        self._add("cuda_runtime", call, start, self.clock - start, {"cbid": 211, "correlation": self._link})
        begin = max(self.clock + 2.0, self._queue.get(stream, 0.0))
        lasts = time * self._random.uniform(0.8, 1.2)
        self._queue[stream] = begin + lasts
        args = {"device": 0, "context": 1, "stream": stream, "correlation": self._link}
        if size:
            args |= {"bytes": size}
        self._add(category, name, begin, lasts, args, pid=0, tid=stream)

    def after(self, stream: int, other: int) -> None:
        """What `stream` does next waits for `other`."""
        self._queue[stream] = max(self._queue.get(stream, 0.0), self._queue.get(other, 0.0))

    def synchronise(self, call: str = "cudaStreamSynchronize") -> None:
        start = self.clock
        self.clock = max(self.clock + 2.0, *self._queue.values(), 0.0)
        self._link += 1
        self._add("cuda_runtime", call, start, self.clock - start, {"cbid": 131, "correlation": self._link})

    def _add(
        self, category: str, name: str, start: float, lasts: float, args: Mapping[str, Any], *,
        pid: int = PID, tid: int | None = None,
    ) -> None:  # fmt: skip
        event = {
            "ph": "X",
            "cat": category,
            "name": name,
            "pid": pid,
            "tid": self.thread if tid is None else tid,
        }
        self.events.append({**event, "ts": round(start, 3), "dur": round(lasts, 3), "args": dict(args)})


def simulated(kind: str, seed: int, steps: int = 5, layers: int = 24) -> dict[str, Any]:
    """A trace of a run that is bound by `kind`, one of `KINDS`, in train.py (`CODE`)."""
    run = Run(seed)
    with run.python("train.py(5): train"):
        for number in range(steps):
            with run.span("user_annotation", f"ProfilerStep#{number}"):
                _step(run, kind, layers)
    return as_trace(run.events)


def _step(run: Run, kind: str, layers: int) -> None:
    name = "_SingleProcessDataLoaderIter" if kind == "data" else "_MultiProcessingDataLoaderIter"
    fetch = f"enumerate(DataLoader)#{name}.__next__"
    with run.python("torch/utils/data/dataloader.py(720): __next__"), run.span("user_annotation", fetch):
        run.wait(9_000.0 if kind == "data" else 40.0)
    with (
        run.python("<built-in method cuda of Tensor object at 0x7f0000000000>"),
        run.span("cpu_op", "aten::to"),
    ):
        run.launch("cudaMemcpyAsync", "gpu_memcpy", HTOD, 60.0, COMPUTE, size=1 << 20)
    host, kernels = (120.0, (15.0, 6.0)) if kind == "host" else (8.0, _TIMES[kind])
    nodes = range(run.node, run.node + layers)
    run.node += layers + 1
    with run.python("nn.Module: Model_0"):
        for node in nodes:
            _layer(run, kernels, host, node, "aten::addmm", "aten::add")
    with run.python("torch/nn/functional.py(3472): cross_entropy"):
        run.operator("aten::cross_entropy_loss", ELEMENTWISE, 10.0, node=nodes.stop)
    with run.python("torch/_tensor.py(566): backward"):
        run.thread = BACKWARD_TID
        run.backward(
            "NllLossBackward0", nodes.stop, lambda: run.operator("aten::nll_loss_backward", ELEMENTWISE, 10.0)
        )
        twice = (2 * kernels[0], 2 * kernels[1])
        for node in reversed(nodes):
            run.backward(
                "AddmmBackward0", node, lambda: _layer(run, twice, host, None, "aten::mm", "aten::add_")
            )
        if kind == "communication":
            run.after(COMM, COMPUTE)
            run.operator("c10d::allreduce_", ALLREDUCE, 9_000.0, stream=COMM)
            run.after(COMPUTE, COMM)
        run.thread = TID
    update = "Optimizer.step#AdamW.step"
    with run.python("torch/optim/optimizer.py(500): wrapper"), run.span("user_annotation", update):
        for _ in range(4):
            run.operator("aten::_fused_adamw_", ADAM, 150.0)
    read = run.python("<built-in method item of Tensor object at 0x7f0000000001>")
    with read, run.span("cpu_op", "aten::item"), run.span("cpu_op", "aten::_local_scalar_dense"):
        run.synchronise()


_TIMES = {  # of a product and of an elementwise kernel
    "data": (60.0, 30.0),
    "communication": (60.0, 30.0),
    "memory": (40.0, 260.0),
    "compute": (300.0, 30.0),
}


def _layer(
    run: Run, times: tuple[float, float], host: float, node: int | None, product: str, other: str
) -> None:
    run.operator(product, GEMM, times[0], host=host, node=node)
    run.operator(other, ELEMENTWISE, times[1], host=host)
    if host > 50:
        run.wait(host)  # Python between the operators


def as_trace(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The file around the events."""
    device = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 84_929_347_584}
    return {
        "schemaVersion": 1,
        "deviceProperties": [device],
        "with_stack": 1,
        "traceEvents": events,
        "traceName": "t.json",
    }


def kineto_text(trace: Mapping[str, Any], shift: Callable[[float], float] = lambda ts: ts) -> str:
    """The events as Kineto lays them out, without what stands around them."""
    laid_out = []
    for event in trace["traceEvents"]:
        head = ", ".join(
            f"{json.dumps(k)}: {json.dumps(event[k])}" for k in ("ph", "cat", "name", "pid", "tid")
        )
        args = ",".join(f"\n      {json.dumps(k)}: {json.dumps(v)}" for k, v in event["args"].items())
        times = f'"ts": {shift(event["ts"]):.3f}, "dur": {event["dur"]:.3f}'
        laid_out.append(f'  {{\n    {head},\n    {times},\n    "args": {{{args}\n    }}\n  }}')
    return ",\n".join(laid_out)
