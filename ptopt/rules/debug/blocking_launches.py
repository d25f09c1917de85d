from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import Fix, Invalid, Problem, Rule, Safety, Severity, SourceFile
from ptopt.rules.debug._switches import always_on, neighbours_mention
from ptopt.rules.shared.removal import remove_statement

_DETERMINISTIC = re.compile("determin")
_NAME = "CUDA_LAUNCH_BLOCKING"


class BlockingLaunches(Rule):
    """Every CUDA kernel launch waits for the kernel to finish.

    ## What it does
    Finds code that sets the environment variable `CUDA_LAUNCH_BLOCKING` to 1 in every run.

    ## Why it is slow
    CUDA work normally runs behind the Python code. With this variable Python waits after each kernel, and the GPU
    idles while the next one is prepared.

    ## Example
    ```python
    os.environ["CUDA_LAUNCH_BLOCKING"] = "1"
    ```

    ## Use instead
    ```shell
    CUDA_LAUNCH_BLOCKING=1 python train.py  # only while looking for an error
    ```

    ## Fix safety
    Unsafe: CUDA errors are then reported at a later line than the one that caused them.

    ## Sources
    - [CUDA semantics: asynchronous execution](https://docs.pytorch.org/docs/stable/notes/cuda.html#asynchronous-execution)
    """

    id = "PTO905"
    name = "blocking-launches"
    family = "debug"
    severity = Severity.HIGH
    triggers = (_NAME,)
    nodes = (ast.Constant,)
    when_wrong = "somebody is looking for the line that raises a CUDA error"

    VALID = (
        """
        if args.debug:
            os.environ["CUDA_LAUNCH_BLOCKING"] = "1"
        """,
        'os.environ["CUDA_LAUNCH_BLOCKING"] = "0"',
        """
        def enable_full_determinism(seed):
            os.environ["CUDA_LAUNCH_BLOCKING"] = "1"
            torch.use_deterministic_algorithms(True)
        """,
        'print("set CUDA_LAUNCH_BLOCKING=1 to find the line")',
    )
    INVALID = (
        Invalid("""
            import os
            # +
            import torch

            os.environ["CUDA_LAUNCH_BLOCKING"] = "1"  # !
            # +
            model = build().cuda()
        """),
        Invalid("""
            import os
            # +
            import torch

            def main():
                os.environ.setdefault("CUDA_LAUNCH_BLOCKING", "1")  # !
                # +
                train()
        """),
        Invalid("""
            import os
            # +
            import torch

            os.putenv("CUDA_LAUNCH_BLOCKING", "1")  # !
            # +
            train()
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Constant) or node.value != _NAME:
            return
        statement = file.index.statement_of(node)
        value: ast.expr | None = None
        parent = file.index.parent(node)
        if isinstance(statement, ast.Assign) and parent is statement.targets[0]:
            value = statement.value
        elif (
            isinstance(parent, ast.Call) and len(parent.args) == 2 and isinstance(parent.func, ast.Attribute)
        ):
            value = parent.args[1] if parent.func.attr in ("setdefault", "putenv", "__setitem__") else None
        if not isinstance(value, ast.Constant) or str(value.value) != "1" or not always_on(node, file):
            return
        if neighbours_mention(_DETERMINISTIC, node, file) or "determin" in file.index.symbol_of(node):
            return
        edit = remove_statement(file, statement)
        yield Problem(
            statement,
            f"`{_NAME}=1` makes Python wait after every CUDA kernel, in every run. Remove the line, and set the variable "
            "in the shell while looking for an error.",
            0.8,
            fix=Fix(Safety.UNSAFE, (edit,), "no CUDA error is being looked for") if edit else None,
        )
