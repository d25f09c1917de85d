from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import Benchmark, Edit, Fix, Invalid, Problem, Rule, Safety, SourceFile
from ptopt.rules.code import method_call, quote
from ptopt.rules.ops._calls import int_literal, is_hot
from ptopt.rules.shared.flow import assigned
from ptopt.source.calls import last_name

_OVER_ALL = {"sum": ".sum(0)", "max": ".max()", "min": ".min()"}
_INSTEAD = {**_OVER_ALL, "sorted": ".sort().values", "any": ".any()", "all": ".all()"}
_FEW_ELEMENTS = 8
_NUMBERS_ONLY = frozenset(
    "range randint zeros ones empty full arange int float str print format pad expand repeat view narrow split roll".split()
)
_BOUND = {"max": "clamp(min=", "min": "clamp(max="}

_MODULE = re.compile(r"(^|_)(criterion|crit|loss_fn|model|net|network|module)(_|$|s$)", re.I)


class PythonReductionOverTensor(Rule):
    """A Python built-in reduces a tensor.

    ## What it does
    Finds `sum(t)`, `max(t)`, `min(t)`, `sorted(t)`, `any(t)` and `all(t)` where `t` is a tensor, the same over a
    generator that iterates a tensor, and `max(1, t)` or `min(1, t)`, which compares a tensor with a number.

    ## Why it is slow
    The built-in takes the tensor apart: it makes a tensor object per element and runs one kernel per comparison or
    addition; on a GPU each comparison also waits for the device. `max(1, t)` waits once, as `if t > 1` does.

    ## Fix safety
    Unsafe: a NaN wins in `.max()` and `.min()`, narrow integers and roundings may differ in `.sum(0)`, and
    `.clamp` keeps a tensor where the built-in might have returned the number.

    ## Sources
    - [PyTorch performance tuning guide: avoid unnecessary CPU-GPU synchronization](https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html)
    """

    id = "PTO404"
    name = "python-reduction-over-tensor"
    family = "ops"
    triggers = ("sum(", "max(", "min(", "sorted(", "any(", "all(")
    nodes = (ast.Call,)
    calls = frozenset(_INSTEAD)
    when_wrong = "the tensor has a handful of elements, lies on the CPU, and the code does not run often"

    VALID = (
        """
        def forward(self, x, mask):
            losses = [head(x) for head in self.heads]
            return sum(losses) / max(1, len(losses))
        """,
        """
        width = max(t.shape[-1] for t in tensors)
        """,
        """
        def area(x: torch.Tensor):
            return max(x.shape[0], 1) * max(x.size(1), 1)
        """,
        """
        def top(sigmas: torch.Tensor):
            return max(sigmas) if isinstance(sigmas, list) else sigmas.max()
        """,
        """
        total = sum(p.numel() for p in model.parameters())
        """,
        """
        def forward(self, text, sizes: torch.Tensor, i):
            return text[max(0, text.shape[0] - sizes[i].sum()) :]
        """,
        """
        def forward(self, x, lengths: torch.Tensor):
            return torch.randint(0, max(1, lengths.sum()), size=[4], device=x.device)
        """,
        """
        def only(tokens: torch.Tensor, special: set):
            return all(token.item() in special for token in tokens)
        """,
        """
        def distill(criterions, student, teacher):
            criterion_kd = criterions[1]
            group = criterion_kd(student, teacher)
            return sum(group)
        """,
        """
        xs = torch.randint(width, (2,))
        box = [min(xs), max(xs)]
        """,
    )
    INVALID = (
        Invalid("""
            def longest(lengths: torch.Tensor):
                return max(lengths)  # !
                # + return lengths.max()
        """),
        Invalid("""
            def loss(parts, targets: torch.Tensor, ignore_index):
                kept = (targets != ignore_index).sum()
                return torch.cat(parts).sum() / max(1, kept)  # !
                # + return torch.cat(parts).sum() / kept.clamp(min=1)
        """),
        Invalid("""
            labels = logits.argmax(dim=-1)
            if any(label == 0 for label in labels):  # !
                skip()
        """),
        Invalid("""
            weights = torch.ones(n, device=device)
            total = sum(weights)  # !
            # + total = weights.sum(0)
        """),
    )
    BENCHMARK = Benchmark(
        setup="import torch\nv = torch.arange(10000.)",
        before="result = sum(v)",
        after="result = v.sum(0)",
        sizes="10,000 float32 on the CPU",
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.keywords:
            return
        name = node.func.id
        if name not in _INSTEAD or _rebound(name, file):
            return
        if len(node.args) == 2 and name in _BOUND:
            found = list(_bounded(node, name, file))
        else:
            found = list(_reduced(node, name, file)) if len(node.args) == 1 else []
        if found and not _checks_type(node, file):
            yield from found


def _reduced(node: ast.Call, name: str, file: SourceFile) -> Iterator[Problem]:
    iterated = node.args[0]
    if isinstance(iterated, (ast.GeneratorExp, ast.ListComp)):
        source = iterated.generators[0].iter
        if len(iterated.generators) != 1 or not isinstance(source, (ast.Name, ast.Attribute)):
            return
        if isinstance(iterated.elt, ast.Compare) and isinstance(iterated.elt.ops[0], (ast.In, ast.NotIn)):
            return  # looks each number up in a Python collection
        if not isinstance(iterated.elt, (ast.Compare, ast.Name)) or not _is_plain_tensor(source, file):
            return
        yield Problem(
            node,
            f"{quote(file, node)} takes `{file.source(source)}` apart element by element in Python. "
            f"Write it on the whole tensor and reduce once with `{_INSTEAD[name]}`.",
            0.65,
        )
        return
    if not isinstance(iterated, (ast.Name, ast.Attribute, ast.Call)) or not _is_plain_tensor(iterated, file):
        return
    if isinstance(iterated, ast.Name) and _is_tiny(iterated, file):
        return
    edits = (Edit(*file.bounds(node), f"{file.source(iterated)}{_INSTEAD[name]}"),)
    waits = "" if name == "sum" else "; on a GPU each comparison also waits for the device"
    yield Problem(
        node,
        f"`{name}` takes {quote(file, iterated)} apart and runs one kernel per element{waits}. "
        f"{quote(file, iterated)[:-1]}{_INSTEAD[name]}` is one call.",
        0.75,
        fix=Fix(Safety.UNSAFE, edits, "the tensor is one-dimensional and holds no NaN")
        if name in _OVER_ALL
        else None,
    )


def _bounded(node: ast.Call, name: str, file: SourceFile) -> Iterator[Problem]:
    first, second = node.args
    number, tensor = (first, second) if isinstance(first, ast.Constant) else (second, first)
    if not isinstance(number, ast.Constant) or type(number.value) not in (int, float):
        return
    if not _is_plain_tensor(tensor, file) or file.values.of(tensor).device == "cpu":
        return
    if not file.uses_accelerator and file.context.forward_of(node) is None and not _returns_loss(node, file):
        return
    if _becomes_number(node, file):
        return
    text = file.source(tensor)
    simple = isinstance(tensor, (ast.Name, ast.Attribute, ast.Call, ast.Subscript))
    bound = f"{text}.{_BOUND[name]}{file.source(number)})"
    yield Problem(
        node,
        f"{quote(file, node)} compares a tensor in Python, which waits for the GPU. "
        f"`.{_BOUND[name]}{file.source(number)})` keeps it on the device.",
        0.65 if is_hot(node, file) or _returns_loss(node, file) else 0.5,
        fix=Fix(Safety.UNSAFE, (Edit(*file.bounds(node), bound),), f"`{text}` is a tensor on every call")
        if simple
        else None,
    )


def _is_tiny(name: ast.Name, file: SourceFile) -> bool:
    """`torch.randint(width, (2,))`: made with a handful of elements."""
    call = assigned(name, file)
    if not isinstance(call, ast.Call) or not file.imports.qualified(call.func).startswith("torch."):
        return False
    sizes = [a for a in call.args if isinstance(a, (ast.Tuple, ast.List)) and len(a.elts) == 1]
    return any((int_literal(size.elts[0]) or _FEW_ELEMENTS) < _FEW_ELEMENTS for size in sizes)


def _becomes_number(node: ast.Call, file: SourceFile) -> bool:
    """A bound of a slice, or an argument of `range`, `randint` or a factory: the device is read there in any case."""
    for ancestor, child in file.index.ancestors(node):
        if isinstance(ancestor, (ast.Slice, ast.JoinedStr, ast.keyword)):
            return True
        if isinstance(ancestor, ast.Call):
            leaf = file.source(ancestor.func).rpartition(".")[2]
            return child in ancestor.args and leaf in _NUMBERS_ONLY
        if isinstance(ancestor, ast.Subscript) and child is ancestor.slice:
            return True
        if not isinstance(ancestor, (ast.BinOp, ast.UnaryOp, ast.Tuple, ast.List)):
            return False
    return False


def _is_plain_tensor(expr: ast.expr, file: SourceFile) -> bool:
    """A tensor for sure, and not one that a loop variable or an unpacking only might be."""
    if not file.values.is_tensor(expr) or method_call(expr, "values", "keys", "items") is not None:
        return False
    if isinstance(expr, ast.Name):
        binding = file.bindings.last_before(expr)
        if binding is None or binding.kind not in ("assign", "parameter"):
            return False
        return not (binding.kind == "assign" and _is_output(binding.value, file))
    return not _is_output(expr, file)


def _is_output(expr: ast.AST | None, file: SourceFile) -> bool:
    """What a module returns: perhaps a list of losses or of feature maps, which `max` and `sum` take apart as well."""
    if not isinstance(expr, ast.Call) or file.imports.qualified(expr.func):
        return False
    return file.values.is_a(expr.func, "module") or bool(_MODULE.search(last_name(expr.func)))


def _returns_loss(node: ast.Call, file: SourceFile) -> bool:
    statement = file.index.statement_of(node)
    function = file.index.function_of(node)
    return (
        isinstance(statement, ast.Return)
        and function is not None
        and bool({"loss", "entropy", "nll"} & set(function.name.split("_")))
    )


def _checks_type(node: ast.Call, file: SourceFile) -> bool:
    """Does the code tell a list from a tensor before it calls the built-in on it?"""
    tests = [
        file.source(ancestor.test)
        for ancestor, child in file.index.ancestors(node)
        if isinstance(ancestor, (ast.If, ast.IfExp)) and child is not ancestor.test
    ]
    arguments = [file.source(argument) for argument in node.args]
    return any("isinstance(" in test and argument in test for test in tests for argument in arguments)


def _rebound(name: str, file: SourceFile) -> bool:
    return name in file.imports.local_names() or bool(file.bindings.of(None, name))
