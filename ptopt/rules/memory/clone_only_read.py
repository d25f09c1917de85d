from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Edit, Fix, Invalid, Problem, Rule, Safety, SourceFile
from ptopt.rules.code import quote
from ptopt.rules.memory.clone_of_copy import CloneOfCopy
from ptopt.rules.ops._calls import torch_op
from ptopt.rules.shared.flow import reads
from ptopt.source.calls import last_name
from ptopt.source.index import FunctionNode

# Make a new tensor or number of what they read, and leave it as it is.
_PURE = frozenset(
    "cat concat stack hstack vstack sum mean max min amax amin argmax argmin std var norm abs exp log sqrt softmax log_softmax "
    "sigmoid tanh relu gelu silu matmul mm bmm einsum where gather index_select masked_select item tolist topk sort argsort cumsum "
    "any all clamp pow square round floor ceil sin cos mul add sub div eq ne lt gt le ge isnan isfinite isinf masked_fill "
    "repeat repeat_interleave cross_entropy mse_loss l1_loss smooth_l1_loss nll_loss one_hot linear conv2d conv1d interpolate "
    "embedding layer_norm normalize cosine_similarity pad flip roll bincount unique".split()
)
_SIZES = frozenset("shape dtype device ndim size dim numel is_cuda layout element_size".split())
_ELEMENTWISE = (ast.BinOp, ast.Compare, ast.UnaryOp)


_OTHER = CloneOfCopy()


class CloneOnlyRead(Rule):
    """A tensor is cloned, and the copy is only read.

    ## What it does
    Finds `x.clone()` that is an operand, an argument of a function that makes a new tensor, or given to a name that is only
    read in such places, where x is not changed in place in the function.

    ## Why it is slow
    The clone is a second tensor of that size, written and read back for nothing: the operation after it makes a new tensor
    anyway. Under autograd it is one more node of the graph.

    ## Fix safety
    Unsafe: x must not be changed in place between the clone and its reads.

    ## Sources
    - [torch.clone](https://docs.pytorch.org/docs/stable/generated/torch.clone.html)
    """

    id = "PTO885"
    name = "clone-only-read"
    family = "memory"
    most_stated = 0.4
    nodes = (ast.Call,)
    calls = frozenset({"clone"})
    when_wrong = "the tensor is changed in place later"

    VALID = (
        """
        def forward(self, x):
            y = x.clone()
            y[:, 0] = 0
            return y
        """,
        """
        def forward(self, x):
            before = x.clone()
            x.add_(1)
            return x - before
        """,
        """
        def keep(self, x):
            return x.clone()
        """,
    )
    INVALID = (
        Invalid("""
            def forward(self, x):
                return self.head(torch.cat([x.clone(), self.body(x)], dim=1))  # !
                # + return self.head(torch.cat([x, self.body(x)], dim=1))
        """),
        Invalid("""
            def error(self, target, x):
                wanted = target.clone()  # !
                loss = F.mse_loss(x, wanted)
                return loss + (wanted * x).sum()
        """),
        Invalid("""
            def pooled(x):
                return x.clone().mean(dim=1)  # !
                # + return x.mean(dim=1)
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        op = torch_op(node, file, "clone")
        if op is None or op.rest or op.call.keywords or file.index.function_of(op.call) is None:
            return
        value = file.values.of(op.operand)
        if next(_OTHER.check(op.call, file), None) is not None:
            return
        if value.kind not in ("tensor", ""):
            return
        found = reads(_detached(op.call, file), file)
        root = op.operand
        while isinstance(root, (ast.Subscript, ast.Attribute)):
            root = root.value
        if (
            isinstance(root, ast.Name)
            and root.id in file.once(_written).get(file.index.function_of(op.call), ())
            and not file.context.grad_off(op.call)
        ):
            return  # autograd needs what was read as it was
        through_name = bool(found) and found[0] is not op.call and isinstance(found[0], ast.Name)
        if (
            not found
            or not all(_is_read(use, file) for use in found)
            or (through_name and _changed(op.operand, op.call, file))
        ):
            return
        end = file.bounds(op.operand)[1]
        fix = None
        if not through_name and op.is_method:
            fix = Fix(
                Safety.UNSAFE,
                (Edit(end, file.bounds(op.call)[1], ""),),
                f"{quote(file, op.operand, 30)} is not changed in place meanwhile",
            )
        where = (
            f": what reads it on line {found[0].lineno} makes a new tensor anyway"
            if through_name
            else ", although the operation makes a new tensor anyway"
        )
        yield Problem(
            op.call,
            f"{quote(file, op.call, 40)} copies the whole tensor only to be read{where}. Read {quote(file, op.operand, 40)} itself.",
            0.4,
            fix=fix,
            cause=file.index.statement_of(op.call),
            subject=op.operand,
            facts={
                "through_name": through_name,
                "reads": len(found),
                "known": value.kind == "tensor",
                "small": "[" in file.source(op.operand),
            },
        )


def _detached(call: ast.Call, file: SourceFile) -> ast.expr:
    """The whole of `x.clone().detach()` around `x.clone()`."""
    whole: ast.expr = call
    while True:
        attribute = file.index.parent(whole)
        outer = (
            file.index.parent(attribute)
            if isinstance(attribute, ast.Attribute) and attribute.attr == "detach"
            else None
        )
        if not isinstance(outer, ast.Call):
            return whole
        whole = outer


def _is_read(use: ast.expr, file: SourceFile) -> bool:
    """Is it an operand, or an argument or receiver of an operation that makes a new tensor?"""
    parent = file.index.parent(use)
    if isinstance(parent, ast.Attribute):
        if parent.attr in _SIZES:
            return True
        call = file.index.parent(parent)
        return isinstance(call, ast.Call) and call.func is parent and parent.attr in _PURE
    if isinstance(parent, _ELEMENTWISE):
        return not isinstance(parent, ast.BinOp) or not isinstance(parent.op, ast.Mod)
    holder = file.index.parent(parent) if isinstance(parent, (ast.List, ast.Tuple)) else parent
    if not isinstance(holder, ast.Call) or not file.imports.qualified(holder.func).startswith("torch."):
        return False
    return last_name(holder.func) in _PURE and not any(k.arg == "out" for k in holder.keywords)


def _changed(original: ast.expr, clone: ast.Call, file: SourceFile) -> bool:
    """May the original be another value when the copy is read?"""
    function = file.index.function_of(clone)
    if not isinstance(original, ast.Name) or next(file.index.loops_of(clone), None) is not None:
        return True
    rebound = any(
        b.line > clone.lineno and b.kind == "augment" for b in file.bindings.of(function, original.id)
    )
    return rebound or original.id in file.once(_written).get(function, ())


def _written(file: SourceFile) -> dict[FunctionNode | None, set[str]]:
    """Function -> names that it may change in place: `x[i] = …`, `x.add_()`, `f(x)` of an unknown function."""
    table: dict[FunctionNode | None, set[str]] = {}
    for name in file.index.of_type(ast.Name):
        parent = file.index.parent(name)
        if (
            isinstance(parent, ast.Subscript)
            and not isinstance(parent.ctx, ast.Load)
            and parent.value is name
        ):
            hit = True
        elif isinstance(parent, ast.Attribute):
            hit = parent.attr.endswith("_") or not isinstance(parent.ctx, ast.Load) or parent.attr == "data"
        elif isinstance(parent, ast.Subscript):
            outer = file.index.parent(parent)
            hit = (
                isinstance(outer, ast.Attribute)
                and outer.attr.endswith("_")
                or isinstance(outer, ast.AugAssign)
            )
        else:
            hit = False
        if hit:
            table.setdefault(file.index.function_of(name), set()).add(name.id)
    return table
