from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Edit, Fix, Invalid, Problem, Rule, Safety, SourceFile
from ptopt.rules.code import quote
from ptopt.rules.shared.places import BENCHMARK_PATH
from ptopt.source.frequency import Often
from ptopt.source.index import walk

_METHODS = frozenset(
    {"clamp", "clamp_min", "clamp_max", "mul", "add", "sub", "div", "masked_fill", "addcmul", "lerp", "abs"}
)
_OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "add_",
    ast.Sub: "sub_",
    ast.Mult: "mul_",
    ast.Div: "div_",
}


class ParameterRebound(Rule):
    """The data of a parameter is replaced by a new tensor instead of being changed in place.

    ## What it does
    Finds `p.data = p.data.clamp(...)`, `p.data = p.data - d` and, in loops over parameters, `p.data = q.data.clone()`.

    ## Why it is slow
    Each replacement allocates a tensor of the size of the parameter, beside the old one, and whatever holds views of the old
    storage (flat buffers, captured graphs, fused optimizers) keeps it alive. The in-place form writes into the memory there is.

    ## Fix safety
    Unsafe: what shares the old tensor sees the change.

    ## Sources
    - [torch.Tensor.copy_](https://docs.pytorch.org/docs/stable/generated/torch.Tensor.copy_.html)
    """

    id = "PTO825"
    name = "parameter-rebound"
    family = "memory"
    most_stated = 0.45
    nodes = (ast.Assign,)
    triggers = (".data",)
    when_wrong = "the old tensor must survive because something else refers to it"

    VALID = (
        """
        for p in model.parameters():
            p.data.clamp_(-1, 1)
        """,
        """
        for p in model.parameters():
            p.data = p.data.half()
        """,
        """
        self.data = self.data.clamp(0, 1)
        """,
    )
    INVALID = (
        Invalid("""
            for p in critic.parameters():
                p.data = p.data.clamp(-c, c)  # !
                # + p.data.clamp_(-c, c)
        """),
        Invalid("""
            def restore(self):
                for p, backup in zip(self.parameters(), self.backups):
                    p.data = backup.data.clone()  # !
                    # + p.data.copy_(backup.data)
        """),
        Invalid("""
            for p, z in zip(model.parameters(), noise):
                p.data = p.data + scale * z  # !
                # + p.data.add_(scale * z)
        """),
    )

    def candidates(self, file: SourceFile) -> list[ast.AST]:
        parents = map(file.index.parent, file.index.attributes_named("data"))
        return [node for node in parents if isinstance(node, ast.Assign)]

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            return
        target = node.targets[0]
        if not isinstance(target, ast.Attribute) or target.attr != "data" or BENCHMARK_PATH.search(file.path):
            return
        if isinstance(target.value, ast.Name) and target.value.id == "self":
            return
        place = file.source(target)
        text = _in_place(node.value, place, file)
        looped = next(file.index.loops_of(node), None) is not None
        frequency = file.frequencies.of(node)
        if not text or not looped and frequency.often <= Often.ONCE:
            return
        line = file.source(node)
        fix = None
        if "#" not in line and "\n" not in line:
            start, end = file.bounds(node)
            fix = Fix(Safety.UNSAFE, (Edit(start, end, text),), f"nothing else holds the old `{place}`")
        yield Problem(
            node,
            f"{quote(file, node.value, 45)} allocates a new tensor and `{place}` drops the old one. `{text[:70]}` changes it in "
            "place.",
            0.45,
            fix=fix,
            cause=file.frequencies.iteration_of(node),
            facts={"looped": looped, "clone": ".copy_(" in text},
        )


def _in_place(value: ast.expr, place: str, file: SourceFile) -> str:
    """The statement that does the same in place, or ""."""
    if isinstance(value, ast.BinOp) and type(value.op) in _OPERATORS and file.source(value.left) == place:
        products = [n for n in walk(value.right) if isinstance(n, ast.Attribute) and file.source(n) == place]
        name = _OPERATORS[type(value.op)]
        return "" if products else f"{place}.{name}({file.source(value.right)})"
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
        return ""
    func = value.func
    if func.attr in _METHODS and file.source(func.value) == place:
        arguments = ", ".join(file.source(a) for a in [*value.args, *value.keywords])
        return f"{place}.{func.attr}_({arguments})"
    source = func.value
    stored = isinstance(source, ast.Attribute) and source.attr == "data" and file.source(source) != place
    looped = next(file.index.loops_of(value), None) is not None
    return f"{place}.copy_({file.source(source)})" if func.attr == "clone" and stored and looped else ""
