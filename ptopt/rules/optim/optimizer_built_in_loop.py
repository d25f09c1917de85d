from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import method_call
from ptopt.rules.shared.places import every_step, step_evidence, step_words
from ptopt.source.calls import last_name
from ptopt.source.context import Step
from ptopt.source.file import remembered
from ptopt.source.index import FUNCTIONS, own_nodes

_NETWORK_LOSS = re.compile(r"(^|\.)(LPIPS|VGG\w*Loss|PerceptualLoss|InceptionV3|Vgg(16|19)\w*)$")
_COPIES = frozenset({"deepcopy", "clone", "functional_call", "make_functional"})


class OptimizerBuiltInLoop(Rule):
    """An optimizer, a scheduler or a loss network is constructed on every training step.

    ## What it does
    Finds the construction of a `torch.optim` optimizer or scheduler, or of a loss that holds a network, inside the
    loop that trains.

    ## Why it is slow
    A new optimizer sorts its parameters into groups and allocates its state again on every step, and forgets its
    momentum; a new loss network loads its weights again.

    ## When this is wrong
    When each iteration trains another set of parameters (meta-learning, one fit per image).

    ## Fix safety
    There is no fix: with one optimizer the momentum lives on, which changes the training.

    ## Sources
    - [torch.optim: constructing an optimizer](https://docs.pytorch.org/docs/stable/optim.html)
    """

    id = "PTO704"
    name = "optimizer-built-in-loop"
    family = "optim"
    triggers = ("optim", "lr_scheduler", "LPIPS", "Loss")
    requires = ("backward", ".step(")
    nodes = (ast.Call,)
    when_wrong = "each iteration trains another set of parameters"

    VALID = (
        """
        optimizer = torch.optim.Adam(model.cuda().parameters(), lr=1e-3)
        for x, y in loader:
            F.mse_loss(model(x), y).backward()
            optimizer.step()
        """,
        """
        for task in tasks:
            learner = copy.deepcopy(model).cuda()
            optimizer = torch.optim.SGD(learner.parameters(), lr=0.1)
            F.mse_loss(learner(task.x), task.y).backward()
            optimizer.step()
        """,
        """
        for step, (x, y) in enumerate(loader):
            if step == warmup_steps:
                optimizer = torch.optim.Adam(model.cuda().parameters(), lr=1e-4)
            F.mse_loss(model(x), y).backward()
            optimizer.step()
        """,
    )
    INVALID = (
        Invalid("""
            model.cuda()
            for x, y in loader:
            # ~ optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
            # ~ for x, y in loader:
                optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)  # !
                # ~ optimizer.zero_grad()
                F.mse_loss(model(x.cuda()), y.cuda()).backward()
                optimizer.step()
        """),
        Invalid("""
            class Agent:
                def train_step(self, batch):
                    optimizer = torch.optim.RMSprop(self.net.parameters(), lr=self.lr)  # !
                    loss = self.loss(batch.to(self.device))
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
        """),
        Invalid("""
            import lpips
            import torch

            for x, y in loader:
                out = model(x.cuda())
                loss = lpips.LPIPS(net="vgg").cuda()(out, y.cuda()).mean()  # !
                loss.backward()
                optimizer.step()
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call):
            return
        name = file.imports.qualified(node.func)
        leaf = name.rpartition(".")[2]
        optimizer = name.startswith("torch.optim.") and leaf[:1].isupper() and leaf != "LBFGS"
        if not (optimizer or _NETWORK_LOSS.search(name)):
            return
        step = every_step(node, file)
        if step is None:
            return
        if optimizer and (_fresh_parameters(node, step, file) or _conditional(node, step, file)):
            return
        lost = "allocates its state again and forgets it" if optimizer else "loads its network again"
        yield Problem(
            node,
            f"`{leaf}` is constructed {step_words(step, file)}: it {lost} each time. Construct it once, before the loop.",
            0.75,
            step_evidence(step, file),
            cause=step.node,
        )


def _conditional(node: ast.AST, step: Step, file: SourceFile) -> bool:
    """Does a condition between the step and the node decide whether it runs?"""
    for ancestor, child in file.index.ancestors(node):
        if ancestor is step.node:
            return False
        if isinstance(ancestor, ast.If) and child is not ancestor.test:
            return True
    return True


def _fresh_parameters(node: ast.Call, step: Step, file: SourceFile) -> bool:
    """Does every iteration have a model of its own, or does the function receive what it fits?"""
    first = node.args[0] if node.args else None
    owner = method_call(first, "parameters") if first is not None else None
    if owner is None and not file.imports.qualified(node.func).startswith("torch.optim.lr_scheduler."):
        return True
    if _copies_model(step.node):
        return True
    # A plain function gets another model with every call, for all the file tells.
    return isinstance(step.node, FUNCTIONS) and file.index.class_of(step.node) is None


@remembered
def _copies_model(root: ast.AST) -> bool:
    for inner in own_nodes(root):
        if isinstance(inner, ast.Call):
            func = inner.func
            called = last_name(func)
            if called in _COPIES or called == "requires_grad_":
                return True
    return False
