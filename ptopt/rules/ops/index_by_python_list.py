from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator

from ptopt.rules.base import Edit, Fix, Invalid, Problem, Rule, Safety, SourceFile
from ptopt.rules.code import quote
from ptopt.rules.ops._calls import int_literal
from ptopt.rules.shared.flow import entries_of
from ptopt.source.frequency import Often


class IndexByPythonList(Rule):
    """A tensor is indexed with a Python list of positions.

    ## What it does
    Finds `x[:, [0, 2]]` and `x[..., [i]]` on a tensor, in code that runs for each batch or more often.

    ## Why it is slow
    Each call makes a tensor of the list in host memory, copies it to the device, where Python waits for the copy, and gathers
    into a new tensor. One position, or positions in even steps, are a slice: a view, without a kernel.

    ## When this is wrong
    When the tensor lies on the CPU and is small, or a copy is wanted.

    ## Fix safety
    Unsafe: a slice is a view, so that later changes in place show in both.

    ## Sources
    - [BoTorch: a slice in place of an index list](https://github.com/pytorch/botorch/commit/f2165eda24e2847abf56a4cbdd739ee0b26b4ac5)
    """

    id = "PTO481"
    name = "index-by-python-list"
    family = "ops"
    most_stated = 0.45
    nodes = (ast.Subscript,)
    triggers = ("]]", "],")  # a list ends inside the brackets
    when_wrong = "the tensor lies on the CPU, or a copy is wanted"

    VALID = (
        """
        def forward(self, x: torch.Tensor):
            return x[:, 0:2]
        """,
        """
        def load(rows: np.ndarray):
            return rows[:, [0, 2]]
        """,
        """
        def forward(self, x: torch.Tensor):
            return x[0], [x[1]]
        """,
    )
    INVALID = (
        Invalid("""
            class Head(nn.Module):
                def forward(self, boxes: torch.Tensor):
                    return boxes[:, [0, 1]]  # !
                    # + return boxes[:, 0:2]
        """),
        Invalid("""
            class Head(nn.Module):
                def forward(self, means: torch.Tensor):
                    return means[..., [self.index]].log()  # !
        """),
        Invalid("""
            class Head(nn.Module):
                def forward(self, boxes: torch.Tensor):
                    boxes[..., [0, 2]] *= self.width  # !
                    # + boxes[..., 0:3:2] *= self.width
                    return boxes
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Subscript) or not isinstance(node.slice, (ast.Tuple, ast.List)):
            return
        parts = entries_of(node)
        lists = [p for p in parts if isinstance(p, ast.List) and p.elts]
        if len(lists) != 1 or not all(p is lists[0] or _plain(p) for p in parts):
            return
        value = file.values.of(node.value)
        frequency = file.frequencies.of(node)
        if (
            value.kind != "tensor"
            or value.device == "cpu"
            or frequency.often < Often.EVALUATION
            or frequency.in_worker
        ):
            return
        positions = lists[0]
        if any(isinstance(e, (ast.Constant,)) and not isinstance(e.value, int) for e in positions.elts):
            return
        instead = _slice(positions, file)
        if instead:
            start, end = file.bounds(positions)
            how = f"They are a slice, which is a view: `[{file.source(node)[len(file.source(node.value)) + 1 : -1].replace(file.source(positions), instead)}]`."
            fix = Fix(Safety.UNSAFE, (Edit(start, end, instead),), "a slice is a view, the list gives a copy")
        else:
            how, fix = (
                "Keep the positions as a tensor on the device (a buffer), or take the parts apart and stack them.",
                None,
            )
        yield Problem(
            node,
            f"{quote(file, node)} makes a tensor of the list on the host and copies it to the device on each call, where Python "
            f"waits for it. {how}",
            0.45 if instead else 0.4,
            subject=node.value,
            fix=fix if instead and ":" in instead and "+" not in instead else None,
            facts={
                "positions": len(positions.elts),
                "slice": bool(instead),
                "written": isinstance(node.ctx, ast.Store),
            },
        )


def _plain(part: ast.expr) -> bool:
    """A slice, an ellipsis or None."""
    return isinstance(part, ast.Slice) or isinstance(part, ast.Constant) and part.value in (Ellipsis, None)


def _slice(positions: ast.List, file: SourceFile) -> str:
    """The same positions as a slice, or ""."""
    numbers = [int_literal(e) for e in positions.elts]
    if len(numbers) == 1:
        text = file.source(positions.elts[0])
        if numbers[0] is None:
            return f"{text} : {text} + 1" if isinstance(positions.elts[0], (ast.Name, ast.Attribute)) else ""
        return f"{numbers[0]}:{numbers[0] + 1}" if numbers[0] != -1 else "-1:"
    if any(n is None or n < 0 for n in numbers):
        return ""
    known = [n for n in numbers if n is not None]
    step = known[1] - known[0]
    if step < 1 or any(b - a != step for a, b in itertools.pairwise(known)):
        return ""
    return f"{known[0]}:{known[-1] + 1}" + (f":{step}" if step > 1 else "")
