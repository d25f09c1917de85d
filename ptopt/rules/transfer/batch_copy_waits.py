from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import quote
from ptopt.rules.shared.loaders import batches_move_by_framework, read_from_device, root_name
from ptopt.rules.shared.moves import Move, move_of
from ptopt.rules.shared.pinning import moved_from_pinned, moved_from_unpinned, pinning_loaders
from ptopt.rules.transfer._hot import hot_place
from ptopt.source.frequency import Often
from ptopt.source.index import COMPREHENSIONS, walk

_BATCH = re.compile(
    r"^(mini_?)?(batch\w*|data|inputs?|samples?|images?|imgs?|targets?|labels?|examples?|features?|x|y|ids|tokens)(_batch)?$"
    r"|saved_tensors|tensor_inputs|cpu_tensors?",
    re.I,
)
_ON_DEVICE = re.compile(r"^(forward|__call__|predict|encode|decode)")  # their inputs mostly lie there already
_MAKES = re.compile(r"(^|_)(get|next|sample|load|fetch|make)_?(mini)?_?batch(es)?$", re.I)
_FETCHED = re.compile(r"next\(|__next__|get_batch|saved_tensors|pin_memory\(")


class BatchCopyWaits(Rule):
    """A batch is copied to the device with calls that wait.

    ## What it does
    Finds `.to(device)` and `.cuda()` without `non_blocking=True` on batches that come from a loop over a loader, from
    `next(...)`, or as a batch parameter of a step, and on several tensors one after the other. Where the loader is seen,
    `blocking-copy-from-pinned-loader` or `loader-without-pinning` speaks of it.

    ## Why it is slow
    Python waits for each copy, and nothing is queued meanwhile. From pinned memory and with `non_blocking=True` the copy
    runs beside Python.

    ## When this is wrong
    When the batch is not in pinned memory (then pin it first), or already lies on the device.

    ## Example
    ```python
    for batch in loader:
        batch = {key: value.to(device) for key, value in batch.items()}
    ```

    ## Use instead
    ```python
    loader = DataLoader(dataset, batch_size=64, num_workers=4, pin_memory=True)
    for batch in loader:
        batch = {key: value.to(device, non_blocking=True) for key, value in batch.items()}
    ```

    ## Fix safety
    No fix: it helps only together with pinned memory.

    ## Sources
    - [A guide on good usage of non_blocking and pin_memory](https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html)
    """

    id = "PTO236"
    name = "batch-copy-waits"
    family = "transfer"
    most_stated = 0.4
    triggers = (".to(", ".cuda(")
    nodes = (ast.Call,)
    calls = frozenset({"to", "cuda"})
    when_wrong = "the batch is not in pinned memory, or already lies on the device"

    VALID = (
        """
        from torch.utils.data import DataLoader

        def main(dataset, model, optimizer):
            loader = DataLoader(dataset, batch_size=8)
            for x in loader:  # `loader-without-pinning` names both halves of the edit
                loss = model(x.to("cuda"))
                loss.backward()
                optimizer.step()
        """,
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
        for x, y in loader:
            loss = criterion(model(x.to(device, non_blocking=True)), y.to(device, non_blocking=True))
            loss.backward()
            optimizer.step()
        """,
        """
        for epoch in range(epochs):
            weights = weights.to(device)
            train(model, weights)
        """,
        """
        def nearest(features, labels, bank, device):
            for start in range(0, len(features), 1024):
                near = (features[start:start + 1024].to(device) @ bank.T).argmax(1)
                correct += (near == labels[start:start + 1024].to(device)).sum()
        """,
        """
        class Net(nn.Module):
            def forward(self, x):
                mask = (x > 0).to(x.device)
                return self.scale.to(x.device) * x * mask
        """,
    )
    INVALID = (
        Invalid("""
            for x, y in loader:
                loss = criterion(model(x.to(device)), y.to(device))  # !
                loss.backward()
                optimizer.step()
        """),
        Invalid("""
            for batch in tqdm(loader):
                batch = {key: value.cuda() for key, value in batch.items()}  # !
                model(**batch).loss.backward()
                optimizer.step()
        """),
        Invalid("""
            while step < steps:
                images = next(batches)
                images = images.to(device)  # !
                model(images).mean().backward()
                optimizer.step()
                step += 1
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        move = move_of(node, file)
        if move is None or move.non_blocking or "accelerator" in move.device:
            return  # what accelerate prepares lies on the device already
        origin = _batch_of(move, file)
        if origin and batches_move_by_framework(file):
            return  # the batch lies on the device already
        if not origin or file.values.of(move.tensor).device == "moved":
            return
        loops = [loop for loop in file.index.loops_of(node) if isinstance(loop, ast.For)]
        if any(read_from_device(loop, file) for loop in loops):
            return  # nor can a tensor on the device be pinned
        if any(loop in moved_from_unpinned(file) for loop in loops):
            return  # `loader-without-pinning` says it of the loader, here and at its other loops
        if node in moved_from_pinned(file):
            return  # `blocking-copy-from-pinned-loader` says it
        if any(_is_chunk(move.tensor, loop) for loop in loops):
            return  # parts of one tensor: no loader made them
        if _only_if_elsewhere(node, file):
            return
        hot = hot_place(node, file)
        if hot is None or _without_accelerator(node, file):
            return
        pinned = "pin_memory" in file.text
        loaders = pinning_loaders(file)
        which = (
            f"The loader at line {loaders[0]} pins" if len(loaders) == 1 else "The loaders of this file pin"
        )
        remedy = (
            f"{which} batches already: with `non_blocking=True` here"
            if loaders
            else "With `pin_memory=True` in the loader and `non_blocking=True` here"
        )
        yield Problem(
            node,
            f"{quote(file, node)} makes Python wait for the copy of the batch, {hot.words}. {remedy}, the copy is queued and "
            "Python goes on.",
            0.4 if pinned else 0.3,
            hot.evidence,
            cause=hot.node,
            subject=move.tensor,
            facts={
                "pinned_in_file": float(pinned),
                "from_loader": float(origin == "loader"),
                "loaders_pin": float(bool(loaders)),
            },
        )


def _is_chunk(tensor: ast.expr, loop: ast.For) -> bool:
    """`x[start : start + n]` in a loop over `start`"""
    counted = {n.id for n in walk(loop.target) if isinstance(n, ast.Name)}
    part = tensor.slice if isinstance(tensor, ast.Subscript) else None
    return part is not None and any(isinstance(n, ast.Name) and n.id in counted for n in walk(part))


def _only_if_elsewhere(node: ast.AST, file: SourceFile) -> bool:
    """Is it behind `if x.device != y.device:`, so that what lies there already is not copied?"""
    return any(
        isinstance(ancestor, ast.If)
        and child in ancestor.body
        and isinstance(ancestor.test, ast.Compare)
        and any(isinstance(op, (ast.NotEq, ast.IsNot)) for op in ancestor.test.ops)
        and any(
            isinstance(side, ast.Attribute) and side.attr == "device"
            for side in (ancestor.test.left, *ancestor.test.comparators)
        )
        for ancestor, child in file.index.ancestors(node)
    )


def _without_accelerator(node: ast.AST, file: SourceFile) -> bool:
    """Is it the `else` of a test for CUDA?"""
    return any(
        isinstance(ancestor, ast.If) and child in ancestor.orelse and "cuda" in file.source(ancestor.test)
        for ancestor, child in file.index.ancestors(node)
    )


def _batch_of(move: Move, file: SourceFile) -> str:
    """How it is known that the tensor belongs to a batch: "loader", "name", or ""."""
    root = root_name(move.tensor)
    if not root or root == "self":
        return ""
    for ancestor, _ in file.index.ancestors(move.call):
        if isinstance(ancestor, COMPREHENSIONS):
            over = next(
                (
                    g.iter
                    for g in ancestor.generators
                    if any(isinstance(n, ast.Name) and n.id == root for n in walk(g.target))
                ),
                None,
            )
            if over is not None:
                root = root_name(over.args[0] if isinstance(over, ast.Call) and over.args else over)
        if isinstance(ancestor, ast.stmt):
            break
    if not root:
        return ""
    function = file.index.function_of(move.call)
    bindings = file.bindings.of(function, root)
    if not bindings:
        return ""
    first = bindings[0]
    if first.kind == "item" and isinstance(first.node, ast.For):
        reads = file.frequencies.of(first.node.body[0]).often
        if reads > Often.STEP and _BATCH.search(root_name(_iterated(first.node.iter))):
            return "name"  # the parts of a batch
        loaded = reads in (Often.EVALUATION, Often.STEP) and _BATCHES.search(file.source(first.node.iter))
        return "loader" if loaded else ""
    if first.value is not None and first.kind in ("assign", "unpack"):
        makes = function is not None and _MAKES.search(function.name)
        return "name" if makes or _FETCHED.search(file.source(first.value)) else ""
    given = first.kind == "parameter" and function is not None and not _ON_DEVICE.search(function.name)
    return "name" if given and _BATCH.search(root) else ""


def _iterated(expr: ast.expr) -> ast.expr:
    """`batch` of `batch.pop("images")`."""
    return expr.func.value if isinstance(expr, ast.Call) and isinstance(expr.func, ast.Attribute) else expr


_BATCHES = re.compile(r"load|batch|(^|_)dl\b|data|iter|train|valid|test|set\b", re.I)
