from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import TEXTBOOK, Benchmark, Fix, Invalid, Problem, Rule, Safety, Severity, SourceFile
from ptopt.rules.code import is_literal, keyword_of, quote
from ptopt.rules.debug._switches import always_on
from ptopt.rules.shared.removal import remove_keyword, remove_statement

_SET = frozenset(("torch.autograd.set_detect_anomaly", "torch.autograd.anomaly_mode.set_detect_anomaly"))
_CONTEXT = frozenset(("torch.autograd.detect_anomaly", "torch.autograd.anomaly_mode.detect_anomaly"))
_TRAINER = re.compile(r"^(pytorch_lightning|lightning)(\.\w+)*\.Trainer$")


class AnomalyDetectionOn(Rule):
    """Autograd's anomaly detection is on in every run.

    ## What it does
    Finds `torch.autograd.set_detect_anomaly(True)`, `with torch.autograd.detect_anomaly()` and
    `Trainer(detect_anomaly=True)` that no condition guards.

    ## Why it is slow
    Each operation of the forward pass records a Python traceback, and each gradient of the backward pass is searched
    for NaN, which makes Python wait for the GPU. A network of many small operations becomes several times slower.

    ## Fix safety
    Unsafe: without it a NaN in a gradient no longer raises an error.

    ## Sources
    - [torch.autograd: anomaly detection is for debugging only](https://docs.pytorch.org/docs/stable/autograd.html#anomaly-detection)
    """

    id = "PTO901"
    name = "anomaly-detection-on"
    family = "debug"
    severity = Severity.HIGH
    triggers = ("detect_anomaly",)
    nodes = (ast.Call,)
    when_wrong = "somebody is hunting a NaN with this code"
    BENCHMARK = Benchmark(
        setup="""
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(20)))
x = torch.randn(32, 64)

def step():
    model.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    return loss.detach()
""",
        before="""
with torch.autograd.set_detect_anomaly(True):
    result = step()
""",
        after="result = step()",
        scope="the forward and backward pass",
        sizes="20 linear layers of 64 x 64, batch 32, on the CPU",
    )

    VALID = (
        """
        if args.debug:
            torch.autograd.set_detect_anomaly(True)
        """,
        """
        if not torch.cuda.is_available():
            torch.autograd.set_detect_anomaly(True)
        """,
        "torch.autograd.set_detect_anomaly(args.detect_anomaly)",
        """
        try:
            loss.backward()
        except RuntimeError:
            with torch.autograd.detect_anomaly():
                model(x).sum().backward()
        """,
        "trainer = pl.Trainer(max_epochs=3, detect_anomaly=False)",
    )
    INVALID = (
        Invalid("""
            def main():
                torch.manual_seed(0)
                torch.autograd.set_detect_anomaly(True)  # !
                # +
                train()
        """),
        Invalid("""
            if not args.disable_cuda and torch.cuda.is_available():
                args.device = torch.device("cuda")
                torch.autograd.set_detect_anomaly(True)  # !
                # +
        """),
        Invalid("""
            for x, y in loader:
                with torch.autograd.detect_anomaly():  # !
                    criterion(model(x), y).backward()
                optimizer.step()
        """),
        Invalid(
            "trainer = pl.Trainer(max_epochs=3, detect_anomaly=True, devices=1)  # !",
            "trainer = pl.Trainer(max_epochs=3, devices=1)",
        ),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call):
            return
        name = file.imports.qualified(node.func)
        trainer = bool(_TRAINER.match(name)) and is_literal(keyword_of(node, "detect_anomaly"), True)
        mode = keyword_of(node, "mode") or (node.args[0] if node.args else None)
        switch = name in _SET and is_literal(mode, True)
        if not (trainer or switch or name in _CONTEXT) or not always_on(node, file):
            return
        edit = None
        if trainer:
            edit = remove_keyword(file, node, "detect_anomaly")
        elif switch and isinstance(file.index.parent(node), ast.Expr):
            edit = remove_statement(file, node)
        what = "`detect_anomaly=True`" if trainer else quote(file, node)
        yield Problem(
            node,
            f"{what} records a traceback for every operation and searches every gradient for NaN, {_when(node, file, switch)}: "
            "Python waits for the GPU at each, and many small operations become several times slower. Remove it, or put it behind a debug option.",
            TEXTBOOK,
            fix=Fix(Safety.UNSAFE, (edit,), "nobody relies on the error that it raises on NaN")
            if edit
            else None,
        )


def _when(node: ast.AST, file: SourceFile, switch: bool) -> str:
    """A switch in a layer is on only in runs that use the layer, and stays on."""
    function, cls = file.index.function_of(node), file.index.class_of(node)
    if switch and function is not None and function.name == "forward" and cls is not None:
        return f"in every run with a `{cls.name}`, from its first call on"
    return "in every run"
