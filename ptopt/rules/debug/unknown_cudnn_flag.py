from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator

from ptopt.rules.base import Edit, Fix, Invalid, Problem, Rule, Safety, SourceFile

_FLAGS = (
    "benchmark",
    "benchmark_limit",
    "deterministic",
    "enabled",
    "allow_tf32",
    "fp32_precision",
    "depthwise_kernel",
)
_PREFIX = "torch.backends.cudnn."


class UnknownCudnnFlag(Rule):
    """A misspelt cuDNN flag is set, which does nothing.

    ## What it does
    Finds an assignment to an attribute of `torch.backends.cudnn` that torch does not know, but whose name is close
    to one that it does.

    ## Why it is slow
    Python accepts any attribute: `cudnn.benckmark = True` raises no error, and the search for fast convolution
    kernels stays off.

    ## Example
    ```python
    torch.backends.cudnn.benckmark = True
    ```

    ## Use instead
    ```python
    torch.backends.cudnn.benchmark = True
    ```

    ## Fix safety
    Unsafe: the flag takes effect for the first time.

    ## Sources
    - [torch.backends.cudnn](https://docs.pytorch.org/docs/stable/backends.html#torch-backends-cudnn)
    """

    id = "PTO904"
    name = "unknown-cudnn-flag"
    family = "debug"
    triggers = ("cudnn",)
    nodes = (ast.Assign,)
    when_wrong = "a later version of torch has a flag of this name"

    VALID = (
        "torch.backends.cudnn.benchmark = True",
        "torch.backends.cudnn.conv.fp32_precision = 'tf32'",
        "config.cudnn.benchmarks = True",
        "torch.backends.cudnn.allow_tf32 = True",
    )
    INVALID = (
        Invalid("torch.backends.cudnn.benckmark = True  # !", "torch.backends.cudnn.benchmark = True"),
        Invalid("""
            from torch.backends import cudnn

            cudnn.determinstic = True  # !
            # + cudnn.deterministic = True
        """),
        Invalid("torch.backends.cudnn.enable = True  # !", "torch.backends.cudnn.enabled = True"),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        if not isinstance(target, ast.Attribute) or target.attr in _FLAGS:
            return
        if file.imports.qualified(target) != _PREFIX + target.attr:
            return
        close = difflib.get_close_matches(target.attr, _FLAGS, n=1, cutoff=0.75)
        if not close:
            return
        end = file.bounds(target)[1]
        edit = Edit(end - len(target.attr.encode()), end, close[0])
        yield Problem(
            node,
            f"`torch.backends.cudnn` has no flag `{target.attr}`: this line does nothing. `{close[0]}` was meant.",
            0.95,
            fix=Fix(Safety.UNSAFE, (edit,), f"`{close[0]}` is meant to take effect"),
        )
