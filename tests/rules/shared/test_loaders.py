"""Which loops read a loader, and what of the batch they hold."""

from __future__ import annotations

import ast
import textwrap

import pytest

from ptopt.rules.shared.loaders import batch_moves, batch_names, loader_of, makes_device_items, readings
from ptopt.source.file import SourceFile
from ptopt.source.repository import Repository

HEAD = "from torch.utils.data import DataLoader\n"


def _file(code: str) -> SourceFile:
    return SourceFile.parse("example.py", (HEAD + textwrap.dedent(code)).encode())


def _loader(file: SourceFile) -> ast.Call:
    return next(call for call in file.index.of_type(ast.Call) if loader_of(call, file) is not None)


@pytest.mark.parametrize(
    "code",
    [
        """
        loader = DataLoader(data)
        for batch in loader: pass
        """,
        """
        loader = DataLoader(data)
        bar = tqdm(enumerate(loader))
        for i, batch in bar: pass
        """,
        """
        def train(model, batches):
            for batch in batches: pass
        loader = DataLoader(data)
        train(model, loader)
        """,
        """
        class Trainer:
            def __init__(self):
                self.loader = DataLoader(data)
            def fit(self):
                for i, batch in enumerate(self.loader): pass
        """,
        """
        def build():
            test = None
            loader = DataLoader(data)
            return loader, test
        def main():
            first, second = build()
            for batch in first: pass
        """,
        """
        loader = DataLoader(data)
        def epoch():
            for batch in loader: pass
        """,
        """
        class Trainer:
            def __init__(self, model, batches):
                self.loader = batches
            def fit(self):
                for batch in self.loader: pass
        loader = DataLoader(data)
        Trainer(model, batches=loader).fit()
        """,
    ],
)
def test_the_loop_is_found(code: str) -> None:
    file = _file(code)
    assert [r.loop for r in readings(_loader(file), file)] == list(file.index.of_type(ast.For))


@pytest.mark.parametrize(
    "code",
    [
        """
        loader = DataLoader(data)
        def epoch(loader):
            for batch in loader: pass
        """,
        """
        loader = DataLoader(data)
        for batch in other: pass
        """,
        """
        def build():
            loader = DataLoader(data)
        for batch in loader: pass
        """,
    ],
)
def test_another_loop_is_not(code: str) -> None:
    file = _file(code)
    assert list(readings(_loader(file), file)) == []


def test_arguments_are_read_through_a_table_that_never_changes() -> None:
    file = _file("options = dict(num_workers=2)\nloader = DataLoader(data, 8, **options)")
    loader = loader_of(_loader(file), file)
    assert loader is not None
    assert loader.complete
    assert set(loader.arguments) == {"dataset", "batch_size", "num_workers"}


@pytest.mark.parametrize("change", ["options.update(more)", "options['pin_memory'] = True", "fill(options)"])
def test_a_table_that_may_change_is_not_trusted(change: str) -> None:
    file = _file(f"options = dict(num_workers=2)\n{change}\nloader = DataLoader(data, **options)")
    loader = loader_of(_loader(file), file)
    assert loader is not None
    assert not loader.complete


def test_parts_of_the_batch_are_followed() -> None:
    file = _file(
        "for i, batch in enumerate(loader):\n    x, y = batch\n    z = {k: v for k, v in batch.items()}\n    n = len(x)"
    )
    loop = next(file.index.of_type(ast.For))
    assert batch_names(loop) == {"batch", "x", "y", "k", "v"}


@pytest.mark.parametrize("made", ["Images(paths)", "Subset(Images(paths), kept)"])
@pytest.mark.parametrize(
    "item", ["torch.load(self.paths[i]).cuda()", "torch.load(self.paths[i]).to(self.device)"]
)
def test_items_lie_on_the_device_by_a_class_of_another_file(made: str, item: str) -> None:
    data = f"import torch\nclass Images:\n    def __getitem__(self, i):\n        return {item}\n"
    code = (
        "from torch.utils.data import DataLoader, Subset\nfrom data import Images\n"
        f"items = {made}\nloader = DataLoader(items, batch_size=8)\n"
    )

    def on_device(text: str) -> bool:
        around = Repository({"data.py": text.encode()})
        file = SourceFile.parse("train.py", code.encode(), repository=around)
        loaders = (loader_of(call, file) for call in file.index.of_type(ast.Call))
        (loader,) = (found for found in loaders if found is not None)
        return makes_device_items(loader, file)

    assert on_device(data)
    assert not on_device(data.replace(item, "torch.load(self.paths[i])"))


def test_moves_of_a_batch_are_those_of_its_own_loop() -> None:
    file = _file(
        """
        for batch in train_loader:
            x, y = batch
            a = x.to(device)
            for name in batch:
                b = batch[name].to(device)
            for batch in val_loader:
                x, y = batch
                c = x.to(device)
        """
    )
    outer, _, inner = file.index.of_type(ast.For)
    assert [move.call.lineno for move in batch_moves(outer, file)] == [5, 7]
    assert [move.call.lineno for move in batch_moves(inner, file)] == [10]
