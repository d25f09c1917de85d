from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import ClassVar

from ptopt.rules.base import (
    Benchmark,
    Edit,
    Evidence,
    Fix,
    Invalid,
    Problem,
    Rule,
    Safety,
    Severity,
    SourceFile,
)
from ptopt.rules.code import add_keyword, keyword_of, method_call
from ptopt.rules.data._epochs import epoch_loop
from ptopt.rules.shared.loaders import hands_out, has_workers, is_for_evaluation, loader_of, readings
from ptopt.source.index import Loop

# Workers keep the copy of the dataset they were started with: a dataset that changes must restart them.
_DATASET_CHANGES = re.compile(
    r"data(?:(?<=\bdata)set\.\w+ *=[^=]|\w*\.(?:set_epoch|set_\w+|resample\w*|reset\w*|update\w*|shuffle|regenerate\w*|refresh\w*|add|"
    r"append|extend|next_\w+|step\w*|collect)\()"
)
# What prepares the dataset of a loader for the next epoch: kept workers hold their own copy.
_CHANGED_ELSEWHERE = re.compile(
    rb"dataset\.\w*(set_epoch|new_epoch|sample_new|resample|reshuffle)\w*\(|getattr\([\w.]*\.dataset,"
)


class WorkersRestartedEachEpoch(Rule):
    """The worker processes of a loader are stopped and started again for each epoch.

    ## What it does
    Finds `DataLoader(...)` with workers and without `persistent_workers=True` that is read once an epoch, or that is handed
    to others (`train_dataloader`) or kept in an attribute. A dataset that changes between epochs keeps it quiet: workers
    would not see the change.

    ## Why it is slow
    Each epoch starts with forking (or spawning) the workers, sending them the dataset and filling the first batches, while
    the GPU is idle. The shorter the epoch, the more it counts.

    ## When this is wrong
    When epochs are long, when the dataset changes between epochs, or when the host is short of memory.

    ## Fix safety
    Unsafe: workers keep their state, and their random seeds, from one epoch to the next.

    ## Sources
    - [PyTorch documentation: torch.utils.data.DataLoader, persistent_workers](https://docs.pytorch.org/docs/stable/data.html)
    """

    id = "PTO303"
    name = "workers-restarted-each-epoch"
    family = "data"
    severity = Severity.LOW
    triggers = ("num_workers",)
    requires = ("DataLoader",)
    since: ClassVar[Mapping[str, str]] = {"torch": "1.7"}
    nodes = (ast.Call, ast.Dict)
    when_wrong = "epochs last minutes, or the dataset changes between epochs"
    BENCHMARK = Benchmark(
        setup=(
            "import torch\n"
            "from torch.utils.data import DataLoader, TensorDataset\n"
            "dataset = TensorDataset(torch.arange(64.0))\n"
            "restarted = DataLoader(dataset, batch_size=16, num_workers=1, multiprocessing_context='fork')\n"
            "kept = DataLoader(dataset, batch_size=16, num_workers=1, persistent_workers=True,\n"
            "                  multiprocessing_context='fork')\n"
        ),
        before="result = torch.cat([x for (x,) in restarted])",
        after="result = torch.cat([x for (x,) in kept])",
        scope="an epoch of 4 batches, where nearly all time is the start of the worker",
        sizes="64 numbers, 1 worker",
    )

    VALID = (
        """
        loader = DataLoader(dataset, batch_size=64, num_workers=4, persistent_workers=True)
        for epoch in range(100):
            for images in loader:
                model(images).mean().backward()
                optimizer.step()
        """,
        """
        loader = DataLoader(dataset, batch_size=64, num_workers=4)
        for images in loader:
            model(images).mean().backward()
            optimizer.step()
        """,
        """
        loader = DataLoader(dataset, batch_size=64, num_workers=4)
        for epoch in range(100):
            loader.dataset.resample(epoch)
            for images in loader:
                model(images).mean().backward()
                optimizer.step()
        """,
        """
        for epoch in range(100):
            loader = DataLoader(stage_data(epoch), batch_size=64, num_workers=4)
            for images in loader:
                model(images).mean().backward()
                optimizer.step()
        """,
    )
    INVALID = (
        Invalid("""
            loader = DataLoader(dataset, batch_size=64, num_workers=4)  # !
            # + loader = DataLoader(dataset, batch_size=64, num_workers=4, persistent_workers=True)
            for epoch in range(100):
                for images in loader:
                    model(images).mean().backward()
                    optimizer.step()
        """),
        Invalid("""
            def train(model, loader):
                for images in loader:
                    model(images).mean().backward()
                    optimizer.step()

            loader = DataLoader(  # !
                dataset,
                num_workers=2,
                # + num_workers=2,
                # + persistent_workers=True,
            )
            for epoch in range(1, epochs + 1):
                train(model, loader)
        """),
        Invalid("""
            import torch

            def train(model, loader, optimizer, epoch):
                for images, labels in loader:
                    criterion(model(images), labels).backward()
                    optimizer.step()

            def main():
                train_options = {"batch_size": 64}
                if use_cuda:
                    cuda_options = {"num_workers": 1, "pin_memory": True, "shuffle": True}  # !
                    # + cuda_options = {"num_workers": 1, "pin_memory": True, "shuffle": True, "persistent_workers": True}
                    train_options.update(cuda_options)
                loader = torch.utils.data.DataLoader(data, **train_options)
                for epoch in range(1, 15):
                    train(model, loader, optimizer, epoch)
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if isinstance(node, ast.Dict):
            call, fix = _unpacked_into(node, file), _dict_fix(node, file)
            workers = None
        else:
            call, fix = _restarting_loader(node, file), None
            workers = None if call is None else keyword_of(call, "num_workers")
            if call is not None:
                fix = _keyword_fix(file, call, workers)
        if call is None or fix is None or file.search(_DATASET_CHANGES):
            return
        if file.repository.matches(_CHANGED_ELSEWHERE, having=b".dataset", besides=file.path):
            return
        facts = {
            "workers_written": float(_has_workers(workers)),
            "evaluates": float(is_for_evaluation(call, file)),
        }
        found = list(readings(call, file))
        for reading in found:
            loop = epoch_loop(reading, file)
            if loop is None or file.index.within(call, loop):
                continue
            trains = file.context.training_step(reading.loop.body[0]) is not None
            sure = trains and (workers is None or _has_workers(workers)) and not file.is_notebook
            yield _problem(node, loop, fix, 0.65 if sure else 0.45, {**facts, "trains": float(trains)})
            return
        handed_out = hands_out(call, file) is not None or _is_kept(call, file)
        if not found and handed_out and not any(True for _ in file.index.loops_of(call)):
            yield _problem(node, None, fix, 0.4, facts)


def _problem(
    node: ast.AST, epochs: Loop | None, fix: Edit, confidence: float, facts: dict[str, float]
) -> Problem:
    where = (
        f"each epoch of the loop at line {epochs.lineno}" if epochs is not None else "each pass over the data"
    )
    return Problem(
        node,
        f"The workers of this loader are stopped and started again for {where}. `persistent_workers=True` keeps them.",
        confidence,
        (Evidence(epochs.lineno, "the loop over epochs"),) if epochs is not None else (),
        Fix(Safety.UNSAFE, (fix,), "the dataset does not change between epochs"),
        facts=facts,
    )


def _is_kept(call: ast.Call, file: SourceFile) -> bool:
    """Is the loader stored in an attribute?"""
    parent = file.index.parent(call)
    return isinstance(parent, ast.Assign) and any(isinstance(t, ast.Attribute) for t in parent.targets)


def _keyword_fix(file: SourceFile, call: ast.Call, workers: ast.expr | None) -> Edit | None:
    """`persistent_workers=True` is an error without workers: a number that is not written here is asked."""
    if _has_workers(workers):
        return add_keyword(file, call, "persistent_workers=True")
    if isinstance(workers, (ast.Name, ast.Attribute)):
        return add_keyword(file, call, f"persistent_workers={file.source(workers)} > 0")
    return None


def _has_workers(workers: ast.expr | None) -> bool:
    """Is it a written number of workers? `persistent_workers=True` is an error with none."""
    return isinstance(workers, ast.Constant) and isinstance(workers.value, int) and workers.value > 0


def _restarting_loader(node: ast.AST, file: SourceFile) -> ast.Call | None:
    loader = loader_of(node, file)
    if loader is None or not loader.complete or not any(k.arg == "num_workers" for k in loader.call.keywords):
        return None
    return loader.call if has_workers(loader) and "persistent_workers" not in loader.arguments else None


def _unpacked_into(table: ast.Dict, file: SourceFile) -> ast.Call | None:
    """The loader that is built with `**name`, where `name` is this table, or was updated with it."""
    keys = {k.value: v for k, v in zip(table.keys, table.values, strict=True) if isinstance(k, ast.Constant)}
    if not _has_workers(keys.get("num_workers")) or "persistent_workers" in keys:
        return None
    assign = file.index.parent(table)
    if not isinstance(assign, ast.Assign) or not isinstance(assign.targets[0], ast.Name):
        return None
    names = {assign.targets[0].id}
    calls = file.calls.calls_in(file.index.function_of(table))
    for call in calls:
        updated = method_call(call, "update")
        if isinstance(updated, ast.Name) and any(
            isinstance(a, ast.Name) and a.id in names for a in call.args
        ):
            names.add(updated.id)
    for call in calls:
        unpacked = {k.value.id for k in call.keywords if k.arg is None and isinstance(k.value, ast.Name)}
        if (
            unpacked & names
            and loader_of(call, file) is not None
            and not any(k.arg == "persistent_workers" for k in call.keywords)
        ):
            return call
    return None


def _dict_fix(table: ast.Dict, file: SourceFile) -> Edit | None:
    """Adds the key after the last one, on a line of its own where the table has one key a line."""
    if not table.keys or table.keys[-1] is None:
        return None
    key = table.keys[-1]
    quoted = file.source(key)[0]
    at = file.bounds(table.values[-1])[1]
    apart = len(table.keys) > 1 and key.lineno != table.values[-2].end_lineno
    gap = "\n" + " " * key.col_offset if apart else " "
    return Edit(at, at, f",{gap}{quoted}persistent_workers{quoted}: True")
