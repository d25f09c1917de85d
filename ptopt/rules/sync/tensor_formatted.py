from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import quote
from ptopt.rules.shared.places import often_place
from ptopt.rules.sync._reads import beside, wait_facts
from ptopt.rules.sync.tensor_logged_every_step import reports


class TensorFormatted(Rule):
    """A tensor is formatted into a text in code that runs often, whether the text is used or not.

    ## What it does
    Finds f-strings, `str.format` and `str(tensor)` that hold a device tensor and are evaluated on each call: the message
    argument of a check, a key, a label. Messages of `raise` and `assert` are only evaluated when they are needed; prints
    and loggers are `tensor-logged-every-step`.

    ## Why it is slow
    To format a tensor, Python waits for every queued kernel and copies the values to the host, for a text that is thrown
    away in most calls.

    ## Fix safety
    No fix: what the text should say is for the author to decide.

    ## Sources
    - [PyTorch performance tuning guide: avoid unnecessary CPU-GPU synchronization](https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html)
    """

    id = "PTO133"
    name = "tensor-formatted"
    family = "sync"
    most_stated = 0.4
    nodes = (ast.FormattedValue, ast.Call)
    calls = frozenset({"format", "str"})
    when_wrong = "the text is needed each time, or the tensor lies on the CPU"

    VALID = (
        """
        def project(x: torch.Tensor):
            if x.dim() != 3:
                raise ValueError(f"unexpected input: {x}")
            assert x.size(0) > 1, f"one row only: {x}"
            return f"{x.shape}"
        """,
        """
        def show(x: torch.Tensor):
            print(f"{x}")
        """,
        """
        def label(x, name):
            return f"{name} {x}"
        """,
    )
    INVALID = (
        Invalid("""
            def project(x: torch.Tensor):
                check(x.dim() == 3, f"unexpected input: {x}")  # !
                # ~ check(x.dim() == 3, f"unexpected input of shape {x.shape}")
                return x * 2
        """),
        Invalid("""
            class Net(nn.Module):
                def forward(self, x: torch.Tensor):
                    self.note = "mean {}".format(x.mean())  # !
                    return x
        """),
        Invalid("""
            def key(x: torch.Tensor, table):
                return table[str(x.argmax())]  # !
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        parts: list[ast.expr] = []
        if isinstance(node, ast.FormattedValue):
            parts = [node.value]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            text = isinstance(node.func.value, ast.Constant) and isinstance(node.func.value.value, str)
            parts = (
                [*node.args, *(k.value for k in node.keywords)] if text and node.func.attr == "format" else []
            )
        elif isinstance(node, ast.Call) and not file.imports.qualified(node.func):
            parts = list(node.args)
        tensor = next(
            (p for p in parts if file.values.is_tensor(p) and file.values.of(p).device != "cpu"), None
        )
        if tensor is None or _reported(node, file):
            return
        place = often_place(node, file)
        if place is None:
            return
        yield Problem(
            tensor,
            f"Formatting the tensor {quote(file, tensor)} makes Python wait for the GPU {place.words}, even where nobody reads "
            f"the text. Format its shape, or build the text only where it is needed.{beside(tensor, place.node, file)}",
            0.4,
            place.evidence,
            cause=place.node,
            subject=tensor,
            facts=wait_facts(tensor, place.node, file),
        )


def _reported(node: ast.AST, file: SourceFile) -> bool:
    """Is the text printed or logged right here?"""
    for ancestor, _ in file.index.ancestors(node):
        if isinstance(ancestor, ast.Call) and reports(ancestor, file):
            return True
        if isinstance(ancestor, ast.stmt):
            return False
    return False
