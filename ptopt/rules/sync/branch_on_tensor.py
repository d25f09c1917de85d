from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import Invalid, Problem, Rule, Severity, SourceFile, quote
from ptopt.rules.shared.places import every_step, step_evidence, step_words
from ptopt.source.index import walk

_NAN_CHECK = re.compile(r"isnan|isinf|isfinite|nan", re.I)
_TELLS = re.compile(r"warn|log|print", re.I)


class BranchOnTensor(Rule):
    """Python branches on a tensor's value on every training step.

    ## What it does
    Finds `if`, `while` and `assert` whose condition is a tensor, in a loop that trains or in a function that is one
    training step. Checks for NaN or infinity, and branches that raise, warn or leave early, are there on purpose.
    Where the branch picks rows by a mask or takes the value as a size, Python waits for it in any case.

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
        def training_step(self, batch, batch_idx):
            keep = batch["mask"].to(self.device).bool()
            if not keep.any():
                return None
            return self.loss(batch["x"])
        """,
        """
        def training_step(self, batch, batch_idx):
            match = self.matcher(batch["boxes"].to(self.device)).max(dim=1)
            if torch.max(match.values) < 0:
                warnings.warn("no anchor matches")
            return self.loss(match)
        """,
        """
        def training_step(self, batch, batch_idx):
            valid = torch.gt(batch["ids"].to(self.device), 0)
            if valid.any():
                self.states[valid] = self.fill
            return self.loss(self.states)
        """,
        """
        def training_step(self, batch, batch_idx):
            longest = torch.max(batch["lengths"].to(self.device))
            missing = longest - batch["x"].shape[1]
            if missing > 0:
                batch["x"] = F.pad(batch["x"], (0, missing))
            return self.loss(batch["x"])
        """,
        """
        def training_step(self, batch, batch_idx):
            loss = self.loss(batch["x"].to(self.device))
            if self.use_queue or not torch.all(self.queue == 0):
                loss = loss + self.contrast(self.queue)
            return loss
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
                    x = x.masked_fill(mask, 0)
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
        if step is None or _NAN_CHECK.search(file.source(test)) or _on_purpose(node):
            return
        if not isinstance(node, ast.Assert) and _needs_value(node, tensor, file):
            return
        advice = (
            "Check it under a debug switch, or" if isinstance(node, ast.Assert) else "Use `torch.where`, or"
        )
        yield Problem(
            test,
            f"{quote(file, tensor)} is a tensor: to {'check' if isinstance(node, ast.Assert) else 'branch on'} it, "
            f"Python waits for the GPU {step_words(step)}. {advice} test it every N steps.",
            0.7 if step.kind == "loop" else 0.62,
            step_evidence(step, file),
            cause=step.node,
        )


def _on_purpose(node: ast.AST) -> bool:
    """A branch that stops the run, tells of a problem, or leaves early: no `torch.where` can do that."""
    for stmt in node.body if isinstance(node, ast.If) else ():
        if isinstance(stmt, (ast.Raise, ast.Assert, ast.Return, ast.Continue, ast.Break)):
            return True
        call = stmt.value if isinstance(stmt, ast.Expr) else None
        if isinstance(call, ast.Call) and _TELLS.search(ast.unparse(call.func)):
            return True
    return False


def _needs_value(node: ast.AST, tensor: ast.expr, file: SourceFile) -> bool:
    """Does the branch index with the tested tensor, or pass it on as a size? Then Python waits for it anyway."""
    if not isinstance(node, ast.If):
        return False
    tested = {n.id for n in walk(tensor) if isinstance(n, ast.Name)}
    for stmt in node.body:
        for use in walk(stmt):
            if not (isinstance(use, ast.Name) and use.id in tested and isinstance(use.ctx, ast.Load)):
                continue
            around = file.index.parent(use)
            while isinstance(around, (ast.UnaryOp, ast.Tuple, ast.BinOp)):
                around = file.index.parent(around)
            if isinstance(around, ast.Subscript) and not file.index.within(use, around.value):
                return True
            func = around.func if isinstance(around, ast.Call) else None
            name = func.attr if isinstance(func, ast.Attribute) else ""
            if re.search(
                r"^(new_|pad$|empty$|zeros$|ones$|full$|arange$|expand$|repeat|narrow$|split$)", name
            ):
                return True
    return False


def _tensor_in(test: ast.expr, file: SourceFile) -> ast.expr | None:
    """The part of a condition whose truth is read off a device tensor."""
    if isinstance(test, ast.BoolOp):
        return _tensor_in(test.values[0], file)  # what a flag before it decides may be read rarely
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
