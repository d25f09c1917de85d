from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import ClassVar

from ptopt.rules.base import Invalid, Problem, Rule, Severity, SourceFile
from ptopt.rules.code import is_literal, keyword_of
from ptopt.source.frequency import Often


class MetricSyncedEveryStep(Rule):
    """A Lightning module averages a logged value over all processes on every step.

    ## What it does
    Finds `self.log(..., sync_dist=True)` in training code, or with `on_step=True`.

    ## Why it is slow
    Each such call is a collective of its own, on one number, that all processes wait for on every step. Values that
    are only averaged over the epoch need one at its end.

    ## Example
    ```python
    self.log("train_loss", loss, sync_dist=True)
    ```

    ## Use instead
    ```python
    self.log("train_loss", loss)
    ```

    ## Fix safety
    There is no fix: without it the logged value is that of one process.

    ## Sources
    - [Lightning: sync_dist, use with care as it adds communication overhead](https://lightning.ai/docs/pytorch/stable/extensions/logging.html)
    """

    id = "PTO732"
    name = "metric-synced-every-step"
    family = "optim"
    severity = Severity.LOW
    most_stated = 0.45
    libraries: ClassVar[tuple[str, ...]] = ("lightning",)
    triggers = ("sync_dist",)
    nodes = (ast.Call,)
    calls = frozenset({"log", "log_dict"})
    when_wrong = "the value is logged once an epoch, or the job runs on one device"

    VALID = (
        """
        class Net(pl.LightningModule):
            def validation_step(self, batch, i):
                self.log("val_loss", self.loss(batch), sync_dist=True)
        """,
        """
        class Net(pl.LightningModule):
            def training_step(self, batch, i):
                self.log("loss", self.loss(batch), on_step=False, on_epoch=True, sync_dist=True)
        """,
        """
        class Net(pl.LightningModule):
            def training_step(self, batch, i):
                self.log("loss", self.loss(batch))
        """,
    )
    INVALID = (
        Invalid("""
            class Net(pl.LightningModule):
                def training_step(self, batch, i):
                    self.log("loss", self.loss(batch), sync_dist=True)  # !
        """),
        Invalid("""
            class Net(pl.LightningModule):
                def training_step(self, batch, i):
                    self.log_dict(self.losses(batch), sync_dist=True, prog_bar=True)  # !
        """),
        Invalid("""
            class Net(pl.LightningModule):
                def validation_step(self, batch, i):
                    self.log("val_loss", self.loss(batch), on_step=True, sync_dist=True)  # !
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call) or not is_literal(keyword_of(node, "sync_dist"), True):
            return
        if not (isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name)):
            return
        on_step = keyword_of(node, "on_step")
        frequency = file.frequencies.of(node)
        trains = frequency.often >= Often.STEP and frequency.trains
        if is_literal(on_step, False) or not (trains or is_literal(on_step, True)):
            return
        yield Problem(
            node,
            "`sync_dist=True` on a value that is logged on each step makes all processes average one number, and wait "
            "for each other, on every step. Drop it here, or log with `on_step=False, on_epoch=True`.",
            0.45,
            facts={"on_step": float(is_literal(on_step, True))},
            cause=file.index.function_of(node),
        )
