from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Invalid, Problem, Rule, Severity, SourceFile, is_literal, keyword_of
from ptopt.source.calls import last_name

_WRAPPERS = ("DistributedDataParallel", "DistributedDataParallelKwargs", "DDPStrategy")


class FindUnusedParameters(Rule):
    """DDP looks for unused parameters on every step.

    ## What it does
    Finds `find_unused_parameters=True` written out where a model is wrapped, or the Lightning strategy of that name.

    ## Why it is slow
    After every forward pass the autograd graph is walked on the CPU to find parameters that take no part in it. When
    all of them do, the walk is wasted.

    ## When this is wrong
    When some parameters really get no gradient on some steps: then the switch is needed.

    ## Example
    ```python
    model = DistributedDataParallel(model, find_unused_parameters=True)
    ```

    ## Use instead
    ```python
    model = DistributedDataParallel(model)
    ```

    ## Fix safety
    There is no fix: whether a parameter goes unused cannot be told from the code alone.

    ## Sources
    - [DistributedDataParallel](https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html)
    """

    id = "PTO707"
    name = "find-unused-parameters"
    family = "optim"
    severity = Severity.LOW
    triggers = ("find_unused_parameters",)
    nodes = (ast.Call,)
    when_wrong = "some parameters really get no gradient on some steps"

    VALID = (
        "model = nn.parallel.DistributedDataParallel(model, find_unused_parameters=False)",
        "model = nn.parallel.DistributedDataParallel(model, find_unused_parameters=args.find_unused)",
        'parser.add_argument("--find_unused_parameters", default=True)',
    )
    INVALID = (
        Invalid("model = nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)  # !"),
        Invalid('trainer = pl.Trainer(devices=4, strategy="ddp_find_unused_parameters_true")  # !'),
        Invalid(
            """
            from accelerate.utils import DistributedDataParallelKwargs

            kwargs = DistributedDataParallelKwargs(find_unused_parameters=True)  # !
            """
        ),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call):
            return
        func = node.func
        name = last_name(func)
        origin = file.imports.qualified(func).rpartition(".")[2] or name
        strategy = keyword_of(node, "strategy") if origin == "Trainer" else None
        named = isinstance(strategy, ast.Constant) and "find_unused_parameters_true" in str(strategy.value)
        if not named and not (
            origin in _WRAPPERS and is_literal(keyword_of(node, "find_unused_parameters"), True)
        ):
            return
        yield Problem(
            node,
            "DDP walks the autograd graph after every forward pass to look for unused parameters. Drop the switch if "
            "every parameter gets a gradient; torch warns in the log when it finds none unused.",
            0.45,
        )
