from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Edit, Fix, Invalid, Problem, Rule, Safety, SourceFile
from ptopt.rules.code import add_keyword, has_unpacking, keyword_of, quote
from ptopt.rules.shared.moves import Move, move_of
from ptopt.rules.transfer._hot import Hot, hot_place
from ptopt.rules.transfer._python_data import MOVES, factory_behind
from ptopt.source.index import LOOPS

_EXACT = frozenset({"zeros", "ones", "empty", "full", "eye"})
_FOLDS_DTYPE = frozenset({"zeros", "ones", "empty", "eye"})
_COMPUTED = frozenset({"arange", "linspace", "logspace", "hann_window", "hamming_window"})
_RANDOM = frozenset({"rand", "randn", "randint", "randperm", "normal"})

_SIZED = frozenset({"empty", "zeros", "ones", "rand", "randn"})  # whose arguments are sizes


class FactoryThenMove(Rule):
    """A tensor is filled on the CPU and then copied to the device.

    ## What it does
    Finds `torch.zeros(n).to(device)`, `torch.arange(n).cuda()`, `torch.arange(n).to(x)` and their kin in training steps,
    forward passes, loops over batches and, less surely, functions that work on their caller's tensors.

    ## Why it is slow
    The tensor is allocated and filled in host memory, then copied over the bus. The copy comes from pageable memory,
    so Python waits for it. With `device=` one small kernel fills it in place and Python does not wait.

    ## When this is wrong
    When the code always runs on the CPU, or when a random tensor has to be the same on each kind of device: the CPU
    and the GPU draw from different random streams.

    ## Fix safety
    Safe for constants and whole-number ranges: the values are the same. Unsafe for random tensors (another random
    stream) and for ranges of floating-point numbers (the last bit may differ).

    ## Sources
    - [PyTorch performance tuning guide: create tensors directly on the target device](https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html)
    """

    id = "PTO201"
    name = "factory-then-move"
    family = "transfer"
    triggers = (".to(", ".cuda(", ".type_as(")
    requires = ("zeros", "ones", "full", "empty", "arange", "eye", "linspace", "rand")
    nodes = (ast.Call,)
    calls = MOVES
    when_wrong = "the code only runs on the CPU, or random values must not depend on the device"

    VALID = (
        """
        class Attention(nn.Module):
            def start(self, x):
                self.weights = torch.zeros(x.size(0), x.size(1)).cuda()

            def forward(self, x, t):
                if t == 0:
                    self.start(x)
                return x * self.weights
        """,
        """
        class Net(nn.Module):
            def __init__(self, dim, device):
                super().__init__()
                self.position = torch.arange(dim).to(device)
        """,
        """
        class Net(nn.Module):
            def forward(self, x):
                return x + torch.arange(x.size(1)).to(x.dtype) + torch.ones(3).to(torch.float16)
        """,
        """
        class Net(nn.Module):
            def forward(self, x):
                if self.mask is None:
                    self.mask = torch.ones(x.size(1)).to(x.device)
                return x * self.mask
        """,
        """
        for images, labels in loader:
            noise = torch.randn(len(images), 100, generator=generator).to(device)
            loss = criterion(model(noise), labels.to(device))
            loss.backward()
            optimizer.step()
        """,
    )
    INVALID = (
        Invalid("""
            class Net(nn.Module):
                def forward(self, x):
                    position = torch.arange(x.size(1)).to(x.device)  # !
                    # + position = torch.arange(x.size(1), device=x.device)
                    return x + self.embedding(position)
        """),
        Invalid("""
            for images, labels in loader:
                state = torch.zeros((len(images))).to(device, torch.float16)  # !
                # + state = torch.zeros((len(images)), device=device, dtype=torch.float16)
                loss = criterion(model(images.to(device), state), labels.to(device))
                loss.backward()
                optimizer.step()
        """),
        Invalid("""
            for images, labels in loader:
                noise = torch.randn(  # !
                    len(images),
                    100,
                ).cuda()
                    # + device="cuda",
                # + )
                loss = criterion(model(noise), labels.cuda())
                loss.backward()
                optimizer.step()
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MOVES
        ):
            return
        factory = factory_behind(node.func.value)
        if factory is None or not isinstance(factory.func, (ast.Attribute, ast.Name)):
            return
        leaf = factory.func.attr if isinstance(factory.func, ast.Attribute) else factory.func.id
        if (
            leaf not in _EXACT | _COMPUTED | _RANDOM
            or file.imports.qualified(factory.func) != f"torch.{leaf}"
        ):
            return
        if leaf in _SIZED and _is_empty(factory):
            return  # nothing is filled, and nothing copied
        if has_unpacking(factory) or any(
            keyword_of(factory, name) is not None
            for name in ("device", "out", "requires_grad", "pin_memory", "generator")
        ):
            return
        move = move_of(node, file)
        hot = hot_place(node, file) if move is not None else None
        if move is None or hot is None:
            return
        yield Problem(
            node,
            f"{quote(file, node)} fills the tensor on the CPU and then copies it to the device, {hot.words}; "
            f"the copy makes Python wait. Create it there: `torch.{leaf}(…, device={move.device})`.",
            _confidence(leaf, hot),
            hot.evidence,
            _fix(move, factory, leaf, file),
            cause=hot.node,
        )


def _confidence(leaf: str, hot: Hot) -> float:
    sure = {"step": 0.85, "forward": 0.8, "loop": 0.75, "often": 0.5}[hot.kind]
    if leaf not in _RANDOM:
        return sure
    # Random numbers drawn on the CPU are the same on every machine: libraries rely on that, training scripts seldom.
    return 0.7 if hot.kind == "step" and isinstance(hot.node, LOOPS) else 0.45


def _fix(move: Move, factory: ast.Call, leaf: str, file: SourceFile) -> Fix | None:
    """Puts `device=` into the factory call and drops the move."""
    if not move.plain:
        return None
    keyword, rest = f"device={move.device}", ""
    if (
        move.dtype
        and move.tensor is factory
        and leaf in _FOLDS_DTYPE
        and keyword_of(factory, "dtype") is None
    ):
        keyword += f", dtype={move.dtype}"
    elif move.dtype:
        rest = f".to({move.dtype})"
    edits = (
        add_keyword(file, factory, keyword),
        Edit(file.bounds(move.tensor)[1], file.bounds(move.call)[1], rest),
    )
    if leaf in _RANDOM:
        return Fix(Safety.UNSAFE, edits, "nobody relies on the values that the CPU's random generator gives")
    if leaf in _COMPUTED and not _whole_numbers(factory, leaf):
        return Fix(Safety.UNSAFE, edits, "the last bit of a floating-point value may differ from the CPU's")
    if (
        isinstance(move.call.func, ast.Attribute)
        and move.call.func.attr == "cuda"
        and _may_be_none(move.call)
    ):
        return Fix(Safety.UNSAFE, edits, f"`{move.device}` is not `None`")
    return Fix(Safety.SAFE, edits)


def _whole_numbers(factory: ast.Call, leaf: str) -> bool:
    """Does `arange` count in whole steps from a whole number, so that every device gives the same values?"""
    if leaf != "arange" or any(k.arg in ("start", "step") for k in factory.keywords):
        return False
    start_and_step = factory.args[:1] + factory.args[2:] if len(factory.args) > 1 else []
    return all(isinstance(a, ast.Constant) and isinstance(a.value, int) for a in start_and_step)


def _may_be_none(call: ast.Call) -> bool:
    return any(not isinstance(v, ast.Constant) for v in [*call.args, *(k.value for k in call.keywords)])


def _is_empty(factory: ast.Call) -> bool:
    """`torch.empty(0, width)`"""
    sizes = [e for a in factory.args for e in (a.elts if isinstance(a, (ast.Tuple, ast.List)) else [a])]
    return any(isinstance(size, ast.Constant) and size.value == 0 for size in sizes)
