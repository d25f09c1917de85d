from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import Benchmark, Evidence, Invalid, Problem, Rule, Severity, SourceFile, quote
from ptopt.rules.data._epochs import is_epoch_loop
from ptopt.rules.shared.loaders import loader_of
from ptopt.source.file import remembered
from ptopt.source.index import FUNCTIONS, Loop, own_nodes, walk

_LOADER_NAME = re.compile(r"loader", re.I)


class LoaderRebuiltInLoop(Rule):
    """A data loader, or its iterator, is made again for each epoch or each batch.

    ## What it does
    Finds `DataLoader(...)` in a loop over epochs when none of its arguments changes in the loop, and
    `next(iter(loader))` in a training loop.

    ## Why it is slow
    Each new iterator starts its worker processes, draws a new permutation and waits for the first batch.
    `next(iter(loader))` in a loop pays all of that for one batch, and reads the other prefetched batches in vain.

    ## When this is wrong
    When the dataset is changed in the loop in a way that cannot be seen from here.

    ## Example
    ```python
    for step in range(steps):
        images, labels = next(iter(loader))
    ```

    ## Use instead
    ```python
    batches = iter(loader)
    for step in range(steps):
        try:
            images, labels = next(batches)
        except StopIteration:
            batches = iter(loader)
            images, labels = next(batches)
    ```

    ## Fix safety
    No fix: the iterator has to live outside of the loop, and be renewed when it is exhausted.

    ## Sources
    - [PyTorch documentation: data loading order and iteration](https://docs.pytorch.org/docs/stable/data.html)
    """

    id = "PTO304"
    name = "loader-rebuilt-in-loop"
    family = "data"
    severity = Severity.HIGH
    triggers = ("DataLoader(", "next(iter(")
    nodes = (ast.Call,)
    when_wrong = "the dataset is changed in the loop in a way that cannot be seen from here"
    BENCHMARK = Benchmark(
        setup=(
            "import torch\n"
            "from torch.utils.data import DataLoader, TensorDataset\n"
            "loader = DataLoader(TensorDataset(torch.zeros(100_000)), batch_size=512, shuffle=True)\n"
            "def endless():\n"
            "    while True:\n"
            "        yield from loader\n"
            "kept = endless()\n"
        ),
        before="(result,) = next(iter(loader))",
        after="(result,) = next(kept)",
        scope="getting one batch of 512, without workers",
        sizes="100,000 items, so that the permutation counts",
    )

    VALID = (
        """
        loader = DataLoader(dataset, batch_size=64)
        for epoch in range(10):
            for images in loader:
                model(images).mean().backward()
                optimizer.step()
        """,
        """
        for epoch in range(10):
            loader = DataLoader(stages[epoch], batch_size=64)
            for images in loader:
                model(images).mean().backward()
                optimizer.step()
        """,
        """
        for epoch in range(10):
            buffer.collect(env)
            for images in DataLoader(buffer, batch_size=64):
                model(images).mean().backward()
                optimizer.step()
        """,
        """
        sample = next(iter(loader))
        for images in loader:
            model(images).mean().backward()
            optimizer.step()
        """,
    )
    INVALID = (
        Invalid(
            """
            for step in range(steps):
                images, labels = next(iter(train_loader))  # !
                criterion(model(images), labels).backward()
                optimizer.step()
            """
        ),
        Invalid(
            """
            for epoch in range(epochs):
                loader = DataLoader(dataset, batch_size=64, shuffle=True, num_workers=4)  # !
                for images in loader:
                    model(images).mean().backward()
                    optimizer.step()
            """
        ),
        Invalid(
            """
            class Trainer:
                def fit(self):
                    for epoch in range(self.epochs):
                        for images in DataLoader(self.data, batch_size=self.batch_size, num_workers=2):  # !
                            self.model(images).mean().backward()
                            self.optimizer.step()
            """
        ),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "next":
            yield from _fresh_iterator(node, file)
        elif isinstance(node, ast.Call) and loader_of(node, file) is not None:
            yield from _rebuilt(node, file)


def _fresh_iterator(node: ast.Call, file: SourceFile) -> Iterator[Problem]:
    made = node.args[0] if node.args else None
    if not (
        isinstance(made, ast.Call)
        and isinstance(made.func, ast.Name)
        and made.func.id == "iter"
        and len(made.args) == 1
    ):
        return
    loader = made.args[0]
    name = (
        loader.id
        if isinstance(loader, ast.Name)
        else loader.attr
        if isinstance(loader, ast.Attribute)
        else ""
    )
    if not _LOADER_NAME.search(name) and file.values.of(loader).kind != "loader":
        return
    for loop in file.index.loops_of(node):
        mark = file.context.step_mark(loop)
        if mark is None:
            continue
        if (
            is_epoch_loop(loop, file)
            or name in _touched(loop, file)
            or file.context.rare_guard(node, loop) is not None
        ):
            return
        yield Problem(
            node,
            f"{quote(file, node)} starts a new pass over the loader, workers and shuffling included, for its first batch, on "
            f"every step of the loop at line {loop.lineno}. Keep one iterator outside of the loop and renew it on `StopIteration`.",
            0.8,
            (Evidence(loop.lineno, "the training loop"),),
            cause=loop,
        )
        return


def _rebuilt(node: ast.Call, file: SourceFile) -> Iterator[Problem]:
    loops = list(file.index.loops_of(node))
    loop = next((inner for inner in loops if is_epoch_loop(inner, file)), None)
    if loop is None or file.context.rare_guard(node, loop) is not None:
        return
    touched = _touched(loop, file)
    for part in walk(node):
        if part is node.func or not isinstance(part, (ast.Name, ast.Attribute)):
            continue
        if (part.id if isinstance(part, ast.Name) else part.attr) in touched:
            return
    if any(isinstance(n, ast.Call) and n is not node for n in walk(node)) or not _trains(loop, file):
        return
    yield Problem(
        node,
        f"None of the arguments changes in the loop over epochs at line {loop.lineno}, but the loader is built anew for each. "
        "Build it once before the loop, where `persistent_workers=True` can keep its workers too.",
        0.7,
        (Evidence(loop.lineno, "the loop over epochs"),),
        cause=loop,
    )


@remembered
def _trains(loop: Loop, file: SourceFile) -> bool:
    return any(isinstance(n, ast.Call) and file.context.is_training_mark(n) for n in own_nodes(loop))


@remembered
def _touched(loop: ast.AST, file: SourceFile, deep: bool = True) -> frozenset[str]:
    """Names and attributes that the code binds, and those whose methods it calls: they may be different each time.

    Functions of the file that it calls are looked into once.
    """
    names: set[str] = set()
    for node in walk(loop):
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
            names.add(node.id if isinstance(node, ast.Name) else node.attr)
        elif isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute):
                base = node.func.value
                names.add(
                    base.id
                    if isinstance(base, ast.Name)
                    else base.attr
                    if isinstance(base, ast.Attribute)
                    else ""
                )
            target = file.calls.resolve(node) if deep else None
            if target is not None:
                names |= _touched(target, file, deep=False)
        elif isinstance(node, FUNCTIONS) and node is not loop:
            names.add(node.name)
    return frozenset(names - {"self"})
