from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Benchmark, Evidence, Fix, Invalid, Problem, Rule, Safety, SourceFile
from ptopt.rules.code import method_call, replace_node
from ptopt.source.index import LOOPS, walk


class EmaUpdateAllocates(Rule):
    """A moving average of the weights is updated through temporary tensors.

    ## What it does
    Finds `p.data = p.data * m + q.data * (1 - m)` (also with `copy_`) in a loop over pairs of parameters.

    ## Why it is slow
    Each parameter costs two temporary tensors and a third for the sum, and three or four kernel launches, on every
    step. In place it is two launches and no allocation.

    ## Fix safety
    Unsafe: the old tensor is overwritten, and the factors must be Python numbers. There is no fix for loops over a
    state dict, whose integer entries (counters) cannot be scaled in place.

    ## Sources
    - [torch.Tensor.add_](https://docs.pytorch.org/docs/stable/generated/torch.Tensor.add_.html)
    """

    id = "PTO708"
    name = "ema-update-allocates"
    family = "optim"
    triggers = (".data", "copy_(")
    requires = ("zip(",)
    nodes = (ast.Assign, ast.Expr)
    when_wrong = "somebody still holds the old tensor and wants it unchanged"
    BENCHMARK = Benchmark(
        setup="""
import torch
torch.manual_seed(0)
teacher = [torch.randn(256, 256) for _ in range(20)]
student = [p.clone() for p in teacher]
m = 0.5
""",
        before="""
for p, q in zip(teacher, student):
    p.data = p.data * m + q.data * (1 - m)
result = teacher[0]
""",
        after="""
for p, q in zip(teacher, student):
    p.data.mul_(m).add_(q.data, alpha=1 - m)
result = teacher[0]
""",
        scope="the update of the average",
        sizes="20 parameters of 256 x 256, on the CPU",
    )

    VALID = (
        """
        for p, q in zip(ema_params, model_params):
            if not torch.is_floating_point(p):
                p.copy_(p * decay + q * (1 - decay))
        """,
        """
        for p, q in zip(teacher.parameters(), student.parameters()):
            p.data.mul_(m).add_(q.data, alpha=1 - m)
        """,
        """
        for p, q in zip(teacher.parameters(), student.parameters()):
            p.data = q.data.clone()
        """,
        """
        def blend(tile, other, mask):
            for a, b in zip(tile, other):
                a.copy_(mask * a + (1 - mask) * b)
        """,
        """
        for p, q in zip(model.parameters(), reference.parameters()):
            p.data = p.data * weight[0] + q.data * bias[0]
        """,
    )
    INVALID = (
        Invalid("""
            for p, q in zip(teacher.parameters(), student.parameters()):
                p.data = p.data * m + q.data * (1.0 - m)  # !
                # + p.data.mul_(m).add_(q.data, alpha=1.0 - m)
        """),
        Invalid("""
            for ema_v, model_v in zip(self.module.state_dict().values(), model.state_dict().values()):
                ema_v.copy_(ema_v * self.decay + (1. - self.decay) * model_v)  # !
        """),
        Invalid("""
            ema_params = itertools.chain(ema.parameters(), ema.buffers())
            model_params = itertools.chain(model.parameters(), model.buffers())
            for param_a, param_b in zip(ema_params, model_params):
                param_a.copy_(param_a * m + (1.0 - m) * param_b)  # !
        """),
        Invalid("""
            for tgt, src in zip(self.target.parameters(), self.net.parameters()):
                tgt.data.copy_(self.tau * src.data + (1 - self.tau) * tgt.data)  # !
                # + tgt.data.mul_(1 - self.tau).add_(src.data, alpha=self.tau)
        """),
    )

    def candidates(self, file: SourceFile) -> list[ast.AST]:
        written = [a for a in file.index.of_type(ast.Assign) if isinstance(a.value, ast.BinOp)]
        copied = [file.index.parent(call) for call in file.calls_named("copy_")]
        return [*written, *(statement for statement in copied if isinstance(statement, ast.Expr))]

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        target, value = _written(node)
        if target is None or not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Add):
            return
        name = file.source(target)
        kept = _factor(value.left, name, file) or _factor(value.right, name, file)
        if kept is None:
            return
        added = value.right if _factor(value.left, name, file) is not None else value.left
        loop = file.index.enclosing(node, LOOPS)
        if not isinstance(added, ast.BinOp) or not isinstance(added.op, ast.Mult) or loop is None:
            return
        if not isinstance(loop, ast.For) or not _pairs_of_parameters(loop, file):
            return
        names = {n.id for n in walk(loop.target) if isinstance(n, ast.Name)}
        last = _root(added.right) in names
        other, weight = (added.right, added.left) if last else (added.left, added.right)
        if _root(other) not in names or not _plain(kept, names, file) or not _plain(weight, names, file):
            return
        update = f"{name}.mul_({file.source(kept)}).add_({file.source(other)}, alpha={file.source(weight)})"
        integers = any(word in _walked(loop, file) for word in ("state_dict", "buffers("))
        if any("is_floating_point" in file.source(test) for test in _tests_above(node, file)):
            return  # what is left are integers, or they are left out already
        made = (
            "two temporary tensors, and a third for the result,"
            if isinstance(node, ast.Assign)
            else "three temporary tensors"
        )
        yield Problem(
            node,
            f"This makes {made} for each parameter in every update. In place it needs none: "
            f"`{update}`{' (for floating-point entries)' if integers else ''}.",
            0.65 if integers else 0.72,
            (Evidence(loop.lineno, "the loop over the parameters"),),
            None
            if integers
            else Fix(
                Safety.UNSAFE,
                (replace_node(file, node, update),),
                "the factors are Python numbers, and nobody holds the old tensor",
            ),
            cause=loop,
            facts={"assigned": float(isinstance(node, ast.Assign) and not integers)},
        )


def _walked(loop: ast.For, file: SourceFile) -> str:
    """What the loop goes over, in words; names by what they are bound to."""
    names = (n for n in walk(loop.iter) if isinstance(n, ast.Name))
    bound = (file.bindings.last_before(name) for name in names)
    return " ".join(
        [file.source(loop.iter), *(file.source(b.value) for b in bound if b is not None and b.value)]
    )


def _tests_above(node: ast.AST, file: SourceFile) -> Iterator[ast.expr]:
    """Conditions that the statement, or its loop, stands under within the function."""
    above = file.index.parent(node)
    while above is not None and not isinstance(above, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        if isinstance(above, ast.If):
            yield above.test
        above = file.index.parent(above)


def _written(node: ast.AST) -> tuple[ast.expr | None, ast.expr | None]:
    """What is overwritten, and by what: `p.data = value`, `p.copy_(value)`."""
    if isinstance(node, ast.Assign):
        target = node.targets[0]
        single = len(node.targets) == 1 and isinstance(target, ast.Attribute) and target.attr == "data"
        return (target, node.value) if single else (None, None)
    call = node.value if isinstance(node, ast.Expr) else None
    receiver = method_call(call, "copy_") if call is not None else None
    if receiver is None or not isinstance(call, ast.Call) or len(call.args) != 1 or call.keywords:
        return None, None
    return receiver, call.args[0]


def _factor(expr: ast.expr, name: str, file: SourceFile) -> ast.expr | None:
    """`m` of `name * m` or `m * name`."""
    if not isinstance(expr, ast.BinOp) or not isinstance(expr.op, ast.Mult):
        return None
    if file.source(expr.left) == name:
        return expr.right
    return expr.left if file.source(expr.right) == name else None


def _pairs_of_parameters(loop: ast.For, file: SourceFile) -> bool:
    text = file.source(loop.iter)
    return "zip(" in text and ("param" in text or "state_dict" in text)


def _root(expr: ast.expr) -> str:
    while isinstance(expr, ast.Attribute):
        expr = expr.value
    return expr.id if isinstance(expr, ast.Name) else ""


def _plain(expr: ast.expr, names: set[str], file: SourceFile) -> bool:
    """A factor that is no tensor, as far as the file tells, and no part of the parameters."""
    if any(isinstance(n, (ast.Call, ast.Subscript)) for n in walk(expr)) or file.values.is_tensor(expr):
        return False
    return not any(isinstance(n, ast.Name) and n.id in names for n in walk(expr))
