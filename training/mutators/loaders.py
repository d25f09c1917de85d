"""Loaders that do not run ahead, and datasets that do too much for each item."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.findings import Edit
from ptopt.rules.code import keyword_of
from ptopt.source.file import SourceFile
from training.mutators.base import (
    Mutation,
    insert_before,
    is_known,
    need_import,
    pick,
    remove_keyword,
    replace,
)


class _KeywordTaken:
    """A keyword of the data loader is taken away."""

    keywords: tuple[str, ...]

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for call in source.calls_named("DataLoader"):
            for keyword in self.keywords:
                value, edit = keyword_of(call, keyword), remove_keyword(source, call, keyword)
                if edit is None or value is None:
                    continue
                literal = "4" if keyword == "num_workers" else "True"
                fast = () if isinstance(value, ast.Constant) else (replace(source, value, literal),)
                yield Mutation((edit,), fast=fast)


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
    examples = ((_LOADER.format(", num_workers=8, pin_memory=True"), _LOADER.format(", num_workers=8")),)


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
            (
                "from torch.utils.data import DataLoader\n\n\nloader = DataLoader(data, 64, num_workers=2, pin_memory=True)\n"
                "for x, y in loader:\n    x = x.cuda(non_blocking=True)\n    model(x).backward()\n    optimizer.step()\n"
            ),
            (
                "from torch.utils.data import DataLoader\n\n\nloader = DataLoader(data, 64, num_workers=2, pin_memory=True)\n"
                "for x, y in loader:\n    x = x.cuda()\n    model(x).backward()\n    optimizer.step()\n"
            ),
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
            (
                "from torch.utils.data import DataLoader\n\n\nfor epoch in range(9):\n    for x in train_loader:\n"
                "        model(x).backward()\n        optimizer.step()\n"
            ),
            (
                "from torch.utils.data import DataLoader\n\n\nfor epoch in range(9):\n"
                "    for x in DataLoader(train_loader.dataset, batch_size=train_loader.batch_size, shuffle=True, num_workers=4):\n"
                "        model(x).backward()\n        optimizer.step()\n"
            ),
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        imports = need_import(source, "DataLoader", "from torch.utils.data import DataLoader")
        for loop in source.index.of_type(ast.For):
            if next(source.index.loops_of(loop), None) is None:
                continue
            for node in ast.walk(loop.iter):
                name = source.source(node) if isinstance(node, (ast.Name, ast.Attribute)) else ""
                if "loader" not in name.lower():
                    continue
                made = (
                    f"DataLoader({name}.dataset, batch_size={name}.batch_size, shuffle=True, num_workers=4)"
                )
                outer = list(source.index.loops_of(loop))[-1]
                once = f"{name.rpartition('.')[2]}_shuffled"
                bound = any(
                    isinstance(n.ctx, ast.Store) and source.source(n) in (name, name.partition(".")[0])
                    for n in source.index.of_type(ast.Name, ast.Attribute)
                    if source.index.within(n, outer)
                )
                start = None if bound else insert_before(source, outer, f"{once} = {made}")
                fast = (*imports, start, replace(source, node, once)) if start is not None else ()
                yield Mutation((*imports, replace(source, node, made)), fast=fast, answered=bool(fast))
                break


class IteratorRebuilt:
    """`next(iterator)` becomes `next(iter(loader))`. Without an answer: each turn then has another batch."""

    rule = "loader-rebuilt-in-loop"
    examples = (
        (
            "import torch\n\n\nloader_iter = iter(train_loader)\nfor step in range(steps):\n    x = next(loader_iter)\n    model(x).backward()\n    optimizer.step()\n",
            "import torch\n\n\nloader_iter = iter(train_loader)\nfor step in range(steps):\n    x = next(iter(train_loader))\n    model(x).backward()\n    optimizer.step()\n",
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for call in source.calls_named("next"):
            name = source.source(call.args[0]) if len(call.args) == 1 else ""
            if (
                isinstance(call.func, ast.Name)
                and ("load" in name or "data" in name)
                and name.replace(".", "").isidentifier()
            ):
                loader = next(
                    (n for n in ("train_loader", "loader", "self.train_loader") if is_known(source, n, call)),
                    "",
                )
                if loader:
                    yield Mutation((replace(source, call.args[0], f"iter({loader})"),), answered=False)


class MapUnbatched:
    """`batched=True` taken from `Dataset.map`."""

    rule = "dataset-map-unbatched"
    examples = (
        (
            (
                'from datasets import load_dataset\n\n\ndata = load_dataset("imdb")\n'
                'data = data.map(lambda row: tokenizer(row["text"]), batched=True)\n'
            ),
            (
                'from datasets import load_dataset\n\n\ndata = load_dataset("imdb")\n'
                'data = data.map(lambda row: tokenizer(row["text"]))\n'
            ),
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
                if (
                    not isinstance(inner, ast.Call)
                    or not inner.args
                    or not isinstance(inner.func, ast.Attribute)
                ):
                    continue
                if inner.func.attr in ("array", "stack", "asarray") and "np" in source.source(inner.func):
                    edits = [replace(source, inner, source.source(inner.args[0]))]
                    if name == "from_numpy" and isinstance(call.func, ast.Attribute):
                        edits.insert(
                            0, replace(source, call.func, f"{source.source(call.func.value)}.tensor")
                        )
                    yield Mutation(tuple(edits))


class DeviceMoveInDataset:
    """A dataset item or a collated batch is moved to the device. Without an answer: the move belongs into the loop."""

    rule = "device-move-in-dataset"
    examples = (
        (
            (
                "import torch\n\n\nclass Images(torch.utils.data.Dataset):\n    def __getitem__(self, i):\n"
                "        return torch.from_numpy(self.images[i])\n"
            ),
            (
                "import torch\n\n\nclass Images(torch.utils.data.Dataset):\n    def __getitem__(self, i):\n"
                "        return torch.from_numpy(self.images[i]).cuda()\n"
            ),
        ),
    )
    names = (
        "from_numpy",
        "tensor",
        "as_tensor",
        "stack",
        "cat",
        "FloatTensor",
        "LongTensor",
        "pad_sequence",
        "Tensor",
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for name in self.names:
            for call in source.calls_named(name):
                made = (
                    source.imports.qualified(call.func).startswith("torch.")
                    and keyword_of(call, "device") is None
                )
                if made and source.context.is_item_code(call) is not None:
                    _, end = source.bounds(call)
                    named = [n for n in ("self.device", "device") if is_known(source, n, call)]
                    move = pick((".cuda()", *(f".to({n})" for n in named)), source, end)
                    yield Mutation((Edit(end, end, move),), answered=False)
