from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import beside, quote
from ptopt.rules.ops._calls import int_literal
from ptopt.rules.shared.flow import entries_of, reads
from ptopt.source.bindings import is_self
from ptopt.source.calls import called_name, last_name
from ptopt.source.frequency import Often

# Modules that work on the last dimension alone, by what people call them.
_HEAD = re.compile(
    r"(^|_)(lm_head|head|fc\d*|linear\d*|lin\d*|proj(ection)?\d*|classifier|out(put)?(_?(layer|proj|linear))?|predictor|mlp|"
    r"decoder|vocab\w*|embed_out|to_logits|generator|h2o|logits?|final|score|norm|ln_f)(_?\d+)?$",
    re.I,
)
_MADE = frozenset("Linear LayerNorm RMSNorm Identity Embedding GELU ReLU Softmax LogSoftmax MLP".split())
_ROWWISE = frozenset(
    "exp log log1p expm1 sigmoid tanh relu gelu silu softplus sqrt sin cos clamp abs linear layer_norm".split()
)


class ComputedThenSliced(Rule):
    """All positions are computed and one, or a part, of them is kept.

    ## What it does
    Finds `self.head(x)[:, -1]`, `F.linear(x, w)[:n]`, `torch.exp(x)[index]` and the same through a local name: an operation
    that works on each row on its own, of whose result only one slice is read.

    ## Why it is slow
    The rows that are thrown away cost as much as those that are kept. For the output layer of a language model over the
    last position this is a factor of the sequence length, in time and in memory.

    ## Example
    ```python
    logits = self.lm_head(hidden)[:, -1]
    ```

    ## Use instead
    ```python
    logits = self.lm_head(hidden[:, -1])
    ```

    ## Fix safety
    No fix is offered: the module may mix rows in a way that its name does not show.

    ## Sources
    - [torch.nn.Linear](https://docs.pytorch.org/docs/stable/generated/torch.nn.Linear.html)
    """

    id = "PTO456"
    name = "computed-then-sliced"
    family = "ops"
    most_stated = 0.45
    triggers = ("[",)
    nodes = (ast.Call,)
    when_wrong = "the operation mixes the rows"

    VALID = (
        """
        class Head(nn.Module):
            def forward(self, x):
                return self.fc(x[:, -1])
        """,
        """
        class Head(nn.Module):
            def forward(self, x):
                out = self.fc(x)
                return out[:, -1], out.mean()
        """,
        """
        class Head(nn.Module):
            def forward(self, x):
                q = self.proj(x)[..., :64]
                return q
        """,
    )
    INVALID = (
        Invalid("""
            class Model(nn.Module):
                def __init__(self):
                    self.rnn = nn.LSTM(8, 8)
                    self.fc = nn.Linear(8, 10)

                def forward(self, x):
                    out, _ = self.rnn(x)
                    out = self.fc(out)  # !
                    return out[:, -1, :]
        """),
        Invalid("""
            class Decoder(nn.Module):
                def __init__(self):
                    self.lm_head = nn.Linear(8, 50000)

                def step(self, hidden):
                    return self.lm_head(hidden)[:, -1]  # !
        """),
        Invalid("""
            class Rates(nn.Module):
                def forward(self, index):
                    return torch.exp(self.log_rates)[index]  # !
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        kind = (
            _rowwise(node, file)
            if isinstance(node, ast.Call) and node.args or isinstance(node, ast.Call)
            else ""
        )
        if not kind or not isinstance(node, ast.Call):
            return
        slices = _slices(node, file)
        if not slices:
            return
        texts = {ast.dump(s.slice) for s in slices}
        if len(texts) != 1 or not _leaves_rows_out(slices[0], kind):
            return
        frequency = file.frequencies.of(node)
        if frequency.often in (Often.ONCE, Often.RARELY):
            return
        operand = node.args[0] if node.args else node.func
        if not node.args and isinstance(node.func, ast.Attribute):
            operand = node.func.value
        taken = (
            file.source(slices[0])[len(file.source(slices[0].value)) :] if _flat(slices[0], file) else "[…]"
        )
        last = "-1" in taken
        yield Problem(
            node,
            f"{quote(file, node, 50)} computes every row, and only `{taken}` of the result is read. The operation works on each "
            f"row on its own: slice {quote(file, operand, 30)} first (`{file.source(operand)[:30].strip()}{taken}`).",
            0.45 if kind == "module" else 0.35,
            beside(node, slices[0], "what is read of it"),
            subject=node,
            facts={"module": kind == "module", "last": last, "reads": len(slices)},
        )


def _flat(node: ast.expr, file: SourceFile) -> bool:
    return node.lineno == node.end_lineno and file.source(node).count("\n") == 0


def _rowwise(call: ast.Call, file: SourceFile) -> str:
    """ "module" for a head that works on the last dimension, "op" for an elementwise operation."""
    if called_name(call) in _ROWWISE:
        receiver = call.func.value if isinstance(call.func, ast.Attribute) else None
        torch = file.imports.qualified(call.func).startswith("torch.")
        operand = call.args[0] if torch and call.args else receiver
        return "op" if operand is not None and _is_table(operand, file) else ""
    func = call.func
    if not isinstance(func, ast.Attribute) or len(call.args) != 1 or call.keywords:
        return ""
    if not isinstance(func.value, ast.Name) or func.value.id != "self":
        return ""
    cls = file.index.class_of(call)
    made = file.bindings.attribute(cls, func.attr) if cls is not None else None
    if isinstance(made, ast.Call):
        return "module" if called_name(made) in _MADE and (called_name(made) != "Embedding") else ""
    return "module" if made is None and _HEAD.search(func.attr) and last_name(func) not in ("out",) else ""


def _is_table(operand: ast.expr, file: SourceFile) -> bool:
    """Is it a parameter or a table of the module?"""
    return (
        isinstance(operand, ast.Attribute) and is_self(operand) and operand.attr not in ("device", "training")
    )


def _slices(call: ast.Call, file: SourceFile) -> list[ast.Subscript]:
    """The subscripts that read the result, when nothing else reads it."""
    found: list[ast.Subscript] = []
    places = reads(call, file)
    statement = file.index.parent(call)
    if isinstance(statement, ast.Assign) and places and isinstance(places[0], ast.Name):
        later = [
            n
            for n in file.uses.loads(file.index.function_of(call), places[0].id)
            if n.lineno > statement.lineno
        ]
        if len(later) != len(places) or any(
            set(file.index.loops_of(n)) - set(file.index.loops_of(call)) for n in later
        ):
            return []
    for place in places:
        parent = file.index.parent(place)
        if (
            not isinstance(parent, ast.Subscript)
            or parent.value is not place
            or not isinstance(parent.ctx, ast.Load)
        ):
            return []
        found.append(parent)
    return found


def _leaves_rows_out(subscript: ast.Subscript, kind: str) -> bool:
    """Does it take a part of the rows, rather than of the last dimension that the module makes?"""
    entries = entries_of(subscript)
    if any(
        isinstance(e, ast.Constant) and (e.value is Ellipsis or e.value is None or isinstance(e.value, str))
        for e in entries
    ):
        return False
    if len(entries) == 1 and isinstance(entries[0], (ast.Constant, ast.UnaryOp)):
        return int_literal(entries[0]) is not None and kind == "op" and int_literal(entries[0]) != 0
    part = [e for e in entries if not (isinstance(e, ast.Slice) and e.lower is e.upper is e.step is None)]
    if len(part) != 1:
        return False
    at = entries.index(part[0])
    if kind == "op":
        return not isinstance(part[0], (ast.Constant,)) or at > 0
    return (
        at == 1
        and (len(entries) == 3 or isinstance(part[0], (ast.Constant, ast.UnaryOp)))
        and (len(entries) == 3 or int_literal(part[0]) == -1)
    )
