"""Graphs recorded for nothing, and what goes with the backward pass."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.findings import Edit
from ptopt.rules.code import add_keyword, has_unpacking, keyword_of, method_call
from ptopt.source.file import SourceFile
from ptopt.source.index import LOOPS
from training.mutators.base import (
    Mutation,
    bracketed,
    indent_of,
    reindent,
    remove_keyword,
    replace,
    unwrapped,
)


def _turns_off(source: SourceFile, expr: ast.expr) -> bool:
    return source.source(expr).removesuffix("()").rpartition(".")[2] in ("no_grad", "inference_mode")


_DUMMY = re.compile(
    r"torch\.(rand|randn|zeros|ones|empty)\(|dummy"
)  # the input of a pass that only asks for shapes


class NoGradTaken:
    """`torch.no_grad()` taken from an evaluation."""

    rule = "evaluation-records-graph"
    examples = (
        (
            (
                "import torch\n\n\ndef test(net, test_loader):\n    net.eval()\n    with torch.no_grad():\n"
                "        for x, y in test_loader:\n            correct = (net(x.cuda()).argmax(1) == y.cuda()).sum().item()\n"
                "    return correct\n"
            ),
            (
                "import torch\n\n\ndef test(net, test_loader):\n    net.eval()\n"
                "    for x, y in test_loader:\n        correct = (net(x.cuda()).argmax(1) == y.cuda()).sum().item()\n"
                "    return correct\n"
            ),
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for node in source.index.of_type(ast.With):
            if len(node.items) == 1 and _turns_off(source, node.items[0].context_expr):
                edit = unwrapped(source, node, node.body)
                if edit is not None and not _DUMMY.search(source.source(node)):
                    yield Mutation((edit,))
        for function in source.index.of_type(ast.FunctionDef):
            for decorator in function.decorator_list:
                if _turns_off(source, decorator):
                    first = source.offset(decorator.lineno, 0)
                    end = source.data.find(b"\n", source.bounds(decorator)[1]) + 1
                    yield Mutation((Edit(first, end, ""),))


class FrozenForward:
    """`torch.no_grad()` taken from a forward pass whose result is then detached."""

    rule = "frozen-forward-records-graph"
    examples = (
        (
            (
                "import torch\n\n\ndef train(teacher, student, loader, optimizer):\n    for x in loader:\n"
                "        with torch.no_grad():\n            target = teacher(x)\n"
                "        loss = criterion(student(x), target)\n        loss.backward()\n        optimizer.step()\n"
            ),
            (
                "import torch\n\n\ndef train(teacher, student, loader, optimizer):\n    for x in loader:\n"
                "        target = teacher(x)\n        target = target.detach()\n"
                "        loss = criterion(student(x), target)\n        loss.backward()\n        optimizer.step()\n"
            ),
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for node in source.index.of_type(ast.With):
            if len(node.items) != 1 or not _turns_off(source, node.items[0].context_expr):
                continue
            edit, last = unwrapped(source, node, node.body), node.body[-1]
            if len(node.body) > 1:
                continue  # what the other statements set would keep its graph
            if edit is None or not isinstance(last, ast.Assign) or not isinstance(last.targets[0], ast.Name):
                continue
            name, indent = last.targets[0].id, indent_of(source, node)
            text = f"{edit.replacement}{indent}{name} = {name}.detach()\n"
            yield Mutation((Edit(edit.start, edit.end, text),))


class DetachTaken:
    """A sum of losses keeps their graphs: `.detach()` or `.item()` taken away. The sum stays a tensor in the answer."""

    rule = "metric-keeps-graph"
    examples = (
        (
            (
                "import torch\n\n\ntotal = 0\nfor x in loader:\n    loss = model(x)\n    loss.backward()\n    optimizer.step()\n"
                "    total += loss.detach()\n"
            ),
            (
                "import torch\n\n\ntotal = 0\nfor x in loader:\n    loss = model(x)\n    loss.backward()\n    optimizer.step()\n"
                "    total += loss\n"
            ),
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for name in ("item", "detach"):
            for call in source.calls_named(name):
                receiver = method_call(call, name)
                inner = method_call(receiver, "detach") if receiver is not None else None
                kept = inner or receiver
                if kept is None or not any(isinstance(a, LOOPS) for a, _ in source.index.ancestors(call)):
                    continue
                if isinstance(source.index.parent(call), (ast.AugAssign, ast.Call, ast.BinOp)):
                    slow = bracketed(source, kept)
                    yield Mutation(
                        (replace(source, call, slow),), fast=(replace(source, call, f"{slow}.detach()"),)
                    )


class BackwardInAutocast:
    """The backward pass moves into the autocast region."""

    rule = "autocast-around-backward"
    examples = (
        (
            (
                "import torch\n\n\nfor x in loader:\n    with torch.autocast('cuda', dtype=torch.bfloat16):\n        loss = model(x)\n"
                "    loss.backward()\n    optimizer.step()\n"
            ),
            (
                "import torch\n\n\nfor x in loader:\n    with torch.autocast('cuda', dtype=torch.bfloat16):\n        loss = model(x)\n"
                "        loss.backward()\n    optimizer.step()\n"
            ),
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        regions = [
            n for n in source.index.of_type(ast.With) if "autocast" in source.source(n.items[0].context_expr)
        ]
        for call in source.calls_named("backward"):
            statement = source.index.statement_of(call)
            owner = source.index.parent(statement)
            body = getattr(owner, "body", None)
            if not isinstance(body, list) or statement not in body:
                continue
            before = body[body.index(statement) - 1] if body.index(statement) else None
            if before not in regions or before is None:
                continue
            first = (before.end_lineno or before.lineno) + 1
            last = statement.end_lineno or statement.lineno
            text = reindent(source, first, last, 4)
            if text is None:
                continue
            start = source.offset(first, 0)
            end = source.offset(last, 0) + len(source.line(last).encode()) + 1
            yield Mutation((Edit(start, min(end, len(source.data)), text),))


class GraphRetained:
    """`backward()` that keeps its graph."""

    rule = "graph-retained"
    examples = (
        (
            "import torch\n\n\nfor x in loader:\n    loss = model(x)\n    loss.backward()\n    optimizer.step()\n",
            (
                "import torch\n\n\nfor x in loader:\n    loss = model(x)\n"
                "    loss.backward(retain_graph=True)\n    optimizer.step()\n"
            ),
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for call in source.calls_named("backward"):
            if keyword_of(call, "retain_graph") is None and not has_unpacking(call):
                yield Mutation((add_keyword(source, call, "retain_graph=True"),))


class CheckpointOnGpu:
    """`map_location` taken from `torch.load`."""

    rule = "checkpoint-loaded-on-gpu"
    examples = (
        (
            (
                'import torch\n\n\ndef resume(path, model, opt):\n    data = torch.load(path, map_location="cpu")\n'
                '    model.cuda().load_state_dict(data["model"])\n    opt.load_state_dict(data["opt"])\n'
            ),
            (
                "import torch\n\n\ndef resume(path, model, opt):\n    data = torch.load(path)\n"
                '    model.cuda().load_state_dict(data["model"])\n    opt.load_state_dict(data["opt"])\n'
            ),
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for call in source.calls_named("load"):
            value = keyword_of(call, "map_location")
            if value is None or source.source(value) not in ('"cpu"', "'cpu'", 'torch.device("cpu")'):
                continue  # on the device, or the caller says where
            edit = remove_keyword(source, call, "map_location")
            if edit is not None:
                yield Mutation((edit,))
