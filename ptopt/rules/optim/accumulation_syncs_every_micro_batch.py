from __future__ import annotations

import ast
import dataclasses
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import ClassVar

from ptopt.rules.base import TEXTBOOK, Evidence, Invalid, Problem, Rule, Severity, SourceFile
from ptopt.rules.code import keyword_of
from ptopt.rules.optim._prepared import bypasses_prepare
from ptopt.source.calls import called_name
from ptopt.source.file import remembered
from ptopt.source.index import FUNCTIONS, FunctionNode, Loop, own_nodes, walk

# Any of these tells that somebody decides when gradients are averaged, or that another engine does.
_HANDLED_WORDS = (
    "no_sync", "ddp_sync", "accumulate(", "no_backward_sync", "require_backward_grad_sync", "set_requires_gradient_sync",
    "deepspeed", "gradient_accumulation_plugin", "GradientAccumulationPlugin", "FullyShardedDataParallel", "fully_shard", "horovod",
    "bmtrain", "colossalai", "apex.parallel", "Booster.", "booster.", "set_is_last_backward", "DistributedFusedAdam",
    "delay_allreduce", "DataParallelImpl",
)  # fmt: skip
_HANDLED = re.compile(r"\b(?:FSDP|bmt)\b")
_DISTRIBUTED = re.compile(
    r"DistributedDataParallel|\bddp\b|is_distributed|distributed_model|world_size|local_rank", re.I
)
_ACCELERATOR = re.compile(r"(\w+\.)*accelerator")
_MODEL = re.compile(r"(\w+\.)*\w*(model|net|network|transformer|unet|module|generator|encoder)", re.I)
_ACCUMULATES = re.compile(r"accum|update_freq|micro_batches|optimizer_period", re.I)
_WRAPS = re.compile(
    r"^(create|make|wrap|build|get|setup|to|prepare)_(ddp|distributed_data_parallel)(_model)?$"
)
_BACKWARD = ("backward", "_backward")
_SWITCHES = ("update_grad", "need_update")
_DDP = "torch.nn.parallel.DistributedDataParallel"


class AccumulationSyncsEveryMicroBatch(Rule):
    """Gradient accumulation averages the gradients over all processes on every micro-batch.

    ## What it does
    Finds a model wrapped in `DistributedDataParallel` (or prepared by an `Accelerator`) in a file whose loop steps
    the optimizer on every k-th backward pass only, without `no_sync()` or `accumulate()`.

    ## Why it is slow
    DDP averages all gradients during each backward pass. Of k micro-batches only the last needs it, so k - 1 of k
    transfers of the whole model's gradients are wasted.

    ## Example
    ```python
    model = DistributedDataParallel(model)
    for i, batch in enumerate(loader):
        (model(batch).loss / k).backward()
        if (i + 1) % k == 0:
            optimizer.step()
            optimizer.zero_grad()
    ```

    ## Use instead
    ```python
    model = DistributedDataParallel(model)
    for i, batch in enumerate(loader):
        last = (i + 1) % k == 0
        with nullcontext() if last else model.no_sync():
            (model(batch).loss / k).backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()
    ```

    ## Fix safety
    There is no fix: forward and backward must both move under the context manager.

    ## Sources
    - [Accelerate: gradient synchronization](https://huggingface.co/docs/accelerate/concept_guides/gradient_synchronization)
    - [DistributedDataParallel.no_sync](https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html)
    """

    id = "PTO705"
    name = "accumulation-syncs-every-micro-batch"
    family = "optim"
    severity = Severity.HIGH
    triggers = (
        "DistributedDataParallel", "Accelerator(", "distributed", "world_size", "local_rank", "ddp", "update_grad", "need_update",
    )  # fmt: skip
    requires = ("backward", "update_grad", "need_update")
    partly: ClassVar[frozenset[str]] = frozenset({"accelerator.no_sync"})
    nodes = (ast.Call,)
    when_wrong = "the job runs in one process, or memory does not allow unreduced gradients"

    VALID = (
        """
        import bmtrain as bmt

        def train(model, loader, optimizer, args):
            model = bmt.BMTrainModelWrapper(model)
            part = len(loader.dataset) // bmt.world_size()
            for step, batch in enumerate(loader):
                loss = model(batch).mean() / args.gradient_accumulation_steps
                loss.backward()
                if step % args.gradient_accumulation_steps == 0:
                    optimizer.step()
        """,
        """
        class Trainer:
            def __init__(self, transformer, codec):
                self.accelerator = Accelerator()
                self.wrapper = CodecAndTransformer(codec, transformer)
                self.transformer, self.optim = self.accelerator.prepare(transformer, Adam(transformer.parameters()))

            def step(self):
                for _ in range(self.grad_accum_every):
                    loss = self.wrapper(next(self.batches))
                    self.accelerator.backward(loss / self.grad_accum_every)
                self.optim.step()
        """,
        """
        def train(model, loader, optimizer, args):
            if args.local_rank != -1:
                torch.cuda.set_device(args.local_rank)
            model = torch.nn.DataParallel(model)
            for step, batch in enumerate(loader):
                loss = model(batch).mean() / args.gradient_accumulation_steps
                loss.backward()
                if step % args.gradient_accumulation_steps == 0:
                    optimizer.step()
        """,
        """
        from accelerate import Accelerator

        class Trainer:
            def __init__(self, model, loader):
                self.accelerator, self.model = Accelerator(), model

            def train(self, loader, steps):
                for _ in range(steps):
                    for _ in range(self.accumulate_every):
                        loss = self.model(next(loader))
                        self.accelerator.backward(loss / self.accumulate_every)
                    self.optimizer.step()
        """,
        """
        model = DistributedDataParallel(model)
        for i, batch in enumerate(loader):
            booster.backward(model(batch).loss, optimizer)
            if (i + 1) % accumulation == 0:
                optimizer.step()
        """,
        """
        from apex.parallel import DistributedDataParallel

        model = DistributedDataParallel(model)
        for i, batch in enumerate(loader):
            (model(batch).loss / k).backward()
            if (i + 1) % k == 0:
                optimizer.step()
        """,
        """
        from torch.nn.parallel import DistributedDataParallel

        model = DistributedDataParallel(model)
        for i, batch in enumerate(loader):
            with nullcontext() if (i + 1) % k == 0 else model.no_sync():
                model(batch).backward()
            if (i + 1) % k == 0:
                optimizer.step()
        """,
        """
        from torch.nn.parallel import DistributedDataParallel

        model = DistributedDataParallel(model)
        for i, batch in enumerate(loader):
            model(batch).backward()
            optimizer.step()
            if i % 100 == 0:
                log(i)
        """,
        """
        for i, batch in enumerate(loader):
            model(batch).backward()
            if (i + 1) % k == 0:
                optimizer.step()
        """,
        """
        from torch.nn.parallel import DistributedDataParallel

        model = DistributedDataParallel(model)
        for batch in loader:
            losses = model(batch)
            for loss in losses:
                loss.backward(retain_graph=True)
            optimizer.step()
        """,
        """
        from torch.nn.parallel import DistributedDataParallel

        model = DistributedDataParallel(model)
        for i, batch in enumerate(loader):
            d_loss(batch).backward()
            d_optimizer.step()
            if i % n_critic == 0:
                g_loss(batch).backward()
                g_optimizer.step()
        """,
    )
    INVALID = (
        Invalid("""
            from torch.nn.parallel import DistributedDataParallel as DDP

            model = DDP(model, device_ids=[rank])
            for i, batch in enumerate(loader):
                loss = model(batch).loss / k
                loss.backward()  # !
                if (i + 1) % k == 0:
                    optimizer.step()
                    optimizer.zero_grad()
        """),
        Invalid("""
            model = nn.parallel.DistributedDataParallel(model)
            for batch in loader:
                for micro in batch.chunk(4):
                    scaler.scale(model(micro)).backward()  # !
                scaler.step(optimizer)
                scaler.update()
        """),
        Invalid("""
            class Trainer:
                def __init__(self, model, optimizer):
                    self.model, self.optimizer, self.micro_steps = DistributedDataParallel(model), optimizer, 0

                def run_step(self, batch):
                    loss = self.model(batch)
                    loss.backward()  # !
                    self.micro_steps += 1
                    if self.micro_steps >= self.every:
                        self.optimizer.step()
                        self.optimizer.zero_grad()
                        self.micro_steps = 0
        """),
        Invalid("""
            from torch.nn.parallel import DistributedDataParallel

            def train(model, loader, optimizer, scale_loss, k):
                model = DistributedDataParallel(model)
                for i, batch in enumerate(loader):
                    loss = model(batch) / k
                    scale_loss(loss, optimizer, parameters=model.parameters(), update_grad=(i + 1) % k == 0)  # !
        """),
        Invalid("""
            from accelerate import Accelerator

            accelerator = Accelerator()
            model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
            for step, batch in enumerate(loader):
                accelerator.backward(model(batch).loss / args.accumulation_steps)  # !
                if step % args.accumulation_steps == 0 or step == len(loader) - 1:
                    optimizer.step()
                    optimizer.zero_grad()
        """),
    )

    def candidates(self, file: SourceFile) -> list[ast.AST]:
        """The calls of a backward pass, and those with an argument that says when the optimizer steps."""
        backward = (call for name in _BACKWARD for call in file.calls_named(name))
        return list(dict.fromkeys([*file.index.calls_with(*_SWITCHES), *backward]))

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call) or not _is_backward(node, file) or file.once(_is_handled):
            return
        wrapper = file.once(_wrapper)
        if wrapper is None and not _is_distributed(file) and not _wrapped_elsewhere(node, file):
            return
        function = file.index.function_of(node)
        loop = next(file.index.loops_of(node), None)
        step = _switched_step(node) or _later_step(node, loop or function, file)
        sign = step or _divided(node, file) or _stepped_by_class(function, file)
        if sign is None:
            return
        accelerate = wrapper is not None and _qualified(wrapper, file).rpartition(".")[2] == "Accelerator"
        if accelerate and bypasses_prepare(node, file):
            return
        context = f"{_accelerator(node)}.no_sync({_prepared(file)})" if accelerate else "model.no_sync()"
        shown = (
            "the optimizer steps"
            if step is not None
            else "the loss is divided to be accumulated, and applied"
        )
        sure = wrapper is not None and step is not None
        found = Problem(
            node,
            f"Under DDP the gradients are averaged over all processes in every backward pass, but {shown} only after several of "
            f"them (line {sign.lineno}). Run the forward and the backward pass of all but the last one under "
            f"`with {context}`.",
            0.65 if sure and accelerate else TEXTBOOK if sure else 0.55,
            (
                *(
                    [Evidence(wrapper.lineno, "the model's gradients are averaged over processes")]
                    if wrapper
                    else []
                ),
                Evidence(sign.lineno, "applied after several backward passes"),
            ),
            cause=loop,
            facts={
                "wrapped_here": float(wrapper is not None),
                "in_loop": float(loop is not None),
                "step_seen": float(step is not None),
            },
        )
        # A change may add the counting alone: then the comment stands there.
        yield dataclasses.replace(
            found, elsewhere=() if step is None else (dataclasses.replace(found, node=step),)
        )


def _is_handled(file: SourceFile) -> bool:
    return any(word in file.text for word in _HANDLED_WORDS) or file.search(_HANDLED, ("fsdp", "bmt"))


def _is_distributed(file: SourceFile) -> bool:
    """Do words tell that another file wraps the model in DDP? `DataParallel` has one process, and no `no_sync`."""
    plain = "DataParallel(" in file.text and "DistributedDataParallel" not in file.text
    return not plain and bool(file.search(_DISTRIBUTED))


def _wrapped_elsewhere(call: ast.Call, file: SourceFile) -> bool:
    """Is it a step by switch, as `engine` files have it, in a repository that wraps its model in DDP?"""
    return _switched_step(call) is not None and file.repository.mentions(b"DistributedDataParallel(")


def _divided(backward: ast.Call, file: SourceFile) -> ast.BinOp | ast.AugAssign | None:
    """`loss = loss / accumulation_steps` in the function of the backward call."""
    function = file.index.function_of(backward)
    for node in own_nodes(function) if function is not None else ():
        if not isinstance(node, (ast.BinOp, ast.AugAssign)) or not isinstance(node.op, ast.Div):
            continue
        divided, by = (node.left, node.right) if isinstance(node, ast.BinOp) else (node.target, node.value)
        if "loss" in ast.unparse(divided) and _ACCUMULATES.search(ast.unparse(by)):
            return node
    return None


def _stepped_by_class(function: FunctionNode | None, file: SourceFile) -> ast.Call | None:
    """The optimizer step of another method of the class, one that counts accumulated passes."""
    cls = file.index.parent(function) if function is not None else None
    if not isinstance(cls, ast.ClassDef):
        return None
    for other in cls.body:
        if isinstance(other, FUNCTIONS) and other is not function:
            steps = [m for m in file.context.marks_in(other) if _is_step(m)]
            if steps and _ACCUMULATES.search(file.source(other)):
                return steps[0]
    return None


def _is_backward(call: ast.Call, file: SourceFile) -> bool:
    """A backward pass, or a method of this file that does nothing but one, or one with an argument that says when it steps."""
    func = call.func
    if not isinstance(func, ast.Attribute):
        return _switched_step(call) is not None
    return func.attr in _BACKWARD or _switched_step(call) is not None


def _switched_step(call: ast.Call) -> ast.expr | None:
    """`(i + 1) % k == 0` of `loss_scaler(loss, optimizer, update_grad=(i + 1) % k == 0)`, as timm and its heirs write it."""
    condition = next((c for name in _SWITCHES if (c := keyword_of(call, name)) is not None), None)
    return condition if condition is not None and _has_modulo(condition) else None


def _qualified(call: ast.Call, file: SourceFile) -> str:
    return file.imports.qualified(call.func)


def _wrapper(file: SourceFile) -> ast.Call | None:
    """The call that wraps the model, unless a switch of the wrapper takes care of the accumulation."""
    for call in file.index.of_type(ast.Call):
        name = _qualified(call, file)
        if name == _DDP or name.endswith("parallel.distributed.DistributedDataParallel"):
            return call
        if call.args and _WRAPS.search(called_name(call)):
            return call
        if name in ("accelerate.Accelerator", "accelerate.accelerator.Accelerator"):
            handled = keyword_of(call, "gradient_accumulation_steps") is not None
            return call if not handled and _prepares(file) else None
    return None


def _accelerator(backward: ast.Call) -> str:
    """The object whose `backward` it is, as the code names it: `self.accelerator`."""
    held = ast.unparse(backward.func.value) if isinstance(backward.func, ast.Attribute) else ""
    return held if _ACCELERATOR.fullmatch(held) else "accelerator"


def _prepared(file: SourceFile) -> str:
    """The model that `prepare` gives back, as the code names it: the first of its results."""
    for assign in file.index.of_type(ast.Assign):
        if isinstance(assign.value, ast.Call) and called_name(assign.value) == "prepare":
            target = assign.targets[0]
            first = ast.unparse(target.elts[0] if isinstance(target, ast.Tuple) and target.elts else target)
            if _MODEL.fullmatch(first):
                return first
    return "model"


def _prepares(file: SourceFile) -> bool:
    """Does anybody pass a model through `accelerator.prepare`? One that is not is averaged with nobody's."""
    return "prepare(" in file.text or file.repository.mentions(b".prepare(")


def _later_step(backward: ast.Call, loop: Loop | FunctionNode | None, file: SourceFile) -> ast.Call | None:
    """The optimizer step that follows several runs of `backward` in `loop`."""
    function = file.index.function_of(backward)
    if loop is None:
        return None
    after = _first_after(backward.lineno, _steps_of(function, file))
    if after is None or _modulo_guard(backward, loop, file) is not None:
        return None
    inside = _first_after(backward.lineno, _steps_inside(loop, file))
    if inside is not None:
        # Every step of the loop must be a rare one, or this backward pass belongs to one that is not.
        return inside if backward.lineno >= _last_frequent_step(loop, file) else None
    if isinstance(loop, FUNCTIONS):
        return None
    outer = next(file.index.loops_of(loop), None)
    if outer is None or next(file.index.loops_of(after), None) is not outer:
        return None
    return after if _loops_over_parts(backward, loop, outer) else None


@remembered
def _steps_of(function: FunctionNode | None, file: SourceFile) -> list[ast.Call]:
    return sorted((c for c in file.context.marks_in(function) if _is_step(c)), key=lambda c: c.lineno)


@remembered
def _steps_inside(loop: Loop | FunctionNode, file: SourceFile) -> list[ast.Call]:
    steps = _steps_of(loop if isinstance(loop, FUNCTIONS) else file.index.function_of(loop), file)
    start = bisect_left(steps, loop.lineno, key=lambda c: c.lineno)
    stop = bisect_right(steps, loop.end_lineno or loop.lineno, key=lambda c: c.lineno)
    return [c for c in steps[start:stop] if file.index.within(c, loop)]


@remembered
def _last_frequent_step(loop: Loop | FunctionNode, file: SourceFile) -> int:
    """The line of the last step of the loop that is no rare one; 0 when all are."""
    steps = _steps_inside(loop, file)
    return max((c.lineno for c in steps if _modulo_guard(c, loop, file) is None), default=0)


def _first_after(line: int, calls: list[ast.Call]) -> ast.Call | None:
    at = bisect_right(calls, line, key=lambda c: c.lineno)
    return calls[at] if at < len(calls) else None


def _is_step(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr == "step"


def _modulo_guard(node: ast.AST, loop: Loop | FunctionNode, file: SourceFile) -> ast.If | None:
    """The `if step % k == 0:` between the node and its loop, or the `if self.count >= k:` that sets the count back."""
    for ancestor, child in file.index.ancestors(node):
        if ancestor is loop or isinstance(ancestor, FUNCTIONS):
            return None
        if not isinstance(ancestor, ast.If) or child not in ancestor.body:
            continue
        if _has_modulo(ancestor.test) or _sets_count_back(ancestor, file):
            return ancestor
    return None


@remembered
def _sets_count_back(condition: ast.If, file: SourceFile) -> bool:
    """Does it compare a count, which its function adds 1 to, and set it to 0 in its body?"""
    test = condition.test
    compared = (
        {ast.unparse(test.left), *map(ast.unparse, test.comparators)}
        if isinstance(test, ast.Compare)
        else set()
    )
    back = {
        ast.unparse(target)
        for node in own_nodes(condition)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and node.value.value == 0
        for target in node.targets
    }
    return bool(compared & back & _counted(file.index.function_of(condition) or file.tree))


@remembered
def _counted(scope: ast.AST) -> frozenset[str]:
    """What the scope adds 1 to."""
    return frozenset(
        ast.unparse(node.target)
        for node in own_nodes(scope)
        if isinstance(node, ast.AugAssign)
        and isinstance(node.op, ast.Add)
        and isinstance(node.value, ast.Constant)
        and node.value.value == 1
    )


def _has_modulo(test: ast.expr) -> bool:
    return any(isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mod) for n in walk(test))


def _loops_over_parts(backward: ast.Call, loop: Loop, outer: Loop) -> bool:
    """Does `loop` run over pieces of what one round of `outer` brings (not over a loader of its own, nor losses)?"""
    loss = backward.func.value if isinstance(backward.func, ast.Attribute) else None
    if not isinstance(loop, ast.For) or (isinstance(loss, ast.Name) and loss.id in _names(loop.target)):
        return False
    return bool(_names(loop.iter) & _made_before(loop, outer)) or bool(
        re.search(r"accum|micro", ast.unparse(loop.iter), re.I)
    )


@remembered
def _made_before(loop: Loop, outer: Loop) -> frozenset[str]:
    stored = (n for n in own_nodes(outer) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    return frozenset(n.id for n in stored if n.lineno <= loop.lineno)


def _names(expr: ast.expr) -> set[str]:
    return {n.id for n in walk(expr) if isinstance(n, ast.Name)}
