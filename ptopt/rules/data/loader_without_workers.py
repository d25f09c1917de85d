from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import TEXTBOOK, Benchmark, Evidence, Fix, Invalid, Problem, Rule, Safety, SourceFile
from ptopt.rules.code import add_keyword, is_literal, replace_node
from ptopt.rules.shared.flow import runs_network
from ptopt.rules.shared.item_work import ItemWork, in_memory, item_work
from ptopt.rules.shared.loaders import (
    Loader,
    is_for_evaluation,
    loader_of,
    makes_device_items,
    readings,
)
from ptopt.source.index import FUNCTIONS, FunctionNode, own_nodes, walk

_MOST_OTHERS = 3  # loaders that are looked at beside one


class LoaderWithoutWorkers(Rule):
    """A training loader reads, decodes or transforms its items in the training process.

    ## What it does
    Finds `DataLoader(...)` without `num_workers` (or with 0). Surest where a training loop of the same file reads it and
    its dataset reads files, decodes, transforms or tokenises for each item. Data sets that lie in memory are left alone.

    ## Why it is slow
    With no workers the items of a batch are prepared one after the other, between two steps, while the GPU is idle.
    Worker processes prepare the next batches during the step.

    ## When this is wrong
    When the items are cheap (workers then cost more than they bring), when the script runs where processes start
    slowly (Windows, notebooks), or when the dataset cannot be sent to another process.

    ## Example
    ```python
    loader = DataLoader(ImageFolder(root, transform), batch_size=64, shuffle=True)
    ```

    ## Use instead
    ```python
    loader = DataLoader(ImageFolder(root, transform), batch_size=64, shuffle=True, num_workers=4)
    ```

    ## Fix safety
    Unsafe: items are prepared in other processes, with other random states, and need memory and cores there.

    ## Sources
    - [PyTorch performance tuning guide: enable async data loading and augmentation](https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html)
    - [PyTorch documentation: single- and multi-process data loading](https://docs.pytorch.org/docs/stable/data.html)
    """

    id = "PTO301"
    name = "loader-without-workers"
    family = "data"
    triggers = ("DataLoader(",)
    nodes = (ast.Call,)
    when_wrong = (
        "an item costs less than a millisecond, or processes start slowly where the script runs (Windows)"
    )
    BENCHMARK = Benchmark(
        setup=(
            "import time\n"
            "import torch\n"
            "from torch.utils.data import DataLoader, Dataset\n"
            "class Stored(Dataset):\n"
            "    def __len__(self):\n"
            "        return 16\n"
            "    def __getitem__(self, i):\n"
            "        time.sleep(0.002)\n"
            "        return torch.full((3, 32, 32), float(i))\n"
            "alone = DataLoader(Stored(), batch_size=4)\n"
            "helped = DataLoader(Stored(), batch_size=4, num_workers=2, persistent_workers=True,\n"
            "                    multiprocessing_context='fork')\n"
        ),
        before="result = torch.cat(list(alone))",
        after="result = torch.cat(list(helped))",
        scope="reading an epoch, with no training step to hide behind",
        sizes="16 items of 3x32x32 that wait 2 ms for storage each, 2 workers",
    )

    VALID = (
        """
        from torch.utils.data import DataLoader

        def to_device(items):
            return torch.stack(items).cuda()

        def main(dataset, model, optimizer):
            loader = DataLoader(dataset, batch_size=8, collate_fn=to_device)
            for x in loader:
                loss = model(x.to("cuda"))
                loss.backward()
                optimizer.step()
        """,
        """
        from torch.utils.data import DataLoader

        class Images(Dataset):
            def __init__(self, paths):
                self.paths = paths

            def __getitem__(self, i):
                return torch.load(self.paths[i]).cuda()

        def main(paths, model, optimizer):
            loader = DataLoader(Images(paths), batch_size=8, shuffle=True)
            for x, y in loader:
                loss = model(x.to("cuda"), y.to("cuda"))
                loss.backward()
                optimizer.step()
        """,
        """
        loader = DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=64, shuffle=True)
        for images, labels in loader:
            loss = criterion(model(images.to(device)), labels.to(device))
            loss.backward()
            optimizer.step()
        """,
        """
        class Rows(Dataset):
            def __init__(self, path):
                self.rows = np.load(path)

            def __getitem__(self, i):
                return torch.from_numpy(self.rows[i])

        for rows in DataLoader(Rows("rows.npy"), batch_size=64):
            loss = model(rows)
            loss.backward()
            optimizer.step()
        """,
        """
        import torch
        import torchvision
        loader = torch.utils.data.DataLoader(torchvision.datasets.ImageFolder(root, transform), num_workers=args.workers)
        for images, labels in loader:
            criterion(model(images), labels).backward()
            optimizer.step()
        """,
        """
        class Images(Dataset):
            def __getitem__(self, i):
                return self.transform(Image.open(self.paths[i]))

        loader = DataLoader(Images(), **loader_options)
        for images in loader:
            model(images).mean().backward()
            optimizer.step()
        """,
    )
    INVALID = (
        Invalid("""
            class Images(Dataset):
                def __getitem__(self, i):
                    return self.transform(Image.open(self.paths[i]))

            loader = DataLoader(Images(), batch_size=64, shuffle=True)  # !
            # + loader = DataLoader(Images(), batch_size=64, shuffle=True, num_workers=4)
            for images in loader:
                loss = model(images.to(device)).mean()
                loss.backward()
                optimizer.step()
        """),
        Invalid("""
            import torch
            from torchvision import datasets

            def train(model, loader, optimizer):
                for images, labels in loader:
                    criterion(model(images.cuda()), labels.cuda()).backward()
                    optimizer.step()

            def main():
                data = datasets.ImageFolder("train", transform)
                loader = torch.utils.data.DataLoader(data, batch_size=64, num_workers=0)  # !
                # + loader = torch.utils.data.DataLoader(data, batch_size=64, num_workers=4)
                for epoch in range(10):
                    train(model, loader, optimizer)
        """),
        Invalid("""
            import torch
            from datasets import load_dataset

            dataset = load_dataset(name, split="train")
            dataset.set_transform(augment)
            loader = torch.utils.data.DataLoader(  # !
                dataset,
                batch_size=16,
                # + batch_size=16,
                # + num_workers=4,
            )
            for batch in loader:
                accelerator.backward(model(batch["input"]).mean())
                optimizer.step()
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        loader = loader_of(node, file)
        if loader is None or not loader.complete or file.is_notebook:
            return
        workers = loader.arguments.get("num_workers")
        dataset = loader.arguments.get("dataset")
        if dataset is None or not (workers is None or _is_zero(workers)) or is_literal(dataset, None):
            return
        if makes_device_items(loader, file):
            return  # a worker process must not touch the device of its parent
        work = item_work(dataset, file)
        if work is None and in_memory(dataset, file) and "collate_fn" not in loader.arguments:
            return
        loops = [reading.loop for reading in readings(loader.call, file)]
        trained = next((loop for loop in loops if file.context.training_step(_first(loop))), None)
        if loops and trained is None and not any(_runs_network(loop, file) for loop in loops):
            return  # nothing on the device to overlap with
        loop = trained or (loops[0] if loops else None)
        sure = work is not None and trained is not None
        what = (
            f"For each item {work.words} (line {work.line}), and"
            if work is not None
            else "Items are made one by one:"
        )
        where = "in the main process"
        if loop is not None:
            where += f", between the {'steps' if trained else 'batches'} of the loop at line {loop.lineno}"
        others = _same_items(loader, work, file) if work is not None else []
        too = (
            f" The loader at line {others[0]} reads the same kind of items: give it workers, too."
            if others
            else ""
        )
        yield Problem(
            node,
            f"{what} without workers this runs {where}. Start with `num_workers=4` and raise it while the GPU waits.{too}",
            TEXTBOOK
            if _decodes_to_train(loader, work, workers) and (trained is not None or not loops)
            else _confidence(work, workers)
            if sure and work is not None
            else 0.35
            if work is None or loops
            else 0.45,
            (Evidence(work.line, "work for each item"),) if work is not None else (),
            _fix(loader, workers, file) if loops and _can_be_sent(loader, file) else None,
            at=_first(loop) if loop is not None else None,
            facts={
                "item_work": {"heavy": 3.0, "light": 2.0, "toy": 1.0}[work.weight]
                if work is not None
                else 0.0,
                "reads_files": float(work is not None and work.weight == "heavy"),
                "written_zero": float(workers is not None),
                "trains": float(trained is not None),
                "evaluates": float(is_for_evaluation(loader.call, file)),
                "collates": float("collate_fn" in loader.arguments),
            },
        )


def _same_items(loader: Loader, work: ItemWork, file: SourceFile) -> list[int]:
    """Lines of other loaders of the function without workers, whose items are made by the same code."""
    lines = file.once(_without_workers).get((file.index.function_of(loader.call), work), [])
    return [line for line in lines[:_MOST_OTHERS] if line != loader.call.lineno]


def _without_workers(file: SourceFile) -> dict[tuple[FunctionNode | None, ItemWork], list[int]]:
    """Function and work for each item -> the lines of the loaders there."""
    table: dict[tuple[FunctionNode | None, ItemWork], list[int]] = {}
    for call in file.index.of_type(ast.Call):
        loader = loader_of(call, file)
        dataset = loader.arguments.get("dataset") if loader is not None and loader.complete else None
        if loader is None or dataset is None:
            continue
        workers = loader.arguments.get("num_workers")
        work = item_work(dataset, file) if workers is None or _is_zero(workers) else None
        if work is not None:
            table.setdefault((file.index.function_of(call), work), []).append(call.lineno)
    return table


def _decodes_to_train(loader: Loader, work: ItemWork | None, workers: ast.expr | None) -> bool:
    """Does a shuffled loader, for which nobody chose a number of workers, read and decode an image file for each item?"""
    decodes = work is not None and "reads and decodes" in work.words
    return decodes and workers is None and is_literal(loader.arguments.get("shuffle"), True)


def _runs_network(loop: ast.For, file: SourceFile) -> bool:
    """Does its body run a network, or call a function of the repository that does?"""
    calls = [node for node in walk(loop) if isinstance(node, ast.Call)]
    if any(runs_network(call, file) for call in calls):
        return True
    called = (file.definition_of(call) for call in calls)
    return any(
        runs_network(call, other)
        for other, function in filter(None, called)
        for call in other.calls.calls_in(function)
    )


def _first(loop: ast.For) -> ast.AST:
    return loop.body[0]


def _is_zero(workers: ast.expr) -> bool:
    return isinstance(workers, ast.Constant) and workers.value == 0


def _confidence(work: ItemWork, workers: ast.expr | None) -> float:
    sure = {"heavy": 0.8, "light": 0.65, "toy": 0.55}[work.weight]
    return sure if workers is None else sure - 0.1  # a written 0 may be deliberate


def _can_be_sent(loader: Loader, file: SourceFile) -> bool:
    """Can the function that joins a batch go to a worker process? A lambda or a local function cannot where it is pickled."""
    collate = loader.arguments.get("collate_fn")
    if isinstance(collate, ast.Lambda):
        return False
    local = file.index.function_of(loader.call)
    return not any(
        isinstance(node, FUNCTIONS) and isinstance(collate, ast.Name) and node.name == collate.id
        for node in (own_nodes(local) if local is not None else ())
    )


def _fix(loader: Loader, workers: ast.expr | None, file: SourceFile) -> Fix:
    if workers is None:
        edit = add_keyword(file, loader.call, "num_workers=4")
    else:
        edit = replace_node(file, workers, "4")
    return Fix(
        Safety.UNSAFE, (edit,), "the machine has 4 free cores, and the dataset may run in other processes"
    )
