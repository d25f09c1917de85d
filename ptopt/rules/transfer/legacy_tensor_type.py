from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import Edit, Fix, Invalid, Problem, Rule, Safety, SourceFile
from ptopt.rules.code import method_call, quote
from ptopt.rules.shared.flow import assigned, outer_call
from ptopt.rules.shared.moves import move_of
from ptopt.rules.transfer._hot import hot_place
from ptopt.source.torch_names import LEGACY_TYPES

_CPU_TYPE = re.compile(rf"^torch\.({'|'.join(LEGACY_TYPES)})$")


class LegacyTensorType(Rule):
    """A cast by a legacy tensor type takes a device tensor back to the CPU.

    ## What it does
    Finds `.type(torch.FloatTensor)` and its kin in training steps, forward passes and loops over batches, on tensors
    that were moved to a device, or computed from such tensors.

    ## Why it is slow
    `torch.FloatTensor` names a *CPU* tensor type. The cast copies the tensor to the host and waits for it; the
    result is then copied back.

    ## Fix safety
    Unsafe: the tensor stays on its device.

    ## Sources
    - [PyTorch documentation: torch.Tensor.type](https://docs.pytorch.org/docs/stable/generated/torch.Tensor.type.html)
    """

    id = "PTO206"
    name = "legacy-tensor-type"
    family = "transfer"
    triggers = (".type(",)
    nodes = (ast.Call,)
    calls = frozenset({"type"})
    when_wrong = "the tensor is meant to end on the CPU"

    VALID = (
        """
        class Masks(Dataset):
            def __getitem__(self, i):
                return torch.from_numpy(self.masks[i]).type(torch.FloatTensor)
        """,
        """
        class Net(nn.Module):
            def forward(self, x):
                x = x.to(self.device)
                return self.linear(x.type(torch.float32))
        """,
        """
        for images, labels in loader:
            labels = labels.type(torch.LongTensor).to(device)
            loss = criterion(model(images.to(device)), labels)
            loss.backward()
            optimizer.step()
        """,
    )
    INVALID = (
        Invalid("""
            class Net(nn.Module):
                def forward(self, x):
                    x = x.to(self.device)
                    return self.linear(x.type(torch.FloatTensor))  # !
                    # + return self.linear(x.to(torch.float32))
        """),
        Invalid("""
            for images, labels in loader:
                scores = model(images.cuda())
                mask = (scores > 0).type(torch.FloatTensor).cuda()  # !
                # + mask = (scores > 0).to(torch.float32).cuda()
                loss = (scores * mask).mean()
                loss.backward()
                optimizer.step()
        """),
        Invalid("""
            for images, labels in loader:
                labels = labels.cuda()
                loss = criterion(model(images.cuda()), labels.type("torch.LongTensor").cuda())  # !
                # + loss = criterion(model(images.cuda()), labels.to(torch.int64).cuda())
                loss.backward()
                optimizer.step()
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        tensor = method_call(node, "type")
        if tensor is None or not isinstance(node, ast.Call) or len(node.args) != 1 or node.keywords:
            return
        target = node.args[0]
        text = target.value if isinstance(target, ast.Constant) else file.imports.qualified(target)
        match = _CPU_TYPE.match(text) if isinstance(text, str) else None
        if match is None:
            return
        value, moved = file.values.of(tensor), _on_device(tensor, file)
        if value.device == "cpu" or not (moved or value.kind == "tensor"):
            return
        hot = hot_place(node, file)
        if hot is None:
            return
        dtype = f"torch.{LEGACY_TYPES[match[1]]}"
        back = ", and the next call copies it to the device again" if _moved_after(node, file) else ""
        yield Problem(
            node,
            f"{quote(file, node)} casts to a CPU type: {'a' if moved else 'if it is a'} tensor on the device "
            f"{'' if moved else 'it '}is copied to the host, {hot.words}{back}. "
            f"`.to({dtype})` casts it where it is.",
            0.75 if moved and hot.kind != "often" else 0.4,
            hot.evidence,
            Fix(
                Safety.UNSAFE,
                (Edit(file.bounds(node.func)[1] - len("type"), file.bounds(node)[1], f"to({dtype})"),),
                "the tensor may stay on its device",
            )
            if file.imports.local_names().get("torch") == "torch"
            else None,
            cause=hot.node,
        )


def _moved_after(node: ast.Call, file: SourceFile) -> bool:
    """Is the result sent to a device by the very next call?"""
    call = outer_call(node, file)
    return call is not None and move_of(call, file) is not None


_LEAVES = frozenset({"cpu", "numpy", "item", "tolist", "size", "dim", "numel"})


def _on_device(expr: ast.expr, file: SourceFile, depth: int = 0) -> bool:
    """Is the value proven to come from a tensor that was moved: by the move itself, or computed from such a tensor?"""
    if depth > 8:
        return False
    if isinstance(expr, ast.Name):
        value = assigned(expr, file)
        return value is not None and _on_device(value, file, depth + 1)
    if isinstance(expr, (ast.Subscript, ast.Attribute)):
        return _on_device(expr.value, file, depth + 1)
    if isinstance(expr, ast.UnaryOp):
        return _on_device(expr.operand, file, depth + 1)
    if isinstance(expr, ast.BinOp):
        return _on_device(expr.left, file, depth + 1) or _on_device(expr.right, file, depth + 1)
    if isinstance(expr, ast.Compare):
        return _on_device(expr.left, file, depth + 1)
    if not isinstance(expr, ast.Call):
        return False
    if move_of(expr, file) is not None:
        return True
    if isinstance(expr.func, ast.Attribute):
        if expr.func.attr in _LEAVES or (expr.func.attr == "to" and "cpu" in file.source(expr)):
            return False
        if _on_device(expr.func.value, file, depth + 1):
            return True
    return any(_on_device(argument, file, depth + 1) for argument in expr.args)
