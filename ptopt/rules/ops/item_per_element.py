from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import Benchmark, Edit, Evidence, Fix, Invalid, Problem, Rule, Safety, SourceFile
from ptopt.rules.code import beside, method_call, quote
from ptopt.rules.ops._calls import runs_once, torch_op
from ptopt.rules.ops._iteration import Elements, elements_of, in_body
from ptopt.rules.ops.row_loop import RowLoop
from ptopt.source.file import remembered
from ptopt.source.index import COMPREHENSIONS, FUNCTIONS, own_nodes, walk

_NUMBER = frozenset({"id", "tid", "idx", "token", "label"})
_NUMBERS = frozenset(
    {"ids", "id", "idx", "idxs", "indices", "index", "tokens", "labels", "preds", "predictions"}
)
_FLAT_SOURCES = frozenset({"arange", "randperm", "linspace", "flatten", "ravel", "bincount"})

_SCRIPTED = re.compile(r"@torch\.jit\.script")


# What is looped over is a batch of work, or a few named values.
_NOT_ELEMENTS = re.compile(
    r"load(er)?s?\b|batches|epoch|parameters\(|param_groups|\bparams\b|\.items\(|\.values\(|modules|layers|unique\(",
    re.I,
)
_ROWS = RowLoop()


class ItemPerElement(Rule):
    """The elements of a tensor are read one by one with `.item()`.

    ## What it does
    Finds comprehensions and loops that call `.item()`, `int()` or `float()` on each element of a tensor:
    `[t.item() for t in v]`, `[v[i].item() for i in range(n)]`, and `for t in v:` with `t.item()` in it.

    ## Why it is slow
    Each element becomes a tensor object of its own before it becomes a number, and on a GPU each `.item()` waits for
    the device and copies a few bytes. `v.tolist()` makes one copy for all of them.

    ## Fix safety
    Safe where the file shows that a tensor is iterated (`.flatten()` is added unless it is known to be
    one-dimensional, so that elements of shape `(1,)` give the same numbers); unsafe otherwise.

    ## Sources
    - [torch.Tensor.tolist](https://docs.pytorch.org/docs/stable/generated/torch.Tensor.tolist.html)
    """

    id = "PTO403"
    name = "item-per-element"
    family = "ops"
    triggers = (".item()", "int(", "float(")
    nodes = (ast.Call,)
    calls = frozenset({"item", "int", "float"})
    when_wrong = "what is looped over is a short list of separate tensors"

    VALID = (
        """
        class Logger:
            def update(self, **values):
                for key, value in values.items():
                    if isinstance(value, torch.Tensor):
                        value = value.item()
                    self.meters[key].update(value)
        """,
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
        Invalid("""
            def ids_of(token_ids: torch.Tensor):
                return [t.item() for t in token_ids]  # !
                # + return token_ids.flatten().tolist()
        """),
        Invalid("""
            order = torch.randperm(n)
            names = [self.names[i.item()] for i in order]  # !
            # + names = [self.names[i] for i in order.tolist()]
        """),
        Invalid("""
            def keep(ids, protected):
                return torch.tensor([x.item() in protected for x in ids])  # !
                # + return torch.tensor([x in protected for x in ids.tolist()])
        """),
        Invalid("""
            preds = logits.argmax(dim=-1)
            for p in preds:
            # +
                names.append(labels[p.item()])  # !
            # + for p in preds.flatten().tolist():
            # +     names.append(labels[p])
        """),
        Invalid("""
            scores = torch.softmax(logits, dim=0)
            out = [scores[i].item() for i in range(len(names))]  # !
        """),
        Invalid("""
            names = [classes[int(p)] for p in logits.argmax(dim=-1)]  # !
        """),
        Invalid("""
            rows = logits.argmax(dim=-1)
            ids = [[t.item() for t, m in zip(row, mask) if m] for row, mask in zip(rows, masks)]  # !
        """),
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
        if element is not None and not node.args and not _by_type(node, element, file):
            yield from _of_mapping(node, element, file)
        if element is not None and found is None and not node.args:
            yield from _derived(node, element, file)
        if element is None or found is None:
            return
        cast = bool(node.args)
        source, kind = found.source, file.values.of(found.source).kind
        known = kind == "tensor"
        if not known and (
            cast or kind not in ("", "tensors", "list") or _NOT_ELEMENTS.search(file.source(source))
        ):
            return
        if _constant(source, file) or not_one_tensor(source, node, file) or _no_scalar(element, found, file):
            return
        rare = file.guards.rare(node, found.place) is not None
        cpu = file.values.of(source).device == "cpu"
        waits = "" if cpu else ", and on a GPU waits for the device each time"
        listed = (
            "" if known else f" (`torch.stack({file.source(source)}).tolist()` where it is a list of tensors)"
        )
        yield Problem(
            node,
            f"{quote(file, node)} makes a tensor and copies a number for every element{waits}. Read {quote(file, source, 40)} once{' before the loop' if found.is_loop else ''} "
            f"with `.tolist()`{listed}.",
            0.35 if rare or _in_init(node, file) else _confidence(element, found, known, cpu, node, file),
            (Evidence(source.lineno, "the tensor that is read element by element"),),
            None
            if cast or not (known or _called_numbers(element, found))
            else _fix(node, element, found, known, file),
            cause=found.place,
            subject=source,
            facts={
                "known": known,
                "cast": cast,
                "loop": found.is_loop,
                "called_numbers": _called_numbers(element, found),
            },
        )


def _by_type(node: ast.AST, element: ast.expr, file: SourceFile) -> bool:
    """Is it read only where `isinstance` finds a tensor, among entries of several types?"""
    name = file.source(element)
    return any(
        isinstance(around, (ast.If, ast.IfExp))
        and re.search(rf"isinstance\({re.escape(name)},", file.source(around.test))
        for around, _ in file.index.ancestors(node)
    )


def _of_mapping(node: ast.Call, element: ast.expr, file: SourceFile) -> Iterator[Problem]:
    """`{name: loss.item() for name, loss in losses.items()}`: the entries of a dictionary, one wait each."""
    for ancestor, child in file.index.ancestors(node):
        if isinstance(ancestor, (*FUNCTIONS, ast.Lambda)):
            return
        generators = ancestor.generators if isinstance(ancestor, COMPREHENSIONS) else ()
        pairs: list[tuple[ast.expr, ast.expr]] = [(g.target, g.iter) for g in generators]
        if isinstance(ancestor, ast.For) and in_body(child, ancestor):
            pairs = [(ancestor.target, ancestor.iter)]
        for target, iterable in pairs:
            held = method_call(iterable, "items", "values")
            value = target.elts[-1] if isinstance(target, ast.Tuple) else target
            if (
                held is None
                or not isinstance(value, ast.Name)
                or not isinstance(element, ast.Name)
                or value.id != element.id
            ):
                continue
            name = file.source(held)
            yield Problem(
                node,
                f"{quote(file, node)} reads one entry of `{name}` at a time, and on a GPU waits for the device for each. Where all entries are numbers on one device, read "
                f"them together: `torch.stack(list({name}.values())).tolist()`.",
                0.35,
                beside(node, iterable, "the dictionary"),
                cause=ancestor,
                subject=element,
                facts={"mapping": 1, "loop": isinstance(ancestor, ast.For)},
            )
            return


def _derived(node: ast.Call, value: ast.expr, file: SourceFile) -> Iterator[Problem]:
    """`x[i].argmax().item()`, `hypothesis.token.item()`: a number computed from each element."""
    root = value
    while not isinstance(root, ast.Name):
        if isinstance(root, ast.Attribute):
            root = root.value
        elif (
            isinstance(root, ast.Call)
            and isinstance(root.func, ast.Attribute)
            and file.imports.qualified(root.func) == ""
        ):
            root = root.func.value
        elif (
            isinstance(root, ast.Call)
            and root.args
            and file.imports.qualified(root.func).startswith("torch.")
        ):
            root = root.args[0]
        elif isinstance(root, ast.Subscript) and not isinstance(root.slice, ast.Name):
            root = root.value
        elif isinstance(root, ast.Compare):
            root = root.left
        else:
            break
    found = elements_of(root, file) if isinstance(root, (ast.Name, ast.Subscript)) else None
    if found is None or _NOT_ELEMENTS.search(file.source(found.source)) or is_batch(found, file):
        return
    if found.is_loop and any(_ROWS.check(found.place, file)):
        return
    kind = file.values.of(found.source).kind
    if kind not in ("tensor", "tensors", "") or not_one_tensor(found.source, node, file):
        return
    yield Problem(
        node,
        f"{quote(file, node)} computes and reads one number for each element of {quote(file, found.source, 40)}, and on a GPU waits for "
        "the device each time. Compute all of them in one tensor, and read that once with `.tolist()`.",
        0.4 if kind == "tensor" else 0.35,
        (Evidence(found.source.lineno, "what is taken apart"),),
        cause=found.place,
        subject=found.source,
        facts={"known": kind == "tensor", "derived": 1, "loop": found.is_loop},
    )


def is_batch(found: Elements, file: SourceFile) -> bool:
    """Is one element a batch of a loader, rather than a part of one?"""
    place = found.place
    if not isinstance(place, (ast.For, ast.AsyncFor)):
        return False
    return (
        file.values.of(found.source).kind == "loader"
        or file.context.step_mark(place) is not None
        or file.context.is_eval_loop(place)
        or "batch" in file.source(place.target)
    )


def _confidence(
    element: ast.expr, found: Elements, known: bool, cpu: bool, node: ast.AST, file: SourceFile
) -> float:
    if runs_once(node, file) or (found.is_loop and (cpu or _few_or_early(found, file))):
        return 0.5
    if not known and not _called_numbers(element, found):
        return 0.4
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


def _constant(source: ast.expr, file: SourceFile) -> bool:
    """A table of settings, such as drop path rates."""
    if isinstance(source, ast.Name) and source.id.isupper():
        return True
    return isinstance(source, ast.Call) and file.imports.qualified(source.func) == "torch.linspace"


def _in_init(node: ast.AST, file: SourceFile) -> bool:
    function = file.index.function_of(node)
    return function is not None and function.name == "__init__"


def not_one_tensor(source: ast.expr, node: ast.AST, file: SourceFile) -> bool:
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
