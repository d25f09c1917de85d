from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Evidence, Invalid, Problem, Rule, SourceFile, Span, quote
from ptopt.rules.ops._calls import int_literal, is_range, names_in
from ptopt.rules.ops._pure import changes, is_module_call, reads, steady
from ptopt.rules.ops.slice_loop import reported
from ptopt.source.calls import called_name
from ptopt.source.index import own_nodes, walk

_CELLS = frozenset("LSTMCell GRUCell RNNCell".split())


class RecurrentCellStepped(Rule):
    """A recurrence runs step by step in Python, with work that does not belong into the recurrence.

    ## What it does
    Finds a loop over time that calls `nn.LSTMCell`, `nn.GRUCell` or `nn.RNNCell` on `x[:, t]`, and a submodule that is called on
    `x[:, t]` alone, without the state, in a loop that carries a state.

    ## Why it is slow
    A cell starts a dozen kernels per step from Python; `nn.LSTM` and `nn.GRU` run the whole sequence in one call of cuDNN. What
    does not depend on the state can run once on all steps, as one large product.

    ## When this is wrong
    When the input of a step depends on the output of the one before.

    ## Example
    ```python
    for t in range(x.size(1)):
        h = self.cell(x[:, t], h)
    ```

    ## Use instead
    ```python
    outputs, h = self.gru(x, h)
    ```

    ## Fix safety
    No fix is offered: the weights have other names in `nn.GRU`.

    ## Sources
    - [torch.nn.LSTM](https://docs.pytorch.org/docs/stable/generated/torch.nn.LSTM.html)
    """

    id = "PTO463"
    name = "recurrent-cell-stepped"
    family = "ops"
    nodes = (ast.For,)
    when_wrong = "the input of a step depends on the output of the one before"

    VALID = (
        """
        class Model(nn.Module):
            def __init__(self):
                self.gru = nn.GRU(8, 8)

            def forward(self, x):
                return self.gru(x)
        """,
        """
        class Decoder(nn.Module):
            def __init__(self):
                self.cell = nn.GRUCell(8, 8)

            def forward(self, y, h):
                for _ in range(20):
                    h = self.cell(y, h)
                    y = self.out(h)
                return y
        """,
        """
        class Layers(nn.Module):
            def forward(self, x):
                for layer in self.layers:
                    x = layer(x)
                return x
        """,
    )
    INVALID = (
        Invalid(
            """
            class Model(nn.Module):
                def __init__(self):
                    self.cell = nn.GRUCell(8, 8)

                def forward(self, x, h):
                    for t in range(x.size(1)):  # !
                        h = self.cell(x[:, t], h)
                    return h
            """
        ),
        Invalid(
            """
            class Model(nn.Module):
                def __init__(self):
                    self.inner = nn.Linear(8, 8)
                    self.outer = nn.Linear(8, 8)

                def forward(self, x, h):
                    for t in range(x.shape[1]):  # !
                        h = torch.tanh(self.inner(x[:, t]) + self.outer(h))
                    return h
            """
        ),
        Invalid(
            """
            class Tagger(nn.Module):
                def __init__(self):
                    self.lstm = nn.LSTMCell(8, 8)
                    self.embed = nn.Embedding(100, 8)

                def forward(self, tokens, state):
                    for i in range(tokens.size(0)):  # !
                        step = tokens[i]
                        state = self.lstm(self.embed(step), state)
                    return state
            """
        ),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.For) or node in file.once(reported):
            return
        index = _index(node)
        if not index:
            return
        inner = [n for stmt in node.body for n in [stmt, *own_nodes(stmt)]]
        calls = [
            n for n in inner if isinstance(n, ast.Call) and (n.args or n.keywords) and is_module_call(n, file)
        ]
        if not calls:
            return
        slices = _slices(inner, index, node, file)
        cell = next((c for c in calls if _is_cell(c, file) and c.args and names_in(c.args[0]) & slices), None)
        free = next((c for c in calls if c is not cell and _only_slices(c, slices, node, file)), None)
        whole = _is_state(node, inner)
        work = free or cell
        if not whole or work is None:
            return
        if free is not None and cell is None:
            text = (
                f"{quote(file, free, 50)} does not depend on the state that this loop carries, and runs once for each step all the same. Run "
                f"{quote(file, free.func, 30)} on the whole sequence before the loop, as one large product, and take its slices in the loop."
            )
        else:
            text = (
                f"{quote(file, cell or work, 50)} runs from Python for each step, a dozen small kernels every time. The input of a step is a "
                "slice of a given sequence: `nn.LSTM` and `nn.GRU` run all steps in one call."
            )
        yield Problem(
            node,
            text,
            0.4,
            (Evidence(work.lineno, "the work of one step"),),
            cause=node,
            span=Span(node.lineno, max(node.lineno, node.body[0].lineno - 1)),
            at=work,
            facts={"cell": cell is not None, "hoistable": free is not None, "modules": len(calls)},
        )


def _index(loop: ast.For) -> frozenset[str]:
    """The names that count the steps; empty when there are a few of them."""
    iterable: ast.expr = loop.iter
    while (
        isinstance(iterable, ast.Call)
        and called_name(iterable) in ("reversed", "tqdm", "list")
        and iterable.args
    ):
        iterable = iterable.args[0]
    if not is_range(iterable) or not isinstance(iterable, ast.Call) or not isinstance(loop.target, ast.Name):
        return frozenset()
    if len(iterable.args) > 2 and int_literal(iterable.args[2]) not in (1, -1):
        return frozenset()  # tiles
    limit = int_literal(iterable.args[min(1, len(iterable.args) - 1)])
    return frozenset() if limit is not None and limit < 5 else frozenset({loop.target.id})


def _slices(inner: list[ast.AST], index: frozenset[str], loop: ast.For, file: SourceFile) -> frozenset[str]:
    """The index, and the names that hold a slice of a sequence that the loop leaves alone."""
    names = set(index)
    for stmt in inner:
        target = stmt.targets[0] if isinstance(stmt, ast.Assign) and len(stmt.targets) == 1 else None
        if (
            isinstance(stmt, ast.Assign)
            and isinstance(target, ast.Name)
            and _slice(stmt.value, frozenset(names), loop, file)
        ):
            names.add(target.id)
    return frozenset(names)


def _slice(expr: ast.expr, names: frozenset[str], loop: ast.For, file: SourceFile) -> bool:
    """Is it `x[:, t]`, also reshaped, of an `x` that the loop does not change?"""
    while (
        isinstance(expr, ast.Call)
        and isinstance(expr.func, ast.Attribute)
        and not isinstance(expr.func.value, ast.Name)
    ):
        if called_name(expr) not in (
            "unsqueeze",
            "squeeze",
            "view",
            "reshape",
            "contiguous",
            "transpose",
            "to",
            "float",
        ):
            return False
        expr = expr.func.value
    if isinstance(expr, ast.Name):
        return False
    if not isinstance(expr, ast.Subscript) or not names_in(expr.slice) & names:
        return False
    keys = reads(expr.value, file)
    return (
        bool(keys)
        and steady(keys, expr, file)
        and not changes(file.index.function_of(loop), file).in_node(keys, loop)
    )


def _only_slices(call: ast.Call, names: frozenset[str], loop: ast.For, file: SourceFile) -> bool:
    """Does the submodule get slices of given sequences, and nothing that the loop computes?"""
    if isinstance(call.func, ast.Subscript) or names_in(call.func) & names:
        return False
    given = [*call.args, *(k.value for k in call.keywords)]
    loose = {n for n in names if n not in _index(loop)}
    sliced = [a for a in given if _slice(a, names, loop, file) or isinstance(a, ast.Name) and a.id in loose]
    return len(sliced) == len(given) and bool(given)


def _is_cell(call: ast.Call, file: SourceFile) -> bool:
    if not isinstance(call.func, ast.Attribute):
        return False
    cls = file.index.class_of(call)
    made = file.bindings.attribute(cls, call.func.attr) if cls is not None else None
    return isinstance(made, ast.Call) and called_name(made) in _CELLS


def _is_state(loop: ast.For, inner: list[ast.AST]) -> bool:
    """Does an iteration read a name that it, or the one before, has assigned from it?"""
    for stmt in inner:
        if isinstance(stmt, ast.Assign):
            names = {n.id for t in stmt.targets for n in walk(t) if isinstance(n, ast.Name)}
            if names & names_in(stmt.value):
                return True
            first = min(
                (
                    n.lineno
                    for n in inner
                    if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load) and n.id in names
                ),
                default=1 << 30,
            )
            if first < stmt.lineno:
                return True
    return False
