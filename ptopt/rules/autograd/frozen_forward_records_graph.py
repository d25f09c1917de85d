from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.autograd._models import network_of, networks, path_of
from ptopt.rules.autograd._no_grad import wrap
from ptopt.rules.base import Evidence, Invalid, Problem, Rule, Severity, SourceFile, quote
from ptopt.rules.shared.uses import uses_by_binding
from ptopt.source.file import remembered
from ptopt.source.index import FUNCTIONS, FunctionNode, own_nodes, walk

_FROZEN_NAME = re.compile(
    r"(^|_)(teacher|target|ref|reference|ema|frozen|old|momentum)(_|$)|(^|_)(tgt|targ)(_|$)", re.I
)
_METADATA = frozenset({"shape", "device", "dtype", "size", "dim", "ndim"})


class FrozenForwardRecordsGraph(Rule):
    """A forward pass whose result is only used detached is recorded by autograd.

    ## What it does
    Finds the forward pass of a network (a teacher, a target or a reference network, a generator that is not trained
    in this step) inside training code, all of whose uses go through `.detach()`.

    ## Why it is slow
    `.detach()` cuts the graph after it was recorded: the pass has kept all its activations until then, which is
    memory that the trained network needs at the same moment. Under `torch.no_grad()` nothing is kept.

    ## When this is wrong
    When the network runs with gradients too inside the same `torch.autocast` region (its weights are cached there
    as they were cast under `no_grad`).

    ## Example
    ```python
    teacher_logits = teacher(x)
    loss = F.kl_div(log_probs, F.softmax(teacher_logits / T, dim=-1).detach())
    loss.backward()
    ```

    ## Use instead
    ```python
    with torch.no_grad():
        teacher_logits = teacher(x)
    loss = F.kl_div(log_probs, F.softmax(teacher_logits / T, dim=-1))
    loss.backward()
    ```

    ## Fix safety
    Unsafe: the network must not run with gradients in the same `torch.autocast` region.

    ## Sources
    - [Autograd mechanics: locally disabling gradient computation](https://docs.pytorch.org/docs/stable/notes/autograd.html)
    """

    id = "PTO502"
    name = "frozen-forward-records-graph"
    family = "autograd"
    severity = Severity.HIGH
    triggers = (".detach()",)
    requires = ("backward", "loss", ".step(", "cross_entropy", "kl_div")
    nodes = (ast.Call,)
    when_wrong = "the network also runs with gradients inside the same autocast region"

    VALID = (
        """
        for i, (lr, hr) in enumerate(loader):
            loss = criterion(model(lr.cuda()), hr.cuda())
            loss.backward()
            optimizer.step()
            if i % 1000 == 0:
                sr = model(lr.cuda())
                save_image(sr.detach(), f"{i}.png")
        """,
        """
        def train_step(x):
            with torch.no_grad():
                target = teacher(x)
            loss = F.mse_loss(student(x), target.detach())
            loss.backward()
            optimizer.step()
        """,
        """
        for real in loader:
            fake = generator(noise)
            d_loss = F.softplus(discriminator(fake.detach())).mean()
            d_loss.backward()
            d_optimizer.step()
            g_loss = F.softplus(-discriminator(fake)).mean()
            g_loss.backward()
            g_optimizer.step()
        """,
        """
        for x, y in loader:
            out = model(x)
            loss = F.cross_entropy(out, y)
            loss.backward()
            optimizer.step()
            correct += (out.detach().argmax(1) == y).sum()
        """,
        """
        teacher.requires_grad_(False)
        for x, y in loader:
            target = teacher(x).detach()
            loss = F.mse_loss(student(x), target)
            loss.backward()
            optimizer.step()
        """,
    )
    INVALID = (
        Invalid(
            """
            class Distill(nn.Module):
                def forward(self, img, labels):
                    teacher_logits = self.teacher(img)  # !
                    logits = self.student(img)
                    soft = F.softmax(teacher_logits / self.T, dim=-1).detach()
                    return F.cross_entropy(logits, labels) + F.kl_div(F.log_softmax(logits, dim=-1), soft)
            """,
            """
            class Distill(nn.Module):
                def forward(self, img, labels):
                    with torch.no_grad():
                        teacher_logits = self.teacher(img)
                    logits = self.student(img)
                    soft = F.softmax(teacher_logits / self.T, dim=-1).detach()
                    return F.cross_entropy(logits, labels) + F.kl_div(F.log_softmax(logits, dim=-1), soft)
            """,
        ),
        Invalid(
            """
            def learn(self, batch):
                target_q = self.critic_old(batch.obs_next)  # !
                dev = target_q.device
                target_q = (batch.rew.to(dev) + self.gamma * target_q).detach()
                loss = F.mse_loss(self.critic(batch.obs, batch.act), target_q)
                loss.backward()
                self.optim.step()
            """,
            """
            def learn(self, batch):
                with torch.no_grad():
                    target_q = self.critic_old(batch.obs_next)
                dev = target_q.device
                target_q = (batch.rew.to(dev) + self.gamma * target_q).detach()
                loss = F.mse_loss(self.critic(batch.obs, batch.act), target_q)
                loss.backward()
                self.optim.step()
            """,
        ),
        Invalid(
            """
            for states, rewards, nexts in loader:
                best = target_net(nexts.to(device)).max(1)[0].detach()  # !
                loss = F.smooth_l1_loss(policy_net(states.to(device)).max(1)[0], rewards + 0.99 * best)
                loss.backward()
                optimizer.step()
            """,
            """
            for states, rewards, nexts in loader:
                with torch.no_grad():
                    best = target_net(nexts.to(device)).max(1)[0].detach()
                loss = F.smooth_l1_loss(policy_net(states.to(device)).max(1)[0], rewards + 0.99 * best)
                loss.backward()
                optimizer.step()
            """,
        ),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call) or not (node.args or node.keywords):
            return
        path = path_of(node.func)
        if not path or path == "self" or path.endswith(".forward"):
            return
        path = network_of(node, file)
        if not path or path in networks(file).frozen:
            return
        if any(isinstance(a, ast.Call) and network_of(a, file) for a in _around(node, file)):
            return  # the outer call speaks for both
        named = bool(_FROZEN_NAME.search(path.rpartition(".")[2]))
        detached = _detach_of(node, file)
        cuts = [detached] if detached is not None else _cuts(node, file)
        if not cuts or not _trains(node, file, named) or file.context.grad_off(node):
            return
        if file.context.rare_guard(node) is not None:
            return  # a sample now and then: its graph is one in many
        statement = _statement(node, file)
        first = cuts[0]
        where = "right away" if first.lineno == node.lineno else f"at line {first.lineno}"
        yield Problem(
            node,
            f"The graph of {quote(file, node, 40)} is recorded and then thrown away by `.detach()` {where}: until then "
            f"its activations sit in memory. Run `{path}` under `with torch.no_grad():`.",
            0.85 if named else 0.7,
            tuple(Evidence(cut.lineno, "the result is only used detached") for cut in cuts),
            wrap(statement, f"`{path}` does not also run with gradients in the same autocast region", file)
            if isinstance(statement, ast.Assign)
            else None,
        )


def _around(node: ast.expr, file: SourceFile) -> Iterator[ast.AST]:
    for ancestor, _ in file.index.ancestors(node):
        if isinstance(ancestor, ast.stmt):
            return
        yield ancestor


def _detach_of(node: ast.expr, file: SourceFile) -> ast.Call | None:
    """The `.detach()` that the value of `node` surely passes through inside its statement."""
    for ancestor, child in file.index.ancestors(node):
        if isinstance(ancestor, ast.Call):
            func = ancestor.func
            if child is func and isinstance(func, ast.Attribute) and func.attr in ("detach", "detach_"):
                return ancestor
            if child is not func and not _pure(ancestor, file):
                return None
        elif not isinstance(ancestor, (ast.Attribute, ast.BinOp, ast.UnaryOp, ast.Subscript, ast.keyword)):
            return None
    return None


def _pure(call: ast.Call, file: SourceFile) -> bool:
    """A function that only computes a value from its arguments: its result is all that is left of them."""
    qualified = file.imports.qualified(call.func)
    if qualified.startswith("torch."):
        return True
    return (
        isinstance(call.func, ast.Attribute)
        and file.values.is_tensor(call.func.value)
        or bool(network_of(call, file))
    )


def _cuts(call: ast.Call, file: SourceFile) -> list[ast.Call]:
    """The `.detach()` calls that all uses of the name `call` is bound to pass through; none if one use does not."""
    parent = file.index.parent(call)
    if (
        not isinstance(parent, ast.Assign)
        or len(parent.targets) != 1
        or not isinstance(parent.targets[0], ast.Name)
    ):
        return []
    name = parent.targets[0].id
    function = file.index.function_of(call)
    root: ast.AST = function if function is not None else file.tree
    cuts: list[ast.Call] = []
    for use in uses_by_binding(root, file).get((parent, name), ()):
        holder = file.index.parent(use)
        if isinstance(holder, ast.Attribute) and holder.attr in _METADATA:
            continue
        cut = _detach_of(use, file)
        if cut is None:
            return []
        cuts.append(cut)
    return [] if name in _names_of_nested(root) else cuts


@remembered
def _names_of_nested(root: ast.AST) -> frozenset[str]:
    nested = [n for n in own_nodes(root) if isinstance(n, (*FUNCTIONS, ast.Lambda))]
    return frozenset(n.id for inner in nested for n in walk(inner) if isinstance(n, ast.Name))


def _trains(call: ast.Call, file: SourceFile, named: bool) -> bool:
    """Does the pass stand in training code?"""
    if file.context.training_step(call) is not None:
        return True
    function = file.index.function_of(call)
    return isinstance(function, FUNCTIONS) and named and _makes_loss(function)


@remembered
def _makes_loss(function: FunctionNode) -> bool:
    """A forward, or a helper of it, that computes a loss."""
    return "loss" in function.name or any(
        isinstance(n, ast.Name)
        and "loss" in n.id
        or isinstance(n, ast.Attribute)
        and n.attr in ("cross_entropy", "kl_div")
        for n in own_nodes(function)
    )


def _statement(node: ast.AST, file: SourceFile) -> ast.stmt | None:
    for ancestor, _ in file.index.ancestors(node):
        if isinstance(ancestor, ast.stmt):
            return ancestor
    return None
