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
from ptopt.rules.shared.loaders import batch_names, batches_move_by_framework, loader_of, readings, root_name
from ptopt.rules.shared.moves import Move, move_of
from ptopt.source.file import remembered
from ptopt.source.index import own_nodes


class LoaderWithoutPinning(Rule):
    """Batches are moved to the GPU from a loader that does not pin its memory.

    ## What it does
    Finds `DataLoader(...)` with worker processes and without `pin_memory=True`, when a training loop of the same file
    moves the batches of this very loader to a device.

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
        loader = DataLoader(dataset, batch_size=64, num_workers=4, pin_memory=True)
        for images, labels in loader:
            criterion(model(images.cuda()), labels.cuda()).backward()
            optimizer.step()
        """,
        """
        loader = DataLoader(dataset, batch_size=64)
        for images, labels in loader:
            criterion(model(images.cuda()), labels.cuda()).backward()
            optimizer.step()
        """,
        """
        loader = accelerator.prepare(DataLoader(dataset, batch_size=64, num_workers=4))
        for batch in loader:
            accelerator.backward(model(batch["x"].to(accelerator.device)).mean())
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
        if loader is None or not loader.complete or batches_move_by_framework(file):
            return
        pinned = loader.arguments.get("pin_memory")
        workers = loader.arguments.get("num_workers")
        if not (pinned is None or is_literal(pinned, False)) or workers is None or is_literal(workers, 0):
            return
        for reading in readings(loader.call, file):
            move = _move_in(reading.loop, file)
            if move is None or file.context.training_step(reading.loop.body[0]) is None:
                continue
            if move.non_blocking:
                cost = "and `non_blocking=True` has no effect there. `pin_memory=True` lets the copy run beside the previous step."
            else:
                cost = (
                    "and Python waits for it. With `pin_memory=True` here and `non_blocking=True` there, the copy runs beside "
                    "the previous step."
                )
            yield Problem(
                node,
                f"{quote(file, move.call)} at line {move.call.lineno} copies each batch of this loader from pageable memory, {cost}",
                0.75 if move.sure or move.non_blocking else 0.68,
                (Evidence(move.call.lineno, "a batch of this loader is moved to the device"),),
                Fix(
                    Safety.UNSAFE,
                    (
                        replace_node(file, pinned, "True")
                        if pinned is not None
                        else add_keyword(file, loader.call, "pin_memory=True"),
                    ),
                    "the host has memory to spare for page-locked batches",
                ),
            )
            return


@remembered
def _move_in(loop: ast.For, file: SourceFile) -> Move | None:
    """The first move of a tensor of the batch."""
    names = batch_names(loop)
    for node in own_nodes(loop):
        move = move_of(node, file)
        if move is not None and root_name(move.tensor) in names:
            return move
    return None
