from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator

from ptopt.rules.autograd._carriers import (
    CUTS,
    adds_to,
    backpropagated,
    carrier_of,
    frees_graph,
    is_cut_anywhere,
    made_before,
    outlives,
    reduced_to_loss,
    returns,
    terms_of,
    with_gradient,
    with_terms,
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
)
from ptopt.rules.code import quote
from ptopt.rules.shared.evaluation import evaluation_of
from ptopt.rules.shared.networks import path_of
from ptopt.rules.shared.no_grad import remedy_of
from ptopt.source.file import remembered
from ptopt.source.index import FUNCTIONS, FunctionNode, own_nodes, walk
from ptopt.source.values import is_loss_name

_METRICS = re.compile(
    r"(^|_)(metrics?|logs?|stats?|history|info|scalars|summary|meters?|log_dict|outputs|losses)(_|$)|loss",
    re.I,
)


_FREED = 0.6  # some kilobytes a step


class MetricKeepsGraph(Rule):
    """A running metric keeps the autograd graph of every step.

    ## What it does
    Finds `total += loss` and `history.append(loss)` in an evaluation that autograd records, and in a training loop, of the loss or of one
    of its terms, when the total outlives the step and is not backpropagated itself; and metrics returned beside a loss that are not detached
    although their neighbours are.

    ## Why it is slow
    A tensor that still has its graph keeps that graph alive. Where no `backward()` runs through it (an evaluation, a graph
    that is retained, steps that are skipped), that is all activations of each pass: memory grows with every batch, until it
    runs out. This has high severity.

    Where `backward()` has run, what the graph saved is freed. Its nodes stay, some kilobytes a step (20 KB for 12 linear
    layers): seen in runs of many thousand steps alone, and of low severity.

    ## When this is wrong
    When the sum is backpropagated later (several losses in one step, truncated backpropagation through time).

    ## Example
    ```python
    model.eval()
    for x, y in val_loader:
        loss = F.cross_entropy(model(x), y)
        losses.append(loss)
    ```

    ## Use instead
    ```python
    model.eval()
    with torch.no_grad():
        for x, y in val_loader:
            loss = F.cross_entropy(model(x), y)
            losses.append(loss)
    ```
    In a training loop, `losses.append(loss.detach())`. `.item()` would cut the graph too, but makes Python wait for the GPU on every step.

    ## Fix safety
    Unsafe: the total must not be backpropagated, nor what an evaluation returns or stores.

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
        def train(model, loader, optimizer, schedule):
            betas, weights, penalties, regs = [], [], 0.0, 0.0
            for step, (x, y) in enumerate(loader):
                out, mu = model(x)
                beta = schedule(step)
                loss_weight = schedule(2 * step)
                penalty_loss = F.mse_loss(mu, y).detach()
                reg = 0.0
                kl = mu.pow(2).mean()
                loss = loss_weight * F.mse_loss(out, y) + beta * kl + penalty_loss + reg
                loss.backward()
                optimizer.step()
                betas.append(beta)
                weights.append(loss_weight)
                penalties += penalty_loss
                regs += reg
        """,
        """
        def train(model, loader, optimizer):
            for x, y in loader:
                aux_total = 0.0
                for layer in model.layers:
                    x, aux_loss = layer(x)
                    aux_total += aux_loss
                loss = F.mse_loss(x, y) + aux_total
                loss.backward()
                optimizer.step()
        """,
        """
        @torch.no_grad()
        def evaluate(model, loader):
            model.eval()
            losses = []
            for x, y in loader:
                loss = F.cross_entropy(model(x), y)
                losses.append(loss)
            return torch.stack(losses).mean().item()
        """,
        """
        def evaluate(model, loader):
            model.eval()
            for x, y in loader:
                losses = []
                loss = F.cross_entropy(model(x), y)
                losses.append(loss)
                print(sum(losses).item())
        """,
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
        Invalid("""
            def train(model, loader, optimizer):
                total, aux_total = 0.0, 0.0
                for x, y in loader:
                    out, mu = model(x)
                    aux_loss = mu.pow(2).mean()
                    loss = F.mse_loss(out, y) + 0.1 * aux_loss
                    loss.backward()
                    optimizer.step()
                    total += loss.item()
                    aux_total += aux_loss  # !
                    # + aux_total += aux_loss.detach()
        """),
        Invalid("""
            def train(model, loader, optimizer):
                kept = []
                for x, y in loader:
                    loss = F.mse_loss(model(x), y)
                    kept.append(loss)  # !
                    # + kept.append(loss.detach())
                    loss_scaler(loss, optimizer, parameters=model.parameters())
        """),
        Invalid("""
            def evaluate(model, loader, device):
            # + @torch.no_grad()
            # + def evaluate(model, loader, device):
                model.eval()
                losses = []
                for x, y in loader:
                    loss = F.cross_entropy(model(x.to(device)), y.to(device))
                    losses.append(loss)  # !
                print(torch.stack(losses).mean().item())
        """),
        Invalid("""
            total = 0
            for x, y in loader:
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
                total += loss  # !
                # + total += loss.detach()
        """),
        Invalid("""
            losses = []
            for x, y in loader:
                loss = F.cross_entropy(model(x), y)
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                losses.append(loss)  # !
                # + losses.append(loss.detach())
        """),
        Invalid("""
            def get_batch_loss_metrics(self, model, batch):
                metrics = {}
                logps, nll_loss = self.forward(model, batch)
                loss = self.dpo_loss(logps).mean() + nll_loss
                metrics["logps"] = logps.detach().mean()
                metrics["nll_loss"] = nll_loss.mean()  # !
                # + metrics["nll_loss"] = nll_loss.detach().mean()
                return loss, metrics
        """),
        Invalid("""
            class Net(pl.LightningModule):
                def training_step(self, batch, batch_idx):
                    loss = F.cross_entropy(self(batch.x), batch.y)
                    self.train_losses.append(loss)  # !
                    # + self.train_losses.append(loss.detach())
                    return loss
        """),
    )

    def candidates(self, file: SourceFile) -> list[ast.AST]:
        entries = [a for a in file.index.of_type(ast.Assign) if isinstance(a.targets[0], ast.Subscript)]
        return [*file.index.of_type(ast.AugAssign), *file.calls_named("append"), *entries]

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
    if step is None:
        if is_loss_name(carrier.id):
            yield from _evaluated(node, carrier, path, value, file)
        return
    if file.context.grad_off(node):
        return
    function = file.index.function_of(node)
    if with_gradient(carrier.id, function, file):
        return  # a forward that is done again to backpropagate a given gradient: no loss
    trained = backpropagated(function, file)
    returned = isinstance(step.node, FUNCTIONS) and step.node is function and returns(function, carrier.id)
    framework = returned and step.mark is step.node
    parts = terms_of(trained, function, file)
    whole = carrier.id if carrier.id in trained or framework else parts.get(carrier.id)
    if whole is None:
        return
    if is_cut_anywhere(carrier.id, function, file):
        return
    if (
        path in trained
        or path in parts
        or not outlives(path, node, step.node, file)
        or reduced_to_loss(path, function, with_terms(function, file), file)
    ):
        return
    freed = framework or frees_graph(whole, node, step.node, file)
    yield Problem(
        node,
        f"`{path}` keeps the autograd graph of every step, because {quote(file, value)} still carries it"
        + (
            ": `backward()` freed what it saved, and its nodes stay: a little memory for each step. "
            if freed
            else ", with all activations of the steps that no `backward()` ran through. "
        )
        + f"Keep `{carrier.id}.detach()`, which cuts the graph without waiting for the GPU.",
        _FREED
        if freed
        else 0.75
        if carrier is not value or whole != carrier.id
        else TEXTBOOK
        if step.kind == "loop" or _never_emptied(path, file)
        else 0.85,
        (Evidence(step.line, "the training step"),),
        _detached(carrier, path, file),
        cause=step.node,
        facts={"freed": float(freed)},
        severity=Severity.LOW if freed else None,
    )


def _evaluated(
    node: ast.AST, carrier: ast.Name, path: str, value: ast.expr, file: SourceFile
) -> Iterator[Problem]:
    """`losses.append(loss)` in an evaluation that autograd records: no `backward()` ever frees the graph."""
    function = file.index.function_of(node)
    found = evaluation_of(function, file)
    loop = next(iter(file.index.loops_of(node)), None)
    if found is None or loop is None or file.context.grad_off(node):
        return
    calls = _passes_by_loop(function, file).get(loop, {})
    if is_cut_anywhere(carrier.id, function, file) or not _made_of(carrier, calls, loop, file):
        return
    if not (path.startswith("self.") or made_before(path, function, loop, file)):
        return
    sure = carrier is value and found.case.confidence >= TEXTBOOK
    yield Problem(
        node,
        f"`{path}` keeps the autograd graph of every batch, with all activations, because {quote(file, value)} carries it and "
        f"no `backward()` frees it: memory grows until the evaluation ends. Turn autograd off around the loop, or keep "
        f"`{carrier.id}.detach()`.",
        TEXTBOOK if sure else min(found.case.confidence, 0.75),
        (Evidence(min(calls.values()), "the pass, with autograd on"),),
        remedy_of(found, function, file)[1],
        cause=found.case.loop or function,
        facts={"freed": 0.0},
    )


@remembered
def _passes_by_loop(function: FunctionNode | None, file: SourceFile) -> dict[ast.AST, dict[ast.AST, int]]:
    """The passes of the evaluation that stand in each loop, with their lines."""
    found = evaluation_of(function, file)
    passes: dict[ast.AST, dict[ast.AST, int]] = {}
    for call, _ in found.calls if found is not None else ():
        for loop in file.index.loops_of(call):
            passes.setdefault(loop, {})[call] = call.lineno
    return passes


def _made_of(carrier: ast.Name, calls: Collection[ast.AST], loop: ast.AST, file: SourceFile) -> bool:
    """Is the loss computed from one of the passes, in the same iteration?"""
    pending, seen = [carrier], set[str]()
    while pending:
        name = pending.pop()
        binding = file.bindings.last_before(name)
        value = binding.value if binding is not None and binding.kind in ("assign", "unpack") else None
        if value is None or name.id in seen or not file.index.within(value, loop):
            continue
        seen.add(name.id)
        for part in walk(value):
            if part in calls:
                return True
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load):
                pending.append(part)
    return False


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
        f"{quote(file, node.value)} still carries the graph of `{loss}`: as long as `{held}` is kept, so are its nodes, and "
        f"the activations where no `backward()` runs. Detach it, as line {cut.lineno} does.",
        _FREED,
        (Evidence(cut.lineno, "a neighbour that is detached"),),
        _detached(carrier, held, file),
        severity=Severity.LOW,
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
