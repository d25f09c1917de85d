from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import Invalid, Problem, Rule, Severity, SourceFile
from ptopt.rules.shared.places import step_evidence
from ptopt.source.context import Step
from ptopt.source.file import remembered
from ptopt.source.index import FunctionNode, Loop

_DECIDED = re.compile(
    r"autocast|\bamp\b|GradScaler|half\(|bfloat16|bf16|fp16|float16|precision|accelerat|deepspeed|float64|double\(|apex"
    r"|TrainingArguments|\bcfg\.dtype|\bdtype\b",
    re.I,
)
_SMALL = re.compile(
    r"\bgym(nasium)?\b|\bppo\b|\bdqn\b|mnist|linear_?regression|torch_geometric|\bdgl\b|LBFGS", re.I
)


class FullPrecisionTraining(Rule):
    """A network is trained on a GPU in float32 throughout.

    ## What it does
    Finds a training loop on CUDA in a file that mentions no mixed precision in any form.

    ## Why it is slow
    Tensor cores run bfloat16 matrix products and convolutions several times faster than float32 ones, and
    activations take half the memory and bandwidth.

    ## When this is wrong
    When another file sets the precision, when the network is too small to be bound by its arithmetic, when the GPU
    is older than Ampere (float16 with a `GradScaler` is the choice there), or when the numerics need float32.

    ## Example
    ```python
    for x, y in loader:
        loss = criterion(model(x.cuda()), y.cuda())
        loss.backward()
        optimizer.step()
    ```

    ## Use instead
    ```python
    for x, y in loader:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = criterion(model(x.cuda()), y.cuda())
        loss.backward()
        optimizer.step()
    ```

    ## Fix safety
    There is no fix: mixed precision changes the numbers, and wants a look at the losses.

    ## Sources
    - [PyTorch performance tuning guide: mixed precision](https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html)
    """

    id = "PTO753"
    name = "full-precision-training"
    family = "precision"
    severity = Severity.HIGH
    default = False  # a file cannot show that no other one sets the precision
    triggers = ("cuda",)
    requires = ("backward",)
    nodes = (ast.For,)
    when_wrong = "another file sets the precision, the network is small, or the GPU has no bfloat16"

    VALID = (
        """
        for x, y in loader:
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = criterion(model(x.cuda()), y.cuda())
            loss.backward()
            optimizer.step()
        """,
        """
        model = build(args.precision).cuda()
        for x, y in loader:
            criterion(model(x.cuda()), y.cuda()).backward()
            optimizer.step()
        """,
        """
        env = gym.make("CartPole-v1")
        policy.cuda()
        for episode in episodes:
            play(policy, env).backward()
            optimizer.step()
        """,
        """
        points = torch.zeros(8, requires_grad=True)
        for i in range(100):
            energy(points).backward()
            optimizer.step()
        report(torch.cuda.is_available())
        """,
    )
    INVALID = (
        Invalid(
            """
            for x, y in loader:
                loss = criterion(model(x.cuda()), y.cuda())
                loss.backward()  # !
                optimizer.step()
            """
        ),
        Invalid(
            """
            def train_epoch(train_loader, model, optimizer, cfg):
                model.train()
                for cur_iter, (inputs, labels) in enumerate(train_loader):
                    preds = model(inputs.cuda(non_blocking=True))
                    loss = loss_fun(preds, labels.cuda())
                    optimizer.zero_grad()
                    loss.backward()  # !
                    optimizer.step()
            """
        ),
        Invalid(
            """
            device = torch.device("cuda")
            for epoch in range(epochs):
                for batch in train_data:
                    loss = net(batch.to(device)).mean()
                    loss.backward()  # !
                    opt.step()
            """
        ),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.For) or _is_range(node.iter):
            return
        mark = _backward_by_loop(file.index.function_of(node), file).get(node)
        if mark is None or file.search(_DECIDED) or file.search(_SMALL):
            return
        yield Problem(
            mark,
            "Nothing in this file takes the training step out of float32. Run the forward pass and the loss under "
            '`torch.autocast("cuda", dtype=torch.bfloat16)`; on GPUs before Ampere use float16 and a `GradScaler`.',
            0.6,
            step_evidence(Step("loop", node, mark), file),
        )


def _is_range(iterable: ast.expr) -> bool:
    """Loops over a range fit a few tensors more often than they train a network on a data set."""
    return (
        isinstance(iterable, ast.Call) and isinstance(iterable.func, ast.Name) and iterable.func.id == "range"
    )


@remembered
def _backward_by_loop(function: FunctionNode | None, file: SourceFile) -> dict[Loop | None, ast.Call]:
    """Innermost loop -> the first backward call that it repeats."""
    first: dict[Loop | None, ast.Call] = {}
    for call in file.context.marks_in(function):
        if isinstance(call.func, ast.Attribute) and call.func.attr == "backward":
            first.setdefault(next(file.index.loops_of(call), None), call)
    return first
