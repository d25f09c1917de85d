from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import Evidence, Fix, Invalid, Problem, Rule, Safety, SourceFile
from ptopt.rules.code import add_keyword, is_call_of, quote
from ptopt.rules.shared.arguments import may_take
from ptopt.rules.shared.moves import Move, move_of
from ptopt.source.calls import called_name
from ptopt.source.index import FunctionNode, walk

_MOVER = re.compile(
    r"(^|_)(to|move|send|transfer|put|copy|batch|data|dict|recursive|collection|tensors?)_?(data_|batch_|batches_|dict_)?"
    r"(to_|on_)?(device|cuda|gpu)s?(_|$)|cuda(_batch|_data|_inputs)|prepare_(batch|inputs?|data)|load_cuda|to_cuda|device_put",
    re.I,
)
_NO_BATCH = re.compile(r"model|optim|state|net(work)?(_|$)|module|param|weight|cpu|host|offload_to", re.I)
_NO_TENSORS = ("module", "scalar", "array")
_JOINS = re.compile(r"^(cat|concat|einsum|matmul|embed_tokens|encode_\w+|interpolate)$")


class BatchMoverBlocks(Rule):
    """A function that moves batches to the device waits for each copy.

    ## What it does
    Finds functions whose name says that they move batches (`to_device`, `move_to_cuda`, `_prepare_inputs`) and that call
    `.to(device)` or `.cuda()` without `non_blocking=True`; also those that take the flag and do not pass it on.

    ## Why it is slow
    A batch has several tensors, and Python waits for each copy in turn. From pinned memory, with `non_blocking=True`, the
    copies are queued and Python goes on.

    ## Fix safety
    Unsafe only where the CPU tensor is changed after the copy was queued. Kernels wait for the copy by themselves.

    ## Sources
    - [A guide on good usage of non_blocking and pin_memory](https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html)
    """

    id = "PTO233"
    name = "batch-mover-blocks"
    family = "transfer"
    most_stated = 0.6
    triggers = (".to(", ".cuda(")
    nodes = (ast.FunctionDef,)
    when_wrong = "no batch that it moves is in pinned memory"

    VALID = (
        """
        def prepare_inputs(self, parts):
            parts = [part.to(self.device) for part in parts]
            return torch.cat(parts)
        """,
        """
        def to_device(batch, device):
            return {key: value.to(device, non_blocking=True) for key, value in batch.items()}
        """,
        """
        def move_model_to_device(model, device):
            return model.to(device)
        """,
        """
        def to_device(batch, dtype):
            return [x.to(dtype) for x in batch]
        """,
        """
        class Boxes:
            def to(self, device):
                return Boxes(self.corners.to(device))

        def to_device(batch, device):
            return {key: value.to(device) for key, value in batch.items()}
        """,
    )
    INVALID = (
        Invalid("""
            def to_device(batch, device):
                return {key: value.to(device) for key, value in batch.items()}  # !
                # + return {key: value.to(device, non_blocking=True) for key, value in batch.items()}
        """),
        Invalid("""
            class Net(nn.Module):
                def to(self, device):
                    self.device = device
                    return super().to(device)

            def to_device(batch, device):
                return {key: value.to(device) for key, value in batch.items()}  # !
                # + return {key: value.to(device, non_blocking=True) for key, value in batch.items()}
        """),
        Invalid("""
            def move_to_cuda(sample):
                if torch.is_tensor(sample):
                    return sample.cuda()  # !
                    # + return sample.cuda(non_blocking=True)
                return [move_to_cuda(x) for x in sample]
        """),
        Invalid("""
            def put(data, device, non_blocking=False):
                return tuple(x.to(device) for x in data)  # !
                # + return tuple(x.to(device, non_blocking=non_blocking) for x in data)
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.FunctionDef):
            return
        arguments = [a.arg for a in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]]
        dropped = "non_blocking" in arguments
        named = bool(_MOVER.search(node.name)) and not _NO_BATCH.search(node.name)
        if not (dropped or named) or not any(a not in ("self", "cls", "device") for a in arguments):
            return
        if any(_JOINS.search(called_name(call)) for call in file.calls.calls_in(node)):
            return  # it computes with what lies on the device
        moves = list(_blocking(node, file))
        if not moves:
            return
        flag = "non_blocking=non_blocking" if dropped else "non_blocking=True"
        first = moves[0].call
        recursive = any(is_call_of(c, node.name) for c in walk(node))
        why = (
            f"`{node.name}` takes `non_blocking` and does not pass it on: {quote(file, first)} waits for the copy whatever "
            "the caller wants."
            if dropped
            else f"`{node.name}` moves batches, and {quote(file, first)} waits for each copy."
        )
        yield Problem(
            first,
            f"{why} With `{flag}` copies from pinned memory are queued, and Python goes on.",
            0.6 if dropped else 0.45,
            (Evidence(node.lineno, "moves batches"),),
            Fix(
                Safety.UNSAFE,
                tuple(add_keyword(file, move.call, flag) for move in moves),
                "nothing changes the CPU tensors while they are copied",
            ),
            cause=node,
            facts={
                "recursive": float(recursive),
                "flag_dropped": float(dropped),
                "pinned_in_file": float("pin_memory" in file.text),
            },
        )


def _blocking(function: FunctionNode, file: SourceFile) -> Iterator[Move]:
    """The moves in the function itself that wait, of anything but a module."""
    for call in file.calls.calls_in(function):
        move = move_of(call, file)
        if move is None or move.non_blocking or file.values.of(move.tensor).kind in _NO_TENSORS:
            continue
        if isinstance(move.tensor, ast.Call) or _NO_BATCH.search(file.source(move.tensor)):
            continue
        if not may_take(call, "non_blocking", file, of_modules=False):
            continue  # may be a batch of the project's own class
        yield move
