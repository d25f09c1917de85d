from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Edit, Evidence, Fix, Invalid, Problem, Rule, Safety, Severity, SourceFile
from ptopt.rules.code import is_literal, keyword_of, quote
from ptopt.source.index import own_nodes, walk

_AUTOCASTS = frozenset(("torch.autocast", "torch.amp.autocast", "torch.cuda.amp.autocast"))


class AutocastAroundBackward(Rule):
    """The backward pass runs inside the autocast region.

    ## What it does
    Finds `backward()` inside `with torch.autocast(...)`.

    ## Why it is slow
    The backward pass already uses the dtypes that the forward pass chose. Under autocast the dispatcher looks at
    each of its calls once more and may add casts of its own; the copies of the weights that autocast keeps for the
    forward pass stay in memory until the region ends. The documentation advises against it.

    ## When this is wrong
    When the backward pass recomputes parts of the forward pass by hand and needs autocast there.

    ## Fix safety
    Unsafe: the fix moves the last statements out of the region; it assumes that none of them needs autocast.

    ## Sources
    - [torch.amp: backward passes under autocast are not recommended](https://docs.pytorch.org/docs/stable/amp.html#torch.autocast)
    """

    id = "PTO752"
    name = "autocast-around-backward"
    family = "precision"
    severity = Severity.LOW
    triggers = ("autocast",)
    requires = ("backward(",)
    nodes = (ast.With,)
    when_wrong = "the backward pass recomputes parts of the forward pass by hand"

    VALID = (
        """
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = criterion(model(x), y)
        loss.backward()
        """,
        """
        with torch.autocast("cuda", enabled=False):
            loss = criterion(model(x).float(), y)
            loss.backward()
        """,
        """
        with torch.autocast("cuda", dtype=torch.bfloat16):
            def closure():
                loss = criterion(model(x), y)
                loss.backward()
                return loss
        """,
    )
    INVALID = (
        Invalid("""
            for x, y in loader:
                with torch.autocast("cuda", dtype=torch.bfloat16):
                    loss = criterion(model(x), y)
                    loss.backward()  # !
                    # +
                    optimizer.step()
                # + loss.backward()
                # + optimizer.step()
                optimizer.zero_grad()
        """),
        Invalid(
            """
            with torch.cuda.amp.autocast():
                loss = criterion(model(x), y)
                scaler.scale(loss).backward()  # !
                scaler.step(optimizer)
                scaler.update()
            """,
            """
            with torch.cuda.amp.autocast():
                loss = criterion(model(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            """,
        ),
        Invalid("""
            with torch.amp.autocast("cuda"):
                for x, y in loader:
                    loss = criterion(model(x), y)
                    loss.backward()  # !
                    optimizer.step()
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.With):
            return
        region = next((i.context_expr for i in node.items if _is_autocast(i.context_expr, file)), None)
        if region is None:
            return
        mark = next((n for n in own_nodes(node) if _is_backward(n)), None)
        if mark is None:
            return
        yield Problem(
            mark,
            f"{quote(file, mark, 40)} runs under the autocast of line {node.lineno}: its operations already have the "
            "dtypes of the forward pass, and autocast only adds casts and keeps its copies of the weights alive. "
            "Let the region end with the loss.",
            0.7,
            (Evidence(node.lineno, "the autocast region"),),
            _fix(node, mark, file),
            cause=node,
        )


def _is_autocast(expr: ast.expr, file: SourceFile) -> bool:
    if not isinstance(expr, ast.Call) or file.imports.qualified(expr.func) not in _AUTOCASTS:
        return False
    return not is_literal(keyword_of(expr, "enabled"), False)


def _is_backward(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "backward"
    )


def _fix(region: ast.With, mark: ast.AST, file: SourceFile) -> Fix | None:
    """Ends the region before the statement of the backward pass, when what follows computes no new loss."""
    statement = file.index.statement_of(mark)
    if statement not in region.body[1:] or len(region.items) != 1:
        return None
    tail = region.body[region.body.index(statement) :]
    if not all(isinstance(s, ast.Expr) and isinstance(s.value, ast.Call) for s in tail):
        return None
    indent = statement.col_offset - region.col_offset
    start, end = file.offset(statement.lineno, 0), file.bounds(tail[-1])[1]
    lines = file.data[start:end].decode("utf-8", "surrogatepass").split("\n")
    strings = any(isinstance(n, ast.Constant) and n.end_lineno != n.lineno for s in tail for n in walk(s))
    if strings or not all(not line.strip() or not line[:indent].strip() for line in lines):
        return None
    text = "\n".join(line[indent:] if line.strip() else line for line in lines)
    return Fix(Safety.UNSAFE, (Edit(start, end, text),), "nothing after the backward pass needs autocast")
