from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Evidence, Fix, Invalid, Problem, Rule, Safety, Severity, SourceFile
from ptopt.rules.code import add_keyword, quote
from ptopt.rules.shared.loaders import batches_move_by_framework, loader_of, readings
from ptopt.rules.shared.pinning import blocking_moves, pins


class BlockingCopyFromPinnedLoader(Rule):
    """A batch from pinned memory is copied to the device with a call that waits.

    ## What it does
    Finds `.to(device)` and `.cuda()` without `non_blocking=True` on the tensors of a batch whose loader is built in
    the same file with `pin_memory=True`. A move of anything else is never reported.

    ## Why it is slow
    Pinned memory makes copies that run beside Python and beside kernels possible. Without `non_blocking=True` Python
    still waits for each copy, and nothing runs beside it.

    ## Fix safety
    Unsafe only where the CPU tensor is changed after the copy was queued. Kernels wait for the copy by themselves.

    ## Sources
    - [A guide on good usage of non_blocking and pin_memory](https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html)
    """

    id = "PTO204"
    name = "blocking-copy-from-pinned-loader"
    family = "transfer"
    severity = Severity.LOW
    triggers = ("pin_memory",)
    requires = (".to(", ".cuda(")
    nodes = (ast.Call,)
    when_wrong = "a step is so long that the copy of one batch is lost in it"

    VALID = (
        """
        loader = DataLoader(dataset, batch_size=256, num_workers=8)
        for images, labels in loader:
            loss = criterion(model(images.to(device)), labels.to(device))
            loss.backward()
        """,
        """
        loader = DataLoader(dataset, batch_size=256, num_workers=8, pin_memory=True)
        model.to(device)
        for images, labels in loader:
            images = images.to(device, non_blocking=True)
            loss = criterion(model(images), labels.cuda(non_blocking=True))
            weights = torch.ones(3).to(device)
            loss.backward()
        """,
        """
        loader = DataLoader(dataset, batch_size=256, collate_fn=collate, num_workers=8, pin_memory=True)
        for batch in loader:
            loss = model(batch.to(device))
            loss.backward()
        """,
        """
        train_loader = DataLoader(dataset, batch_size=256, num_workers=8, pin_memory=True)
        for images, labels in test_loader:
            scores = model(images.float().to(device))
        """,
        """
        class Boxes:
            def to(self, device):
                return Boxes(self.corners.to(device))

        loader = DataLoader(dataset, batch_size=8, num_workers=8, pin_memory=True, collate_fn=collate)
        for images, boxes in loader:
            images = images.to(device, non_blocking=True)
            loss = model(images, boxes.to(device))
            loss.backward()
        """,
    )
    INVALID = (
        Invalid("""
            loader = DataLoader(dataset, batch_size=256, num_workers=8, pin_memory=True)
            for step, (images, labels) in enumerate(loader):
                images = images.to(device)  # !
                # +
                labels = labels.cuda()  # !
                # + images = images.to(device, non_blocking=True)
                # + labels = labels.cuda(non_blocking=True)
                loss = criterion(model(images), labels)
                loss.backward()
                optimizer.step()
        """),
        Invalid("""
            def train(model, loader, optimizer):
                for batch in tqdm(loader):
                    batch = {k: v.to(device) for k, v in batch.items()}  # !
                    # + batch = {k: v.to(device, non_blocking=True) for k, v in batch.items()}
                    loss = model(**batch).loss
                    loss.backward()
                    optimizer.step()

            train_loader = DataLoader(dataset, 32, shuffle=True, num_workers=4, pin_memory=True)
            train(model, train_loader, optimizer)
        """),
        Invalid("""
            class Trainer:
                def __init__(self, dataset):
                    self.loader = DataLoader(dataset, batch_size=32, pin_memory=True, num_workers=4)

                def fit(self):
                    for batch in self.loader:
                        loss = self.model(batch["image"].to(self.device))  # !
                        # + loss = self.model(batch["image"].to(self.device, non_blocking=True))
                        loss.backward()
                        self.optimizer.step()
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        loader = loader_of(node, file)
        if loader is None or not pins(loader):
            return
        if batches_move_by_framework(file):
            return
        for loop in dict.fromkeys(reading.loop for reading in readings(loader.call, file)):
            trains = file.context.step_mark(loop) is not None
            for move in blocking_moves(loop, file):
                yield Problem(
                    move.call,
                    f"The loader at line {loader.call.lineno} pins its batches, but {quote(file, move.call)} still waits "
                    "for the copy. With `non_blocking=True` Python goes on while the batch is copied.",
                    0.75 if trains else 0.62,
                    (Evidence(loader.call.lineno, "the loader has `pin_memory=True`"),),
                    Fix(
                        Safety.UNSAFE,
                        (add_keyword(file, move.call, "non_blocking=True"),),
                        "nothing changes the CPU tensor while it is copied",
                    ),
                    cause=loop,
                )
