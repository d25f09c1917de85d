from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from ptopt.rules.base import Benchmark, Evidence, Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import keyword_of
from ptopt.rules.ops._calls import FEW, int_literal, names_in, same_code
from ptopt.source.calls import last_name
from ptopt.source.file import remembered
from ptopt.source.index import FunctionNode, Loop, own_nodes, walk

_GROW = frozenset({"cat", "concat", "concatenate", "hstack", "vstack", "row_stack", "column_stack", "append"})
_PLACES = (ast.Name, ast.Attribute, ast.Subscript)
_SHORT = 8  # iterations below which copying is cheap
_LOADER = re.compile(r"loader|(^|[._])dl\b|batches|dataset|iterator|samples|examples|\bfiles\b|chunks", re.I)
_PADS = re.compile(r"(\b|_)pad(ding|ded)?(\b|_)|zeros|ones\(|full\(|\bempty\(|new_zeros", re.I)


class CatInLoop(Rule):
    """A tensor grows by concatenation in a loop.

    ## What it does
    Finds `x = torch.cat([x, y])` (also `hstack`, `vstack`, `np.concatenate`, `np.append`) in a loop where this is
    the only thing that happens to `x`, so that it grows with every iteration.

    ## Why it is slow
    Each call allocates a new tensor and copies everything that was collected so far: n iterations copy on the order
    of n² elements. A list that is concatenated once copies each element once.

    ## When this is wrong
    When the loop runs a handful of times, or the work in it dwarfs the copy (a large model that is called once per
    iteration).

    ## Example
    ```python
    preds = torch.empty(0, device=device)
    for x in loader:
        preds = torch.cat([preds, model(x)])
    ```

    ## Use instead
    ```python
    preds = []
    for x in loader:
        preds.append(model(x))
    preds = torch.cat(preds)
    ```

    ## Fix safety
    None: the collecting list and the final call belong in several places.

    ## Sources
    - [torch.cat](https://docs.pytorch.org/docs/stable/generated/torch.cat.html)
    """

    id = "PTO401"
    name = "cat-in-loop"
    family = "ops"
    triggers = ("cat(", "concat(", "concatenate(", "stack(", "append(")
    nodes = (ast.Assign,)
    when_wrong = "the loop runs a handful of times, or the work in it dwarfs the copy"

    VALID = (
        """
        def with_own(outputs):
            for k in range(len(outputs)):
                outputs[k]["scores"] = torch.cat([outputs[k]["scores"], outputs[k]["own"]], dim=0)
        """,
        """
        for x in loader:
            preds.append(model(x))
        preds = torch.cat(preds)
        """,
        """
        for block, skip in zip(self.up, reversed(skips)):
            x = block(x)
            x = torch.cat([x, skip], dim=1)
        """,
        """
        for layer in self.layers:
            features = torch.cat([features, layer(features)], dim=1)
        """,
        """
        for i in range(4):
            corners = torch.cat([corners, points[i]])
        """,
        """
        for batch in loader:
            window = torch.cat([window, batch])
            window = window[-100:]
        """,
        """
        idx_crops = torch.cumsum(counts, 0)
        for i, end in enumerate(idx_crops):
            if i == 0:
                out = self.backbone(x[end])
            else:
                out = torch.cat([out, self.backbone(x[end])])
        """,
        """
        for k in range(1, len(parts)):
            out = torch.cat([out, parts[k].cpu()], dim=1)
            parts[k] = 0
            torch.cuda.empty_cache()
        """,
        """
        for _ in range(k_extend):
            grid = torch.cat([grid[:, :1] - step, grid], dim=1)
            grid = torch.cat([grid, grid[:, -1:] + step], dim=1)
        """,
        """
        class Upsampler(nn.Module):
            def generate(self, length, seq):
                for _ in range(length):
                    logits, hiddens = self.step(inp, hiddens)
                    sampled = torch.multinomial(logits.softmax(-1), 1)
                    inp = sampled
                    seq = torch.cat((seq, sampled), dim=-1)
        """,
        """
        def generate(model, idx, max_new_tokens):
            for _ in range(max_new_tokens):
                probs = F.softmax(model(idx)[:, -1, :], dim=-1)
                idx_next = torch.multinomial(probs, num_samples=1)
                idx = torch.cat((idx, idx_next), dim=1)
            return idx
        """,
        """
        def update(self, k_new):
            self.k = torch.cat([self.k, k_new], dim=2)
            return self.k
        """,
    )
    INVALID = (
        Invalid("""
            preds = torch.empty(0, device=device)
            for x in loader:
                preds = torch.cat([preds, model(x)])  # !
        """),
        Invalid("""
            scores = None
            for i, x in enumerate(loader):
                out = model(x)
                if scores is None:
                    scores = out
                else:
                    scores = torch.cat((scores, out), dim=0)  # !
        """),
        Invalid("""
            feats = None
            for batch in loader:
                out = model(batch)
                feats = out if feats is None else torch.cat([feats, out])  # !
        """),
        Invalid("""
            feats = []
            for batch in loader:
                out = model(batch)
                feats = torch.cat([feats, out.cpu()]) if len(feats) else out.cpu()  # !
        """),
        Invalid("""
            edges = torch.tensor([], dtype=torch.long)
            for begin in edge_index.t():
                for end in neighbours(begin):
                    edges = torch.cat((edges, torch.tensor([[begin], [end]])), 1)  # !
        """),
    )
    BENCHMARK = Benchmark(
        setup="import torch\nrows = list(torch.randn(2000, 1, 64))",
        before="result = torch.empty(0, 64)\nfor row in rows:\n    result = torch.cat([result, row])",
        after="parts = []\nfor row in rows:\n    parts.append(row)\nresult = torch.cat(parts)",
        scope="the loop, without the work that makes the rows",
        sizes="2000 iterations, 64 float32 each",
    )

    def candidates(self, file: SourceFile) -> list[ast.AST]:
        return joining_assignments(file)

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            return
        call, parts = joined_parts(node.value, file)
        target = node.targets[0]
        if call is None or len(parts) < 2 or not any(_same_place(part, target) for part in parts):
            return
        loops = _growing_loops(node, target, file)
        if not loops:
            return
        loop = loops[0]
        name = file.source(target)
        read = _reads(loop, target, node, file)
        advice = (
            f"The loop reads `{name}` as it grows: allocate it at its final size before the loop and write each "
            "part into its slice."
            if read
            else f"Append the parts to a list and call `{file.source(call.func)}` once after the loop."
        )
        yield Problem(
            node,
            f"`{name}` is copied whole on every iteration of the loop at line {loop.lineno}, so the copying grows "
            f"with the square of its length. {advice}",
            0.35 if file.guards.rare(node, loop) else _confidence(node, loops, parts, read, file),
            (Evidence(loop.lineno, "the loop in which it grows"),),
            cause=loop,
            facts={
                "read_in_loop": read,
                "literal_trips": _literal_trips(loop),
                "model_layers": _over_layers(loop, file),
            },
        )


def _literal_trips(loop: Loop) -> int:
    """How many iterations the code itself says there are; 0 where it does not."""
    stop = (
        loop.iter.args[-1]
        if isinstance(loop, ast.For) and isinstance(loop.iter, ast.Call) and loop.iter.args
        else None
    )
    return int_literal(stop) or 0


def _over_layers(loop: Loop, file: SourceFile) -> bool:
    return isinstance(loop, ast.For) and bool(FEW.search(file.source(loop.iter)))


def joining_assignments(file: SourceFile) -> list[ast.AST]:
    """The assignments of what a concatenation gives."""
    return file.once(_joining_assignments)


def _joining_assignments(file: SourceFile) -> list[ast.AST]:
    found: dict[ast.AST, None] = {}
    for name in sorted(_GROW):
        for call in file.calls_named(name):
            parent = file.index.parent(call)
            if isinstance(parent, ast.IfExp):
                parent = file.index.parent(parent)
            if isinstance(parent, ast.Assign):
                found[parent] = None
    return list(found)


def joined_parts(value: ast.expr, file: SourceFile) -> tuple[ast.Call | None, list[ast.expr]]:
    """The concatenation that `value` is, and what it joins."""
    call = _joining(value)
    func = call.func if call is not None else None
    leaf = last_name(func)
    if call is None or func is None or leaf not in _GROW:
        return None, []
    module = file.imports.qualified(func).rpartition(".")[0]
    return (call, _parts(call)) if module in ("torch", "numpy", "pandas") else (None, [])


def _joining(value: ast.expr) -> ast.Call | None:
    """The call of `x = cat(...)`, and of `x = y if x is None else cat(...)`, where `y` may be a call, too."""
    sides = [value.orelse, value.body] if isinstance(value, ast.IfExp) else [value]
    calls = [side for side in sides if isinstance(side, ast.Call)]
    return next((call for call in calls if last_name(call.func) in _GROW), calls[0] if calls else None)


def _parts(call: ast.Call) -> list[ast.expr]:
    """What the call joins: the elements of its list, or the two arguments of `np.append`."""
    first = call.args[0] if call.args else keyword_of(call, "tensors")
    if isinstance(first, (ast.List, ast.Tuple)):
        return first.elts
    return list(call.args[:2]) if isinstance(call.func, ast.Attribute) and call.func.attr == "append" else []


def _same_place(part: ast.expr, target: ast.expr) -> bool:
    if isinstance(part, ast.Name) and isinstance(target, ast.Name):
        return part.id == target.id
    if isinstance(part, ast.Attribute) and isinstance(target, ast.Attribute):
        return part.attr == target.attr and same_code(part.value, target.value)
    if isinstance(part, ast.Subscript) and isinstance(target, ast.Subscript):
        return same_code(part.slice, target.slice) and same_code(part.value, target.value)
    return False


def _growing_loops(node: ast.Assign, target: ast.expr, file: SourceFile) -> list[Loop]:
    """The loops, innermost first, through whose iterations the target does nothing but grow."""
    growing: list[Loop] = []
    keys = _keys(target)
    for loop in file.index.loops_of(node):
        if isinstance(loop, ast.For) and keys & names_in(loop.target):
            continue  # each iteration grows another entry
        stores = _stores_in(loop, file).get(_place(target), _Stores([], {}))
        branch = file.index.parent(node)
        beside = stores.growing.get(branch, []) if isinstance(branch, ast.If) else []
        if any(not _starts_it(other, node, file) for other in (*stores.plain, *beside)):
            return growing
        growing.append(loop)
    return growing


def _keys(target: ast.expr) -> frozenset[str]:
    """The names in the keys of `table[a][b]` and `rows[i].field`."""
    keys: set[str] = set()
    while isinstance(target, (ast.Subscript, ast.Attribute)):
        if isinstance(target, ast.Subscript):
            keys |= names_in(target.slice)
        target = target.value
    return frozenset(keys)


@dataclass(frozen=True, slots=True)
class _Stores:
    """Where one place gets a value in a loop. What grows it matters only in the block of what else does."""

    plain: list[ast.expr]
    growing: dict[ast.AST | None, list[ast.expr]]


@remembered
def _stores_in(loop: Loop, file: SourceFile) -> dict[str, _Stores]:
    table: dict[str, _Stores] = {}
    for store in own_nodes(loop):
        if not isinstance(store, _PLACES) or not isinstance(store.ctx, ast.Store):
            continue
        stores = table.setdefault(_place(store), _Stores([], {}))
        statement = file.index.statement_of(store)
        if _grows(statement, store):
            stores.growing.setdefault(file.index.parent(statement), []).append(store)
        else:
            stores.plain.append(store)
    return table


def _grows(statement: ast.stmt, store: ast.expr) -> bool:
    if not isinstance(statement, ast.Assign) or statement.targets[0] is not store:
        return False
    return isinstance(statement.value, ast.Call) and any(
        _same_place(part, store) for part in _parts(statement.value)
    )


def _place(expr: ast.expr) -> str:
    """Equal for two expressions that `_same_place` finds the same."""
    if isinstance(expr, ast.Name):
        return expr.id
    if isinstance(expr, ast.Attribute):
        return f"{ast.unparse(expr.value)}.{expr.attr}"
    return ast.unparse(expr)


def _starts_it(store: ast.expr, node: ast.Assign, file: SourceFile) -> bool:
    """Is the store in the other branch of the `if` around the concatenation, as in `if x is None: x = y`?"""
    statement = file.index.statement_of(store)
    if statement is node:
        return True
    branch = file.index.parent(node)
    if not isinstance(branch, ast.If) or file.index.parent(statement) is not branch:
        return _grows(statement, store)  # another self-growth, such as the one for the other kind of batch
    return (statement in branch.body) != (node in branch.body)


def _reads(loop: Loop, target: ast.expr, node: ast.Assign, file: SourceFile) -> bool:
    """Does the loop use the tensor while it grows, other than to look whether it has begun?"""
    call = _joining(node.value)
    own = _parts(call) if call is not None else []
    reads = _reads_in(loop, file).get(_place(target), ())
    return any(not any(read is part for part in own) for read in reads)


@remembered
def _reads_in(loop: Loop, file: SourceFile) -> dict[str, list[ast.expr]]:
    """Place -> where the loop reads it, other than to look whether it has begun."""
    table: dict[str, list[ast.expr]] = {}
    for read in own_nodes(loop):
        if not isinstance(read, _PLACES) or not isinstance(read.ctx, ast.Load):
            continue
        parent = file.index.parent(read)
        if isinstance(parent, ast.Compare) and isinstance(parent.ops[0], (ast.Is, ast.IsNot)):
            continue
        if not (isinstance(parent, ast.Call) and _is_call(parent, "len")):
            table.setdefault(_place(read), []).append(read)
    return table


def _confidence(
    node: ast.Assign, loops: list[Loop], parts: list[ast.expr], read: bool, file: SourceFile
) -> float:
    target = node.targets[0]
    loop = loops[0]
    if isinstance(loop, ast.While) or not _often(loops, file) or not _same_place(parts[0], target):
        return 0.5  # the number of iterations cannot be told
    if not isinstance(target, ast.Name) or all(_PADS.search(file.source(part)) for part in parts[1:]):
        return 0.5  # a buffer that other methods may read at any time, or one that is filled up
    if loop.body and isinstance(loop.body[-1], (ast.Return, ast.Break)):
        return 0.3
    if _frees(loop) or _grows_both_ways(loop, node, file) or (not read and _is_drawn(parts[1:], file)):
        return 0.5
    if read:
        return 0.5  # next to the model call that needs what was collected so far, the copy is small
    return 0.65 if _from_numpy(node, file) else 0.75


@remembered
def _frees(loop: Loop) -> bool:
    """Does the loop free memory on purpose? Then it must not hold all parts at once."""
    calls = (n.func for n in own_nodes(loop) if isinstance(n, ast.Call))
    names = (last_name(f) for f in calls)
    return any("empty" in name and "cache" in name or name == "collect" for name in names)


def _grows_both_ways(loop: Loop, node: ast.Assign, file: SourceFile) -> bool:
    """Does another statement of the loop put something in front, as padding at both ends does?"""
    return any(other is not node for other in _grown_in_front(loop, file).get(_place(node.targets[0]), ()))


@remembered
def _grown_in_front(loop: Loop, file: SourceFile) -> dict[str, list[ast.Assign]]:
    """Place -> assignments of the loop that join something with another first part to it."""
    table: dict[str, list[ast.Assign]] = {}
    for assign in own_nodes(loop):
        if isinstance(assign, ast.Assign):
            call = _joining(assign.value)
            parts = _parts(call) if call is not None else []
            if parts and not _same_place(parts[0], assign.targets[0]):
                table.setdefault(_place(assign.targets[0]), []).append(assign)
    return table


def _is_drawn(parts: list[ast.expr], file: SourceFile) -> bool:
    """One token per call of a model, drawn by `multinomial`: next to the call, copying the tokens is nothing."""
    for name in (n for part in parts for n in walk(part) if isinstance(n, ast.Name)):
        if _drawn_name(name.id, file.index.function_of(name), file):
            return True
    return False


@remembered
def _drawn_name(name: str, function: FunctionNode | None, file: SourceFile) -> bool:
    values = (binding.value for binding in file.bindings.of(function, name))
    return any(value is not None and "multinomial(" in file.source(value) for value in values)


def _from_numpy(node: ast.Assign, file: SourceFile) -> bool:
    call = _joining(node.value)
    return call is not None and file.imports.qualified(call.func).startswith("numpy.")


def _often(loops: list[Loop], file: SourceFile) -> bool:
    iterables = [loop.iter for loop in loops if isinstance(loop, (ast.For, ast.AsyncFor))]
    nested = len(iterables) > 1 and not any(FEW.search(file.source(i)) for i in iterables)
    return nested or any(_many(i, file) for i in iterables)


def _many(iterable: ast.expr, file: SourceFile) -> bool:
    """Is the loop known to run often: over a loader, the rows of a tensor, or a range that is not a literal?"""
    while (
        isinstance(iterable, ast.Call)
        and isinstance(iterable.func, (ast.Name, ast.Attribute))
        and iterable.args
    ):
        if _is_call(iterable, "range"):
            stop = iterable.args[1 if len(iterable.args) > 1 else 0]
            literal = int_literal(stop)
            return literal >= _SHORT if literal is not None else not FEW.search(file.source(iterable))
        if not _is_call(iterable, "enumerate", "tqdm", "zip", "track"):
            break
        iterable = iterable.args[0]
    text = file.source(iterable)
    return not FEW.search(text) and (bool(_LOADER.search(text)) or file.values.is_tensor(iterable))


def _is_call(node: ast.expr, *names: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names
