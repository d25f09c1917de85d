from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import Evidence, Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import quote
from ptopt.rules.ops._pure import cost, is_module_call
from ptopt.rules.ops._wasted import expensive
from ptopt.rules.shared.flow import block_of, runs_network
from ptopt.source.calls import called_name
from ptopt.source.frequency import Often
from ptopt.source.index import FunctionNode, own_nodes, walk

_PREPARES = re.compile(r"unwrap|load|get_|build|create|make|init|prepare|copy|wrap|compile|cast|to$", re.I)
_TOKENS = re.compile(r"(^|[._])tok(en)?(izer)?[._](decode|encode)$", re.I)  # the text of a token: no network


class ResultOverwritten(Rule):
    """A result is computed in every case, and replaced unread in one of them.

    ## What it does
    Finds a name that gets the result of a network, a submodule or a tensor operation, and gets another value in a branch that
    follows, before anything has read the first.

    ## Why it is slow
    Where the branch is taken, such as with a cache in generation, the first computation was for nothing.

    ## Example
    ```python
    key = self.key(states)
    if past is not None:
        key = past[0]
    ```

    ## Use instead
    ```python
    key = past[0] if past is not None else self.key(states)
    ```

    ## Fix safety
    No fix is offered: the first line moves into an `else` branch.

    ## Sources
    - [PyTorch performance tuning guide](https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html)
    """

    id = "PTO469"
    name = "result-overwritten"
    family = "ops"
    most_stated = 0.6
    triggers = ("if ",)
    nodes = (ast.Assign,)
    when_wrong = "the branch is hardly ever taken"

    VALID = (
        """
        def schedule(model, batches, last):
            outputs = []

            def forward_helper(batch):
                output = model(batch)
                outputs.append(output)
                return output

            for batch in batches:
                output = forward_helper(batch)
                if last:
                    output = zeros
                send(output)
        """,
        """
        class Attention(nn.Module):
            def forward(self, x, past):
                key = self.key(x)
                if past is not None:
                    key = torch.cat([past, key], dim=1)
                return key
        """,
        """
        class Attention(nn.Module):
            def forward(self, x, past):
                if past is None:
                    key = self.key(x)
                else:
                    key = past
                return key
        """,
        """
        def scale(x: torch.Tensor, flag):
            n = len(x)
            if flag:
                n = 3
            return n
        """,
    )
    INVALID = (
        Invalid("""
            class Attention(nn.Module):
                def __init__(self):
                    self.key = nn.Linear(8, 8)

                def forward(self, x, past):
                    key = self.key(x)  # !
                    if past is not None:
                        key = past
                    return key
        """),
        Invalid("""
            def weights(scores: torch.Tensor, given):
                probs = torch.softmax(scores, dim=-1)  # !
                if given is not None:
                    probs = given
                return probs
        """),
        Invalid("""
            class Model(nn.Module):
                def __init__(self):
                    self.encoder = nn.Linear(8, 8)

                def forward(self, x, cached):
                    memory = self.encoder(x).relu()  # !
                    if cached is not None and "memory" in cached:
                        memory = cached["memory"]
                    else:
                        cached = {}
                    return memory
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if (
            not isinstance(node, ast.Assign)
            or len(node.targets) != 1
            or not isinstance(node.targets[0], ast.Name)
        ):
            return
        name, function = node.targets[0].id, file.index.function_of(node)
        if function is None or len(file.bindings.of(function, name)) < 2:
            return
        branch = _overwrites(node, name, function, file)
        if branch is None or file.frequencies.of(node).often in (Often.ONCE, Often.RARELY):
            return
        worth = max(
            (_worth(n, file) for n in walk(node.value) if isinstance(n, (ast.Call, ast.BinOp))), default=0
        )
        if worth <= 1:
            return
        again = branch[1]
        if _only_dropped(again) or _keeps_something(node.value, file):
            return
        yield Problem(
            node,
            f"{quote(file, node.value, 50)} runs in every case, but line {again.lineno} replaces `{name}` before anything reads it, "
            f"when the condition at line {branch[0].lineno} holds. Compute it in the other branch only.",
            0.6 if worth > 3 else 0.45 if worth > 2 else 0.35,
            (Evidence(again.lineno, "replaced here, unread"),),
            subject=node.value,
            facts={
                "cost": worth,
                "has_else": bool(branch[0].orelse),
                "lines_apart": again.lineno - node.lineno,
            },
        )


def _only_dropped(again: ast.stmt) -> bool:
    """`output = None`: what is handed on is dropped, and the work may be wanted for something else."""
    return (
        isinstance(again, ast.Assign) and isinstance(again.value, ast.Constant) and again.value.value is None
    )


def _keeps_something(value: ast.expr, file: SourceFile) -> bool:
    """Does what is called append to something, or set attributes, beside what it returns?"""
    found = file.definition_of(value) if isinstance(value, ast.Call) else None
    return found is not None and any(
        (isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr == "append")
        or (isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store))
        or isinstance(n, (ast.Nonlocal, ast.Global))
        for n in own_nodes(found[1])
    )


def _worth(node: ast.AST, file: SourceFile) -> int:
    work = expensive(node, file) if isinstance(node, ast.Call) else None
    if work is not None and (work.kind != "host" or file.frequencies.of(node).in_worker):
        return 4
    if isinstance(node, ast.Call) and _TOKENS.search(file.source(node.func)):
        return 0
    if isinstance(node, ast.Call) and (
        is_module_call(node, file) or runs_network(node, file) and not _PREPARES.search(called_name(node))
    ):
        return 3
    return cost(node, file)


def _overwrites(
    node: ast.Assign, name: str, function: FunctionNode, file: SourceFile
) -> tuple[ast.If, ast.stmt] | None:
    """The later condition of the same block in a branch of which the name is replaced unread, and where."""
    block = block_of(node, file)
    later = block[block.index(node) + 1 :] if block else []
    if not any(isinstance(stmt, ast.If) for stmt in later):
        return None
    reads = [load.lineno for load in file.uses.loads(function, name) if load.lineno > node.lineno]
    bound = [b.line for b in file.bindings.of(function, name) if b.line > node.lineno]
    return _replaced(later, name, reads, bound)


def _replaced(
    block: list[ast.stmt], name: str, reads: list[int], bound: list[int]
) -> tuple[ast.If, ast.stmt] | None:
    for stmt in block:
        lines = range(stmt.lineno, (stmt.end_lineno or stmt.lineno) + 1)
        if isinstance(stmt, ast.If) and not any(
            stmt.lineno <= r <= (stmt.test.end_lineno or 0) for r in reads
        ):
            for branch in (stmt.body, stmt.orelse):
                for inner in branch:
                    own = range(branch[0].lineno, (inner.end_lineno or inner.lineno) + 1)
                    if _binds(inner, name):
                        return None if any(r in own for r in reads) else (stmt, inner)
                deeper = _replaced(branch, name, reads, bound)
                if deeper is not None:
                    return deeper
        if any(r in lines for r in reads) or any(b in lines for b in bound):
            return None
    return None


def _binds(stmt: ast.stmt, name: str) -> bool:
    if not isinstance(stmt, ast.Assign):
        return False
    return any(
        isinstance(t, ast.Name)
        and t.id == name
        or isinstance(t, ast.Tuple)
        and any(isinstance(e, ast.Name) and e.id == name for e in t.elts)
        for t in stmt.targets
    )
