from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Evidence, Fix, Invalid, Problem, Rule, Safety, Severity, SourceFile
from ptopt.rules.code import replace_node

_OPTIONS = ("pin_memory", "num_workers", "persistent_workers", "non_blocking")


class LoadingOptionIgnored(Rule):
    """An option for faster data loading is accepted, and a constant is passed on instead.

    ## What it does
    Finds calls that pass `pin_memory=False`, `num_workers=0`, `persistent_workers=False` or `non_blocking=False` although the
    function has a parameter of that name, or the file an option, that nothing else uses.

    ## Why it is slow
    Whoever turns the option on gets no faster loading, and no message.

    ## Fix safety
    Unsafe: callers that pass the option get what they asked for from now on.

    ## Sources
    - [PyTorch documentation: DataLoader](https://docs.pytorch.org/docs/stable/data.html)
    """

    id = "PTO340"
    name = "loading-option-ignored"
    family = "data"
    severity = Severity.LOW
    triggers = _OPTIONS
    nodes = (ast.keyword,)
    when_wrong = "the option is for other loaders of the file"

    VALID = (
        """
        def fetch(storage, index, pin_memory=False):
            return storage.fetch(index, pin_memory=pin_memory)
        """,
        """
        def loaders(data, num_workers):
            train = DataLoader(data, num_workers=num_workers)
            sample = DataLoader(data, num_workers=0)
            return train, sample
        """,
        """
        def loaders(data):
            return DataLoader(data, num_workers=0)
        """,
    )
    INVALID = (
        Invalid("""
            def fetch(storage, index, pin_memory=False):
                return storage.fetch(index, pin_memory=False)  # !
                # + return storage.fetch(index, pin_memory=pin_memory)
        """),
        Invalid("""
            class Data:
                def loader(self, data, num_workers=4):
                    return DataLoader(
                        data,
                        num_workers=0,  # !
                        # + num_workers=num_workers,
                    )
        """),
        Invalid("""
            def move(batch, device, non_blocking=True):
                return {k: v.to(device, non_blocking=False) for k, v in batch.items()}  # !
                # + return {k: v.to(device, non_blocking=non_blocking) for k, v in batch.items()}
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if (
            not isinstance(node, ast.keyword)
            or node.arg not in _OPTIONS
            or not isinstance(node.value, ast.Constant)
        ):
            return
        if node.value.value is not False and not (node.value.value == 0 and node.arg == "num_workers"):
            return
        function = file.index.function_of(node.value)
        if function is None:
            return
        parameters = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
        if all(p.arg != node.arg for p in parameters) or file.uses.loads(function, node.arg):
            return
        yield Problem(
            node.value,
            f"`{function.name}` takes `{node.arg}`, but `{node.arg}={file.source(node.value)}` is passed on, whatever callers ask for. "
            f"Write `{node.arg}={node.arg}`.",
            0.65,
            (Evidence(function.lineno, "the parameter"),),
            Fix(
                Safety.UNSAFE,
                (replace_node(file, node.value, node.arg),),
                "callers that pass the option mean it",
            ),
        )
