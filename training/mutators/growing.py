"""Tensors that grow or are walked through in a Python loop."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.findings import Edit
from ptopt.rules.code import has_unpacking, keyword_of, method_call
from ptopt.source.calls import last_name
from ptopt.source.file import SourceFile
from training.mutators.base import (
    Mutation,
    alone,
    indent_of,
    need_import,
    pick,
    replace,
)
from training.mutators.ranks import rank_of


class CatInLoop:
    """A list that is concatenated once becomes a tensor that grows."""

    rule = "cat-in-loop"
    examples = (
        (
            (
                "import torch\n\n\ndef run(model, loader):\n    out = []\n    for x in loader:\n        out.append(model(x))\n"
                "    return torch.cat(out, dim=0)\n"
            ),
            (
                "import torch\n\n\ndef run(model, loader):\n    out = torch.empty(0)\n    for x in loader:\n"
                "        out = torch.cat([out, model(x)], dim=0)\n    return out\n"
            ),
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for name in ("cat", "concat", "concatenate", "stack"):
            for call in source.calls_named(name):
                if (
                    not call.args
                    or not isinstance(call.args[0], ast.Name)
                    or name == "stack"
                    and len(call.args) > 1
                ):
                    continue
                if not source.imports.qualified(call.func).startswith("torch."):
                    continue
                edits = self._edits(source, call, call.args[0].id, name)
                if edits:
                    yield Mutation(edits)

    def _edits(self, source: SourceFile, call: ast.Call, name: str, how: str) -> tuple[Edit, ...]:
        function = source.index.function_of(call)
        appends = [
            c
            for c in source.calls_named("append")
            if (r := method_call(c, "append")) is not None and isinstance(r, ast.Name) and r.id == name
        ]
        starts = [
            a
            for a in source.index.of_type(ast.Assign)
            if isinstance(a.targets[0], ast.Name)
            and a.targets[0].id == name
            and source.index.function_of(a) is function
        ]
        if len(appends) != 1 or len(starts) != 1 or len(appends[0].args) != 1:
            return ()
        start, append = starts[0], appends[0]
        empty = isinstance(start.value, ast.List) and not start.value.elts
        uses = [
            n
            for n in source.index.of_type(ast.Name)
            if n.id == name and source.index.function_of(n) is function
        ]
        in_loop = next(source.index.loops_of(append), None)
        if not empty or len(uses) != 3 or in_loop is None or source.index.within(call, in_loop):
            return ()
        dim = keyword_of(call, "dim") or (call.args[1] if len(call.args) > 1 else None)
        suffix = f", dim={source.source(dim)}" if dim is not None else ""
        value = source.source(append.args[0])
        if how == "stack":
            value = (
                f"{value}.unsqueeze(0)"
                if isinstance(append.args[0], (ast.Name, ast.Call))
                else f"({value})[None]"
            )
            suffix = ""
        device = pick(("", "", ", device=device"), source, source.bounds(call)[0])
        known = any(n.id == "device" for n in source.index.of_type(ast.Name))
        grown = f"{name} = torch.cat([{name}, {value}]{suffix})"
        return (
            *need_import(source, "torch", "import torch"),
            replace(source, start.value, f"torch.empty(0{device if known else ''})"),
            replace(source, append, grown),
            replace(source, call, name),
        )


class ElementLoop:
    """An operation on a whole tensor becomes a loop over its first dimension."""

    rule = "element-loop"
    examples = (
        (
            "import torch\n\n\ndef squash(x: torch.Tensor):\n    rows, _ = x.shape\n    y = torch.sigmoid(x)\n    return y\n",
            (
                "import torch\n\n\ndef squash(x: torch.Tensor):\n    rows, _ = x.shape\n    y = torch.zeros_like(x)\n"
                "    for i in range(len(x)):\n        y[i] = torch.sigmoid(x[i])\n    return y\n"
            ),
        ),
    )
    names = (
        "sigmoid",
        "tanh",
        "exp",
        "log",
        "sqrt",
        "abs",
        "relu",
        "sin",
        "cos",
        "square",
        "softplus",
        "gelu",
        "clamp",
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for node in source.index.of_type(ast.Assign):
            call, target = node.value, node.targets[0]
            if not isinstance(call, ast.Call) or not isinstance(target, ast.Name) or not alone(source, node):
                continue
            func = call.func
            if not isinstance(func, ast.Attribute) or func.attr not in self.names or has_unpacking(call):
                continue
            out, text = target.id, source.source(call)
            if source.imports.qualified(func).startswith("torch."):
                tensor = call.args[0] if call.args else None
            else:
                tensor = func.value
            if not isinstance(tensor, ast.Name) or tensor.id == out or "\n" in text:
                continue
            others = [a for a in [*call.args, *(k.value for k in call.keywords)] if a is not tensor]
            if not all(isinstance(a, ast.Constant) for a in others) or not rank_of(source, tensor):
                continue  # others may have a first dimension of their own; a number has none
            start, end = source.bounds(tensor)
            base = source.bounds(call)[0]
            one = text.encode()[: start - base] + f"{tensor.id}[i]".encode() + text.encode()[end - base :]
            indent = indent_of(source, node)
            slow = (
                f"{out} = torch.zeros_like({tensor.id})\n{indent}for i in range(len({tensor.id})):\n"
                f"{indent}    {out}[i] = {one.decode()}"
            )
            yield Mutation((*need_import(source, "torch", "import torch"), replace(source, node, slow)))


class PairwiseLoop:
    """`cdist` of two matrices becomes two loops."""

    rule = "pairwise-loop"
    examples = (
        (
            "import torch\n\n\ndef distances(x, y):\n    n, width = x.shape\n    m, _ = y.shape\n    d = torch.cdist(x, y)\n    return d\n",
            (
                "import torch\n\n\ndef distances(x, y):\n    n, width = x.shape\n    m, _ = y.shape\n"
                "    d = x.new_zeros(len(x), len(y))\n    for i in range(len(x)):\n"
                "        for j in range(len(y)):\n            d[i, j] = torch.norm(x[i] - y[j])\n    return d\n"
            ),
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for node in source.index.of_type(ast.Assign):
            call, target = node.value, node.targets[0]
            if not isinstance(call, ast.Call) or not isinstance(target, ast.Name) or len(call.args) != 2:
                continue
            a, b = call.args
            named = isinstance(call.func, ast.Attribute) and call.func.attr == "cdist" and not call.keywords
            if not named or not alone(source, node):
                continue
            if not isinstance(a, ast.Name) or not isinstance(b, ast.Name):
                continue
            if target.id in (a.id, b.id) or rank_of(source, a) != 2 or rank_of(source, b) != 2:
                continue
            i, out = indent_of(source, node), target.id
            slow = (
                f"{out} = {a.id}.new_zeros(len({a.id}), len({b.id}))\n{i}for i in range(len({a.id})):\n"
                f"{i}    for j in range(len({b.id})):\n{i}        {out}[i, j] = torch.norm({a.id}[i] - {b.id}[j])"
            )
            yield Mutation((*need_import(source, "torch", "import torch"), replace(source, node, slow)))


class PythonReduction:
    """`x.sum(0)` becomes `sum(x)`, which is the same for any number of dimensions; `x.max()` of a vector `max(x)`."""

    rule = "python-reduction-over-tensor"
    examples = (
        (
            "import torch\n\n\ndef longest(batch: torch.Tensor):\n    lengths = batch.flatten()\n    return lengths.max()\n",
            "import torch\n\n\ndef longest(batch: torch.Tensor):\n    lengths = batch.flatten()\n    return max(lengths)\n",
        ),
        (
            "import torch\n\n\ndef total(terms: torch.Tensor):\n    return terms.sum(dim=0)\n",
            "import torch\n\n\ndef total(terms: torch.Tensor):\n    return sum(terms)\n",
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for name in ("sum", "max", "min"):
            for call in source.calls_named(name):
                receiver = method_call(call, name)
                if receiver is None or not source.values.is_tensor(receiver):
                    continue
                if name == "sum" and _over_first(call):
                    yield Mutation((replace(source, call, f"sum({source.source(receiver)})"),))
                elif not call.args and not call.keywords and rank_of(source, receiver) == 1:
                    yield Mutation((replace(source, call, f"{name}({source.source(receiver)})"),))


def _over_first(call: ast.Call) -> bool:
    """`sum(0)` or `sum(dim=0)`."""
    given = [*call.args, *(k.value for k in call.keywords if k.arg == "dim")]
    first = given[0] if len(given) == 1 and len(call.args) + len(call.keywords) == 1 else None
    return isinstance(first, ast.Constant) and first.value == 0 and first.value is not False


class ItemPerElement:
    """`x.tolist()` of a vector becomes a list of `.item()`."""

    rule = "item-per-element"
    examples = (
        (
            "import torch\n\n\ndef ids(tokens: torch.Tensor):\n    flat = tokens.reshape(-1, 1).flatten()\n    return flat.tolist()\n",
            (
                "import torch\n\n\ndef ids(tokens: torch.Tensor):\n    flat = tokens.reshape(-1, 1).flatten()\n"
                "    return [x_i.item() for x_i in flat]\n"
            ),
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for call in source.calls_named("tolist"):
            receiver = method_call(call, "tolist")
            counted = isinstance(receiver, ast.Call) and last_name(receiver.func) == "arange"  # a few numbers
            if receiver is not None and not call.args and not counted and rank_of(source, receiver) == 1:
                name = pick(("t", "v", "x_i", "value"), source, source.bounds(call)[0])
                text = f"[{name}.item() for {name} in {source.source(receiver)}]"
                yield Mutation((replace(source, call, text),))
