from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Evidence, Invalid, Problem, Rule, SourceFile
from ptopt.rules.ops._calls import same_code
from ptopt.rules.ops.cat_in_loop import joined_parts, joining_assignments
from ptopt.source.bindings import is_self
from ptopt.source.file import remembered
from ptopt.source.index import FunctionNode, own_nodes


class TensorGrownAcrossCalls(Rule):
    """A tensor kept in `self` grows by concatenation on each call of a method.

    ## What it does
    Finds `self.x = torch.cat([self.x, y])` outside of a loop, in a method that does not read `self.x` otherwise.

    ## Why it is slow
    Each call allocates a new tensor and copies all that was collected so far, so the copying grows with the square of the
    number of calls. A list that is concatenated where it is read copies each element once.

    ## Fix safety
    None: the start value and every reader change, too.

    ## Sources
    - [torch.cat](https://docs.pytorch.org/docs/stable/generated/torch.cat.html)
    """

    id = "PTO443"
    name = "tensor-grown-across-calls"
    family = "ops"
    most_stated = 0.5
    triggers = ("cat(", "concat(", "concatenate(", "hstack(", "vstack(", "append(")
    requires = ("self",)
    nodes = (ast.Assign,)
    when_wrong = "every call is followed by a read of the whole tensor, as in a key-value cache"

    VALID = (
        """
        class Cache:
            def update(self, k):
                self.k = torch.cat([self.k, k], dim=2)
                return self.k
        """,
        """
        class Window:
            def add(self, x):
                self.window = torch.cat([self.window, x])
                self.window = self.window[-100:]
        """,
        """
        class F1:
            def update(self, preds):
                self.preds.append(preds)

            def compute(self):
                return score(torch.cat(self.preds))
        """,
    )
    INVALID = (
        Invalid("""
            class F1(Metric):
                def reset(self):
                    self.preds = torch.tensor([])
                    # ~ self.preds = []

                def update(self, preds):
                    self.preds = torch.cat([self.preds, preds])  # !
                # ~     self.preds.append(preds)
                # ~
                # ~ def compute(self):
                # ~     return torch.cat(self.preds)
        """),
        Invalid("""
            class Collect(Callback):
                def on_batch_end(self, state):
                    if self.outputs is None:
                        self.outputs = state.output
                    else:
                        self.outputs = np.concatenate([self.outputs, state.output], axis=0)  # !
        """),
        Invalid("""
            class Store:
                def add(self, key, value):
                    self.rows[key] = torch.cat((self.rows[key], value), dim=0)  # !
        """),
    )

    def candidates(self, file: SourceFile) -> list[ast.AST]:
        return joining_assignments(file)

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            return
        target, function = node.targets[0], file.index.function_of(node)
        owner = target
        while isinstance(owner, ast.Subscript):
            owner = owner.value
        if not is_self(owner) or function is None or function.name == "__init__":
            return
        call, parts = joined_parts(node.value, file)
        if call is None or len(parts) < 2 or not any(same_code_read(part, target) for part in parts):
            return
        if next(file.index.loops_of(node), None) is not None or _read_here(node, target, parts, function):
            return
        name = file.source(target)
        start = _started(owner, node, file)
        yield Problem(
            node,
            f"Each call of `{function.name}` copies all of `{name}` to add a part, so the copying grows with the square of the "
            f"number of calls. Start with a list, `{name}.append(...)` here, and call `{file.source(call.func)}` once where it "
            "is read.",
            0.5 if start else 0.4,
            (Evidence(start, "where it starts anew"),) if start else (),
            cause=node,
            subject=target,
            facts={"starts_anew": bool(start), "cached": "cache" in name or "past" in name},
        )


def same_code_read(part: ast.expr, target: ast.expr) -> bool:
    """Is the part the target, read? The two differ in their context only."""
    return ast.unparse(part) == ast.unparse(target) and (
        type(part) is type(target) or same_code(part, target)
    )


def _read_here(node: ast.Assign, target: ast.expr, parts: list[ast.expr], function: FunctionNode) -> bool:
    """Does the method use the tensor in another way than to ask whether it has begun?"""
    name = ast.unparse(target)
    if _last_reads(function).get(name, 0) > (node.end_lineno or 0):
        return True
    return any(isinstance(p, ast.Subscript) and ast.unparse(p.value) == name for p in parts)


@remembered
def _last_reads(function: FunctionNode) -> dict[str, int]:
    """Text of an attribute or subscript -> the last line of the function that reads it."""
    table: dict[str, int] = {}
    for read in own_nodes(function):
        if isinstance(read, (ast.Attribute, ast.Subscript)) and isinstance(read.ctx, ast.Load):
            text = ast.unparse(read)
            table[text] = max(table.get(text, 0), read.lineno)
    return table


def _started(owner: ast.expr, node: ast.Assign, file: SourceFile) -> int:
    """The line on which another method sets it to an empty tensor or to None, or 0."""
    cls = file.index.class_of(node)
    if cls is None or not isinstance(owner, ast.Attribute):
        return 0
    first = file.bindings.attribute(cls, owner.attr)
    return 0 if first is None or first is node.value else first.lineno
