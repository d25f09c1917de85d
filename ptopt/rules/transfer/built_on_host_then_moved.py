from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Evidence, Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import quote
from ptopt.rules.shared.moves import move_of
from ptopt.rules.transfer._hot import hot_place
from ptopt.rules.transfer._origins import built_from_factories, sources
from ptopt.rules.transfer._python_data import MOVES, factory_behind
from ptopt.source.calls import called_name


class BuiltOnHostThenMoved(Rule):
    """A tensor is computed on the CPU from factory calls, and then moved to the device.

    ## What it does
    Finds moves of tensors that were computed on the CPU from nothing but `arange`, `zeros`, `linspace` and their kin:
    a mask, a grid, a table. A factory call that is moved at once is `factory-then-move`.

    ## Why it is slow
    Each operation runs on the CPU while the device could do it, and the result is copied from pageable memory: Python
    waits for the copy, every time.

    ## When this is wrong
    When the tensor is filled element by element in Python, which the CPU does faster, the code runs on the CPU, or random
    numbers have to be the same on each kind of device: the CPU and the GPU draw from different random streams.

    ## Fix safety
    No fix: the change touches several lines.

    ## Sources
    - [PyTorch performance tuning guide: create tensors directly on the target device](https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html)
    """

    id = "PTO230"
    name = "built-on-host-then-moved"
    family = "transfer"
    most_stated = 0.6
    triggers = (".to(", ".cuda(", ".type_as(")
    requires = (
        "zeros",
        "ones",
        "full",
        "empty",
        "arange",
        "eye",
        "linspace",
        "rand",
        "tril_indices",
        "meshgrid",
    )
    nodes = (ast.Call,)
    calls = MOVES
    when_wrong = "Python fills the tensor element by element, random numbers must not depend on the device, or the code runs on the CPU"

    VALID = (
        """
        def noise(x, generator):
            return (torch.rand(x.size(0), generator=generator) * 2 - 1).to(x.device)
        """,
        """
        def mask(x):
            return torch.arange(x.size(1), device=x.device).unsqueeze(0) < x
        """,
        """
        def mask(x, lengths):
            out = torch.zeros(len(lengths), x.size(1))
            for i, n in enumerate(lengths):
                out[i, :n] = 1
            return out.to(x.device)
        """,
        """
        def grid(self, n, device):
            self.grid = torch.stack(torch.meshgrid(torch.arange(n), torch.arange(n))).to(device)
        """,
    )
    INVALID = (
        Invalid("""
            def encode(x, channels):
                table = torch.zeros(x.size(1), channels)
                # ~ table = torch.zeros(x.size(1), channels, device=x.device)
                place = torch.arange(x.size(1)).unsqueeze(1)
                # ~ place = torch.arange(x.size(1), device=x.device).unsqueeze(1)
                table[:, 0::2] = torch.sin(place)
                table[:, 1::2] = torch.cos(place)
                return x + table.to(x.device)  # !
                # ~ return x + table
        """),
        Invalid("""
            class Corr:
                def __call__(self, coords, r):
                    d = torch.linspace(-r, r, 2 * r + 1)
                    delta = torch.stack(torch.meshgrid(d, d), dim=-1).to(coords.device)  # !
                    return coords + delta
        """),
        Invalid("""
            def causal(x):
                mask = torch.triu(torch.ones(x.size(1), x.size(1)), diagonal=1) == 1
                return x.masked_fill(mask.to(x.device), 0.0)  # !
        """),
        Invalid("""
            class Net(nn.Module):
                def forward(self, x):
                    steps = (torch.arange(x.size(1)) / 3).floor().to(x.device)  # !
                    return x + steps
        """),
        Invalid("""
            class Embedding(nn.Module):
                def forward(self, t):
                    table = torch.zeros(self.length, self.dim)
                    table[:, 0::2] = torch.sin(torch.arange(self.length).unsqueeze(1))
                    table = table.to(t.device)  # !
                    return table[t]
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        move = move_of(node, file)
        if move is None or file.values.of(move.tensor).device != "cpu":
            return
        made = built_from_factories(move.tensor, file)
        if made is None or any(map(_has_stream, made)):
            return
        if _factory_moved(move.tensor, made) or _filled_in_loop(move.tensor, file):
            return
        hot = hot_place(node, file)
        parent = file.index.parent(node)
        if hot is None or (isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Attribute)):
            return  # what an attribute keeps is made once, for all that is known
        first = made[0]
        drawn = any(called_name(call).startswith("rand") and called_name(call) != "randperm" for call in made)
        calls = f"factory call{'s' if len(made) > 1 else ''}"
        if any(_writes(move.tensor, file)):
            calls = "factory calls, those of what it is filled with included,"
        instead = f"keep only `.to({move.dtype})` of the move" if move.dtype else "drop the move"
        remedy = f"Pass `device={move.device}` to the {calls} instead, and {instead}."
        if drawn:
            remedy += " The GPU draws other random numbers than the CPU."
        constant = hot.kind == "forward" and not drawn and not _varies(move.tensor, file)
        if constant:
            remedy = "Nothing in it changes from call to call: build it once, in `__init__`, with `register_buffer`."
        yield Problem(
            node,
            f"{quote(file, move.tensor)} is computed on the CPU from {quote(file, first, 40)} (line {first.lineno}) and then "
            f"copied to the device, {hot.words}; the copy makes Python wait. {remedy}",
            0.45 if drawn else 0.6 if hot.kind in ("step", "forward") else 0.5,
            (Evidence(first.lineno, "made on the CPU"), *hot.evidence),
            cause=hot.node,
            subject=move.tensor,
            facts={"factories": float(len(made)), "constant": float(constant)},
        )


def _factory_moved(tensor: ast.expr, made: list[ast.Call]) -> bool:
    """Only methods that rearrange stand between the factory and the move: `factory-then-move` speaks."""
    return factory_behind(tensor) is made[0] and len(made) == 1


def _has_stream(factory: ast.Call) -> bool:
    """Does it draw from a generator of its own? That one belongs to the device that it was made for."""
    return any(keyword.arg == "generator" for keyword in factory.keywords)


def _filled_in_loop(tensor: ast.expr, file: SourceFile) -> bool:
    """Is the tensor written to by subscript in a loop? Many small writes are the CPU's business."""
    own = next(file.index.loops_of(tensor), None)
    return any(next(file.index.loops_of(write), None) is not own for write in _writes(tensor, file))


def _varies(tensor: ast.expr, file: SourceFile) -> bool:
    """Is any of it computed from an argument of the call? What only picks from the finished table is not."""
    while isinstance(tensor, ast.Subscript):
        tensor = tensor.value
    names = [
        node
        for node in sources(tensor, file)
        if isinstance(node, ast.Name) and node.id not in ("self", "cls")
    ]
    written = [
        parent
        for write in _writes(tensor, file)
        if isinstance(parent := file.index.parent(write), ast.Assign)
    ]
    names += [n for assign in written for n in sources(assign.value, file) if isinstance(n, ast.Name)]
    bound = [file.bindings.last_before(name) for name in names if name.id not in ("self", "cls")]
    return any(binding is not None and binding.kind != "assign" for binding in bound)


def _writes(tensor: ast.expr, file: SourceFile) -> Iterator[ast.Subscript]:
    """`table[...] = ...` of a name that holds it."""
    if not isinstance(tensor, ast.Name):
        return
    for use in file.uses.loads(file.index.function_of(tensor), tensor.id):
        parent = file.index.parent(use)
        if isinstance(parent, ast.Subscript) and isinstance(parent.ctx, ast.Store):
            yield parent
