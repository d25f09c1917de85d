from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import Fix, Invalid, Problem, Rule, Safety, Severity, SourceFile
from ptopt.rules.code import quote
from ptopt.rules.shared.places import often_place
from ptopt.rules.shared.removal import remove_statement
from ptopt.rules.sync._reads import small_gain
from ptopt.source.context import STEP_WORDS
from ptopt.source.file import remembered
from ptopt.source.index import own_nodes

_WAITS = {
    "torch.cuda.synchronize": "the GPU",
    "torch.xpu.synchronize": "the GPU",
    "torch.mps.synchronize": "the GPU",
    "torch.accelerator.synchronize": "the GPU",
    "torch.distributed.barrier": "every other process",
}
# Timing needs the call, and so do hand-overs between streams, threads and processes.
_NEEDED = re.compile(
    r"perf_counter|time\.time|monotonic|timeit|[Tt]imer|elapsed|Event\(|profil|bench|throughput|Stream\(|stream\("
    r"|\.time\(\)|_time\b|CUDAGraph|async|rpc|ipc|queue|vllm|broadcast|send\(|recv\(|offload",
)
_MAIN_PROCESS = re.compile(r"main_process|rank", re.I)
_MEASURES = re.compile(r"elapsed_time\(|\.record\(|time_ns\(|async_op")
_DEVICE = re.compile(r"(^|[._])(accelerator|get_accelerator\(\)|device_module|torch_device)$")


_TIMERS = re.compile(r"timer|profiler|stopwatch|benchmark", re.I)  # classes that measure where they are used


class SynchronizeEveryStep(Rule):
    """Python waits for the GPU, or for all processes, on every training step.

    ## What it does
    Finds `torch.cuda.synchronize()`, `torch.distributed.barrier()` and `accelerator.wait_for_everyone()` on every
    training step that is not being timed.

    ## Why it is slow
    CUDA work is queued and runs behind the Python code. After a wait the queue is empty, and the GPU idles until the
    next step is prepared. Results need no such wait: reading a value waits by itself, and DDP exchanges gradients in
    step anyway.

    ## Fix safety
    Unsafe: code that shares memory with another stream or process may rely on the wait.

    ## Sources
    - [CUDA semantics: asynchronous execution](https://docs.pytorch.org/docs/stable/notes/cuda.html#asynchronous-execution)
    """

    id = "PTO107"
    name = "synchronize-every-step"
    family = "sync"
    severity = Severity.LOW
    triggers = ("synchronize(", "barrier(", "wait_for_everyone(")
    sure_triggers = STEP_WORDS
    nodes = (ast.Call,)
    calls = frozenset({"synchronize", "barrier", "wait_for_everyone"})
    when_wrong = "the step is timed, or memory is shared with another stream or process"

    VALID = (
        """
        import torch.distributed as dist

        def synchronize():
            if not dist.is_available() or dist.get_world_size() == 1:
                return
            dist.barrier()

        for x in loader:
            loss = model(x.to(device))
            loss.backward()
            optimizer.step()
            synchronize()
        """,
        """
        class Timer:
            def elapsed(self):
                torch.cuda.synchronize()
                return clock() - self.start

        timer = Timer()
        for batch in loader:
            model(batch.cuda()).loss.backward()
            optimizer.step()
            log(timer.elapsed())
        """,
        """
        def step(self):
            # every process writes its shard before the others read it
            torch.distributed.barrier()
            self.optimizer.step()
        """,
        """
        for batch in loader:
            start = time.perf_counter()
            model(batch.cuda()).loss.backward()
            optimizer.step()
            torch.cuda.synchronize()
            times.append(time.perf_counter() - start)
        """,
        """
        for step, batch in enumerate(loader):
            model(batch.cuda()).loss.backward()
            optimizer.step()
            if step % 1000 == 0:
                torch.distributed.barrier()
                save(model)
        """,
        """
        for epoch in range(epochs):
            for batch in loader:
                model(batch.cuda()).loss.backward()
                optimizer.step()
            torch.cuda.synchronize()
        """,
    )
    INVALID = (
        Invalid("""
            for batch in loader:
                model(batch.cuda()).loss.backward()
                optimizer.step()
                torch.cuda.synchronize()  # !
                # +
        """),
        Invalid("""
            import torch.distributed as dist
            # +

            # +
            for batch in loader:
                dist.barrier()  # !
                # +
                model(batch.cuda()).loss.backward()
                optimizer.step()
        """),
        Invalid("""
            for batch in loader:
                accelerator.backward(model(batch).loss)
                accelerator.wait_for_everyone()  # !
                # +
                optimizer.step()
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call) or not isinstance(file.index.parent(node), ast.Expr):
            return
        func = node.func
        whom = _WAITS.get(file.imports.qualified(func))
        if whom is None and isinstance(func, ast.Attribute) and func.attr == "wait_for_everyone":
            whom = "every other process"
        if whom is None and isinstance(func, ast.Attribute) and _DEVICE.search(file.source(func.value)):
            whom = "the GPU" if func.attr == "synchronize" else None
        if whom is None:
            return
        place = often_place(node, file)
        if place is None:
            return
        cls = file.index.class_of(node)
        if cls is not None and _TIMERS.search(cls.name):
            return
        if _is_all_of_it(node, file):
            return  # whether the wait is needed is a question for each of its callers
        if _MEASURES.search(file.source(place.node)) or _follows_main_process(node, file):
            return  # the wait is what the code is for
        function = file.index.function_of(node)
        needed = (
            bool(_NEEDED.search(file.path))
            or _is_needed(place.node, file)
            or (function is not None and _is_needed(function, file))
        )
        explained = _explained(node, file)
        edit = remove_statement(file, node) if place.step is not None and not needed else None
        yield Problem(
            node,
            f"{quote(file, node)} makes Python wait for {whom} {place.words}, so the next step is not prepared "
            f"while this one computes. Nothing here needs the wait: remove it."
            f"{small_gain(node, place, file) if whom == 'the GPU' else ''}"
            if not needed
            else f"{quote(file, node)} makes Python wait for {whom} {place.words}, so nothing is queued while this "
            "computes. Keep it for the runs that measure, or time with events (`torch.cuda.Event`).",
            0.3 if needed or explained else place.prior(0.7),
            place.evidence,
            Fix(Safety.UNSAFE, (edit,), "no other stream or process relies on the wait") if edit else None,
            cause=place.node,
            facts={"timed_or_shared": float(needed), "explained": float(explained)},
        )


def _is_all_of_it(node: ast.AST, file: SourceFile) -> bool:
    """Does the function around it do nothing else but wait, once a few questions allow it: another name for the wait?"""
    function = file.index.function_of(node)
    return function is not None and all(
        isinstance(part, (ast.Pass, ast.Return, ast.If, ast.Assign, ast.Import, ast.ImportFrom))
        or (isinstance(part, ast.Expr) and (part.value is node or isinstance(part.value, ast.Constant)))
        for part in own_nodes(function)
        if isinstance(part, ast.stmt)
    )


def _follows_main_process(node: ast.AST, file: SourceFile) -> bool:
    """Does the statement before do what one process does for all of them, such as writing a file?"""
    statement = file.index.statement_of(node)
    block = getattr(file.index.parent(statement), "body", [])
    before = block[block.index(statement) - 1] if statement in block[1:] else None
    return isinstance(before, ast.If) and bool(_MAIN_PROCESS.search(file.source(before.test)))


def _explained(node: ast.AST, file: SourceFile) -> bool:
    """Does a comment stand right above the call, or above the test that guards it? Then the wait is on purpose."""
    statement = file.index.statement_of(node)
    parent = file.index.parent(statement)
    lines = [statement.lineno, *([parent.lineno] if isinstance(parent, (ast.If, ast.With)) else [])]
    return any(line > 1 and file.line(line - 1).lstrip().startswith("#") for line in lines)


@remembered
def _is_needed(root: ast.AST, file: SourceFile) -> bool:
    return bool(_NEEDED.search(file.source(root)))
