from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import beside, quote
from ptopt.rules.shared.flow import is_other_type, value_of
from ptopt.source.calls import called_name
from ptopt.source.index import COMPREHENSIONS
from ptopt.source.uses import COMPARED


class ElementsReadInLoop(Rule):
    """A loop goes over the elements of a device tensor and reads each one.

    ## What it does
    Finds loops and comprehensions over a tensor whose elements Python compares, branches on, or uses as an index of a
    list or dictionary.

    ## Why it is slow
    Each element is a tensor of its own on the device. Comparing it, or indexing with it, makes Python wait for the
    device once per element, where one copy of the whole tensor would do.

    ## Fix safety
    No fix: what else is done with the elements has to work on numbers.

    ## Sources
    - [PyTorch documentation: torch.Tensor.tolist](https://docs.pytorch.org/docs/stable/generated/torch.Tensor.tolist.html)
    """

    id = "PTO132"
    name = "elements-read-in-loop"
    family = "sync"
    most_stated = 0.6
    nodes = (ast.For, ast.comprehension)
    triggers = ("for ",)
    when_wrong = "the tensor lies on the CPU and is short"

    VALID = (
        """
        def names(scores: torch.Tensor, classes):
            return [classes[i] for i in scores.argsort().tolist() if i < 3]
        """,
        """
        def total(parts: torch.Tensor):
            out = 0
            for part in parts:
                out = out + part.exp()
            return out
        """,
        """
        def pick(x, rows):
            order = torch.randperm(3)
            return [rows[i] for i in order if i > 0]
        """,
        """
        def positions(found: torch.Tensor):
            return [found[found[:, 0] == row] for row in torch.unique(found[:, 0])]
        """,
        """
        def chosen(scores: torch.Tensor, names):
            rows = torch.nonzero(scores > 0.5)
            return [names[row] for row in rows]
        """,
        """
        def collate(first: torch.Tensor, table):
            if isinstance(first, Mapping):
                return {key: table[key] for key in first}
            return first
        """,
    )
    INVALID = (
        Invalid("""
            def names(scores: torch.Tensor, classes):
                return [classes[i] for i in scores.argsort()]  # !
        """),
        Invalid("""
            def kept(ids: torch.Tensor, limit):
                out = []
                for i in ids:  # !
                    if i < limit:
                        out.append(i)
                return out
        """),
        Invalid("""
            def lookup(scores, table):
                best = scores.topk(5).indices
                for rank, i in enumerate(scores.argmax(dim=-1)):  # !
                    table[i] = rank
                return best
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, (ast.For, ast.comprehension)):
            return
        iterated, target = node.iter, node.target
        if isinstance(iterated, ast.Call) and isinstance(iterated.func, ast.Name) and iterated.args:
            if iterated.func.id != "enumerate" or not isinstance(target, ast.Tuple) or len(target.elts) != 2:
                return
            iterated, target = iterated.args[0], target.elts[1]
        value = file.values.of(iterated)
        if value.kind != "tensor" or value.device == "cpu" or not isinstance(target, ast.Name):
            return
        if _gives_rows(iterated, file) or is_other_type(iterated, file):
            return
        body = node if isinstance(node, ast.For) else file.index.parent(node)
        read = _read(target.id, body, file)
        if read is None or file.frequencies.of(iterated).in_worker:
            return
        yield Problem(
            iterated,
            f"The loop over {quote(file, iterated)} reads each element (line {read.lineno}), and each read waits for the "
            f"GPU. Copy the tensor once: `for {target.id} in {file.source(iterated)}.tolist()`.",
            0.4 if _is_guess(read, file) else 0.6,
            beside(iterated, read, "reads one element"),
            cause=node if isinstance(node, ast.For) else body,
            subject=iterated,
            at=read,
        )


def _read(name: str, body: ast.AST | None, file: SourceFile) -> ast.expr | None:
    """The first place in the loop where Python needs the value of the element."""
    if not isinstance(body, (ast.For, *COMPREHENSIONS)):
        return None
    for use in file.uses.loads_in(body, name):
        parent = file.index.parent(use)
        if isinstance(parent, ast.Subscript) and use is parent.slice:
            if file.values.of(parent.value).kind not in ("tensor", "array"):
                return use if _holds_objects(parent.value, file) else None
        elif (
            isinstance(parent, ast.Compare)
            and not any(isinstance(op, (ast.Is, ast.IsNot)) for op in parent.ops)
            and file.uses.of(parent) <= {COMPARED}
            and _decides(parent, file)
        ):
            return use
    return None


def _decides(comparison: ast.expr, file: SourceFile) -> bool:
    """Does Python ask for the truth of the comparison? Else it is one more tensor on the device."""
    test: ast.AST = comparison
    outer = file.index.parent(test)
    while isinstance(outer, ast.BoolOp) or (isinstance(outer, ast.UnaryOp) and isinstance(outer.op, ast.Not)):
        test, outer = outer, file.index.parent(outer)
    return test is getattr(outer, "test", None) or test in getattr(outer, "ifs", ())


def _gives_rows(iterated: ast.expr, file: SourceFile) -> bool:
    """Positions of several dimensions, `torch.nonzero(x)`: each element is a row, of which `tolist` makes a list."""
    made = value_of(iterated, file)
    return (
        isinstance(made, ast.Call)
        and called_name(made) in ("nonzero", "argwhere")
        and not any(k.arg == "as_tuple" for k in made.keywords)
    )


def _is_guess(read: ast.expr, file: SourceFile) -> bool:
    """Is it an index of what is only taken for a list?"""
    parent = file.index.parent(read)
    return isinstance(parent, ast.Subscript) and not file.values.of(parent.value).kind


def _holds_objects(container: ast.expr, file: SourceFile) -> bool:
    """A list or dictionary for all that is known: no tensor, whose rows may be picked by a tensor without a read."""
    value = file.values.of(container)
    if value.kind in ("list", "text"):
        return True
    return not value.kind and isinstance(container, (ast.Name, ast.Attribute))
