from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import (
    Benchmark,
    Evidence,
    Invalid,
    Problem,
    Rule,
    Severity,
    SourceFile,
    Span,
)
from ptopt.rules.ops._calls import FEW, int_literal

_POINTWISE = frozenset(
    "abs exp log log1p log2 log10 sqrt rsqrt sin cos tan tanh sigmoid relu clamp clip round floor ceil pow square "
    "minimum maximum where float int long bool min max to item sign erf".split()
)
_FEW_ROWS = 16


class ElementLoop(Rule):
    """A Python loop works on a tensor element by element.

    ## What it does
    Finds `for i in range(n): out[i] = f(x[i])` where `out` is a tensor and the body only computes with `i` and with
    elements at `i`. Loops in which one iteration needs the one before are left alone.

    ## Why it is slow
    Each iteration indexes, computes and stores with a kernel (and a Python call) for a few bytes of data. The same
    work on the whole tensor is one kernel, hundreds to thousands of times faster.

    ## When this is wrong
    When the tensor has few rows, or the whole result does not fit into memory at once.

    ## Example
    ```python
    for i in range(n):
        mask[i, : (i // size + 1) * size] = 0
    ```

    ## Use instead
    ```python
    frame = torch.arange(n, device=mask.device) // size
    mask.masked_fill_(frame[None, :] <= frame[:, None], 0)
    ```

    ## Fix safety
    None: the vectorised form differs from case to case.

    ## Sources
    - [PyTorch profiler: the for-loop indexing pattern](https://github.com/pytorch/pytorch/blob/main/torch/profiler/_pattern_matcher.py)
    """

    id = "PTO402"
    name = "element-loop"
    family = "ops"
    severity = Severity.MEDIUM
    triggers = ("for ",)
    nodes = (ast.For,)
    when_wrong = "the tensor has few rows, or the whole result does not fit into memory at once"

    VALID = (
        """
        out = torch.zeros(n)
        for t in range(1, n):
            out[t] = decay * out[t - 1] + x[t]
        """,
        """
        padded = torch.zeros(len(seqs), longest)
        for i, seq in enumerate(seqs):
            padded[i, : len(seq)] = seq
        """,
        """
        out = torch.zeros(len(layers), dim)
        for i in range(len(layers)):
            out[i] = layers[i](x)
        """,
        """
        rgb = torch.zeros(3)
        for i in range(3):
            rgb[i] = x[i] * scale[i]
        """,
        """
        mask = torch.zeros(batch, longest)
        for i in range(batch):
            mask[i, : lengths[i]] = 1
            log(mask)
        """,
    )
    INVALID = (
        Invalid(
            """
            mask = torch.full((seq_len, seq_len), float("-inf"), device=device)
            for i in range(seq_len):  # !
                frame = i // size
                mask[i, : (frame + 1) * size] = 0
            """
        ),
        Invalid(
            """
            def squash(x: torch.Tensor):
                out = torch.zeros_like(x)
                for i in range(len(x)):  # !
                    out[i] = torch.sigmoid(x[i]) * 2 - 1
                return out
            """
        ),
        Invalid(
            """
            bias = torch.zeros(n, n)
            for i in range(n):  # !
                for j in range(n):
                    bias[i, j] = abs(i - j) / n
            """
        ),
    )
    BENCHMARK = Benchmark(
        setup="import torch\nx = torch.randn(3000)",
        before="result = torch.zeros_like(x)\nfor i in range(len(x)):\n    result[i] = torch.sigmoid(x[i]) * 2 - 1",
        after="result = torch.sigmoid(x) * 2 - 1",
        scope="the loop",
        sizes="3000 float32",
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.For) or node.orelse or not isinstance(node.target, ast.Name):
            return
        if _is_range(node.iter):
            yield from _index_loop(node, file)


def _index_loop(node: ast.For, file: SourceFile) -> Iterator[Problem]:
    parent = file.index.parent(node)
    if isinstance(parent, ast.For) and parent.body == [node] and _is_range(parent.iter):
        return  # told at the outer loop
    body, variables, literal = node.body, {_target(node)}, _literal_range(node)
    while len(body) == 1 and isinstance(body[0], ast.For) and _is_range(body[0].iter) and not body[0].orelse:
        literal = literal and _literal_range(body[0])
        variables.add(_target(body[0]))
        body = body[0].body
    if literal or not body or len(body) > 6 or FEW.search(file.source(node.iter)) or _set_up(node, file):
        return
    outputs: list[ast.expr] = []
    scalars: set[str] = set(variables)
    for stmt in body:
        if not isinstance(stmt, (ast.Assign, ast.AugAssign)):
            return
        target = stmt.targets[0] if isinstance(stmt, ast.Assign) else stmt.target
        if (
            isinstance(stmt, ast.Assign)
            and isinstance(target, ast.Name)
            and _computed(stmt.value, scalars, file)
        ):
            scalars.add(target.id)
        elif isinstance(target, ast.Subscript) and isinstance(target.value, (ast.Name, ast.Attribute)):
            if not _computed(target.slice, scalars, file) or not _computed(stmt.value, scalars, file):
                return
            if not _indexed(target.slice, scalars):
                return
            outputs.append(target.value)
        else:
            return
    if not outputs or any(file.values.of(out).kind != "tensor" for out in outputs):
        return
    written = {ast.dump(out, include_attributes=False).replace("Store()", "Load()") for out in outputs}
    for stmt in body:
        value = stmt.value if isinstance(stmt, (ast.Assign, ast.AugAssign)) else None
        if value is not None and any(ast.dump(n) in written for n in ast.walk(value)):
            return  # one iteration reads what another one wrote
    name = file.source(outputs[0])
    index = " and ".join(f"`{v}`" for v in sorted(variables))
    simple = len(variables) == 1 and not _sliced(body, scalars)
    limits = ", ".join(file.source(a) for a in node.iter.args) if isinstance(node.iter, ast.Call) else ""
    advice = (
        f"With `{_target(node)} = torch.arange({limits}, device={name}.device)` the same statements do it once, without the loop."
        if simple
        else "Compute it for all of them at once: compare or combine `torch.arange` indices in one expression."
    )
    yield Problem(
        node,
        f"This loop fills `{name}` one index at a time, each with kernels of its own, though what it stores depends "
        f"only on {index}. {advice}",
        0.75,
        (Evidence(body[-1].lineno, f"the store into `{name}`"),),
        span=_head(node),
    )


def _indexed(index: ast.expr, scalars: set[str]) -> bool:
    """Does a loop variable stand as an index itself? Where it only bounds a slice, the loop copies blocks."""
    entries = index.elts if isinstance(index, ast.Tuple) else [index]
    plain = [e for e in entries if not isinstance(e, ast.Slice)]
    return any(isinstance(n, ast.Name) and n.id in scalars for e in plain for n in ast.walk(e))


def _sliced(body: list[ast.stmt], scalars: set[str]) -> bool:
    """Does a slice depend on the loop, or a Python function that takes no tensor?"""
    return any(
        (isinstance(n, ast.Slice) and any(isinstance(m, ast.Name) and m.id in scalars for m in ast.walk(n)))
        or (isinstance(n, ast.Call) and isinstance(n.func, ast.Name))
        for stmt in body
        for n in ast.walk(stmt)
    )


def _set_up(node: ast.For, file: SourceFile) -> bool:
    """Does the loop run once, when a module is built or its weights are initialised, or when a cache is empty?"""
    function = file.index.function_of(node)
    if function is not None and re.search(
        r"^__init__$|(^|_)init(ialize|_|$)|reset_param|convert|export", function.name
    ):
        return True
    for ancestor, _ in file.index.ancestors(node):
        if isinstance(ancestor, ast.If) and re.search(
            r"hasattr|is None|not in |^not ", file.source(ancestor.test)
        ):
            return True
    return False


def _head(node: ast.For) -> Span:
    return Span(node.lineno, max(node.lineno, node.body[0].lineno - 1))


def _target(loop: ast.For) -> str:
    return loop.target.id if isinstance(loop.target, ast.Name) else ""


def _is_range(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "range"
        and bool(node.args)
    )


def _literal_range(loop: ast.For) -> bool:
    """A range of few iterations that is written in the code."""
    args = loop.iter.args if isinstance(loop.iter, ast.Call) else []
    limits = [int_literal(a) for a in args]
    return all(limit is not None and abs(limit) < _FEW_ROWS for limit in limits)


def _computed(expr: ast.expr, scalars: set[str], file: SourceFile) -> bool:
    """Is the value made by arithmetic from loop variables, outer names, and elements of tensors at the indices?"""
    if isinstance(expr, ast.Constant):
        return not isinstance(expr.value, (str, bytes))
    if isinstance(expr, (ast.Name, ast.Attribute)):
        return not isinstance(expr, ast.Attribute) or isinstance(expr.value, ast.Name)
    if isinstance(expr, ast.BinOp):
        return _computed(expr.left, scalars, file) and _computed(expr.right, scalars, file)
    if isinstance(expr, ast.UnaryOp):
        return _computed(expr.operand, scalars, file)
    if isinstance(expr, ast.Compare):
        return all(_computed(e, scalars, file) for e in [expr.left, *expr.comparators])
    if isinstance(expr, ast.Tuple):
        return all(_computed(e, scalars, file) for e in expr.elts)
    if isinstance(expr, ast.Slice):
        bounds = [b for b in (expr.lower, expr.upper, expr.step) if b is not None]
        # A bound read from elsewhere (`: lengths[i]`) is ragged data, not a formula.
        return all(_computed(b, scalars, file) and not isinstance(b, ast.Subscript) for b in bounds)
    if isinstance(expr, ast.Subscript):
        return file.values.is_tensor(expr.value) and _computed(expr.slice, scalars, file)
    if isinstance(expr, ast.Call):
        return _pointwise(expr, file) and all(_computed(a, scalars, file) for a in expr.args)
    return False


def _pointwise(call: ast.Call, file: SourceFile) -> bool:
    if call.keywords:
        return False
    if isinstance(call.func, ast.Name):
        return call.func.id in ("abs", "min", "max", "float", "int", "round")
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in _POINTWISE:
        return False
    module = file.imports.qualified(call.func).rpartition(".")[0]
    if module:
        return module in ("torch", "math", "numpy", "torch.nn.functional")
    return file.values.is_tensor(call.func.value) and isinstance(call.func.value, (ast.Subscript, ast.Name))
