from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.autograd._models import path_of
from ptopt.rules.base import Edit, Evidence, Fix, Invalid, Problem, Rule, Safety, Severity, SourceFile, quote
from ptopt.source.index import FUNCTIONS, FunctionNode, own_nodes
from ptopt.source.values import is_loss_name

_METRICS = re.compile(
    r"(^|_)(metrics?|logs?|stats?|history|info|scalars|summary|meters?|log_dict|outputs|losses)(_|$)|loss",
    re.I,
)
_CUTS = frozenset({"detach", "item", "tolist", "numpy", "data", "detach_"})


class MetricKeepsGraph(Rule):
    """A running metric keeps the autograd graph of every step.

    ## What it does
    Finds `total += loss` and `history.append(loss)` in a training loop when the total outlives the step and is not
    backpropagated itself, and metrics returned beside a loss that are not detached although their neighbours are.

    ## Why it is slow
    A tensor that still has its graph keeps that graph alive: nodes, and what they saved when nobody ran `backward()`
    through them. Memory grows with every step, until it runs out.

    ## When this is wrong
    When the sum is backpropagated later (several losses in one step, truncated backpropagation through time).

    ## Example
    ```python
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss
    ```

    ## Use instead
    ```python
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.detach()
    ```
    `.item()` would cut the graph too, but makes Python wait for the GPU on every step.

    ## Fix safety
    Unsafe: the total must not be backpropagated.

    ## Sources
    - [PyTorch FAQ: don't accumulate history across your training loop](https://docs.pytorch.org/docs/stable/notes/faq.html)
    """

    id = "PTO503"
    name = "metric-keeps-graph"
    family = "autograd"
    severity = Severity.HIGH
    triggers = ("+=", ".append(", "metrics[", "logs[", "log[", "stats[")
    requires = ("loss",)
    nodes = (ast.AugAssign, ast.Call, ast.Assign)
    when_wrong = "the sum or the list is backpropagated later"

    VALID = (
        """
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            total += loss.detach()
        """,
        """
        for x, y in loader:
            loss = 0
            for head in heads:
                loss += F.cross_entropy(head(x), y)
            loss.backward()
            optimizer.step()
        """,
        """
        total = 0
        for i, (x, y) in enumerate(loader):
            loss = F.cross_entropy(model(x), y)
            total += loss
            if (i + 1) % k == 0:
                total.backward()
                optimizer.step()
                total = 0
        """,
        """
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            total += loss.item() * x.size(0)
            losses.append(loss.data)
        """,
        """
        for episode in range(episodes):
            losses = []
            for state, reward in rollout:
                losses.append(F.smooth_l1_loss(model(state), reward))
            loss = torch.stack(losses).sum()
            loss.backward()
            optimizer.step()
        """,
    )
    INVALID = (
        Invalid(
            """
            total = 0
            for x, y in loader:
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
                total += loss  # !
            """,
            """
            total = 0
            for x, y in loader:
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
                total += loss.detach()
            """,
        ),
        Invalid(
            """
            losses = []
            for x, y in loader:
                loss = F.cross_entropy(model(x), y)
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                losses.append(loss)  # !
            """,
            """
            losses = []
            for x, y in loader:
                loss = F.cross_entropy(model(x), y)
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                losses.append(loss.detach())
            """,
        ),
        Invalid(
            """
            def get_batch_loss_metrics(self, model, batch):
                metrics = {}
                logps, nll_loss = self.forward(model, batch)
                loss = self.dpo_loss(logps).mean() + nll_loss
                metrics["logps"] = logps.detach().mean()
                metrics["nll_loss"] = nll_loss.mean()  # !
                return loss, metrics
            """,
            """
            def get_batch_loss_metrics(self, model, batch):
                metrics = {}
                logps, nll_loss = self.forward(model, batch)
                loss = self.dpo_loss(logps).mean() + nll_loss
                metrics["logps"] = logps.detach().mean()
                metrics["nll_loss"] = nll_loss.detach().mean()
                return loss, metrics
            """,
        ),
        Invalid(
            """
            class Net(pl.LightningModule):
                def training_step(self, batch, batch_idx):
                    loss = F.cross_entropy(self(batch.x), batch.y)
                    self.train_losses.append(loss)  # !
                    return loss
            """,
            """
            class Net(pl.LightningModule):
                def training_step(self, batch, batch_idx):
                    loss = F.cross_entropy(self(batch.x), batch.y)
                    self.train_losses.append(loss.detach())
                    return loss
            """,
        ),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if isinstance(node, ast.AugAssign):
            if isinstance(node.op, ast.Add):
                yield from _kept(node, node.target, node.value, file)
        elif isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and node.func.attr == "append" and len(node.args) == 1:
                yield from _kept(node, node.func.value, node.args[0], file)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            yield from _beside_loss(node, node.targets[0], file)


def _kept(node: ast.AST, target: ast.expr, value: ast.expr, file: SourceFile) -> Iterator[Problem]:
    """`total += loss` and `history.append(loss)`."""
    carrier = _carrier(value)
    holder = target.value if isinstance(target, ast.Subscript) else target
    path = path_of(holder)
    if carrier is None or not path:
        return
    step = file.context.training_step(node)
    if step is None or file.context.grad_off(node):
        return
    function = file.index.function_of(node)
    trained = _backpropagated(function, file)
    returned = isinstance(step.node, FUNCTIONS) and step.node is function and _returns(function, carrier.id)
    if carrier.id not in trained and not (returned and step.mark is step.node):
        return
    if any(b.value is not None and _is_cut(b.value) for b in file.values.bindings(function, carrier.id)):
        return
    if (
        path in trained
        or not _outlives(path, node, step.node, file)
        or _reduced_to_loss(path, function, trained, file)
    ):
        return
    yield Problem(
        node,
        f"`{path}` keeps the autograd graph of every step alive, because {quote(file, value)} still carries it. "
        f"Keep `{carrier.id}.detach()`, which cuts the graph without waiting for the GPU.",
        0.85 if carrier is value else 0.75,
        (Evidence(step.line, "the training step"),),
        _detached(carrier, path, file),
        cause=step.node,
    )


def _beside_loss(node: ast.Assign, target: ast.Subscript, file: SourceFile) -> Iterator[Problem]:
    """`metrics["nll"] = nll.mean()` where `nll` is a part of the returned loss and other metrics are detached."""
    if not isinstance(target.value, ast.Name) or not _METRICS.search(target.value.id):
        return
    carrier = _carrier(node.value)
    function = file.index.function_of(node)
    if carrier is None or function is None or file.context.grad_off(node):
        return
    held = target.value.id
    pair = next(
        (
            n.value.elts
            for n in own_nodes(function)
            if isinstance(n, ast.Return) and isinstance(n.value, ast.Tuple) and len(n.value.elts) == 2
        ),
        None,
    )
    if pair is None or not (
        isinstance(pair[0], ast.Name) and isinstance(pair[1], ast.Name) and pair[1].id == held
    ):
        return
    loss = pair[0].id
    if carrier.id != loss and not _adds_to(loss, carrier.id, function):
        return
    cut = [
        n
        for n in own_nodes(function)
        if isinstance(n, ast.Assign)
        and isinstance(n.targets[0], ast.Subscript)
        and isinstance(n.targets[0].slice, (ast.Constant, ast.JoinedStr))
        and path_of(n.targets[0].value) == held
        and any(isinstance(c, ast.Attribute) and c.attr in _CUTS for c in ast.walk(n.value))
    ]
    if not cut:
        return
    yield Problem(
        node,
        f"{quote(file, node.value)} still carries the graph of `{loss}`: as long as `{held}` is kept, so are the "
        f"activations of the step. Detach it, as line {cut[-1].lineno} does.",
        0.8,
        (Evidence(cut[-1].lineno, "a neighbour that is detached"),),
        _detached(carrier, held, file),
    )


def _carrier(value: ast.expr) -> ast.Name | None:
    """The name whose graph the value carries: `loss` of `loss`, `loss * n`, `loss.mean().cpu()`; None when it is cut."""
    if isinstance(value, ast.Name):
        return value
    if isinstance(value, ast.BinOp) and isinstance(value.op, (ast.Mult, ast.Div)):
        return _carrier(value.left) or _carrier(value.right) if not _is_cut(value) else None
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        return (
            _carrier(value.func.value)
            if value.func.attr in ("mean", "sum", "cpu", "float", "to", "clone")
            else None
        )
    return None


def _is_cut(value: ast.expr) -> bool:
    return any(isinstance(n, ast.Attribute) and n.attr in _CUTS for n in ast.walk(value))


def _backpropagated(function: FunctionNode | None, file: SourceFile) -> set[str]:
    """Names that the function calls `backward` on, itself or through a scaler, an accelerator or an engine."""
    found: set[str] = set()
    for call in file.calls.calls_in(function):
        func = call.func
        if not (isinstance(func, ast.Attribute) and func.attr in ("backward", "manual_backward")):
            continue
        for part in (func.value, *call.args):
            names = [n for n in ast.walk(part) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]
            found.update(n.id for n in names)
            if path := path_of(part):
                found.add(path)
    return found


def _outlives(path: str, node: ast.AST, step: ast.AST, file: SourceFile) -> bool:
    """Is what `path` names made before the step, so that it is still there in the next one?"""
    if path.startswith("self."):
        return not any(
            isinstance(n, ast.Assign) and any(path_of(t) == path for t in n.targets) for n in own_nodes(step)
        )
    if isinstance(step, FUNCTIONS) or "." in path:
        return False
    function = file.index.function_of(node)
    made = [b for b in file.values.bindings(function, path) if b.kind != "augment"]
    return bool(made) and not any(file.index.within(b.node, step) for b in made)


def _reduced_to_loss(path: str, function: FunctionNode | None, trained: set[str], file: SourceFile) -> bool:
    """Does a name that is backpropagated come from `path`: `loss = sum(losses)`?"""
    return any(
        isinstance(n, ast.Name) and n.id == path
        for name in trained
        for binding in file.values.bindings(function, name)
        if binding.value is not None
        for n in ast.walk(binding.value)
    )


def _returns(function: FunctionNode, name: str) -> bool:
    return is_loss_name(name) and any(
        isinstance(n, ast.Return) and isinstance(n.value, ast.Name) and n.value.id == name
        for n in own_nodes(function)
    )


def _adds_to(loss: str, part: str, function: FunctionNode) -> bool:
    """`loss = ... + part`, `loss += weight * part`"""
    for node in own_nodes(function):
        target = (
            node.targets[0]
            if isinstance(node, ast.Assign)
            else node.target
            if isinstance(node, ast.AugAssign)
            else None
        )
        if (
            isinstance(target, ast.Name)
            and target.id == loss
            and isinstance(node, (ast.Assign, ast.AugAssign))
        ):
            terms = [node.value]
            while terms:
                term = terms.pop()
                if isinstance(term, ast.BinOp):
                    terms += [term.left, term.right]
                elif isinstance(term, ast.Name) and term.id == part:
                    return True
                elif (
                    isinstance(term, ast.Call)
                    and isinstance(term.func, ast.Attribute)
                    and term.func.attr in ("mean", "sum")
                ):
                    terms.append(term.func.value)
    return False


def _detached(carrier: ast.Name, held: str, file: SourceFile) -> Fix:
    end = file.bounds(carrier)[1]
    return Fix(Safety.UNSAFE, (Edit(end, end, ".detach()"),), f"nothing in `{held}` is backpropagated")
