from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import Benchmark, Evidence, Invalid, Problem, Rule, SourceFile, Span
from ptopt.rules.code import method_call
from ptopt.rules.ops._calls import FEW, int_literal, is_range, names_in
from ptopt.rules.ops._formula import Formula
from ptopt.source.file import remembered
from ptopt.source.index import FunctionNode, walk

_FEW_ROWS = 16
_SHORT_BODY, _LONG = 6, 12  # statements

_OF_EQUAL = frozenset({"torch.stack", "torch.tensor"})  # parts of one shape
_STACKS = _OF_EQUAL | {"torch.cat"}


class ElementLoop(Rule):
    """A Python loop works on a tensor element by element.

    ## What it does
    Finds `for i in range(n): out[i] = f(x[i])` where `out` is a tensor (or a list that is stacked afterwards) and the
    body only computes with `i` and with elements and rows at `i`, such as `x[i, idx[i]]`. Loops in which one iteration needs the one before are left alone.

    ## Why it is slow
    Each iteration indexes, computes and stores with a kernel (and a Python call) for a few bytes of data. The same
    work on the whole tensor is one kernel, hundreds to thousands of times faster.

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
    libraries = (*Rule.libraries, "numpy")
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
        def differences(x: torch.Tensor):
            out = torch.zeros_like(x)
            last = 0.0
            for i in range(len(x)):
                out[i] = x[i] - last
                last = x[i]
            return out
        """,
        """
        class Filter:
            def __init__(self):
                ndim, dt = 4, 1.0
                self.motion = np.eye(2 * ndim, 2 * ndim)
                for i in range(ndim):
                    self.motion[i, ndim + i] = dt
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
        """
        def share(x: torch.Tensor, bounds: torch.Tensor):
            parts = []
            for i in range(n):
                mask = (x[:, 0] >= bounds[i]) & (x[:, 0] < bounds[i + 1])
                parts.append(x[mask])
            return torch.cat(parts)
        """,
        """
        def words(features: torch.Tensor, groups, last):
            out = [features[0]]
            for j in range(last, len(features)):
                out.append(features[j])
            return torch.stack(out)
        """,
        """
        def kept(x: Float[Tensor, "batch pos"], keep: torch.Tensor):
            parts = []
            for i in range(len(x)):
                parts.append(x[i, keep[i]])  # as many as the mask finds
            return torch.cat(parts)
        """,
        """
        def kept(x: Float[Tensor, "batch pos"], mask):
            parts = []
            for i in range(len(x)):
                parts.append(x[i, mask[i]])
            return torch.stack(parts)
        """,
        """
        def ends(x: Float[Tensor, "batch pos"], starts):
            parts = []
            for i in range(len(x)):
                parts.append(x[i, starts[i] :])
            return parts
        """,
        """
        def chain(x: torch.Tensor, idx: torch.Tensor):
            out = torch.zeros(len(x))
            for i in range(1, len(x)):
                out[i] = x[i, idx[i]] + out[i - 1]
            return out
        """,
    )
    INVALID = (
        Invalid("""
            mask = torch.full((seq_len, seq_len), float("-inf"), device=device)
            for i in range(seq_len):  # !
                frame = i // size
                mask[i, : (frame + 1) * size] = 0
        """),
        Invalid("""
            def squash(x: torch.Tensor):
                out = torch.zeros_like(x)
                for i in range(len(x)):  # !
                    out[i] = torch.sigmoid(x[i]) * 2 - 1
                return out
        """),
        Invalid("""
            def normalise(x):
                out = torch.zeros_like(x)
                for i in range(x.size(0)):  # !
                    out[i] = x[i] / x[i].norm()
                return out
        """),
        Invalid("""
            def squash(x: torch.Tensor):
                parts = []
                for i in range(len(x)):  # !
                    parts.append(torch.sigmoid(x[i]) * 2)
                return torch.stack(parts)
        """),
        Invalid("""
            def answers(logits: Float[torch.Tensor, "batch d_vocab"], tokens):
                out = torch.zeros(logits.shape[0], device=logits.device)
                for i in range(logits.shape[0]):  # !
                    out[i] = logits[i, tokens[i]]
                return out
        """),
        Invalid("""
            def answers(logits: Float[torch.Tensor, "batch pos d_vocab"], last, tokens):
                parts = []
                for i in range(len(tokens)):  # !
                    parts.append(logits[i, last[i], tokens[i]])
                return torch.stack(parts)
        """),
        Invalid("""
            def answers(logits, tokens):
                out = torch.zeros(logits.shape[0], device=logits.device)
                for i in range(logits.shape[0]):  # !
                    out[i] = logits[i, -1, tokens[i]]
                return out
        """),
        Invalid("""
            bias = torch.zeros(n, n)
            for i in range(n):  # !
                for j in range(n):
                    bias[i, j] = abs(i - j) / n
        """),
    )
    BENCHMARK = Benchmark(
        setup="import torch\nx = torch.randn(3000)",
        before="result = torch.zeros_like(x)\nfor i in range(len(x)):\n    result[i] = torch.sigmoid(x[i]) * 2 - 1",
        after="result = torch.sigmoid(x) * 2 - 1",
        scope="the loop",
        sizes="3000 float32",
    )

    def may_be_sure(self, file: SourceFile) -> bool:
        """Only of a range that may be long, in a loop that does not run once to set something up."""
        return any(
            is_range(loop.iter) and not FEW.search(file.source(loop.iter)) and not _set_up(loop, file)
            for loop in file.index.of_type(ast.For)
        )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.For) or node.orelse or not is_range(node.iter):
            return
        parent = file.index.parent(node)
        if isinstance(parent, ast.For) and parent.body == [node] and is_range(parent.iter):
            return  # told at the outer loop
        loops = [node]
        while len(loops[-1].body) == 1:
            inner = loops[-1].body[0]
            if not isinstance(inner, ast.For) or not is_range(inner.iter) or inner.orelse:
                break
            loops.append(inner)
        body = loops[-1].body
        if len(body) > _LONG or all(_few_rounds(loop, file) for loop in loops):
            return
        formula = Formula(file, {n for loop in loops for n in names_in(loop.target)}, _sized(loops))
        variables = " and ".join(f"`{v}`" for v in sorted(formula.scalars))
        first = next(iter(sorted(formula.scalars)), "")
        output = formula.output(body)
        if output is None or not _is_filled(output, node, file, formula.gathered is not None):
            return
        name = file.source(output)
        kind = file.values.of(output).kind
        listed = kind not in ("tensor", "array")
        few, set_up = bool(FEW.search(file.source(node.iter))), _set_up(node, file)
        sure = (
            0.35
            if few or set_up
            else 0.45
            if kind == "array" or len(body) > _SHORT_BODY
            else 0.65
            if listed
            else 0.75
        )
        limits = ", ".join(file.source(a) for a in node.iter.args) if isinstance(node.iter, ast.Call) else ""
        if formula.simple and len(loops) == 1:
            arange = (
                f"np.arange({limits})" if kind == "array" else f"torch.arange({limits}, device={name}.device)"
            )
            advice = f"With `{first} = {arange}` the same statements do it once, without the loop."
        elif formula.gathered is not None:
            advice = _gather(formula.gathered, limits, kind, file)
        elif formula.reduces:
            advice = "Apply it to the whole tensor, and reduce along `dim=-1` where it reduces a row."
        elif listed:
            advice = "Apply the expression to the whole tensor; nothing is left to stack."
        else:
            module = "np" if kind == "array" else "torch"
            advice = f"Compute it for all of them at once, from `{module}.arange` indices that are combined or compared."
        each = "in Python" if kind == "array" else "each with kernels of its own"
        yield Problem(
            node,
            f"This loop fills `{name}` one index at a time, {each}, though what it stores "
            f"depends only on {variables}. {advice}",
            sure,
            (Evidence(body[-1].lineno, f"the store into `{name}`"),),
            span=Span(node.lineno, max(node.lineno, node.body[0].lineno - 1)),
            facts={
                "few_by_name": few,
                "set_up": set_up,
                "array": kind == "array",
                "loops": len(loops),
                "statements": len(body),
            },
        )


def _gather(read: ast.Subscript, limits: str, kind: str, file: SourceFile) -> str:
    """`x[i, idx[i]]` for all rows at once."""
    table = file.source(read.value)
    entries = read.slice.elts if isinstance(read.slice, ast.Tuple) else []
    every = f"np.arange({limits})" if kind == "array" else f"torch.arange({limits}, device={table}.device)"
    indices = ", ".join(
        file.source(e.value)
        if isinstance(e, ast.Subscript)
        else "rows"
        if isinstance(e, ast.Name)
        else file.source(e)
        for e in entries
    )
    return f"With `rows = {every}`, `{table}[{indices}]` takes them all at once (as `gather` does)."


def _is_filled(output: ast.expr, node: ast.For, file: SourceFile, gathers: bool = False) -> bool:
    """Is it a tensor, or a list that is stacked into one afterwards? Where it `gathers`, a mask may give rows of any length, and they
    are not put end to end.
    """
    if file.values.is_a(output, "tensor", "array"):
        return True
    if not isinstance(output, ast.Name) or not _begins_empty(output, node, file):
        return False
    stacked = _stacked(file.index.function_of(node), _OF_EQUAL if gathers else _STACKS, file)
    return stacked.get(output.id, 0) > node.lineno


@remembered
def _stacked(function: FunctionNode | None, stacks: frozenset[str], file: SourceFile) -> dict[str, int]:
    """Names that are made into a tensor, with the last line that does it."""
    lines: dict[str, int] = {}
    for call in file.calls.calls_in(function):
        first = call.args[0] if call.args else None
        if isinstance(first, ast.Name) and file.imports.qualified(call.func) in stacks:
            lines[first.id] = max(call.lineno, lines.get(first.id, 0))
    return lines


def _begins_empty(output: ast.Name, node: ast.For, file: SourceFile) -> bool:
    """Does the list hold what this loop appends, and nothing else?"""
    function = file.index.function_of(node)
    if not _only_empty_lists(output.id, function, file):
        return False
    return all(file.index.within(h, node) for h in _grown_lists(function, file).get(output.id, ()))


@remembered
def _only_empty_lists(name: str, function: FunctionNode | None, file: SourceFile) -> bool:
    values = [b.value for b in file.bindings.of(function, name)]
    return all(isinstance(value, ast.List) and not value.elts for value in values)


@remembered
def _grown_lists(function: FunctionNode | None, file: SourceFile) -> dict[str, list[ast.Name]]:
    table: dict[str, list[ast.Name]] = {}
    for call in file.calls.calls_in(function):
        holder = method_call(call, "append", "extend", "insert")
        if isinstance(holder, ast.Name):
            table.setdefault(holder.id, []).append(holder)
    return table


def _sized(loops: list[ast.For]) -> frozenset[str]:
    """`x` of `range(x.size(0))`: only tensors have that method."""
    calls = [n for loop in loops for n in walk(loop.iter) if isinstance(n, ast.Call)]
    return frozenset(
        base.id for base in (method_call(call, "size") for call in calls) if isinstance(base, ast.Name)
    )


def _set_up(node: ast.For, file: SourceFile) -> bool:
    """Does the loop run once, when a module is built or its weights are initialised, or when a cache is empty?"""
    function = file.index.function_of(node)
    if function is not None and re.search(
        r"^__init__$|(^|_)init(ialize|_|$)|reset_param|convert|export", function.name
    ):
        return True
    return any(
        isinstance(ancestor, ast.If)
        and re.search(r"hasattr|is None|not in |^not ", file.source(ancestor.test))
        for ancestor, _ in file.index.ancestors(node)
    )


def _few_rounds(loop: ast.For, file: SourceFile) -> bool:
    """A range of few iterations that is written in the code, in place or as the only value of a name."""
    args = loop.iter.args if isinstance(loop.iter, ast.Call) else []
    limits = [_limit(a, file) for a in args]
    return all(limit is not None and abs(limit) < _FEW_ROWS for limit in limits)


def _limit(expr: ast.expr, file: SourceFile) -> int | None:
    if isinstance(expr, ast.Name):
        bindings = file.bindings.of(file.index.function_of(expr), expr.id)
        only = bindings[0] if len(bindings) == 1 and bindings[0].kind == "assign" else None
        return int_literal(only.value) if only is not None and only.value is not None else None
    return int_literal(expr)
