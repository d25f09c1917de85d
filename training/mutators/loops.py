"""Loops: growing by concatenation, loaders that do not run ahead, guards taken away, graphs recorded for nothing."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.findings import Edit
from ptopt.rules.base import keyword_of, method_call
from ptopt.rules.removal import remove_keyword
from ptopt.source.file import SourceFile
from ptopt.source.index import LOOPS
from training.mutators.base import Mutation, alone, indent_of, need_import, pick, reindent, replace


class CatInLoop:
    """A list that is concatenated once becomes a tensor that grows."""

    rule = "cat-in-loop"
    examples = (
        (
            "import torch\n\n\ndef run(model, loader):\n    out = []\n    for x in loader:\n        out.append(model(x))\n"
            "    return torch.cat(out, dim=0)\n",
            "import torch\n\n\ndef run(model, loader):\n    out = torch.empty(0)\n    for x in loader:\n"
            "        out = torch.cat([out, model(x)], dim=0)\n    return out\n",
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for name in ("cat", "concat", "concatenate", "stack"):
            for call in source.calls_named(name):
                if not call.args or not isinstance(call.args[0], ast.Name) or name == "stack" and len(call.args) > 1:
                    continue
                if not source.imports.qualified(call.func).startswith("torch"):
                    continue
                edits = self._edits(source, call, call.args[0].id, name)
                if edits:
                    yield Mutation(edits)

    def _edits(self, source: SourceFile, call: ast.Call, name: str, how: str) -> tuple[Edit, ...]:
        function = source.index.function_of(call)
        appends = [
            c for c in source.calls_named("append")
            if (r := method_call(c, "append")) is not None and isinstance(r, ast.Name) and r.id == name
        ]
        starts = [
            a for a in source.index.of_type(ast.Assign)
            if isinstance(a.targets[0], ast.Name) and a.targets[0].id == name and source.index.function_of(a) is function
        ]
        if len(appends) != 1 or len(starts) != 1 or len(appends[0].args) != 1:
            return ()
        start, append = starts[0], appends[0]
        empty = isinstance(start.value, ast.List) and not start.value.elts
        uses = [n for n in source.index.of_type(ast.Name) if n.id == name and source.index.function_of(n) is function]
        in_loop = next(source.index.loops_of(append), None)
        if not empty or len(uses) != 3 or in_loop is None or source.index.within(call, in_loop):
            return ()
        dim = keyword_of(call, "dim") or (call.args[1] if len(call.args) > 1 else None)
        suffix = f", dim={source.source(dim)}" if dim is not None else ""
        value = source.source(append.args[0])
        if how == "stack":
            value = f"{value}.unsqueeze(0)" if isinstance(append.args[0], (ast.Name, ast.Call)) else f"({value})[None]"
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


class _KeywordTaken:
    """A keyword of the data loader is taken away."""

    keywords: tuple[str, ...]

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for call in source.calls_named("DataLoader"):
            for keyword in self.keywords:
                edit = remove_keyword(source, call, keyword)
                if edit is not None:
                    yield Mutation((edit,))


_LOADER = (
    "from torch.utils.data import DataLoader, Dataset\n\n\nclass Images(Dataset):\n    def __getitem__(self, i):\n"
    "        return self.transform(Image.open(self.paths[i]))\n\n\nloader = DataLoader(Images(), batch_size=64{})\n"
    "for epoch in range(9):\n    for x in loader:\n        model(x.cuda()).mean().backward()\n        optimizer.step()\n"
)


class LoaderWithoutWorkers(_KeywordTaken):
    rule = "loader-without-workers"
    keywords = ("num_workers",)
    examples = ((_LOADER.format(", num_workers=8"), _LOADER.format("")),)


class LoaderWithoutPinning(_KeywordTaken):
    rule = "loader-without-pinning"
    keywords = ("pin_memory",)
    examples = (
        (_LOADER.format(", num_workers=8, pin_memory=True"), _LOADER.format(", num_workers=8")),
    )


class WorkersRestarted(_KeywordTaken):
    rule = "workers-restarted-each-epoch"
    keywords = ("persistent_workers",)
    examples = (
        (_LOADER.format(", num_workers=8, persistent_workers=True"), _LOADER.format(", num_workers=8")),
    )


class BlockingCopy:
    """`non_blocking=True` taken away."""

    rule = "blocking-copy-from-pinned-loader"
    examples = (
        (
            "from torch.utils.data import DataLoader\n\n\nloader = DataLoader(data, 64, num_workers=2, pin_memory=True)\n"
            "for x in loader:\n    x = x.cuda(non_blocking=True)\n    model(x).backward()\n    optimizer.step()\n",
            "from torch.utils.data import DataLoader\n\n\nloader = DataLoader(data, 64, num_workers=2, pin_memory=True)\n"
            "for x in loader:\n    x = x.cuda()\n    model(x).backward()\n    optimizer.step()\n",
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for name in ("to", "cuda"):
            for call in source.calls_named(name):
                edit = remove_keyword(source, call, "non_blocking")
                if edit is not None:
                    yield Mutation((edit,))


class LoaderRebuilt:
    """The loader is made again for each epoch."""

    rule = "loader-rebuilt-in-loop"
    examples = (
        (
            "from torch.utils.data import DataLoader\n\n\nfor epoch in range(9):\n    for x in train_loader:\n"
            "        model(x).backward()\n        optimizer.step()\n",
            "from torch.utils.data import DataLoader\n\n\nfor epoch in range(9):\n"
            "    for x in DataLoader(train_set, batch_size=batch_size, shuffle=True, num_workers=4):\n"
            "        model(x).backward()\n        optimizer.step()\n",
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        made = "DataLoader(train_set, batch_size=batch_size, shuffle=True, num_workers=4)"
        imports = need_import(source, "DataLoader", "from torch.utils.data import DataLoader")
        for loop in source.index.of_type(ast.For):
            if next(source.index.loops_of(loop), None) is None:
                continue
            for node in ast.walk(loop.iter):
                if isinstance(node, (ast.Name, ast.Attribute)) and "loader" in source.source(node).lower():
                    if "self" not in source.source(node) or isinstance(node, ast.Attribute):
                        yield Mutation((*imports, replace(source, node, made)))
                        break


class IteratorRebuilt:
    """`next(iterator)` becomes `next(iter(loader))`."""

    rule = "loader-rebuilt-in-loop"
    examples = (
        (
            "import torch\n\n\nfor step in range(steps):\n    x = next(loader_iter)\n    model(x).backward()\n    optimizer.step()\n",
            "import torch\n\n\nfor step in range(steps):\n    x = next(iter(train_loader))\n    model(x).backward()\n    optimizer.step()\n",
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for call in source.calls_named("next"):
            name = source.source(call.args[0]) if len(call.args) == 1 else ""
            if isinstance(call.func, ast.Name) and ("load" in name or "data" in name) and name.replace(".", "").isidentifier():
                yield Mutation((replace(source, call.args[0], "iter(train_loader)"),))


class NoGradTaken:
    """`torch.no_grad()` taken from an evaluation."""

    rule = "evaluation-records-graph"
    examples = (
        (
            "import torch\n\n\ndef test(net, test_loader):\n    net.eval()\n    with torch.no_grad():\n"
            "        for x, y in test_loader:\n            correct = (net(x.cuda()).argmax(1) == y.cuda()).sum().item()\n"
            "    return correct\n",
            "import torch\n\n\ndef test(net, test_loader):\n    net.eval()\n"
            "    for x, y in test_loader:\n        correct = (net(x.cuda()).argmax(1) == y.cuda()).sum().item()\n"
            "    return correct\n",
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for node in source.index.of_type(ast.With):
            if len(node.items) == 1 and _turns_off(source, node.items[0].context_expr):
                edit = unwrapped(source, node, node.body)
                if edit is not None:
                    yield Mutation((edit,))
        for function in source.index.of_type(ast.FunctionDef):
            for decorator in function.decorator_list:
                if _turns_off(source, decorator):
                    first = source.offset(decorator.lineno, 0)
                    end = source.data.find(b"\n", source.bounds(decorator)[1]) + 1
                    yield Mutation((Edit(first, end, ""),))


def _turns_off(source: SourceFile, expr: ast.expr) -> bool:
    return source.source(expr).removesuffix("()").rpartition(".")[2] in ("no_grad", "inference_mode")


def unwrapped(source: SourceFile, node: ast.With | ast.If, body: list[ast.stmt]) -> Edit | None:
    """Edit that leaves the body of a block in the place of the block."""
    first, last = body[0].lineno, node.end_lineno or node.lineno
    if first == node.lineno:
        return None
    deeper = body[0].col_offset - node.col_offset
    text = reindent(source, first, last, -deeper)
    start = source.offset(node.lineno, 0)
    if text is None or source.data[start : source.bounds(node)[0]].strip():
        return None
    end = source.offset(last, 0) + len(source.line(last).encode()) + 1
    return Edit(start, min(end, len(source.data)), text)


class FrozenForward:
    """`torch.no_grad()` taken from a forward pass whose result is then detached."""

    rule = "frozen-forward-records-graph"
    examples = (
        (
            "import torch\n\n\ndef train(teacher, student, loader, optimizer):\n    for x in loader:\n"
            "        with torch.no_grad():\n            target = teacher(x)\n"
            "        loss = criterion(student(x), target)\n        loss.backward()\n        optimizer.step()\n",
            "import torch\n\n\ndef train(teacher, student, loader, optimizer):\n    for x in loader:\n"
            "        target = teacher(x)\n        target = target.detach()\n"
            "        loss = criterion(student(x), target)\n        loss.backward()\n        optimizer.step()\n",
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for node in source.index.of_type(ast.With):
            if len(node.items) != 1 or not _turns_off(source, node.items[0].context_expr):
                continue
            edit, last = unwrapped(source, node, node.body), node.body[-1]
            if edit is None or not isinstance(last, ast.Assign) or not isinstance(last.targets[0], ast.Name):
                continue
            name, indent = last.targets[0].id, indent_of(source, node)
            text = f"{edit.replacement}{indent}{name} = {name}.detach()\n"
            yield Mutation((Edit(edit.start, edit.end, text),))


class _Unguarded:
    """What was done now and then is done on every step."""

    words: tuple[str, ...]

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for node in source.index.of_type(ast.If):
            if node.orelse or not alone(source, node):
                continue
            text = "\n".join(source.source(s) for s in node.body)
            modulo = any(isinstance(n, ast.Mod) for n in ast.walk(node.test))
            if modulo and any(word in text for word in self.words):
                edit = unwrapped(source, node, node.body)
                if edit is not None:
                    yield Mutation((edit,))


def _guarded(line: str) -> tuple[tuple[str, str], ...]:
    head = (
        "import torch\n\n\ndef train(model, loader, optimizer):\n    for i, x in enumerate(loader):\n        loss = model(x.cuda())\n"
        "        loss.backward()\n        optimizer.step()\n"
    )
    return ((f"{head}        if i % 10 == 0:\n            {line}\n", f"{head}        {line}\n"),)


class ItemUnguarded(_Unguarded):
    rule = "item-every-step"
    words = (".item()", "float(")
    examples = _guarded("print(loss.item())")


class LogUnguarded(_Unguarded):
    rule = "tensor-logged-every-step"
    words = ("print(", "log", "add_scalar", "set_postfix", "set_description")
    examples = _guarded("print(loss)")


class SaveUnguarded(_Unguarded):
    rule = "synchronous-save-every-step"
    words = ("save",)
    examples = _guarded('torch.save(model.state_dict(), "last.pt")')


class CopyUnguarded(_Unguarded):
    rule = "host-copy-every-step"
    words = (".cpu()", ".numpy()", ".tolist()")
    examples = _guarded("history.append(loss.detach().cpu())")


class CacheUnguarded(_Unguarded):
    rule = "cache-cleared-every-step"
    words = ("empty_cache", "collect()")
    examples = _guarded("torch.cuda.empty_cache()")


class DetachTaken:
    """A sum of losses keeps their graphs: `.detach()` or `.item()` taken away."""

    rule = "metric-keeps-graph"
    examples = (
        (
            "import torch\n\n\ntotal = 0\nfor x in loader:\n    loss = model(x)\n    loss.backward()\n    optimizer.step()\n"
            "    total += loss.detach()\n",
            "import torch\n\n\ntotal = 0\nfor x in loader:\n    loss = model(x)\n    loss.backward()\n    optimizer.step()\n"
            "    total += loss\n",
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
                    yield Mutation((replace(source, call, source.source(kept)),))


class BackwardInAutocast:
    """The backward pass moves into the autocast region."""

    rule = "autocast-around-backward"
    examples = (
        (
            "import torch\n\n\nfor x in loader:\n    with torch.autocast('cuda', dtype=torch.bfloat16):\n        loss = model(x)\n"
            "    loss.backward()\n    optimizer.step()\n",
            "import torch\n\n\nfor x in loader:\n    with torch.autocast('cuda', dtype=torch.bfloat16):\n        loss = model(x)\n"
            "        loss.backward()\n    optimizer.step()\n",
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        regions = [n for n in source.index.of_type(ast.With) if "autocast" in source.source(n.items[0].context_expr)]
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


class CheckpointOnGpu:
    """`map_location` taken from `torch.load`."""

    rule = "checkpoint-loaded-on-gpu"
    examples = (
        (
            'import torch\n\n\ndef resume(path, model, opt):\n    data = torch.load(path, map_location="cpu")\n'
            '    model.cuda().load_state_dict(data["model"])\n    opt.load_state_dict(data["opt"])\n',
            "import torch\n\n\ndef resume(path, model, opt):\n    data = torch.load(path)\n"
            '    model.cuda().load_state_dict(data["model"])\n    opt.load_state_dict(data["opt"])\n',
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for call in source.calls_named("load"):
            value = keyword_of(call, "map_location")
            if value is None:
                continue
            edit = remove_keyword(source, call, "map_location")
            if edit is not None:
                yield Mutation((edit,))


class MovingAverageAllocates:
    """An update in place becomes one through temporary tensors."""

    rule = "ema-update-allocates"
    examples = (
        (
            "import torch\n\n\nfor p, q in zip(a.parameters(), b.parameters()):\n    p.data.mul_(m).add_(q.data, alpha=1 - m)\n",
            "import torch\n\n\nfor p, q in zip(a.parameters(), b.parameters()):\n    p.data = p.data * m + q.data * (1 - m)\n",
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for call in source.calls_named("add_"):
            inner, alpha = method_call(call, "add_"), keyword_of(call, "alpha")
            target = method_call(inner, "mul_") if inner is not None else None
            statement = source.index.statement_of(call)
            if target is None or alpha is None or not call.args or not isinstance(inner, ast.Call) or not inner.args:
                continue
            if isinstance(statement, ast.Expr) and statement.value is call:
                p, q, m = source.source(target), source.source(call.args[0]), source.source(inner.args[0])
                slow = f"{p} = {p} * {m} + {q} * ({source.source(alpha)})"
                if isinstance(target, ast.Name):
                    slow = f"{p}.copy_({p} * {m} + {q} * ({source.source(alpha)}))"
                yield Mutation((replace(source, statement, slow),))


class MapUnbatched:
    """`batched=True` taken from `Dataset.map`."""

    rule = "dataset-map-unbatched"
    examples = (
        (
            'from datasets import load_dataset\n\n\ndata = load_dataset("imdb")\n'
            'data = data.map(lambda row: tokenizer(row["text"]), batched=True)\n',
            'from datasets import load_dataset\n\n\ndata = load_dataset("imdb")\n'
            'data = data.map(lambda row: tokenizer(row["text"]))\n',
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for call in source.calls_named("map"):
            edit = remove_keyword(source, call, "batched")
            if edit is not None:
                yield Mutation((edit,))


class ArraysListed:
    """`np.array` or `np.stack` taken from around a list of arrays."""

    rule = "tensor-from-list-of-arrays"
    examples = (
        (
            "import numpy as np\nimport torch\n\n\ndef collate(items):\n    return torch.tensor(np.array([np.asarray(i) for i in items]))\n",
            "import numpy as np\nimport torch\n\n\ndef collate(items):\n    return torch.tensor([np.asarray(i) for i in items])\n",
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for name in ("tensor", "as_tensor", "from_numpy", "FloatTensor", "LongTensor", "Tensor"):
            for call in source.calls_named(name):
                inner = call.args[0] if call.args else None
                if not isinstance(inner, ast.Call) or not inner.args or not isinstance(inner.func, ast.Attribute):
                    continue
                if inner.func.attr in ("array", "stack", "asarray") and "np" in source.source(inner.func):
                    edits = [replace(source, inner, source.source(inner.args[0]))]
                    if name == "from_numpy" and isinstance(call.func, ast.Attribute):
                        edits.insert(0, replace(source, call.func, f"{source.source(call.func.value)}.tensor"))
                    yield Mutation(tuple(edits))
