from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.autograd._carriers import (
    CUTS,
    adds_to,
    backpropagated,
    carrier_of,
    is_cut_anywhere,
    outlives,
    reduced_to_loss,
    returns,
    with_gradient,
)
from ptopt.rules.base import (
    TEXTBOOK,
    Edit,
    Evidence,
    Fix,
    Invalid,
    Problem,
    Rule,
    Safety,
    Severity,
    SourceFile,
    quote,
)
from ptopt.rules.shared.networks import path_of
from ptopt.source.file import remembered
from ptopt.source.index import FUNCTIONS, FunctionNode, own_nodes, walk

_METRICS = re.compile(
    r"(^|_)(metrics?|logs?|stats?|history|info|scalars|summary|meters?|log_dict|outputs|losses)(_|$)|loss",
    re.I,
)


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
    calls = frozenset({"append"})
    when_wrong = "the sum or the list is backpropagated later"

    VALID = (
        """
        for x, gradient in zip(shards, gradients):
            output = block(x)
            outputs.append(output)
            torch.autograd.backward(output, gradient)
        """,
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
    carrier = carrier_of(value)
    holder = target.value if isinstance(target, ast.Subscript) else target
    path = path_of(holder)
    if carrier is None or not path:
        return
    step = file.context.training_step(node)
    if step is None or file.context.grad_off(node):
        return
    function = file.index.function_of(node)
    if with_gradient(carrier.id, function, file):
        return  # a forward that is done again to backpropagate a given gradient: no loss
    trained = backpropagated(function, file)
    returned = isinstance(step.node, FUNCTIONS) and step.node is function and returns(function, carrier.id)
    if carrier.id not in trained and not (returned and step.mark is step.node):
        return
    if is_cut_anywhere(carrier.id, function, file):
        return
    if (
        path in trained
        or not outlives(path, node, step.node, file)
        or reduced_to_loss(path, function, trained, file)
    ):
        return
    yield Problem(
        node,
        f"`{path}` keeps the autograd graph of every step alive, because {quote(file, value)} still carries it. "
        f"Keep `{carrier.id}.detach()`, which cuts the graph without waiting for the GPU.",
        0.75
        if carrier is not value
        else TEXTBOOK
        if step.kind == "loop" or _never_emptied(path, file)
        else 0.85,
        (Evidence(step.line, "the training step"),),
        _detached(carrier, path, file),
        cause=step.node,
    )


def _never_emptied(path: str, file: SourceFile) -> bool:
    """Is it an attribute of `self` that is bound once, and never cleared: does it grow until the end?"""
    bound = len(re.findall(rf"{re.escape(path)}\s*(?::[^=\n]+)?=(?!=)", file.text))
    return (
        path.startswith("self.")
        and bound <= 1
        and not re.search(rf"{re.escape(path)}\.(clear|pop)", file.text)
    )


def _beside_loss(node: ast.Assign, target: ast.Subscript, file: SourceFile) -> Iterator[Problem]:
    """`metrics["nll"] = nll.mean()` where `nll` is a part of the returned loss and other metrics are detached."""
    if not isinstance(target.value, ast.Name) or not _METRICS.search(target.value.id):
        return
    carrier = carrier_of(node.value)
    function = file.index.function_of(node)
    if carrier is None or function is None or file.context.grad_off(node):
        return
    held = target.value.id
    pair = _returned_pair(function)
    if pair is None or not (
        isinstance(pair[0], ast.Name) and isinstance(pair[1], ast.Name) and pair[1].id == held
    ):
        return
    loss = pair[0].id
    if carrier.id != loss and not adds_to(loss, carrier.id, function):
        return
    cut = _last_cut(function, held)
    if cut is None:
        return
    yield Problem(
        node,
        f"{quote(file, node.value)} still carries the graph of `{loss}`: as long as `{held}` is kept, so are the "
        f"activations of the step. Detach it, as line {cut.lineno} does.",
        0.8,
        (Evidence(cut.lineno, "a neighbour that is detached"),),
        _detached(carrier, held, file),
    )


@remembered
def _returned_pair(function: FunctionNode) -> list[ast.expr] | None:
    for node in own_nodes(function):
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple) and len(node.value.elts) == 2:
            return node.value.elts
    return None


@remembered
def _last_cut(function: FunctionNode, held: str) -> ast.Assign | None:
    """The last `held["name"] = value.detach()` of the function."""
    cut = [
        n
        for n in own_nodes(function)
        if isinstance(n, ast.Assign)
        and isinstance(n.targets[0], ast.Subscript)
        and isinstance(n.targets[0].slice, (ast.Constant, ast.JoinedStr))
        and path_of(n.targets[0].value) == held
        and any(isinstance(c, ast.Attribute) and c.attr in CUTS for c in walk(n.value))
    ]
    return cut[-1] if cut else None


def _detached(carrier: ast.Name, held: str, file: SourceFile) -> Fix:
    end = file.bounds(carrier)[1]
    return Fix(Safety.UNSAFE, (Edit(end, end, ".detach()"),), f"nothing in `{held}` is backpropagated")
