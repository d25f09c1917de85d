from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import Invalid, Problem, Rule, Severity, SourceFile
from ptopt.rules.code import quote
from ptopt.rules.shared.places import every_step, step_evidence, step_words

_STATE = re.compile(
    r"state|model|net|optim|ckpt|checkpoint|weight|param|ema|policy|agent|actor|critic|generator|encoder|decoder|^self$",
    re.I,
)


class SynchronousSaveEveryStep(Rule):
    """A checkpoint is written on every training step.

    ## What it does
    Finds `torch.save(...)` or `save_pretrained(...)` on every training step, without any condition around it.

    ## Why it is slow
    Saving copies every tensor to the CPU, serialises it and writes it to disk while the GPU waits: often longer than
    the step itself.

    ## When this is wrong
    When a "step" of the loop is long (an epoch, a task), so that one checkpoint for each is wanted.

    ## Fix safety
    There is no fix: how often to save is the author's choice.

    ## Sources
    - [PyTorch: distributed checkpoints, asynchronous saving](https://docs.pytorch.org/tutorials/recipes/distributed_async_checkpoint_recipe.html)
    """

    id = "PTO803"
    name = "synchronous-save-every-step"
    family = "memory"
    severity = Severity.HIGH
    triggers = ("torch.save(", "save_pretrained(", "save(")
    requires = ("backward", "training_step")
    nodes = (ast.Call,)
    when_wrong = "one iteration of the loop is long enough to be worth a checkpoint"

    VALID = (
        """
        for batch in loader:
            codes = codec(batch.cuda())
            loss = criterion(codes)
            loss.backward()
            optimizer.step()
            torch.save(codes.cpu(), f"{folder}/{batch.name}.pt")
        """,
        """
        for step, batch in enumerate(loader):
            model(batch.cuda()).loss.backward()
            optimizer.step()
            if step % 1000 == 0:
                torch.save(model.state_dict(), "last.pt")
        """,
        """
        for epoch in range(epochs):
            for batch in loader:
                model(batch.cuda()).loss.backward()
                optimizer.step()
            torch.save(model.state_dict(), "last.pt")
        """,
        """
        for batch in loader:
            loss = model(batch.cuda()).loss
            loss.backward()
            optimizer.step()
            if loss < lowest:
                torch.save(model.state_dict(), "best.pt")
        """,
    )
    INVALID = (
        Invalid("""
            for batch in loader:
            # ~ for step, batch in enumerate(loader):
                model(batch.cuda()).loss.backward()
                optimizer.step()
                torch.save(model.state_dict(), "last.pt")  # !
                # ~ if step % 1000 == 0:
                # ~     torch.save(model.state_dict(), "last.pt")
        """),
        Invalid("""
            def save(model, path):
                torch.save(model.state_dict(), path)  # !

            for batch in loader:
                model(batch.cuda()).loss.backward()
                optimizer.step()
                save(model, "last.pt")
        """),
        Invalid("""
            for batch in loader:
                accelerator.backward(model(batch).loss)
                optimizer.step()
                model.save_pretrained(output_dir)  # !
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call):
            return
        func = node.func
        hub = isinstance(func, ast.Attribute) and func.attr == "save_pretrained"
        if not hub and file.imports.qualified(func) != "torch.save":
            return
        if not hub and not (node.args and _STATE.search(file.source(node.args[0]))):
            return  # results, not weights
        step = every_step(node, file)
        if step is None:
            return
        for ancestor, _ in file.index.ancestors(node):
            if ancestor is step.node:
                break
            if isinstance(ancestor, (ast.If, ast.Try)):
                return
        yield Problem(
            node,
            f"{quote(file, node, 40)} copies the state to the CPU and writes it to disk while the GPU waits, "
            f"{step_words(step, file)}. Save every few hundred steps.",
            0.75,
            step_evidence(step, file),
            cause=step.node,
        )
