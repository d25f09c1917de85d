from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import ClassVar

from ptopt.rules.base import Benchmark, Evidence, Invalid, Problem, Rule, Severity, SourceFile
from ptopt.rules.code import is_call_of, quote
from ptopt.rules.data._epochs import is_epoch_loop
from ptopt.rules.shared.loaders import LOADER_NAMES, loader_of
from ptopt.source.file import remembered
from ptopt.source.frequency import Often
from ptopt.source.index import FUNCTIONS, Loop, own_nodes, walk

_LOADER_NAME = re.compile(r"loader", re.I)


class LoaderRebuiltInLoop(Rule):
    """A data loader, or its iterator, is made again for each epoch or each batch.

    ## What it does
    Finds `DataLoader(...)` in a loop, or in a function that runs once an epoch or more often, when none of its arguments
    changes there, and `next(iter(loader))` in what repeats.

    ## Why it is slow
    Each new iterator starts its worker processes, draws a new permutation and waits for the first batch.
    `next(iter(loader))` in a loop pays all of that for one batch, and reads the other prefetched batches in vain.

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
    partly: ClassVar[frozenset[str]] = frozenset({"persistent_workers"})
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
        Invalid("""
            for step in range(steps):
                images, labels = next(iter(train_loader))  # !
                criterion(model(images), labels).backward()
                optimizer.step()
        """),
        Invalid("""
            for epoch in range(epochs):
                loader = DataLoader(dataset, batch_size=64, shuffle=True, num_workers=4)  # !
                for images in loader:
                    model(images).mean().backward()
                    optimizer.step()
        """),
        Invalid("""
            class Trainer:
                def fit(self):
                    for epoch in range(self.epochs):
                        for images in DataLoader(self.data, batch_size=self.batch_size, num_workers=2):  # !
                            self.model(images).mean().backward()
                            self.optimizer.step()
        """),
    )

    def candidates(self, file: SourceFile) -> list[ast.AST]:
        return [call for name in ("next", *LOADER_NAMES) for call in file.calls_named(name)]

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if is_call_of(node, "next"):
            yield from _fresh_iterator(node, file)
        elif isinstance(node, ast.Call) and loader_of(node, file) is not None:
            yield from _rebuilt(node, file)


def _fresh_iterator(node: ast.Call, file: SourceFile) -> Iterator[Problem]:
    made = node.args[0] if node.args else None
    if not is_call_of(made, "iter") or len(made.args) != 1:
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
    loop = next(file.index.loops_of(node), None)
    frequency = file.frequencies.of(node)
    if frequency.often < Often.EVALUATION or (loop is not None and name in _touched(loop, file)):
        return
    mark = file.context.step_mark(loop) if loop is not None else None
    sure = loop is not None and mark is not None and not is_epoch_loop(loop, file)
    where = (
        f"on every step of the loop at line {loop.lineno}" if sure and loop is not None else frequency.reason
    )
    yield Problem(
        node,
        f"{quote(file, node)} starts a new pass over the loader, workers and shuffling included, for its first batch, "
        f"{where}. Keep one iterator outside of the loop and renew it on `StopIteration`.",
        0.8 if sure else 0.5,
        (Evidence(frequency.line, "what repeats it"),) if frequency.line else (),
        cause=loop,
        facts={"trains": float(mark is not None)},
    )


def _rebuilt(node: ast.Call, file: SourceFile) -> Iterator[Problem]:
    frequency = file.frequencies.of(node)
    loops = list(file.index.loops_of(node))
    loop = next((inner for inner in loops if is_epoch_loop(inner, file)), loops[0] if loops else None)
    if frequency.often < Often.EPOCH:
        return
    touched = _touched(loop, file) if loop is not None else _parameters(node, file)
    for part in walk(node):
        if part is node.func or not isinstance(part, (ast.Name, ast.Attribute)):
            continue
        if (part.id if isinstance(part, ast.Name) else part.attr) in touched:
            return
    made = any(isinstance(n, ast.Call) and n is not node for n in walk(node))
    sure = loop is not None and is_epoch_loop(loop, file) and _trains(loop, file) and not made
    kept = (
        ", where `persistent_workers=True` can keep its workers too"
        if file.facts.has("persistent_workers")
        else ""
    )
    if loop is not None:
        message = (
            f"None of the arguments changes in the loop at line {loop.lineno}, but the loader is built anew in each "
            f"iteration. Build it once before the loop{kept}."
        )
    else:
        message = (
            f"This loader is built anew {frequency.reason}, with a new permutation and, if it has workers, new processes. "
            f"Build it once and keep it{kept}."
        )
    yield Problem(
        node,
        message,
        0.7 if sure else 0.4,
        (Evidence(frequency.line, "what repeats it"),) if frequency.line else (),
        cause=loop,
        facts={"in_loop": float(loop is not None), "makes_dataset": float(made)},
    )


def _parameters(node: ast.Call, file: SourceFile) -> frozenset[str]:
    """What differs from call to call of the function around the loader: its parameters, and what it binds."""
    function = file.index.function_of(node)
    if function is None:
        return frozenset()
    given = {arg.arg for arg in [*function.args.args, *function.args.kwonlyargs]} - {"self"}
    return frozenset(given) | _touched(function, file, deep=False)


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
