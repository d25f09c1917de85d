from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import (
    Evidence,
    Fix,
    Invalid,
    Problem,
    Rule,
    Safety,
    Severity,
    SourceFile,
    add_keyword,
    is_literal,
    quote,
    replace_node,
)
from ptopt.rules.shared.loaders import (
    batch_names,
    batches_move_by_framework,
    hands_out,
    has_workers,
    is_for_evaluation,
    loader_of,
    makes_device_items,
    readings,
    root_name,
)
from ptopt.rules.shared.moves import Move, move_of
from ptopt.source.file import remembered
from ptopt.source.index import own_nodes


class LoaderWithoutPinning(Rule):
    """Batches are moved to the GPU from a loader that does not pin its memory.

    ## What it does
    Finds `DataLoader(...)` without `pin_memory=True` when a loop of the same file moves the batches of this very loader to
    a device, or when the file works on one or hands its loaders to others (`train_dataloader`).

    ## Why it is slow
    A copy from pageable memory goes through a staging buffer and makes Python wait. With `pin_memory=True` a thread of
    the loader puts each batch into page-locked memory beforehand: the copy is faster, and `non_blocking=True`
    lets it run beside the previous step.

    ## When this is wrong
    When the host is short of memory, when training runs on the CPU, or when batches are small against the step.

    ## Example
    ```python
    loader = DataLoader(dataset, batch_size=64, num_workers=4)
    for images, labels in loader:
        images, labels = images.cuda(), labels.cuda()
    ```

    ## Use instead
    ```python
    loader = DataLoader(dataset, batch_size=64, num_workers=4, pin_memory=True)
    for images, labels in loader:
        images, labels = images.cuda(non_blocking=True), labels.cuda(non_blocking=True)
    ```

    ## Fix safety
    Unsafe: page-locked memory is a limited resource of the host. Without an accelerator the argument does nothing.

    ## Sources
    - [PyTorch documentation: memory pinning](https://docs.pytorch.org/docs/stable/data.html)
    - [A guide on good usage of non_blocking and pin_memory](https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html)
    """

    id = "PTO302"
    name = "loader-without-pinning"
    family = "data"
    severity = Severity.LOW
    triggers = ("DataLoader(",)
    requires = (".to(", ".cuda(")
    nodes = (ast.Call,)
    when_wrong = (
        "the host is short of memory, training runs on the CPU, or batches are small against the step"
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
        loader = DataLoader(dataset, batch_size=64, num_workers=4, pin_memory=True)
        for images, labels in loader:
            criterion(model(images.cuda()), labels.cuda()).backward()
            optimizer.step()
        """,
        """
        loader = DataLoader(dataset, batch_size=64, **options)
        for images, labels in loader:
            criterion(model(images.cuda()), labels.cuda()).backward()
            optimizer.step()
        """,
        """
        from torch.utils.data import DataLoader
        loader = DataLoader(dataset, batch_size=64, num_workers=4)
        for images, labels in loader:
            criterion(model(images), labels).backward()
            optimizer.step()
        """,
        """
        loader = DataLoader(dataset, batch_size=64, num_workers=4, pin_memory=use_cuda)
        model.to(device)
        for images, labels in loader:
            criterion(model(images.to(device)), labels.to(device)).backward()
            optimizer.step()
        """,
    )
    INVALID = (
        Invalid(
            """
            loader = DataLoader(dataset, batch_size=64, shuffle=True, num_workers=4)  # !
            for images, labels in loader:
                images, labels = images.cuda(), labels.cuda()
                criterion(model(images), labels).backward()
                optimizer.step()
            """,
            """
            loader = DataLoader(dataset, batch_size=64, shuffle=True, num_workers=4, pin_memory=True)
            for images, labels in loader:
                images, labels = images.cuda(), labels.cuda()
                criterion(model(images), labels).backward()
                optimizer.step()
            """,
        ),
        Invalid(
            """
            loader = DataLoader(dataset, num_workers=args.workers, pin_memory=False, drop_last=True)  # !
            for i, batch in enumerate(loader):
                mel, audio = batch
                mel = torch.autograd.Variable(mel.cuda())
                criterion(model(mel), audio.cuda()).backward()
                optimizer.step()
            """,
            """
            loader = DataLoader(dataset, num_workers=args.workers, pin_memory=True, drop_last=True)
            for i, batch in enumerate(loader):
                mel, audio = batch
                mel = torch.autograd.Variable(mel.cuda())
                criterion(model(mel), audio.cuda()).backward()
                optimizer.step()
            """,
        ),
        Invalid(
            """
            def train(model, loader, device):
                for data in tqdm(loader):
                    real = data[0].to(device)
                    model(real).mean().backward()
                    optimizer.step()

            loader = DataLoader(dataset, batch_size=64, num_workers=int(opt.workers))  # !
            train(model, loader, device)
            """,
            """
            def train(model, loader, device):
                for data in tqdm(loader):
                    real = data[0].to(device)
                    model(real).mean().backward()
                    optimizer.step()

            loader = DataLoader(dataset, batch_size=64, num_workers=int(opt.workers), pin_memory=True)
            train(model, loader, device)
            """,
        ),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        loader = loader_of(node, file)
        if loader is None or not loader.complete:
            return
        pinned = loader.arguments.get("pin_memory")
        if not (pinned is None or is_literal(pinned, False)) or is_literal(
            loader.arguments.get("dataset"), None
        ):
            return
        loops = [reading.loop for reading in readings(loader.call, file)]
        moves = [(move, loop) for loop in loops if (move := _move_in(loop, file)) is not None]
        if not moves and not file.uses_accelerator and hands_out(loader.call, file) is None:
            return
        if (loops and not moves and not _handed_on(loops, file)) or makes_device_items(loader, file):
            return  # no batch goes to a device, or all lie there already
        workers = has_workers(loader)
        trained = [(m, loop) for m, loop in moves if file.context.training_step(loop.body[0]) is not None]
        facts = {
            "workers": float(workers),
            "written_off": float(pinned is not None),
            "moves_seen": float(bool(moves)),
            "moves_in_training": float(bool(trained)),
            "framework_moves": float(batches_move_by_framework(file)),
            "evaluates": float(is_for_evaluation(loader.call, file)),
        }
        edit = (
            replace_node(file, pinned, "True")
            if pinned is not None
            else add_keyword(file, loader.call, "pin_memory=True")
        )
        move = next((m for m, _ in [*trained, *moves]), None)
        sure = bool(trained) and workers and not batches_move_by_framework(file)
        yield Problem(
            node,
            _message(move, file),
            (0.75 if move.sure or move.non_blocking else 0.68) if sure and move is not None else 0.4,
            (Evidence(move.call.lineno, "a batch of this loader is moved to the device"),) if move else (),
            Fix(Safety.UNSAFE, (edit,), "the host has memory to spare for page-locked batches"),
            at=loops[0].body[0] if loops else None,
            facts=facts,
        )


def _handed_on(loops: list[ast.For], file: SourceFile) -> bool:
    """May a function that a loop gives its batches to send them to the device?"""
    return batches_move_by_framework(file) or any(_hands_on(loop, file) for loop in loops)


@remembered
def _hands_on(loop: ast.For, file: SourceFile) -> bool:
    names = batch_names(loop)
    return any(
        isinstance(node, ast.Call) and any(root_name(arg) in names for arg in node.args)
        for node in own_nodes(loop)
    )


def _message(move: Move | None, file: SourceFile) -> str:
    if move is None:
        return (
            "Batches of this loader reach the device from pageable memory: each copy goes through a staging buffer and cannot "
            "run beside the computation. Pass `pin_memory=True`, and move them with `non_blocking=True`."
        )
    copies = f"{quote(file, move.call)} at line {move.call.lineno} copies each batch of this loader from pageable memory, "
    if move.non_blocking:
        return f"{copies}and `non_blocking=True` has no effect there. `pin_memory=True` lets the copy run beside the previous step."
    return (
        f"{copies}and Python waits for it. With `pin_memory=True` here and `non_blocking=True` there, the copy runs beside "
        "the previous step."
    )


@remembered
def _move_in(loop: ast.For, file: SourceFile) -> Move | None:
    """The first move of a tensor of the batch."""
    names = batch_names(loop)
    for node in own_nodes(loop):
        move = move_of(node, file)
        if move is not None and root_name(move.tensor) in names:
            return move
    return None
