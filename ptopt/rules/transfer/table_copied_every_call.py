from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import ClassVar

from ptopt.rules.base import Edit, Evidence, Fix, Invalid, Problem, Rule, Safety, SourceFile
from ptopt.rules.code import quote
from ptopt.rules.shared.moves import Move, move_of
from ptopt.rules.transfer._hot import attributes_set_in
from ptopt.source.file import remembered
from ptopt.source.frequency import Often
from ptopt.source.index import FUNCTIONS, FunctionNode

_SET_UP = re.compile(
    r"^(__init__|__setstate__|to|cuda|cpu|_apply|setup|build|load|from)|^_?(set|init|reset|register|load|save|export)_"
)
_MODULE = re.compile(r"(Module|Model|Layer|Net|Block|Encoder|Decoder|Attention|Embedding|Loss)$")
_CALLED_SELDOM = re.compile(
    r"(Pipeline|Processor|Extractor|Tokenizer|Generator)$"
)  # once an image, or a text


class TableCopiedEveryCall(Rule):
    """A table that `__init__` builds on the CPU is copied to the device of the input on every call.

    ## What it does
    Finds `self.table.to(x.device)` in a method where `x` is a parameter, `__init__` built `self.table` on the CPU, and
    the moved table is not kept.

    ## Why it is slow
    The table never changes, but each call sends it over the bus again, from pageable memory: Python waits for the copy.

    ## When this is wrong
    When the table is kept on the CPU on purpose, or when one object serves inputs on several devices.

    ## Fix safety
    Unsafe: the attribute stays on the device. In a module, a buffer (`register_buffer`) is the better place for it.

    ## Sources
    - [PyTorch performance tuning guide: avoid unnecessary CPU-GPU synchronization](https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html)
    """

    id = "PTO207"
    name = "table-copied-every-call"
    family = "transfer"
    triggers = (".to(", ".cuda(")
    requires = ("__init__",)
    partly: ClassVar[frozenset[str]] = frozenset({"persistent=False"})
    nodes = (ast.Call,)
    calls = frozenset({"to", "cuda"})
    when_wrong = "the table is kept on the CPU on purpose, or one object serves inputs on several devices"

    VALID = (
        """
        class Net(nn.Module):
            def __init__(self, n):
                super().__init__()
                self.register_buffer("table", torch.arange(n))

            def forward(self, x):
                return x + self.table.to(x.device)
        """,
        """
        class Scheduler:
            def __init__(self, betas):
                self.alphas = torch.cumprod(1.0 - torch.tensor(betas), dim=0)

            def add_noise(self, x, t):
                self.alphas = self.alphas.to(x.device)
                return self.alphas.to(x.device, x.dtype)[t] * x
        """,
        """
        class Scheduler:
            def __init__(self, n):
                self.sigmas = torch.linspace(0, 1, n)
                self.sigmas = self.sigmas.to("cpu")  # read as numbers in each step

            def add_noise(self, x, t):
                return self.sigmas.to(x.device)[t] * x
        """,
        """
        class Trainer:
            def __init__(self, model):
                self.model = model

            def evaluate(self, batch):
                return self.model.to(batch.device)(batch)
        """,
    )
    INVALID = (
        Invalid("""
            class Scheduler:
                def __init__(self, betas):
                    self.betas = torch.tensor(betas)
                    self.alphas = torch.cumprod(1.0 - self.betas, dim=0)

                def add_noise(self, x, noise, t):
                    alphas = self.alphas.to(device=x.device, dtype=x.dtype)  # !
                    # + self.alphas = self.alphas.to(device=x.device)
                    # + alphas = self.alphas.to(dtype=x.dtype)
                    return alphas[t] * x + (1 - alphas[t]) * noise
        """),
        Invalid("""
            class Net(nn.Module):
                def __init__(self, n):
                    super().__init__()
                    self.position = torch.arange(n)

                def forward(self, x):
                    return x + self.position.to(x.device)  # !
        """),
        Invalid("""
            class Loss:
                def __init__(self, weights):
                    self.weights = torch.tensor(weights)

                def __call__(self, output, target):
                    weights = self.weights.to(output.device)  # !
                    # + self.weights = self.weights.to(device=output.device)
                    # + weights = self.weights
                    return F.cross_entropy(output, target, weights)
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("to", "cuda")
        ):
            return
        table = node.func.value
        if not (
            isinstance(table, ast.Attribute)
            and isinstance(table.value, ast.Name)
            and table.value.id == "self"
        ):
            return
        move = move_of(node, file)
        method = file.index.function_of(node)
        cls = file.index.parent(method) if method is not None else None
        if move is None or method is None or not isinstance(cls, ast.ClassDef) or _SET_UP.search(method.name):
            return
        sure = _of_parameter(move, method) and not _CALLED_SELDOM.search(cls.name)
        made = file.bindings.attribute(cls, table.attr)
        value = file.values.of(made) if made is not None else None
        if made is None or value is None or value.kind != "tensor" or value.device != "cpu":
            return
        if _kept(table.attr, cls, file) or file.guards.rare(node) is not None:
            return
        if not sure and file.frequencies.of(node).often < Often.EVALUATION:
            return  # last, as it may take other files to tell
        module = any(_MODULE.search(file.source(base)) for base in cls.bases)
        unsaved = ", persistent=False" if file.facts.has("persistent=False") else ""
        advice = (
            f'`self.register_buffer("{table.attr}", …{unsaved})` in `__init__` lets it move with the module.'
            if module
            else f"Keep the moved table: `self.{table.attr} = self.{table.attr}.to({move.device})`."
        )
        yield Problem(
            node,
            f"`self.{table.attr}` is built on the CPU (line {made.lineno}), and {quote(file, node)} copies it to the device "
            f"on every call of `{method.name}`; Python waits for the copy. {advice}",
            0.75 if sure else 0.4,
            (Evidence(made.lineno, f"`self.{table.attr}` is made on the CPU"),),
            None if module else _fix(move, table.attr, file),
            cause=made,
        )


def _of_parameter(move: Move, method: FunctionNode) -> bool:
    """Is the device that of a parameter: `x.device`? Then the method works on data, and is called again and again."""
    root, dot, last = move.device.partition(".")
    return bool(dot) and last == "device" and root != "self" and any(a.arg == root for a in method.args.args)


@remembered
def _kept(name: str, cls: ast.ClassDef, file: SourceFile) -> bool:
    """Is the attribute a buffer, given another value elsewhere in the class, or sent to the CPU on purpose?"""
    others = [m for m in cls.body if isinstance(m, FUNCTIONS) and m.name != "__init__"]
    if any(name in attributes_set_in(method) for method in others):
        return True
    return (cls, name) in file.once(_registered_or_sent)


def _registered_or_sent(file: SourceFile) -> frozenset[tuple[ast.AST, object]]:
    """(class, attribute) of what the class registers as a buffer, or sends to the CPU."""
    found: set[tuple[ast.AST, object]] = set()

    def note(call: ast.Call, name: object) -> None:
        found.update((a, name) for a, _ in file.index.ancestors(call) if isinstance(a, ast.ClassDef))

    for call in [*file.calls_named("register_buffer"), *file.calls_named("register_parameter")]:
        if call.args and isinstance(call.args[0], ast.Constant):
            note(call, call.args[0].value)
    sent = [
        *file.calls_named("cpu"),
        *(c for c in file.calls_named("to") if c.args and _spells(c.args[0], "cpu")),
    ]
    for call in sent:
        if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Attribute):
            note(call, call.func.value.attr)
    return frozenset(found)


def _spells(node: ast.expr, text: str) -> bool:
    return isinstance(node, ast.Constant) and node.value == text


def _fix(move: Move, name: str, file: SourceFile) -> Fix | None:
    """Keeps the moved table in one statement, and uses it in the next."""
    assign = file.index.parent(move.call)
    if not move.plain or not isinstance(assign, ast.Assign) or assign.value is not move.call:
        return None
    start, _ = file.bounds(assign)
    line = file.line(assign.lineno)
    indent = line[: assign.col_offset]
    if indent.strip():
        return None
    rest = f".to(dtype={move.dtype})" if move.dtype else ""
    return Fix(
        Safety.UNSAFE,
        (
            Edit(start, start, f"self.{name} = self.{name}.to(device={move.device})\n{indent}"),
            Edit(file.bounds(move.tensor)[1], file.bounds(move.call)[1], rest),
        ),
        f"nothing else needs `self.{name}` on the CPU",
    )
