from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import ClassVar

from ptopt.rules.base import Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import quote
from ptopt.rules.shared.places import may_hold_a_step, often_place
from ptopt.rules.sync._reads import beside, wait_facts
from ptopt.rules.sync.tensor_asked_first import flag_first
from ptopt.source.context import STEP_WORDS
from ptopt.source.index import walk

_NAN_CHECK = re.compile(r"isnan|isinf|isfinite|nan", re.I)
_TELLS = re.compile(r"warn|log|print", re.I)


class BranchOnTensor(Rule):
    """Python branches on a tensor's value in code that runs often.

    ## What it does
    Finds `if`, `while` and `assert` whose condition is a tensor, or `torch.equal` and `torch.allclose` of tensors, in
    training steps and, less surely, in forward passes, losses, metrics and functions that work on their caller's
    tensors. Checks for NaN or infinity, branches that raise or leave early, and branches that need the value in any
    case (a mask that picks rows, a size) count less.

    ## Why it is slow
    Python has to know the value to choose the branch, so it waits for every queued kernel: one synchronisation per
    step, and a graph break under `torch.compile`.

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
    triggers = ("if ", "while ", "assert ")
    sure_triggers = STEP_WORDS
    partly: ClassVar[frozenset[str]] = frozenset({"torch._assert_async", "torch.nan_to_num"})
    nodes = (ast.If, ast.While, ast.Assert, ast.IfExp)
    when_wrong = "the branch saves more work than the wait costs, or training runs on the CPU"

    VALID = (
        """
        class Kernel(torch.autograd.Function):
            @staticmethod
            def backward(ctx, grad):
                B = ctx.B
                C = ctx.C
                assert B * C % min(C, 1024) == 0
                kernel.backward(B, C, grad)
                return None, None, grad
        """,
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
        Invalid("""
            for x, y in loader:
                loss = F.mse_loss(model(x.to(device)), y.to(device))
                if loss > limit:  # !
                    loss = loss * 0.1
                loss.backward()
                optimizer.step()
        """),
        Invalid("""
            for x, y in loader:
                mask = torch.eq(y.to(device), -1)
                if mask.any():  # !
                    x = x.masked_fill(mask, 0)
                loss = model(x).mean()
                loss.backward()
                optimizer.step()
        """),
        Invalid("""
            class Net(pl.LightningModule):
                def training_step(self, batch, batch_idx):
                    loss = F.cross_entropy(self(batch.x), batch.y)
                    assert loss >= 0  # !
                    return loss
        """),
    )

    def may_be_sure(self, file: SourceFile) -> bool:
        """Only in a training step."""
        return may_hold_a_step(file)

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        test = getattr(node, "test", None)
        tensor = file.waits.branch_tensor(test) if isinstance(test, ast.expr) else None
        place = often_place(test, file) if tensor is not None and isinstance(test, ast.expr) else None
        if tensor is None or place is None or not isinstance(test, ast.expr):
            return
        if isinstance(test, ast.BoolOp) and flag_first(test, tensor, file) is not None:
            return  # that of `tensor-asked-first`
        facts = {
            "checks_finite": float(bool(_NAN_CHECK.search(file.source(test)))),
            "leaves": float(_on_purpose(node)),
            "needs_value": float(not isinstance(node, ast.Assert) and _needs_value(node, tensor, file)),
            "behind_flag": float(
                isinstance(test, ast.BoolOp) and not file.index.within(tensor, test.values[0])
            ),
        }
        yield Problem(
            test,
            f"{quote(file, tensor)} is computed on the device: to {'check' if _checks(node) else 'branch on'} it, Python "
            f"waits for the GPU {place.words}. {_advice(node, tensor, file)}{beside(test, place.node, file)}",
            0.3
            if any(facts.values())
            else (0.7 if place.step is not None and place.step.kind == "loop" else place.prior(0.62)),
            place.evidence,
            cause=place.node,
            subject=tensor,
            facts={**facts, **wait_facts(test, place.node, file)},
        )


def _checks(node: ast.AST) -> bool:
    return isinstance(node, ast.Assert) or (
        isinstance(node, ast.If) and isinstance(node.body[0], (ast.Raise, ast.Assert))
    )


def _advice(node: ast.AST, tensor: ast.expr, file: SourceFile) -> str:
    if _checks(node):
        waitless = ", or with `torch._assert_async`, which does not wait"
        return f"Check it behind a debug switch{waitless if file.facts.has('torch._assert_async') else ''}."
    if _NAN_CHECK.search(ast.unparse(tensor)):
        cleaned = (
            "`torch.nan_to_num`, `torch.where`" if file.facts.has("torch.nan_to_num") else "`torch.where`"
        )
        return f"Test it every N steps, or clean the values without a test ({cleaned})."
    if isinstance(tensor, ast.Call) and isinstance(tensor.func, ast.Attribute) and tensor.func.attr == "any":
        return "A masked operation (`torch.where`) does nothing where no element is set, and needs no test."
    if _only_tells(node):
        return "Test it every N steps, or behind a debug switch."
    return "Use `torch.where`, or test it every N steps."


def _only_tells(node: ast.AST) -> bool:
    """A branch that prints or warns, and does nothing else: `torch.where` cannot."""
    body = node.body if isinstance(node, ast.If) and not node.orelse else []
    return bool(body) and all(_tells(stmt) for stmt in body)


def _tells(stmt: ast.stmt) -> bool:
    call = stmt.value if isinstance(stmt, ast.Expr) else None
    return isinstance(call, ast.Call) and bool(_TELLS.search(ast.unparse(call.func)))


def _on_purpose(node: ast.AST) -> bool:
    """A branch that stops the run, tells of a problem, or leaves early: no `torch.where` can do that."""
    for stmt in node.body if isinstance(node, ast.If) else ():
        if isinstance(stmt, (ast.Raise, ast.Assert, ast.Return, ast.Continue, ast.Break)):
            return True
        if _tells(stmt):
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
