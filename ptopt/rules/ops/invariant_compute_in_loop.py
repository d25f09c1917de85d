from __future__ import annotations

import ast
from bisect import bisect_right
from collections.abc import Iterator

from ptopt.rules.base import Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import beside, has_unpacking, quote
from ptopt.rules.ops._calls import FEW, names_in
from ptopt.rules.ops._pure import (
    TABLES,
    changes,
    cost,
    costly,
    is_conditional,
    is_pure,
    leaves_loop,
    reads,
    result_changes,
    steady,
)
from ptopt.source.calls import called_name
from ptopt.source.frequency import Often
from ptopt.source.index import COMPREHENSIONS, LOOPS, FunctionNode, Loop, walk
from ptopt.source.uses import IGNORED

_ENCODES = frozenset(
    "tokenizer text_encoder encode_prompt encode_text encode_image tokenize tokenise get_text_features".split()
)
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


class InvariantComputeInLoop(Rule):
    """A loop computes the same tensor in each iteration.

    ## What it does
    Finds torch functions, submodules, tokenizers and prompt encoders that are called in a loop or a comprehension with
    operands that the loop neither binds nor changes.

    ## Why it is slow
    Each iteration launches the same kernels (or tokenises the same text) and throws the result away.

    ## When this is wrong
    When the submodule draws random numbers, or the operand is changed by something that the loop calls.

    ## Example
    ```python
    for t in timesteps:
        cond = self.text_encoder(prompt_ids)
        x = self.denoise(x, t, cond)
    ```

    ## Use instead
    ```python
    cond = self.text_encoder(prompt_ids)
    for t in timesteps:
        x = self.denoise(x, t, cond)
    ```

    ## Fix safety
    No fix: the line moves out of the loop.

    ## Sources
    - [muse-maskgit: the prompt is encoded before the loop](https://github.com/lucidrains/muse-maskgit-pytorch)
    """

    id = "PTO473"
    name = "invariant-compute-in-loop"
    family = "ops"
    most_stated = 0.45
    requires = ("for ", "while ")
    nodes = (ast.Module,)
    when_wrong = "the call draws random numbers, or something that the loop calls changes an operand"

    VALID = (
        """
        def forward(self, x, features):
            for i, layer in enumerate(self.layers):
                x = layer(x)
                if i == self.middle:
                    x = x + torch.softmax(features @ features.T, -1)
            return x
        """,
        """
        def sample(self, x, steps):
            for t in range(steps):
                x = x - torch.softmax(x, -1)
            return x
        """,
        """
        def fit(self, x, y, optimizer):
            for _ in range(100):
                loss = F.mse_loss(self.net(x), y)
                loss.backward()
                optimizer.step()
        """,
        """
        def split(x, parts):
            return [torch.cat([p, p]) for p in parts]
        """,
        """
        def grow(x, y, n):
            for i in range(n):
                x.add_(i)
                y = y + torch.softmax(x, -1)
            return y
        """,
    )
    INVALID = (
        Invalid("""
            def mix(self, x, gate, steps):
                for t in range(steps):
                    x = x * torch.softmax(gate, dim=-1) + t  # !
                return x
        """),
        Invalid("""
            class Gate(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.conv = GCNConv(8, 8)
                    self.lin = nn.Linear(8, 8)

                def forward(self, nodes, h):
                    return {k: v + self.lin(h)[k] for k, v in nodes.items()}  # !
        """),
        Invalid("""
            def generate(model, tokenizer, prompt, images):
                for image in images:
                    ids = tokenizer(prompt, return_tensors="pt")  # !
                    yield model(image, ids)
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        named = (call for name in sorted(TABLES | _ENCODES) for call in file.calls_named(name))
        for candidate in [*costly(file), *named]:
            if isinstance(candidate, (ast.Call, ast.BinOp)):
                yield from self._check(candidate, file)

    def _check(self, node: ast.Call | ast.BinOp, file: SourceFile) -> Iterator[Problem]:
        """Problems of one operation."""
        place = _place(node, file)
        if place is None:
            return
        kind = _kind(node, file)
        if not kind or (isinstance(node, ast.Call) and has_unpacking(node)):
            return
        if not _fixed(node, place, kind, file) or _larger_is_fixed(node, place, file):
            return
        if _in_one_iteration(node, place, file):
            return
        often = file.frequencies.of(node).often
        if isinstance(place, LOOPS) and (often <= Often.EPOCH and often is not Often.UNKNOWN):
            return
        if IGNORED in file.uses.of(node):
            return  # a benchmark, or a warm-up
        kernels = sum(1 for n in walk(node) if isinstance(n, (ast.Call, ast.BinOp)) and cost(n, file))
        over = "comprehension" if isinstance(place, COMPREHENSIONS) else "loop"
        few = isinstance(place, ast.For) and bool(FEW.search(ast.unparse(place.iter)))
        yield Problem(
            node,
            f"{quote(file, node)} gives the same result in each iteration of the {over} at line {place.lineno}: nothing "
            f"that it reads changes there. {_remedy(node, place, over, file)}",
            0.3 if few or cost(node, file) == 1 else 0.45,
            beside(node, place, f"the {over}"),
            cause=place,
            subject=node,
            facts={
                "cost": cost(node, file) if kind == "op" else 3,
                "kernels": kernels,
                "module": kind == "module",
                "few": few,
                "conditional": is_conditional(node, place, file),
                "trip_count": _trips(place),
            },
        )


def _remedy(node: ast.expr, place: Loop | Comprehension, over: str, file: SourceFile) -> str:
    """Where to compute it: not before the loop where an operand, or the call, has a condition of its own."""
    set_under = _set_under(node, place, file)
    if set_under is not None:
        binding, guard = set_under
        return (
            f"Compute it once where {quote(file, binding)} is set, on line {binding.lineno}: that is done only where the condition "
            f"on line {guard.lineno} says so ({quote(file, guard.test, 50)})."
        )
    remedy = f"Compute it once before the {over} and use the name"
    read = reads(node, file) - {"self"}
    for around, child in file.index.ancestors(node):
        if around is place:
            break
        if isinstance(around, (ast.If, ast.IfExp)) and child is not around.test:
            asked = sorted(reads(around.test, file) & read)
            if asked:  # `if mask is not None: y = torch.softmax(mask, -1)`
                return f"{remedy}; keep what the condition on line {around.lineno} asks of `{asked[0]}`."
    return f"{remedy}."


def _set_under(
    node: ast.expr, place: Loop | Comprehension, file: SourceFile
) -> tuple[ast.Name, ast.If] | None:
    """An operand that has a value only under a condition in which the loop does not stand, and that condition."""
    function = file.index.function_of(place)
    shared = {around for around, _ in file.index.ancestors(place)}
    for name in sorted(names_in(node)):
        bindings = file.bindings.of(function, name)
        guards = [_guard_of(binding.node, shared, file) for binding in bindings]
        sides = {guard for guard in guards if guard is not None}
        if not bindings or None in guards or len({guard for guard, _ in sides}) < len(sides):
            continue  # always set: outside of conditions, or in both branches of one
        guard, _ = min(sides, key=lambda side: side[0].lineno)
        target = next((n for n in walk(bindings[0].node) if isinstance(n, ast.Name) and n.id == name), None)
        if target is not None:
            return target, guard
    return None


def _guard_of(node: ast.AST, shared: set[ast.AST], file: SourceFile) -> tuple[ast.If, bool] | None:
    """The outermost condition around it that is not in `shared`, and whether it stands in its body.

    None where the other branch leaves the function.
    """
    found = None
    for around, child in file.index.ancestors(node):
        if around in shared:
            break
        if isinstance(around, ast.If):
            inside = child in around.body
            other = around.orelse if inside else around.body
            leaves = bool(other) and isinstance(other[-1], (ast.Raise, ast.Return))
            found = None if leaves else (around, inside)
    return found


def _in_one_iteration(node: ast.AST, place: ast.AST, file: SourceFile) -> bool:
    """Does it stand under `if key == wanted`, where the loop gives `key`?"""
    bound = names_in(place.target) if isinstance(place, ast.For) else frozenset()
    for around, child in file.index.ancestors(node):
        if around is place:
            return False
        if isinstance(around, ast.If) and child in around.body and isinstance(around.test, ast.Compare):
            test = around.test
            sides = [test.left, *test.comparators]
            if isinstance(test.ops[0], ast.Eq) and any(
                isinstance(side, ast.Name) and side.id in bound for side in sides
            ):
                return True
    return False


def _kind(node: ast.Call | ast.BinOp, file: SourceFile) -> str:
    if node in costly(file):
        return "op" if isinstance(node, ast.BinOp) or cost(node, file) else "module"
    if not isinstance(node, ast.Call):
        return ""
    name = called_name(node)
    if name in TABLES and file.imports.qualified(node.func).startswith("torch"):
        return "op"
    return "encode" if name in _ENCODES and node.args else ""


def _place(node: ast.AST, file: SourceFile) -> Loop | Comprehension | None:
    """The innermost loop or comprehension that runs the node once an iteration."""
    for ancestor, child in file.index.ancestors(node):
        if isinstance(ancestor, COMPREHENSIONS):
            first = ancestor.generators[0] is child
            return None if first else ancestor
        if isinstance(ancestor, ast.Lambda):
            return None
        if isinstance(ancestor, ast.stmt):
            break
    return next(file.index.loops_of(node), None)


def _fixed(node: ast.expr, place: Loop | Comprehension, kind: str, file: SourceFile) -> bool:
    """Does nothing in the loop change what the expression reads?"""
    inner = node.args if kind == "encode" and isinstance(node, ast.Call) else [node]
    keys = reads(node, file)
    if not all(is_pure(part, file) for part in inner) or "self" in keys and kind != "encode":
        return False
    if not keys or not steady(keys - {"self"}, node, file) and kind != "encode":
        return False
    if not _unchanged(keys, place, file, 3):
        return False
    if isinstance(place, LOOPS):
        if result_changes(node, file) or leaves_loop(node, place, file) or _trains(place, file):
            return False
        if isinstance(file.index.parent(node), ast.Call) and _kept(file.index.parent(node)):
            return False
    return True


def _unchanged(keys: frozenset[str], place: ast.AST, file: SourceFile, depth: int) -> bool:
    """Does the loop leave the names alone, or only give them what does not change in it either?"""
    function = file.index.function_of(place)
    found = changes(function, file)
    for key in keys:
        if not found.in_node(frozenset({key}), place):
            continue
        bound = file.bindings.of(function, key)
        value = bound[0].value if len(bound) == 1 and bound[0].kind == "assign" else None
        if value is None or not depth or key in found.in_place or not is_pure(value, file):
            return False
        inner = reads(value, file)
        if not inner or not steady(inner, value, file) or not _unchanged(inner, place, file, depth - 1):
            return False
    return True


_UNSTEADY = (
    "backward step eval train manual_seed load_state_dict synchronize record time perf_counter".split()
)


def _trains(loop: Loop, file: SourceFile) -> bool:
    """Do weights, modes or the random state change in the loop, or does it measure time?"""
    lines = file.once(_unsteady).get(file.index.function_of(loop), [])
    return bisect_right(lines, loop.end_lineno or loop.lineno) > bisect_right(lines, loop.lineno - 1)


def _unsteady(file: SourceFile) -> dict[FunctionNode | None, list[int]]:
    """Function -> the lines of such calls."""
    table: dict[FunctionNode | None, list[int]] = {}
    for name in _UNSTEADY:
        for call in file.calls_named(name):
            table.setdefault(file.index.function_of(call), []).append(call.lineno)
    for lines in table.values():
        lines.sort()
    return table


def _kept(parent: ast.AST | None) -> bool:
    return isinstance(parent, ast.Call) and called_name(parent) in ("append", "extend", "add", "insert")


def _larger_is_fixed(node: ast.expr, place: Loop | Comprehension, file: SourceFile) -> bool:
    """Is it part of a larger expression that is reported?"""
    for ancestor, _ in file.index.ancestors(node):
        if ancestor is place or isinstance(ancestor, ast.stmt):
            return False
        if isinstance(ancestor, (ast.Call, ast.BinOp)):
            kind = _kind(ancestor, file)
            if kind and _fixed(ancestor, place, kind, file):
                return True
    return False


def _trips(place: ast.AST) -> int:
    """Iterations written as a literal; 0 when they are not."""
    iterable = getattr(place, "iter", None)
    if isinstance(iterable, ast.Call) and iterable.args and isinstance(iterable.args[-1], ast.Constant):
        value = iterable.args[-1].value
        return value if isinstance(value, int) else 0
    return len(iterable.elts) if isinstance(iterable, (ast.List, ast.Tuple)) else 0
