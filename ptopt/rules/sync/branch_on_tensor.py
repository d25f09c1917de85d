from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import Invalid, Problem, Rule, Severity, SourceFile, quote
from ptopt.rules.places import every_step, step_evidence, step_words

_NAN_CHECK = re.compile(r"isnan|isinf|isfinite|nan", re.I)


class BranchOnTensor(Rule):
    """Python branches on a tensor's value on every training step.

    ## What it does
    Finds `if`, `while` and `assert` whose condition is a tensor, in a loop that trains or in a function that is one
    training step. Checks for NaN or infinity, and branches that raise, are left alone: they
    are there on purpose.

    ## Why it is slow
    Python has to know the value to choose the branch, so it waits for every queued kernel: one synchronisation per
    step, and a graph break under `torch.compile`.

    ## When this is wrong
    When the branch decides about work that costs more than the wait, or training runs on the CPU.

    ## Example
    ```python
    for x, y in loader:
        loss = F.mse_loss(model(x.to(device)), y.to(device))
        if loss > limit:
            loss = limit * loss / loss.detach()
        loss.backward()
        optimizer.step()
    ```

    ## Use instead
    ```python
    for x, y in loader:
        loss = F.mse_loss(model(x.to(device)), y.to(device))
        loss = torch.where(loss > limit, limit * loss / loss.detach(), loss)
        loss.backward()
        optimizer.step()
    ```

    ## Fix safety
    No fix: `torch.where` computes both branches, which may not be what is meant.

    ## Sources
    - [PyTorch performance tuning guide: avoid unnecessary CPU-GPU synchronization](https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html)
    """

    id = "PTO103"
    name = "branch-on-tensor"
    family = "sync"
    severity = Severity.MEDIUM
    triggers = ("if ", "while ", "assert ")
    requires = ("backward", "training_step", "train_step", "compute_loss", ".step(")
    nodes = (ast.If, ast.While, ast.Assert, ast.IfExp)
    when_wrong = "the branch saves more work than the wait costs, or training runs on the CPU"

    VALID = (
        """
        for x, y in loader:
            out = model(x.to(device))
            if out.shape[0] != y.shape[0]:
                continue
            loss = F.mse_loss(out, y.to(device))
            loss.backward()
            optimizer.step()
        """,
        """
        for x, y in loader:
            loss = F.mse_loss(model(x.to(device)), y.to(device))
            if torch.isnan(loss):
                raise ValueError("loss is nan")
            loss.backward()
            optimizer.step()
        """,
        """
        for x, y in loader:
            loss = F.mse_loss(model(x.to(device)), y.to(device))
            if loss is not None:
                loss.backward()
            optimizer.step()
        """,
        """
        def evaluate(model, x, y):
            loss = F.mse_loss(model(x.cuda()), y.cuda())
            if loss < best:
                save(model)
        """,
    )
    INVALID = (
        Invalid(
            """
            for x, y in loader:
                loss = F.mse_loss(model(x.to(device)), y.to(device))
                if loss > limit:  # !
                    loss = loss * 0.1
                loss.backward()
                optimizer.step()
            """
        ),
        Invalid(
            """
            for x, y in loader:
                mask = torch.eq(y.to(device), -1)
                if mask.any():  # !
                    x = x[~mask]
                loss = model(x).mean()
                loss.backward()
                optimizer.step()
            """
        ),
        Invalid(
            """
            class Net(pl.LightningModule):
                def training_step(self, batch, batch_idx):
                    loss = F.cross_entropy(self(batch.x), batch.y)
                    assert loss >= 0  # !
                    return loss
            """
        ),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        test = getattr(node, "test", None)
        if not isinstance(test, ast.expr) or isinstance(test, (ast.Constant, ast.Name)):
            return  # a bare name is more often a flag than a tensor
        tensor = _tensor_in(test, file)
        if tensor is None:
            return
        step = every_step(node, file)
        if step is None or _NAN_CHECK.search(file.source(test)) or _only_raises(node):
            return
        yield Problem(
            test,
            f"{quote(file, tensor)} is a tensor: to branch on it, Python waits for the GPU {step_words(step)}. "
            "Use `torch.where`, or test it every N steps.",
            0.7 if step.kind == "loop" else 0.62,
            step_evidence(step, file),
            cause=step.node,
        )


def _only_raises(node: ast.AST) -> bool:
    """A check of the input that stops the run: it is there on purpose."""
    return isinstance(node, ast.If) and any(isinstance(stmt, (ast.Raise, ast.Assert)) for stmt in node.body)


def _tensor_in(test: ast.expr, file: SourceFile) -> ast.expr | None:
    """The part of a condition whose truth is read off a device tensor."""
    if isinstance(test, ast.BoolOp):
        return next((found for value in test.values if (found := _tensor_in(value, file)) is not None), None)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _tensor_in(test.operand, file)
    if (
        isinstance(test, ast.Call)
        and isinstance(test.func, ast.Name)
        and test.func.id == "bool"
        and test.args
    ):
        return _tensor_in(test.args[0], file)
    value = file.values.of(test)
    return test if value.kind == "tensor" and value.device != "cpu" else None
