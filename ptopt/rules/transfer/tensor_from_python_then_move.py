from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Edit, Fix, Invalid, Problem, Rule, Safety, Severity, SourceFile
from ptopt.rules.code import add_keyword, keyword_of, quote
from ptopt.rules.transfer._hot import hot_place
from ptopt.rules.transfer._python_data import MOVES, Made, is_constant, is_host_data, made_of


class TensorFromPythonThenMove(Rule):
    """A tensor is built from Python values on the CPU and moved to the device by a second call.

    ## What it does
    Finds `torch.as_tensor(values).to(device)`, where the values may be anything, and tensors of tensors such as
    `torch.tensor([a, b]).cuda()`, in training steps, forward passes and loops over batches. A value that never changes is
    `constant-rebuilt-every-step`; of host data that change, `python-data-sent` says what saves the wait as well.

    ## Why it is slow
    One more call is dispatched, and two names the device where one would do. Either way the values cross the bus
    from pageable memory, and Python waits for the copy.

    ## When this is wrong
    When the code only runs on the CPU, or when the CPU tensor is wanted for itself.

    ## Fix safety
    Safe for `torch.tensor` and `torch.as_tensor`: the same values on the same device. Unsafe where the move also
    converts, which may round twice, and for legacy constructors, which take their data type from a global default.

    ## Sources
    - [PyTorch performance tuning guide: create tensors directly on the target device](https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html)
    """

    id = "PTO202"
    name = "tensor-from-python-then-move"
    family = "transfer"
    severity = Severity.LOW
    most_stated = 0.45
    triggers = ("tensor", "Tensor")
    requires = (".to(", ".cuda(", ".type_as(")
    nodes = (ast.Call,)
    calls = MOVES
    when_wrong = "the code only runs on the CPU"

    VALID = (
        """
        class Net(nn.Module):
            def __init__(self, weights, device):
                super().__init__()
                self.weights = torch.tensor(weights).to(device)
        """,
        """
        for images, labels in loader:
            lengths = torch.as_tensor(sizes, device=device)
            loss = criterion(model(images.to(device), lengths), labels.to(device))
            loss.backward()
            optimizer.step()
        """,
        """
        for images, labels in loader:
            state = torch.Tensor(labels).to(device)
            scale = torch.tensor(len(images)).to(torch.float16)
            loss = criterion(model(images.to(device)) * scale, state)
            loss.backward()
            optimizer.step()
        """,
    )
    INVALID = (
        Invalid("""
            for images, labels, sizes in loader:
                lengths = torch.as_tensor(sizes).to(device, torch.float32)  # !
                # + lengths = torch.as_tensor(sizes, dtype=torch.float32, device=device)
                loss = criterion(model(images.to(device), lengths), labels.to(device))
                loss.backward()
                optimizer.step()
        """),
        Invalid("""
            for images, labels, sizes in loader:
                lengths = torch.as_tensor(sizes, dtype=torch.int32).to(device, torch.float32)  # !
                # + lengths = torch.as_tensor(sizes, dtype=torch.int32, device=device).to(torch.float32)
                loss = criterion(model(images.to(device), lengths), labels.to(device))
                loss.backward()
                optimizer.step()
        """),
        Invalid("""
            for images, labels, sizes in loader:
                lengths = torch.as_tensor(sizes).to(device)  # !
                # + lengths = torch.as_tensor(sizes, device=device)
                loss = criterion(model(images.to(device), lengths), labels.to(device))
                loss.backward()
                optimizer.step()
        """),
        Invalid("""
            for images, targets in tqdm(loader):
                scores = model(images.to(device)).softmax(1)
                targets[:, 2:] *= torch.Tensor([[scores.max(), scores.min()]]).to(device)  # !
                # + targets[:, 2:] *= torch.tensor([[scores.max(), scores.min()]], dtype=torch.float32, device=device)
                evaluate(scores, targets)
        """),
        Invalid("""
            class Net(nn.Module):
                def forward(self, x, sizes):
                    sizes = torch.as_tensor(sizes, dtype=torch.long).unsqueeze(0).cuda()  # !
                    # + sizes = torch.as_tensor(sizes, dtype=torch.long, device="cuda").unsqueeze(0)
                    return self.embed(sizes) + x
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MOVES
        ):
            return
        made = made_of(node, file)
        if made is None or made.move is None or made.move.non_blocking:
            return
        hot = hot_place(node, file)
        if hot is None or is_constant(made, hot, file) or is_host_data(made, file):
            return  # of host data `python-data-sent` says what helps more
        yield Problem(
            node,
            f"{quote(file, node)} makes a CPU tensor and moves it in a second call, {hot.words}. Pass "
            f"`device={made.device}` to the factory: "
            + (
                "the values are still copied, and converted in a call of their own as before."
                if _converts_apart(made)
                else "one call less, though the values are still copied."
            ),
            0.35 if hot.kind == "often" else 0.45,
            hot.evidence,
            _fix(made, file),
            cause=hot.node,
        )


def _converts_apart(made: Made) -> bool:
    """Does the move change the data type too, in a way that the factory cannot: it has one already, or steps stand between?"""
    move = made.move
    if move is None or not move.dtype:
        return False
    return (
        bool(made.legacy) or keyword_of(made.factory, "dtype") is not None or move.tensor is not made.factory
    )


def _fix(made: Made, file: SourceFile) -> Fix | None:
    """Puts `device=` into the factory call and drops the move."""
    move, factory = made.move, made.factory
    if move is None or not move.plain or (made.legacy and not isinstance(factory.func, ast.Attribute)):
        return None
    keyword, rest = f"device={made.device}", ""
    if made.legacy and isinstance(factory.func, ast.Attribute):
        keyword = f"dtype={file.source(factory.func.value)}.{made.legacy}, {keyword}"
    if _converts_apart(made):
        rest = f".to({move.dtype})"
    elif move.dtype:
        keyword = f"dtype={move.dtype}, {keyword}"
    edits = [
        add_keyword(file, factory, keyword),
        Edit(file.bounds(move.tensor)[1], file.bounds(move.call)[1], rest),
    ]
    if not made.legacy:
        if move.dtype and not rest:
            return Fix(
                Safety.UNSAFE,
                tuple(edits),
                "the numbers may be rounded to that data type in one step instead of two",
            )
        return Fix(Safety.SAFE, tuple(edits))
    end = file.bounds(factory.func)[1]
    leaf = file.source(factory.func).rpartition(".")[2]
    edits.append(Edit(end - len(leaf), end, "tensor"))
    return Fix(
        Safety.UNSAFE, tuple(edits), "the list holds numbers, and the default data type was not changed"
    )
