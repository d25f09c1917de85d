from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Edit, Fix, Invalid, Problem, Rule, Safety, SourceFile
from ptopt.rules.code import add_keyword, quote
from ptopt.rules.transfer._hot import Hot, hot_place
from ptopt.rules.transfer._python_data import LEGACY_DTYPES, MOVES, Made, is_constant, is_host_data, made_of


class PythonDataSent(Rule):
    """Python numbers are sent to the device in code that runs often.

    ## What it does
    Finds `torch.tensor(data, device=device)` and `torch.tensor(data).to(device)` where the data changes from call to call:
    one number, or a list. Data that stay the same are `constant-rebuilt-every-step`.

    ## Why it is slow
    The numbers are packed into pageable host memory and copied, and Python waits for the copy, although all that was
    queued before has to run first.

    ## Fix safety
    Unsafe: `torch.full` gives the same tensor for a Python number, not for a NumPy one.

    ## Sources
    - [PyTorch documentation: torch.full](https://docs.pytorch.org/docs/stable/generated/torch.full.html)
    - [A guide on good usage of non_blocking and pin_memory](https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html)
    """

    id = "PTO235"
    name = "python-data-sent"
    family = "transfer"
    most_stated = 0.5
    triggers = ("tensor", "Tensor")
    requires = ("device", ".to(", ".cuda(", ".type_as(")
    nodes = (ast.Call,)
    calls = frozenset({"tensor", "as_tensor", *LEGACY_DTYPES, *MOVES})
    when_wrong = "the data exist on the host only and are needed at once, or the code runs on the CPU"

    VALID = (
        """
        def scale(x):
            return x / torch.full((), x.shape[1], device=x.device)
        """,
        """
        class Net(nn.Module):
            def __init__(self, sizes, device):
                super().__init__()
                self.sizes = torch.tensor(sizes, device=device)
        """,
        """
        def lengths(texts):
            return torch.tensor([len(t) for t in texts])
        """,
    )
    INVALID = (
        Invalid("""
            def scale(x):
                return x / torch.tensor(x.shape[1], device=x.device)  # !
                # + return x / torch.full((), x.shape[1], device=x.device)
        """),
        Invalid("""
            def scale(x):
                return x / torch.tensor(x.shape[1]).to(x.device)  # !
                # + return x / torch.full((), x.shape[1], device=x.device)
        """),
        Invalid("""
            for images, labels in loader:
                lengths = torch.tensor([len(x) for x in images]).to(device, torch.float32)  # !
                loss = criterion(model(images.to(device), lengths), labels.to(device))
                loss.backward()
                optimizer.step()
        """),
        Invalid("""
            class Net(nn.Module):
                def forward(self, x, texts):
                    lengths = torch.tensor([len(t) for t in texts], device=x.device)  # !
                    return self.net(x, lengths)
        """),
        Invalid("""
            for t in scheduler.timesteps:
                step = torch.tensor([t] * len(x), device=device)  # !
                x = model(x, step)
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        made = made_of(node, file)
        if made is None or (made.move is not None and made.move.non_blocking):
            return
        hot = hot_place(node, file)
        if hot is None or is_constant(made, hot, file) or not is_host_data(made, file):
            return
        data = made.data
        unknown = isinstance(data, (ast.Name, ast.Attribute)) and not file.values.of(data).kind
        shape = _filled_shape(data, file)
        if shape:
            advice = f"`torch.full({shape}, …, device={made.device})` fills it on the device without a copy."
        else:
            advice = (
                "Compute it on the device where that is possible; else fill a pinned tensor and copy it with "
                "`non_blocking=True`."
            )
        yield Problem(
            node,
            f"{quote(file, node)} builds a tensor from host data and copies it to the device, {hot.words}; Python waits for "
            f"the copy. {advice}",
            _prior(hot, bool(shape)),
            hot.evidence,
            _fix(made, file) if shape == "()" else None,
            cause=hot.node,
            facts={"one_number": float(bool(shape)), "kind_known": float(not unknown)},
        )


def _filled_shape(data: ast.expr, file: SourceFile) -> str:
    """The size for `torch.full`, when the data are one number, once or repeated; else ""."""
    if file.values.of(data).kind == "scalar":
        return "()"
    if (
        isinstance(data, ast.List)
        and len(data.elts) == 1
        and not isinstance(data.elts[0], (ast.List, ast.Starred))
    ):
        known = file.values.of(data.elts[0]).kind
        return "(1,)" if known == "scalar" else ""
    repeated = (
        isinstance(data, ast.BinOp) and isinstance(data.op, ast.Mult) and isinstance(data.left, ast.List)
    )
    return (
        "(n,)"
        if repeated and isinstance(data, ast.BinOp) and len(getattr(data.left, "elts", ())) == 1
        else ""
    )


def _prior(hot: Hot, simple: bool) -> float:
    return (0.5 if simple else 0.35) if hot.kind != "often" else (0.4 if simple else 0.3)


def _fix(made: Made, file: SourceFile) -> Fix | None:
    """`torch.tensor(n, device=d)` and `torch.tensor(n).to(d)` become `torch.full((), n, device=d)`."""
    func, move = made.factory.func, made.move
    if not isinstance(func, ast.Attribute) or func.attr != "tensor" or made.legacy:
        return None
    end = file.bounds(func)[1]
    start = file.bounds(made.data)[0]
    edits = [Edit(end - len("tensor"), end, "full"), Edit(start, start, "(), ")]
    if move is not None:
        if not move.plain or move.dtype or made.reshaped:
            return None
        edits.append(add_keyword(file, made.factory, f"device={made.device}"))
        edits.append(Edit(file.bounds(move.tensor)[1], file.bounds(move.call)[1], ""))
    return Fix(Safety.UNSAFE, tuple(edits), "the value is a Python number")
