from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import Evidence, Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import method_call, quote
from ptopt.rules.ops._calls import is_range, names_in
from ptopt.rules.ops._iteration import Elements, elements_of
from ptopt.rules.ops.item_per_element import is_batch, not_one_tensor
from ptopt.rules.shared.export import for_export
from ptopt.rules.shared.unmoved import stays_on_host
from ptopt.source.index import own_nodes

_NO_ROWS = re.compile(r"load(er)?s?\b|batches|epoch|param|\(|state|grads|layers|modules", re.I)


class CopyPerRow(Rule):
    """The rows of a tensor are copied to the host one by one.

    ## What it does
    Finds `.cpu()`, `.tolist()` and `.numpy()` of `x[i]`, or of each row of a tensor, in a loop or a comprehension.

    ## Why it is slow
    Each copy waits for the device and moves a few bytes. One copy of the whole tensor before the loop waits once, and the
    rows of the copy cost nothing.

    ## Fix safety
    None: other uses of the rows in the loop change with it.

    ## Sources
    - [PyTorch performance tuning guide: avoid unnecessary CPU-GPU synchronization](https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html)
    """

    id = "PTO442"
    name = "copy-per-row"
    family = "ops"
    most_stated = 0.45
    triggers = ("cpu(", "tolist(", "numpy(")
    nodes = (ast.Call,)
    calls = frozenset({"cpu", "tolist", "numpy"})
    when_wrong = "the tensor lies on the CPU, or most of its rows are not read"

    VALID = (
        """
        for batch in loader:
            output = model(batch[0].to(device))
            views = batch[2]
            for i in range(output.size(0)):
                keep(int(views[i].cpu()))
        """,
        """
        def save(scores: torch.Tensor, names):
            scores = scores.cpu().numpy()
            for i in range(len(names)):
                keep(names[i], scores[i])
        """,
        """
        for batch in loader:
            out.append(model(batch).cpu())
        """,
        """
        def rows(parts, names):
            for i in range(len(names)):
                keep(parts[i].tolist())
        """,
        """
        def polygons(masks: torch.Tensor, names):
            for i in range(len(names)):
                keep(names[i], encode(masks[i].numpy()))
        """,
    )
    INVALID = (
        Invalid("""
            def save(scores: torch.Tensor, names):
                for i in range(len(names)):
                # ~ scores = scores.cpu().numpy()
                # ~ for i in range(len(names)):
                    keep(names[i], scores[i].cpu().numpy())  # !
                    # ~ keep(names[i], scores[i])
        """),
        Invalid("""
            ids = logits.argmax(dim=-1)
            texts = [tokenizer.decode(row.tolist()) for row in ids]  # !
        """),
        Invalid("""
            def boxes(outputs, names):
                pred = outputs.sigmoid()
                for name, row in zip(names, pred):
                    keep(name, row.detach().cpu())  # !
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call) or node.args or not isinstance(node.func, ast.Attribute):
            return
        if node.func.attr == "numpy" and method_call(node.func.value, "cpu") is None:
            return  # a view of what lies on the host: a tensor elsewhere would raise
        if for_export(node, file):
            return
        row = node.func.value
        while (inner := method_call(row, "detach", "float", "cpu", "squeeze", "clone", "data")) is not None:
            if method_call(row, "cpu") is not None:
                return  # reported at the copy itself
            row = inner
        found = elements_of(row, file) or _column(row, file)
        value = file.values.of(found.source) if found is not None else None
        if found is None or value is None or value.device == "cpu":
            return
        known = value.kind == "tensor"
        if not known and (
            value.kind or node.func.attr != "cpu" or _NO_ROWS.search(file.source(found.source))
        ):
            return
        if (
            file.index.enclosing(node, (ast.ExceptHandler,)) is not None
            or is_batch(found, file)
            or not_one_tensor(found.source, node, file)
            or stays_on_host(found.source, file)
        ):
            return
        name = quote(file, found.source, 40)
        copy = ".tolist()" if node.func.attr == "tolist" else ".cpu()"
        listed = "" if known else ", if it is one tensor (`torch.stack` it, if it is a list of equal ones)"
        yield Problem(
            node,
            f"{quote(file, node)} copies one row to the host, and waits for the device, in each iteration. Copy {name} once before "
            f"the {'loop' if found.is_loop else 'comprehension'} (`{name.strip('`')}{copy}`), and take the rows of the copy{listed}.",
            0.45 if known else 0.35,
            (Evidence(found.source.lineno, "the tensor that is copied row by row"),),
            cause=found.place,
            subject=found.source,
            facts={
                "loop": found.is_loop,
                "indexed": isinstance(row, ast.Subscript),
                "moved": value.device == "moved",
            },
        )


def _column(row: ast.expr, file: SourceFile) -> Elements | None:
    """`x[:, i]`, where `i` counts through a range."""
    if not isinstance(row, ast.Subscript) or not isinstance(row.slice, ast.Tuple):
        return None
    names = [e.id for e in row.slice.elts if isinstance(e, ast.Name)]
    whole = all(
        isinstance(e, ast.Name) or (isinstance(e, ast.Slice) and e.lower is e.upper is None)
        for e in row.slice.elts
    )
    loop = next(file.index.loops_of(row), None)
    if len(names) != 1 or not whole or not isinstance(loop, ast.For) or not is_range(loop.iter):
        return None
    stored = any(
        isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store) and n.id in names_in(row.value)
        for n in own_nodes(loop)
    )
    return Elements(loop, row.value, False) if names[0] in names_in(loop.target) and not stored else None
