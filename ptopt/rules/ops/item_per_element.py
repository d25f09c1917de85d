from __future__ import annotations

import ast
import re
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
from ptopt.rules.ops._calls import runs_once, torch_op
from ptopt.rules.ops._iteration import Elements, elements_of
from ptopt.source.file import remembered
from ptopt.source.index import own_nodes, walk

_NUMBER = frozenset({"id", "tid", "idx", "token", "label"})
_NUMBERS = frozenset(
    {"ids", "id", "idx", "idxs", "indices", "index", "tokens", "labels", "preds", "predictions"}
)
_FLAT_SOURCES = frozenset({"arange", "randperm", "linspace", "flatten", "ravel", "bincount"})

_SCRIPTED = re.compile(r"@torch\.jit\.script")


class ItemPerElement(Rule):
    """The elements of a tensor are read one by one with `.item()`.

    ## What it does
    Finds comprehensions and loops that call `.item()`, `int()` or `float()` on each element of a tensor:
    `[t.item() for t in v]`, `[v[i].item() for i in range(n)]`, and `for t in v:` with `t.item()` in it.

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
    triggers = (".item()", "int(", "float(")
    nodes = (ast.Call,)
    calls = frozenset({"item", "int", "float"})
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
        """
        losses = loss_func(batch.to(device))
        if isinstance(losses, tuple):
            parts = tuple(part.item() for part in losses)
        """,
        """
        def add(mapping, mesh: torch.Tensor, path):
            for i, part in enumerate(mesh):
                if part.dim() == 0:
                    mapping[int(part)] = [*path, i]
        """,
        """
        def texts(self, targets, target_lengths):
            lengths = target_lengths.long().cpu()
            for i in range(lengths.shape[0]):
                out.append(self.decode(targets[i][: lengths[i].item()]))
        """,
        """
        for label in torch.unique(labels):
            groups[label.item()] = embeddings[labels == label].mean(0)
        """,
        """
        @torch.jit.script
        def common(both: torch.Tensor):
            return [int(x.item()) for x in both]
        """,
        """
        for i, v in enumerate(gradient.contiguous().view(-1)):
            if not math.isfinite(float(v)):
                first = i
                break
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
            names = [classes[int(p)] for p in logits.argmax(dim=-1)]  # !
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
        setup="import torch\nv = torch.arange(20000)",
        before="result = [t.item() for t in v]",
        after="result = v.tolist()",
        sizes="20,000 int64 on the CPU",
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call) or node.keywords:
            return
        element = method_call(node, "item") if not node.args else _cast(node)
        found = elements_of(element, file) if element is not None else None
        if element is None or found is None:
            return
        cast = bool(node.args)
        source, kind = found.source, file.values.of(found.source).kind
        known = kind == "tensor"
        if not known and (cast or kind or not _called_numbers(element, found)):
            return
        if _set_up_once(source, node, file) or _not_one_tensor(source, node, file):
            return
        if file.context.rare_guard(node, found.place) is not None or _no_scalar(element, found, file):
            return
        cpu = file.values.of(source).device == "cpu"
        waits = "" if cpu else ", and on a GPU waits for the device each time"
        yield Problem(
            node,
            f"{quote(file, node)} makes a tensor and copies a number for every element{waits}. Read {quote(file, source, 40)} once{' before the loop' if found.is_loop else ''} "
            "with `.tolist()`.",
            _confidence(found, known, cpu, node, file),
            (Evidence(source.lineno, "the tensor that is read element by element"),),
            None if cast else _fix(node, element, found, known, file),
            cause=found.place,
        )


def _confidence(found: Elements, known: bool, cpu: bool, node: ast.AST, file: SourceFile) -> float:
    if runs_once(node, file) or (found.is_loop and (cpu or _few_or_early(found, file))):
        return 0.5
    return (0.75 if found.is_loop else 0.85) if known else 0.65


def _few_or_early(found: Elements, file: SourceFile) -> bool:
    """Each distinct value has work of its own; or a search through all of a tensor, which ends at the first hit."""
    source = found.source
    binding = file.bindings.last_before(source) if isinstance(source, ast.Name) else None
    made = binding.value if binding is not None and binding.kind == "assign" else source
    if torch_op(made, file, "unique") is not None:
        return True
    flat = torch_op(source, file, "view", "flatten", "reshape", "ravel") is not None
    return flat and _breaks(found.place)


@remembered
def _breaks(place: ast.AST) -> bool:
    return any(isinstance(n, ast.Break) for n in own_nodes(place))


@remembered
def _asked_for_shape(place: ast.AST) -> frozenset[str]:
    """Names whose shape the code asks for."""
    return frozenset(
        n.value.id
        for n in own_nodes(place)
        if isinstance(n, ast.Attribute)
        and n.attr in ("dim", "ndim", "shape", "size")
        and isinstance(n.value, ast.Name)
    )


@remembered
def _names_by_id(scope: ast.AST) -> dict[str, list[ast.Name]]:
    table: dict[str, list[ast.Name]] = {}
    for node in walk(scope):
        if isinstance(node, ast.Name):
            table.setdefault(node.id, []).append(node)
    return table


def _no_scalar(element: ast.expr, found: Elements, file: SourceFile) -> bool:
    """Does the code ask for the shape of the element, which may be a row then? Or is it compiled by TorchScript?"""
    if isinstance(element, ast.Name) and element.id in _asked_for_shape(found.place):
        return True
    return file.search(_SCRIPTED)  # which compiles what such a function calls, too


def _cast(call: ast.Call) -> ast.expr | None:
    """`t` of `int(t)` and `float(t)`, which read a tensor as `.item()` does."""
    name = call.func.id if isinstance(call.func, ast.Name) else ""
    plain = (
        name in ("int", "float")
        and len(call.args) == 1
        and isinstance(call.args[0], (ast.Name, ast.Subscript))
    )
    return call.args[0] if plain else None


def _called_numbers(element: ast.expr, found: Elements) -> bool:
    """`id.item()`, `for x in ids`: the names say that these are many small numbers, never a few separate losses."""
    if isinstance(element, ast.Name) and element.id.rpartition("_")[2] in _NUMBER:
        return True
    source = found.source
    name = (
        source.id
        if isinstance(source, ast.Name)
        else source.attr
        if isinstance(source, ast.Attribute)
        else ""
    )
    return found.plain and not found.is_loop and name.lower().rpartition("_")[2] in _NUMBERS


def _set_up_once(source: ast.expr, node: ast.AST, file: SourceFile) -> bool:
    """A few settings made on the CPU when a module is built, such as drop path rates; or a constant."""
    if isinstance(source, ast.Name) and source.id.isupper():
        return True
    function = file.index.function_of(node)
    if function is not None and function.name == "__init__":
        return True
    return isinstance(source, ast.Call) and file.imports.qualified(source.func) == "torch.linspace"


def _not_one_tensor(source: ast.expr, node: ast.AST, file: SourceFile) -> bool:
    """A tuple of tensors, or a value that the code itself tells apart by its type."""
    if isinstance(source, ast.Call) and file.imports.qualified(source.func) in (
        "torch.unravel_index",
        "torch.where",
    ):
        return True
    return any(
        isinstance(ancestor, (ast.If, ast.IfExp))
        and child is not ancestor.test
        and "isinstance(" in (test := file.source(ancestor.test))
        and (isinstance(ancestor, ast.IfExp) or file.source(source) in test)
        for ancestor, child in file.index.ancestors(node)
    )


def _fix(node: ast.Call, element: ast.expr, found: Elements, known: bool, file: SourceFile) -> Fix | None:
    """Iterate `source.tolist()` and use the numbers; `[t.item() for t in v]` becomes `v.tolist()`."""
    source, place = found.source, found.place
    if (
        not isinstance(element, ast.Name)
        or not isinstance(source, (ast.Name, ast.Attribute))
        or not found.plain
    ):
        return None
    numbers = f"{file.source(source)}{'' if _one_dimensional(source, known, file) else '.flatten()'}.tolist()"
    safety = Safety.SAFE if known else Safety.UNSAFE
    assumption = "" if known else f"`{file.source(source)}` is a one-dimensional tensor"
    alone = isinstance(place, ast.ListComp) and place.elt is node and len(place.generators) == 1
    if isinstance(place, ast.ListComp) and alone and not place.generators[0].ifs:
        return Fix(safety, (Edit(*file.bounds(place), numbers),), assumption)
    scope = (file.index.function_of(place) or file.index.tree) if found.is_loop else place
    edits = _uses_as_numbers(element.id, scope, place, file)
    return None if edits is None else Fix(safety, (Edit(*file.bounds(source), numbers), *edits), assumption)


@remembered
def _uses_as_numbers(name: str, scope: ast.AST, place: ast.AST, file: SourceFile) -> tuple[Edit, ...] | None:
    """Edits that take `.item()` off each use of the name; None when there is another use."""
    edits: list[Edit] = []
    for use in _names_by_id(scope).get(name, ()):
        if isinstance(use.ctx, ast.Store):
            continue
        attribute = file.index.parent(use)
        call = file.index.parent(attribute) if attribute is not None else None
        if call is None or method_call(call, "item") is not use or not file.index.within(use, place):
            return None
        edits.append(Edit(*file.bounds(call), name))
    return tuple(edits)


def _one_dimensional(source: ast.expr, known: bool, file: SourceFile) -> bool:
    if not known:
        return True  # stated as the assumption
    if not isinstance(source, ast.Name):
        return False
    binding = file.bindings.last_before(source)
    call = binding.value if binding is not None and binding.kind == "assign" else None
    func = call.func if isinstance(call, ast.Call) else None
    return (
        isinstance(func, ast.Attribute) and func.attr in _FLAT_SOURCES and file.imports.qualified(func) != ""
    )
