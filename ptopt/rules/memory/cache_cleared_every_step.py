from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import (
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
from ptopt.rules.shared.places import every_step, step_evidence, step_words
from ptopt.rules.shared.removal import remove_statement
from ptopt.source.context import Step
from ptopt.source.file import remembered
from ptopt.source.index import FUNCTIONS, own_nodes

_CLEARS = {
    "torch.cuda.empty_cache": "returns the cached memory to the driver, waits for the GPU, and the next step asks for it again",
    "torch.cuda.memory.empty_cache": "returns the cached memory to the driver, waits for the GPU, and the next step asks for it again",
    "torch.xpu.empty_cache": "returns the cached memory to the driver, and the next step asks for it again",
    "torch.mps.empty_cache": "returns the cached memory to the driver, and the next step asks for it again",
    "gc.collect": "goes over every Python object of the process while the GPU waits",
}
_AVERAGE = re.compile(r"ema|movingaverage|averag", re.I)
# Phases with different memory in one step: generation for reinforcement learning, several models in turn.
_PHASES = re.compile(r"\.generate\(|offload|\.to\(\s*[\"']cpu[\"']\s*\)|\bllm\.|release_memory|sleep\(")
_REINFORCEMENT = re.compile(r"grpo|\bppo|rloo|rollout|trajector|vllm|actor_critic", re.I)
_DEVICE_TEST = re.compile(r"cuda|gpu|xpu|mps|device", re.I)
_DECIDES = re.compile(r"empty|cache|\bgc|memory|garbage|oom|\d|%|[<>]", re.I)


class CacheClearedEveryStep(Rule):
    """The memory cache or the garbage is cleared on every training step.

    ## What it does
    Finds `torch.cuda.empty_cache()` and `gc.collect()` on every training step, also in the `step` of a moving
    average of the weights, unless a condition makes them rare.

    ## Why it is slow
    `empty_cache()` waits for the GPU and gives memory back that the next step must ask the driver for again.
    `gc.collect()` visits every Python object of the process. Neither makes memory available that torch could not
    have used itself.

    ## When this is wrong
    When phases of very different memory use alternate (generation and training), or when another process needs the
    memory in between.

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
        import gc
        import torch

        for shard in shards:
            weights = torch.load(shard, map_location="cpu")
            convert(weights)
            del weights
            gc.collect()
        """,
        """
        for epoch in range(epochs):
            for batch in loader:
                model(batch.cuda()).loss.backward()
                optimizer.step()
            torch.cuda.empty_cache()
        """,
        """
        for prompts in loader:
            replies = model.generate(prompts.cuda())
            torch.cuda.empty_cache()
            policy_loss(model, replies).backward()
            optimizer.step()
        """,
    )
    INVALID = (
        Invalid(
            """
            for batch in loader:
                model(batch.cuda()).loss.backward()
                optimizer.step()
                torch.cuda.empty_cache()  # !
            """,
            """
            for batch in loader:
                model(batch.cuda()).loss.backward()
                optimizer.step()
            """,
        ),
        Invalid(
            """
            import gc
            import torch

            def train_one_step(model, batch, optimizer, device):
                loss = model(batch.to(device)).loss
                loss.backward()
                optimizer.step()
                gc.collect()  # !
                return loss
            """,
            """
            import gc
            import torch

            def train_one_step(model, batch, optimizer, device):
                loss = model(batch.to(device)).loss
                loss.backward()
                optimizer.step()
                return loss
            """,
        ),
        Invalid(
            """
            class EMAModel:
                @torch.no_grad()
                def step(self, parameters):
                    for shadow, p in zip(self.shadow_params, parameters):
                        shadow.sub_((1 - self.decay) * (shadow - p))
                    torch.cuda.empty_cache()  # !
            """,
            """
            class EMAModel:
                @torch.no_grad()
                def step(self, parameters):
                    for shadow, p in zip(self.shadow_params, parameters):
                        shadow.sub_((1 - self.decay) * (shadow - p))
            """,
        ),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call) or node.args or node.keywords:
            return
        name = file.imports.qualified(node.func)
        cost = _CLEARS.get(name)
        if cost is None:
            return
        step = every_step(node, file) or _averaging(node, file)
        if step is None or _asked_for(node, step.node, file):
            return
        phases = file.search(_REINFORCEMENT) or _names_phase(step.node, file)
        evidence = step_evidence(step, file)
        if step.mark is step.node and isinstance(step.node, FUNCTIONS):
            evidence = (Evidence(step.node.lineno, f"`{step.node.name}` runs on every step"),)
        edit = remove_statement(file, node)
        yield Problem(
            node,
            f"`{name}()` runs {step_words(step)}: it {cost}. Remove it, or call it once per epoch.",
            0.5 if phases else 0.78,
            evidence,
            Fix(Safety.UNSAFE, (edit,), "the job fits in memory without it") if edit else None,
            cause=step.node,
        )


def _averaging(node: ast.AST, file: SourceFile) -> Step | None:
    """The method that updates a moving average of the weights: trainers call it on every step."""
    function = file.index.function_of(node)
    if function is None or function.name not in ("step", "update", "update_parameters", "__call__"):
        return None
    owner = file.index.parent(function)
    if not isinstance(owner, ast.ClassDef) or not _AVERAGE.search(owner.name):
        return None
    if file.context.rare_guard(node, function) is not None:
        return None
    return Step("function", function, function)


def _asked_for(node: ast.AST, stop: ast.AST, file: SourceFile) -> bool:
    """Does a condition, other than a test for the device, or an error decide whether to clear?"""
    for ancestor, child in file.index.ancestors(node):
        if ancestor is stop:
            return False
        if isinstance(ancestor, ast.Try):
            return True  # somebody deals with running out of memory
        if isinstance(ancestor, ast.If) and child is not ancestor.test:
            test = file.source(ancestor.test)
            if _DECIDES.search(test) or not _DEVICE_TEST.search(test):
                return True
    return False


@remembered
def _names_phase(root: ast.AST, file: SourceFile) -> bool:
    return any(_PHASES.search(file.source(n)) for n in own_nodes(root) if isinstance(n, ast.Call))
