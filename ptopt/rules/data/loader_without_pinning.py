from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator

from ptopt.rules.base import Evidence, Fix, Invalid, Problem, Rule, Safety, Severity, SourceFile
from ptopt.rules.code import add_keyword, quote, replace_node
from ptopt.rules.shared.loaders import (
    batches_move_by_framework,
    has_workers,
    is_for_evaluation,
)
from ptopt.rules.shared.moves import Move
from ptopt.rules.shared.pinning import unpinned


class LoaderWithoutPinning(Rule):
    """Batches are moved to the GPU from a loader that does not pin its memory.

    ## What it does
    Finds `DataLoader(...)` without `pin_memory=True` when a loop of the same file moves the batches of this very loader to
    a device, or when the file works on one or hands its loaders to others (`train_dataloader`).

    ## Why it is slow
    A copy from pageable memory goes through a staging buffer and makes Python wait. With `pin_memory=True` a thread of
    the loader puts each batch into page-locked memory beforehand: the copy is faster, and `non_blocking=True`
    lets it run beside the previous step.

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
        from torch.utils.data import DataLoader, TensorDataset

        def encode(model, texts, device):
            text_ids = []
            for i in range(0, len(texts), 256):
                tokens = model.tokenizer(texts[i : i + 256], return_tensors="pt").to(device)
                text_ids.append(tokens.input_ids)
            text_ids = torch.cat(text_ids, dim=0)
            loader = DataLoader(TensorDataset(text_ids), batch_size=256)
            for (part,) in loader:
                feats = model.text_encoder(part)
                print(feats.mean())
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
        Invalid("""
            loader = DataLoader(dataset, batch_size=64, shuffle=True, num_workers=4)  # !
            # + loader = DataLoader(dataset, batch_size=64, shuffle=True, num_workers=4, pin_memory=True)
            for images, labels in loader:
                images, labels = images.cuda(), labels.cuda()
                criterion(model(images), labels).backward()
                optimizer.step()
        """),
        Invalid("""
            loader = DataLoader(dataset, num_workers=args.workers, pin_memory=False, drop_last=True)  # !
            # + loader = DataLoader(dataset, num_workers=args.workers, pin_memory=True, drop_last=True)
            for i, batch in enumerate(loader):
                mel, audio = batch
                mel = torch.autograd.Variable(mel.cuda())
                criterion(model(mel), audio.cuda()).backward()
                optimizer.step()
        """),
        Invalid("""
            def train(model, loader, device):
                for data in tqdm(loader):
                    real = data[0].to(device)
                    model(real).mean().backward()
                    optimizer.step()

            loader = DataLoader(dataset, batch_size=64, num_workers=int(opt.workers))  # !
            # + loader = DataLoader(dataset, batch_size=64, num_workers=int(opt.workers), pin_memory=True)
            train(model, loader, device)
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        found = unpinned(node, file)
        if found is None:
            return
        loader, moves = found.loader, found.moves
        pinned = loader.arguments.get("pin_memory")
        workers = has_workers(loader)
        facts = {
            "workers": float(workers),
            "written_off": float(pinned is not None),
            "moves_seen": float(bool(moves)),
            "moves_in_training": float(bool(found.trained)),
            "framework_moves": float(batches_move_by_framework(file)),
            "evaluates": float(is_for_evaluation(loader.call, file)),
        }
        edit = (
            replace_node(file, pinned, "True")
            if pinned is not None
            else add_keyword(file, loader.call, "pin_memory=True")
        )
        move = next((m for m, _ in [*found.trained, *moves]), None)
        sure = bool(found.trained) and workers and not batches_move_by_framework(file)
        problem = Problem(
            node,
            _message(move, file),
            (0.75 if move.sure or move.non_blocking else 0.68) if sure and move is not None else 0.4,
            (Evidence(move.call.lineno, "a batch of this loader is moved to the device"),) if move else (),
            Fix(Safety.UNSAFE, (edit,), "the host has memory to spare for page-locked batches"),
            at=found.loops[0].body[0] if found.loops else None,
            facts=facts,
        )
        there = tuple(
            dataclasses.replace(
                problem,
                node=m.call,
                message=_message_at(m, loader.call, file),
                evidence=(Evidence(loader.call.lineno, "the loader does not pin its batches"),),
            )
            for m, _ in [*found.trained, *moves]
        )
        yield dataclasses.replace(problem, elsewhere=there)


def _message_at(move: Move, loader: ast.Call, file: SourceFile) -> str:
    """What is said where the batch is moved, for a change that wrote only that."""
    copies = f"{quote(file, move.call)} copies each batch from pageable memory, "
    there = f"With `pin_memory=True` in the loader at line {loader.lineno}"
    if move.non_blocking:
        return f"{copies}and `non_blocking=True` has no effect there. {there}, the copy runs beside the previous step."
    return f"{copies}and Python waits for it. {there} and `non_blocking=True` here, the copy runs beside the previous step."


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
