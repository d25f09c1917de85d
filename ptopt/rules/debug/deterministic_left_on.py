from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import Invalid, Problem, Rule, Severity, SourceFile
from ptopt.rules.code import is_literal, quote
from ptopt.rules.debug._switches import always_on

_SETTER = re.compile(r"seed|determin|reproduc", re.I)


class DeterministicLeftOn(Rule):
    """Deterministic kernels are forced in every run.

    ## What it does
    Finds `torch.backends.cudnn.deterministic = True`, `torch.backends.cudnn.enabled = False` and
    `torch.use_deterministic_algorithms(True)` outside of functions that set a seed, without a condition.

    ## Why it is slow
    The fastest kernels add numbers in an order that varies. The deterministic ones are slower, some of them much.

    ## Example
    ```python
    torch.use_deterministic_algorithms(True)
    ```

    ## Use instead
    ```python
    if args.deterministic:
        torch.use_deterministic_algorithms(True)
    ```

    ## Fix safety
    There is no fix: whether results must repeat is the author's choice.

    ## Sources
    - [PyTorch: reproducibility](https://docs.pytorch.org/docs/stable/notes/randomness.html)
    """

    id = "PTO906"
    name = "deterministic-left-on"
    family = "debug"
    severity = Severity.LOW
    most_stated = 0.6
    default = False  # most authors who write it want it
    triggers = ("determinis", "cudnn.enabled")
    nodes = (ast.Assign, ast.Call)
    when_wrong = "results must repeat bit by bit"

    VALID = (
        """
        def seed_everything(seed):
            torch.manual_seed(seed)
            torch.backends.cudnn.deterministic = True
        """,
        """
        if args.deterministic:
            torch.use_deterministic_algorithms(True)
        """,
        "torch.backends.cudnn.deterministic = False",
    )
    INVALID = (
        Invalid("torch.backends.cudnn.deterministic = True  # !"),
        Invalid("torch.backends.cudnn.enabled = False  # !"),
        Invalid("""
            def main():
                torch.use_deterministic_algorithms(True)  # !
                train()
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if isinstance(node, ast.Assign):
            name = (
                file.imports.qualified(node.targets[0]) if isinstance(node.targets[0], ast.Attribute) else ""
            )
            slow = (name == "torch.backends.cudnn.deterministic" and is_literal(node.value, True)) or (
                name == "torch.backends.cudnn.enabled" and is_literal(node.value, False)
            )
        else:
            slow = (
                isinstance(node, ast.Call)
                and bool(node.args)
                and is_literal(node.args[0], True)
                and file.imports.qualified(node.func) == "torch.use_deterministic_algorithms"
            )
        if not slow or not always_on(node, file) or _SETTER.search(file.index.symbol_of(node)):
            return
        yield Problem(
            node,
            f"{quote(file, node)} holds every run to slower kernels. Put it behind an option if results need not "
            "repeat bit by bit.",
            0.6,
        )
