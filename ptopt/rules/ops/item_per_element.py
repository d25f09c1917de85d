from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import (
    Benchmark,
    Edit,
    Evidence,
    Fix,
    Invalid,
    Problem,
    Rule,
    Safety,
    Severity,
    SourceFile,
    method_call,
    quote,
)
from ptopt.source.index import COMPREHENSIONS, own_nodes

_FLAT_SOURCES = frozenset({"arange", "randperm", "linspace", "flatten", "ravel", "bincount"})


class ItemPerElement(Rule):
    """The elements of a tensor are read one by one with `.item()`.

    ## What it does
    Finds comprehensions and loops that call `.item()` on each element of a tensor: `[t.item() for t in v]`,
    `[v[i].item() for i in range(n)]`, and `for t in v:` with `t.item()` in it.

    ## Why it is slow
    Each element becomes a tensor object of its own before it becomes a number, and on a GPU each `.item()` waits for
    the device and copies a few bytes. `v.tolist()` makes one copy for all of them.

    ## When this is wrong
    When what is looped over is a short list of separate tensors.

    ## Example
    ```python
    ids = [t.item() for t in token_ids]
    ```

    ## Use instead
    ```python
    ids = token_ids.tolist()
    ```

    ## Fix safety
    Safe where the file shows that a tensor is iterated (`.flatten()` is added unless it is known to be
    one-dimensional, so that elements of shape `(1,)` give the same numbers); unsafe otherwise.

    ## Sources
    - [torch.Tensor.tolist](https://docs.pytorch.org/docs/stable/generated/torch.Tensor.tolist.html)
    """

    id = "PTO403"
    name = "item-per-element"
    family = "ops"
    severity = Severity.MEDIUM
    triggers = (".item()",)
    nodes = (ast.Call,)
    when_wrong = "what is looped over is a short list of separate tensors"

    VALID = (
        """
        ids = token_ids.tolist()
        """,
        """
        metrics = {name: value.item() for name, value in losses.items()}
        """,
        """
        for x in loader:
            total = model(x).sum().item()
        """,
        """
        values = [a.item() for a in np.unique(labels)]
        """,
        """
        shapes = [p.numel() for p in model.parameters()]
        norms = [p.norm().item() for p in model.parameters()]
        """,
    )
    INVALID = (
        Invalid(
            """
            def ids_of(token_ids: torch.Tensor):
                return [t.item() for t in token_ids]  # !
            """,
            """
            def ids_of(token_ids: torch.Tensor):
                return token_ids.flatten().tolist()
            """,
        ),
        Invalid(
            """
            order = torch.randperm(n)
            names = [self.names[i.item()] for i in order]  # !
            """,
            """
            order = torch.randperm(n)
            names = [self.names[i] for i in order.tolist()]
            """,
        ),
        Invalid(
            """
            def keep(ids, protected):
                return torch.tensor([x.item() in protected for x in ids])  # !
            """,
            """
            def keep(ids, protected):
                return torch.tensor([x in protected for x in ids.tolist()])
            """,
        ),
        Invalid(
            """
            preds = logits.argmax(dim=-1)
            for p in preds:
                names.append(labels[p.item()])  # !
            """,
            """
            preds = logits.argmax(dim=-1)
            for p in preds.flatten().tolist():
                names.append(labels[p])
            """,
        ),
        Invalid(
            """
            scores = torch.softmax(logits, dim=0)
            out = [scores[i].item() for i in range(len(names))]  # !
            """
        ),
        Invalid(
            """
            rows = logits.argmax(dim=-1)
            ids = [[t.item() for t, m in zip(row, mask) if m] for row, mask in zip(rows, masks)]  # !
            """
        ),
    )
    BENCHMARK = Benchmark(
        setup="import torch\nv = torch.arange(2000)",
        before="result = [t.item() for t in v]",
        after="result = v.tolist()",
        sizes="2000 int64 on the CPU",
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        element = method_call(node, "item")
        if element is None or not isinstance(node, ast.Call) or node.args or node.keywords:
            return
        if isinstance(element, ast.Name):
            found = _source_of_name(element, file)
        elif isinstance(element, ast.Subscript):
            found = _source_of_subscript(element, file)
        else:
            return
        if found is None:
            return
        place, source, sure = found
        kind = file.values.of(source).kind
        if kind not in ("tensor", ""):
            return
        known = kind == "tensor"
        if not known and not sure:
            return
        once = _fix(node, element, place, source, known, file)
        where = place if isinstance(place, (ast.For, ast.AsyncFor)) else None
        read = f"{quote(file, source, 40)} once before the loop" if where else f"{quote(file, source, 40)} once"
        yield Problem(
            node,
            f"{quote(file, node)} makes a tensor and copies a number for every element, and on a GPU waits for the "
            f"device each time. Read {read} with `.tolist()`.",
            0.85 if known else 0.65,
            (Evidence(source.lineno, "the tensor that is read element by element"),),
            once,
            cause=place,
        )


def _source_of_name(name: ast.Name, file: SourceFile) -> tuple[ast.AST, ast.expr, bool] | None:
    """Where `name` takes one element after the other: (loop or comprehension, what it iterates, is it told by use).

    The last part says that the use itself proves elements of a tensor: a plain iteration of something that only
    a tensor or an array of numbers can be.
    """
    for ancestor, child in file.index.ancestors(name):
        if isinstance(ancestor, COMPREHENSIONS):
            for generator in reversed(ancestor.generators):
                source = _paired(generator.target, generator.iter, name.id)
                if source is not None:
                    return ancestor, source, _plain(generator.target) and _number_like(source)
        elif isinstance(ancestor, (ast.For, ast.AsyncFor)) and child in ancestor.body:
            source = _paired(ancestor.target, ancestor.iter, name.id)
            if source is not None:
                if any(
                    isinstance(n, ast.Name) and n.id == name.id and isinstance(n.ctx, ast.Store)
                    for stmt in ancestor.body
                    for n in [stmt, *own_nodes(stmt)]
                ):
                    return None
                return ancestor, source, False
        if isinstance(ancestor, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            return None
    return None


def _plain(target: ast.expr) -> bool:
    return isinstance(target, ast.Name)


def _number_like(source: ast.expr) -> bool:
    """Is it called what people call indices, tokens or labels: many small numbers, never separate losses?"""
    name = source.id if isinstance(source, ast.Name) else source.attr if isinstance(source, ast.Attribute) else ""
    parts = name.lower().split("_")
    return parts[-1] in ("ids", "id", "idx", "idxs", "indices", "index", "tokens", "labels", "preds", "predictions")


def _paired(target: ast.expr, iterable: ast.expr, name: str) -> ast.expr | None:
    """The expression whose elements `name` takes, through `enumerate` and `zip`."""
    if isinstance(target, ast.Name):
        if target.id != name or isinstance(iterable, ast.Call) and isinstance(iterable.func, ast.Name):
            return None
        return iterable
    if not isinstance(target, ast.Tuple) or not isinstance(iterable, ast.Call):
        return None
    if not isinstance(iterable.func, ast.Name) or len(target.elts) < 2:
        return None
    for position, element in enumerate(target.elts):
        if iterable.func.id == "enumerate" and position == 1 and iterable.args:
            found = _paired(element, iterable.args[0], name)
        elif iterable.func.id == "zip" and position < len(iterable.args):
            found = _paired(element, iterable.args[position], name)
        else:
            continue
        if found is not None:
            return found
    return None


def _source_of_subscript(element: ast.Subscript, file: SourceFile) -> tuple[ast.AST, ast.expr, bool] | None:
    """`v[i].item()` with `i` from a range: (loop or comprehension, `v`, False)."""
    if not isinstance(element.slice, ast.Name):
        return None
    for ancestor, child in file.index.ancestors(element):
        iterators: list[tuple[ast.expr, ast.expr]] = []
        if isinstance(ancestor, COMPREHENSIONS):
            iterators = [(g.target, g.iter) for g in ancestor.generators]
        elif isinstance(ancestor, ast.For) and child in ancestor.body:
            iterators = [(ancestor.target, ancestor.iter)]
        for target, iterable in iterators:
            if isinstance(target, ast.Name) and target.id == element.slice.id:
                by_range = (
                    isinstance(iterable, ast.Call)
                    and isinstance(iterable.func, ast.Name)
                    and iterable.func.id == "range"
                    and not all(isinstance(a, ast.Constant) for a in iterable.args)
                )
                return (ancestor, element.value, False) if by_range else None
        if isinstance(ancestor, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            return None
    return None


def _fix(
    node: ast.Call, element: ast.expr, place: ast.AST, source: ast.expr, known: bool, file: SourceFile
) -> Fix | None:
    """Iterate `source.tolist()` and use the numbers; `[t.item() for t in v]` becomes `v.tolist()`."""
    if not isinstance(element, ast.Name) or not isinstance(source, (ast.Name, ast.Attribute)):
        return None
    numbers = f"{file.source(source)}{'' if _one_dimensional(source, known, file) else '.flatten()'}.tolist()"
    safety = Safety.SAFE if known else Safety.UNSAFE
    assumption = "" if known else f"`{file.source(source)}` is a one-dimensional tensor"
    if isinstance(place, ast.ListComp) and place.elt is node and len(place.generators) == 1:
        generator = place.generators[0]
        if generator.iter is source and not generator.ifs:
            return Fix(safety, (Edit(*file.bounds(place), numbers),), assumption)
    target = _target_of(place, source)
    if target is None or target.id != element.id:
        return None
    edits = [Edit(*file.bounds(source), numbers)]
    body = place.body if isinstance(place, (ast.For, ast.AsyncFor)) else [place]
    uses = [
        n
        for part in body
        for n in ast.walk(part)
        if isinstance(n, ast.Name) and n.id == element.id and n is not target
    ]
    for use in uses:
        attribute = file.index.parent(use)
        call = file.index.parent(attribute) if attribute is not None else None
        if call is None or method_call(call, "item") is not use:
            return None
        edits.append(Edit(*file.bounds(call), element.id))
    return Fix(safety, tuple(edits), assumption)


def _target_of(place: ast.AST, source: ast.expr) -> ast.Name | None:
    """The name that takes the elements, when `source` itself is what is iterated."""
    if isinstance(place, (ast.For, ast.AsyncFor)):
        pairs = [(place.target, place.iter)]
    elif isinstance(place, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
        pairs = [(g.target, g.iter) for g in place.generators]
    else:
        return None
    return next((t for t, i in pairs if i is source and isinstance(t, ast.Name)), None)


def _one_dimensional(source: ast.expr, known: bool, file: SourceFile) -> bool:
    if not known:
        return True  # stated as the assumption
    if not isinstance(source, ast.Name):
        return False
    binding = file.values.binding_of(source)
    call = binding.value if binding is not None and binding.kind == "assign" else None
    func = call.func if isinstance(call, ast.Call) else None
    return isinstance(func, ast.Attribute) and func.attr in _FLAT_SOURCES and file.imports.qualified(func) != ""
