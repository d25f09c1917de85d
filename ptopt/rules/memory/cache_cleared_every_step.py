from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from ptopt.rules.base import (
    TEXTBOOK,
    Benchmark,
    Evidence,
    Fix,
    Invalid,
    Problem,
    Rule,
    Safety,
    Severity,
    SourceFile,
)
from ptopt.rules.shared.places import BENCHMARK_PATH, every_step
from ptopt.rules.shared.removal import remove_statement
from ptopt.source.file import remembered
from ptopt.source.frequency import Frequency, Often
from ptopt.source.index import LOOPS, Loop, own_nodes

_GIVES_BACK = (
    "gives the cached memory back to the driver, waits for the GPU, and the next allocation asks for it again"
)
_VISITS = "visits every Python object of the process while the GPU waits"
_AVERAGE = re.compile(r"ema|movingaverage|averag", re.I)
# Phases with different memory in one step: generation for reinforcement learning, several models in turn.
_PHASES = re.compile(r"\.generate\(|offload|\.to\(\s*[\"']cpu[\"']\s*\)|\bllm\.|release_memory|sleep\(")
_REINFORCEMENT_WORDS = ("grpo", "ppo", "rloo", "rollout", "trajector", "vllm", "actor_critic")
_REINFORCEMENT = re.compile(r"grpo|\bppo|rloo|rollout|trajector|vllm|actor_critic", re.I)
_STEP_HOOKS = frozenset(
    "training_step on_train_batch_start on_train_batch_end on_before_optimizer_step on_after_backward on_before_backward "
    "on_before_zero_grad optimizer_step".split()
)
_DEVICE_TEST = re.compile(r"cuda|gpu|xpu|mps|device", re.I)
_DECIDES = re.compile(r"empty|cache|\bgc|memory|garbage|oom|\d|%|[<>]", re.I)
_FOR_THAT = re.compile(
    r"clear|clean|free|flush|empty|release|unload|offload|__del__|__exit__|(^|_)(gc|del|oom)(_|$)", re.I
)


class CacheClearedEveryStep(Rule):
    """Cached GPU memory is released, or garbage collected, in code that runs again and again.

    ## What it does
    Finds `empty_cache()` and `gc.collect()` on every training step, in loops over batches, images or layers, and in functions
    that are called from there, unless a condition makes them rare. Once an epoch is left alone: that costs nothing.

    ## Why it is slow
    `empty_cache()` waits for the GPU and gives memory back that the next allocation must ask the driver for again.
    `gc.collect()` visits every Python object of the process. Neither makes memory available that torch could not
    have used itself.

    ## Example
    ```python
    for batch in loader:
        model(batch).loss.backward()
        optimizer.step()
        torch.cuda.empty_cache()
    ```

    ## Use instead
    ```python
    for batch in loader:
        model(batch).loss.backward()
        optimizer.step()
    ```

    ## Fix safety
    Unsafe: without the call fragmentation may raise the peak of reserved memory.

    ## Sources
    - [peft#2894: 250 steps take 45 s without, 65 s with empty_cache](https://github.com/huggingface/peft/issues/2894)
    """

    id = "PTO801"
    name = "cache-cleared-every-step"
    family = "memory"
    severity = Severity.HIGH
    triggers = ("empty_cache", "gc.collect", "collect()")
    nodes = (ast.Call,)
    calls = frozenset({"empty_cache", "collect"})
    when_wrong = "phases of very different memory use alternate, or another process needs the memory"
    BENCHMARK = Benchmark(
        setup="""
import gc
import torch
torch.manual_seed(0)
gc.collect()
gc.freeze()
objects = [{"id": i, "tokens": [i, i + 1]} for i in range(20_000)]
x, w = torch.randn(256, 1024), torch.randn(1024, 1024)
""",
        before="result = x @ w; gc.collect()",
        after="result = x @ w",
        scope="a step of one matrix product",
        sizes="256 x 1024 times 1024 x 1024 on the CPU, 20,000 records in the process",
    )

    VALID = (
        """
        for iteration in range(iterations):
            render(scene).loss.backward()
            optimizer.step()
            if iteration in testing_iterations:
                report(scene)
                torch.cuda.empty_cache()
        """,
        """
        class Trainer:
            def run_epoch(self, phase, loader):
                if phase != "train":
                    torch.cuda.empty_cache()
                for batch in loader:
                    self.step(batch)
        """,
        """
        def measure(model, size):
            while size:
                torch.cuda.empty_cache()
                try:
                    return validate(model, size)
                except RuntimeError:
                    size //= 2
        """,
        """
        for epoch in range(epochs):
            for batch in loader:
                model(batch.cuda()).loss.backward()
                optimizer.step()
            evaluate(model)
            torch.cuda.empty_cache()
        """,
        """
        def forward(self, views):
            torch.cuda.empty_cache()
            free, _ = torch.cuda.mem_get_info()
            return torch.cat([self.head(part) for part in views.split(int(free // self.need))])
        """,
        """
        import gc
        import torch

        for batch in loader:
            gc.collect(1)
            model(batch.cuda()).loss.backward()
            optimizer.step()
        """,
        """
        for step, batch in enumerate(loader):
            model(batch.cuda()).loss.backward()
            optimizer.step()
            if step % 100 == 0:
                torch.cuda.empty_cache()
        """,
        """
        for batch in loader:
            try:
                model(batch.cuda()).loss.backward()
            except torch.cuda.OutOfMemoryError:
                torch.cuda.empty_cache()
            optimizer.step()
        """,
        """
        def train(config):
            for stage in config.stages:
                trainer, loader = prepare(stage)
                while trainer.step < stage.steps:
                    for data in loader:
                        trainer.run(data)
                torch.cuda.empty_cache()

        if __name__ == "__main__":
            train(read())
        """,
        """
        model = load(path)
        torch.cuda.empty_cache()
        for prompts in loader:
            replies = model.generate(prompts.cuda())
        """,
    )
    INVALID = (
        Invalid("""
            import lightning.pytorch as pl

            class System(pl.LightningModule):
                def training_step(self, batch, batch_nb):
                    return self.loss(self(batch["rays"]), batch["rgbs"])

                def on_train_batch_end(self, outputs, batch, batch_idx):
                    self.seen += 1
                    torch.cuda.empty_cache()  # !
                    # +
        """),
        Invalid("""
            for batch in loader:
                model(batch.cuda()).loss.backward()
                optimizer.step()
                torch.cuda.empty_cache()  # !
                # +
        """),
        Invalid("""
            import gc
            import torch

            def quantize(layers):
                for layer in layers:
                    pack(layer)
                    gc.collect()  # !
        """),
        Invalid("""
            class EMAModel:
                @torch.no_grad()
                def step(self, parameters):
                    for shadow, p in zip(self.shadow_params, parameters):
                        shadow.sub_((1 - self.decay) * (shadow - p))
                    torch.cuda.empty_cache()  # !
                    # +
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call):
            return
        name = file.imports.qualified(node.func) or file.source(node.func)
        collects = name == "gc.collect"
        if not collects and not name.endswith(".empty_cache"):
            return
        if collects and node.args and isinstance(node.args[0], ast.Constant) and node.args[0].value in (0, 1):
            return  # young objects alone: a few, on purpose
        average = _averaging(node, file)
        frequency = average or file.frequencies.of(node)
        looped = next(file.index.loops_of(node), None) is not None
        if frequency.often in (Often.RARELY, Often.EPOCH) or (frequency.often is Often.ONCE and not looped):
            return
        function = file.index.function_of(node)
        unknown = frequency.often is Often.UNKNOWN
        if BENCHMARK_PATH.search(file.path) or function is None and unknown or _asks_what_is_free(node, file):
            return
        if looped and (
            _tries_again(next(file.index.loops_of(node)), file)
            or _holds_training(next(file.index.loops_of(node)), file)
        ):
            return
        guarded = _guard(node, file)
        if guarded == "decided":
            return
        scope = file.frequencies.iteration_of(node)
        phases = file.search(_REINFORCEMENT, _REINFORCEMENT_WORDS) or _names_phase(scope or file.tree, file)
        if function is not None and unknown and not looped:
            if any(isinstance(n, LOOPS) for n in own_nodes(function)):
                return  # once for all that the loop goes through
            in_class = isinstance(file.index.parent(function), ast.ClassDef)
            if _FOR_THAT.search(function.name) or phases or not in_class:
                return  # what it is for, or between two phases, or most likely the end of a script
        hook = _is_step_hook(function, frequency, file)
        trains = every_step(node, file) is not None or average is not None or hook
        prior = 0.3 if unknown else 0.4 if frequency.often < Often.STEP else 0.5
        if trains and not guarded:
            prior = (
                0.5 if phases else TEXTBOOK
            )  # five of five that readers judged behind a `del` were useful, too
        line = frequency.line
        edit = remove_statement(file, node) if trains and not guarded else None
        if frequency.often is Often.ONCE:  # what repeats it is a loop of few passes, such as over layers
            scope_line = getattr(scope, "lineno", 0)
            frequency = replace(
                frequency, line=scope_line, reason=f"in each iteration of the loop at line {scope_line}"
            )
            line = scope_line
        when = f"runs {frequency.reason}" if frequency.reason else "runs on each call of this function"
        yield Problem(
            node,
            f"`{name}()` {when}: it {_VISITS if collects else _GIVES_BACK}. Remove it, or call it once, when "
            "the work is done.",
            prior,
            (Evidence(line, "what repeats it"),) if line and line != node.lineno else (),
            Fix(Safety.UNSAFE, (edit,), "the job fits in memory without it") if edit else None,
            cause=scope,
            facts={
                "collects": collects,
                "phases": phases,
                "looped": looped,
                "guarded": guarded != "",
                "after_del": _after_del(node, file),
            },
        )


def _is_step_hook(function: ast.AST | None, frequency: Frequency, file: SourceFile) -> bool:
    """Is it a hook that Lightning calls on each training step, such as `on_train_batch_end`?"""
    return (
        isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
        and function.name in _STEP_HOOKS
        and frequency.often is Often.STEP
        and frequency.trains
        and (file.imports.imports("lightning") or file.imports.imports("pytorch_lightning"))
    )


def _asks_what_is_free(node: ast.AST, file: SourceFile) -> bool:
    """Does the function then ask how much memory is free? What is cached would not be among it."""
    function = file.index.function_of(node)
    asked = file.calls_named("mem_get_info")
    return any(file.index.function_of(call) is function for call in asked)


def _averaging(node: ast.AST, file: SourceFile) -> Frequency | None:
    """The method that updates a moving average of the weights: trainers call it on every step."""
    function = file.index.function_of(node)
    if function is None or function.name not in ("step", "update", "update_parameters", "__call__"):
        return None
    owner = file.index.parent(function)
    if not isinstance(owner, ast.ClassDef) or not _AVERAGE.search(owner.name):
        return None
    if file.guards.rare(node, function) is not None:
        return None
    return Frequency(Often.STEP, function.lineno, f"on every call of `{owner.name}.{function.name}`")


def _after_del(node: ast.AST, file: SourceFile) -> bool:
    """Does a `del` stand among the three statements before the call?"""
    block = getattr(file.index.parent(file.index.statement_of(node)), "body", [])
    place = next((i for i, s in enumerate(block) if s is file.index.statement_of(node)), 0)
    return any(isinstance(s, ast.Delete) for s in block[max(0, place - 3) : place])


def _guard(node: ast.AST, file: SourceFile) -> str:
    """What decides whether to clear: "decided", on purpose; "error"; "test", other than for the device; or ""."""
    for ancestor, child in file.index.ancestors(node):
        if isinstance(ancestor, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return ""
        if isinstance(ancestor, ast.ExceptHandler):
            return "error"  # somebody deals with running out of memory
        if isinstance(ancestor, ast.If) and child is not ancestor.test:
            if file.context.holds_the_step(ancestor, node):
                continue  # as often as the optimizer steps
            test = file.source(ancestor.test)
            if _DECIDES.search(test):
                return "decided"
            if not _DEVICE_TEST.search(test):
                return "test"
    return ""


def _holds_training(loop: Loop, file: SourceFile) -> bool:
    """Does each pass of the loop hold a whole training or evaluation, such as one stage of several or one fold?"""
    if file.frequencies.goes_through_batches(loop) or file.context.step_mark(loop) is not None:
        return False
    return any(
        isinstance(inner, LOOPS)
        and (file.frequencies.goes_through_batches(inner) or file.context.step_mark(inner) is not None)
        for inner in own_nodes(loop)
        if inner is not loop
    )


@remembered
def _names_phase(root: ast.AST, file: SourceFile) -> bool:
    return any(_PHASES.search(file.source(n)) for n in own_nodes(root) if isinstance(n, ast.Call))


def _tries_again(loop: ast.AST, file: SourceFile) -> bool:
    """Does the loop run once more, with less, after the device ran out of memory?"""
    return isinstance(loop, ast.While) and any(
        isinstance(n, ast.ExceptHandler)
        and n.type is not None
        and re.search(r"RuntimeError|OutOfMemory", file.source(n.type))
        for n in own_nodes(loop)
    )
