from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Invalid, Problem, Rule, Severity, SourceFile
from ptopt.rules.code import beside, quote
from ptopt.rules.ops._calls import FEW, int_literal, is_range, names_in
from ptopt.source.frequency import Often
from ptopt.source.index import walk

_MAKERS = frozenset(
    {
        "numpy.array",
        "numpy.asarray",
        "torch.tensor",
        "torch.as_tensor",
        "torch.FloatTensor",
        "torch.LongTensor",
        "torch.Tensor",
        "torch.IntTensor",
    }
)
_SHORT = 16
_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow)


class ArrayFromComprehension(Rule):
    """A table is computed number by number in Python and then turned into an array.

    ## What it does
    Finds `np.array([...])` and `torch.tensor([...])` of a comprehension over `range` whose numbers are computed with arithmetic and
    `math` from the index.

    ## Why it is slow
    Each number costs a round of the interpreter and an object, and the conversion reads them all again. The same formula on `arange`
    is a few passes in C, fifty times faster for long tables.

    ## Fix safety
    None: types and shapes have to be looked at.

    ## Sources
    - [torch.arange](https://docs.pytorch.org/docs/stable/generated/torch.arange.html)
    """

    id = "PTO447"
    name = "array-from-comprehension"
    family = "ops"
    severity = Severity.LOW
    most_stated = 0.4
    libraries = (*Rule.libraries, "numpy")
    triggers = (
        "array(",
        "asarray(",
        "tensor(",
        "as_tensor(",
        "Tensor(",
        "FloatTensor(",
        "LongTensor(",
        "IntTensor(",
    )
    requires = ("range(",)
    nodes = (ast.Call,)
    calls = frozenset(name.rpartition(".")[2] for name in _MAKERS)
    when_wrong = "the table is short, and made once"

    VALID = (
        """
        rates = torch.tensor([base * 2**i for i in range(4)])
        """,
        """
        sizes = np.array([len(items[i]) for i in range(len(items))])
        """,
        """
        angles = np.arange(length)[:, None] / 10000 ** (np.arange(dim) / dim)
        """,
    )
    INVALID = (
        Invalid("""
            angles = np.array([[pos / 10000 ** (2 * i / dim) for i in range(dim)] for pos in range(length)])  # !
            # ~ angles = np.arange(length)[:, None] / 10000 ** (2 * np.arange(dim) / dim)
        """),
        Invalid("""
            def schedule(base, end, n):
                return torch.tensor([end + 0.5 * (base - end) * (1 + math.cos(math.pi * i / n)) for i in range(n)])  # !
        """),
        Invalid("""
            def table(length, dim):
                def angle(position, i):
                    return position / np.power(10000, 2 * (i // 2) / dim)

                return np.array([[angle(p, i) for i in range(dim)] for p in range(length)])  # !
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if (
            not isinstance(node, ast.Call)
            or not node.args
            or file.imports.qualified(node.func) not in _MAKERS
        ):
            return
        ranges: list[ast.Call] = []
        indices: set[str] = set()
        element = _elements(node.args[0], ranges, indices)
        if isinstance(element, ast.Call) and isinstance(element.func, ast.Name):
            element = _through(element, indices, file)
        if element is None or not indices or not _computed(element, indices, file):
            return
        trips = 1
        for iterable in ranges:
            trips *= int_literal(iterable.args[min(1, len(iterable.args) - 1)]) or 0
        few = any(FEW.search(file.source(iterable)) for iterable in ranges)
        once = file.frequencies.of(node).often is Often.ONCE
        if 0 < trips < _SHORT or (len(ranges) == 1 and (few or once)):
            return
        module = file.source(node.func).partition(".")[0]
        yield Problem(
            node,
            f"{quote(file, node.args[0], 60)} computes each number in Python, and the call then converts all of them. Write the formula on "
            f"`{module}.a{quote(file, ranges[-1], 40).strip('`')}`, once for all numbers.",
            0.4,
            beside(node, element, "the formula"),
            facts={"trip_count": trips, "nested": len(ranges) > 1, "few_by_name": few},
        )


def _elements(made: ast.expr, ranges: list[ast.Call], indices: set[str]) -> ast.expr | None:
    """What a comprehension over ranges computes; notes the limits and the index names."""
    if not isinstance(made, ast.ListComp):
        return None
    for generator in made.generators:
        if generator.ifs or not is_range(generator.iter) or not isinstance(generator.target, ast.Name):
            return None
        indices.add(generator.target.id)
        if isinstance(generator.iter, ast.Call):
            ranges.append(generator.iter)
    return _elements(made.elt, ranges, indices) if isinstance(made.elt, ast.ListComp) else made.elt


def _through(call: ast.Call, indices: set[str], file: SourceFile) -> ast.expr | None:
    """What a function of one `return` computes; its parameters become the indices."""
    target = file.calls.resolve(call)
    body = target.body if target is not None else []
    last = body[-1] if len(body) == 1 else None
    if target is None or not isinstance(last, ast.Return):
        return None
    passed = [
        name
        for name, arg in zip((a.arg for a in target.args.args), call.args, strict=False)
        if names_in(arg) & indices
    ]
    indices.clear()
    indices.update(passed)
    made = last.value
    inner: list[ast.Call] = []
    if isinstance(made, ast.ListComp):
        made = _elements(made, inner, indices)
    return (
        _through(made, indices, file)
        if isinstance(made, ast.Call) and isinstance(made.func, ast.Name)
        else made
    )


def _computed(element: ast.expr, indices: set[str], file: SourceFile) -> bool:
    """Is it arithmetic on the indices, numbers and names, with nothing looked up and no other function called?"""
    operations = 0
    for node in walk(element):
        if isinstance(node, ast.BinOp):
            operations += isinstance(node.op, _ARITHMETIC)
        elif isinstance(node, ast.Call):
            module = file.imports.qualified(node.func).rpartition(".")[0]
            plain = isinstance(node.func, ast.Name) and node.func.id in ("min", "max", "abs", "float", "int")
            if not plain and module not in ("math", "numpy"):
                return False
        elif isinstance(
            node, (ast.Subscript, ast.ListComp, ast.JoinedStr, ast.IfExp, ast.Lambda, ast.Tuple, ast.List)
        ):
            return False
    return operations > 0 and bool(names_in(element) & indices)
