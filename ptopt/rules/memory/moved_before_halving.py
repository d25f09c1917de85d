from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import ClassVar

from ptopt.rules.base import Evidence, Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import quote
from ptopt.rules.shared.flow import is_dtype
from ptopt.source.calls import last_name

_HALVES = frozenset({"half", "bfloat16"})
_MODEL = re.compile(
    r"model|net|encoder|decoder|vae|unet|transformer|module|backbone|pipe|clip|llm|generator", re.I
)
_LOADS = re.compile(r"(^|\.)(from_pretrained|from_single_file)$")
_MOST_LINES = 25


class MovedBeforeHalving(Rule):
    """A model is loaded, or sent to the GPU, in full precision and halved afterwards.

    ## What it does
    Finds `model.cuda().half()`, `model.to(device)` with `model.half()` or `model.to(torch.bfloat16)` after it, and
    `from_pretrained(...).half()` without a dtype.

    ## Why it is slow
    All weights cross the bus and lie on the GPU in 4 bytes each before half of that is freed again, so the peak is twice
    what the model needs. `from_pretrained` without a dtype likewise fills host memory with float32 first.

    ## When this is wrong
    When the checkpoint is stored in half precision and loaded as it is.

    ## Fix safety
    There is no fix: what lies between the two may rely on either.

    ## Sources
    - [torch.nn.Module.to](https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.to)
    """

    id = "PTO814"
    name = "moved-before-halving"
    family = "memory"
    most_stated = 0.45
    since: ClassVar[Mapping[str, str]] = {"transformers": "4.9"}
    nodes = (ast.Call,)
    calls = frozenset({"half", "bfloat16", "to"})
    when_wrong = "the weights are in half precision already"

    VALID = (
        """
        def forward(self, edge_attr):
            return self.fc_layer(edge_attr).to(self.device).to(torch.float16)
        """,
        """
        model = Net().half().cuda()
        """,
        """
        x = image.to(device).half()
        """,
        """
        model = AutoModel.from_pretrained(path, torch_dtype=torch.float16).to(device)
        """,
    )
    INVALID = (
        Invalid("""
            model = build(config).cuda().half()  # !
            # ~ model = build(config).to("cuda", torch.float16)
        """),
        Invalid("""
            model.to(self.device)
            model.eval()
            if not self.full_precision:
                model.half()  # !
        """),
        Invalid("""
            model = AutoModel.from_pretrained(path).to(torch.bfloat16)  # !
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if (
            not isinstance(node, ast.Call)
            or not isinstance(node.func, ast.Attribute)
            or not _narrows(node, file)
        ):
            return
        chain: ast.expr = node.func.value
        names = []
        while isinstance(chain, ast.Call) and isinstance(chain.func, ast.Attribute):
            if _LOADS.search(chain.func.attr):
                if not any(
                    k.arg is None or "dtype" in (k.arg or "") or k.arg == "variant" for k in chain.keywords
                ):
                    yield self._loaded(node, chain, file)
                return
            names.append(chain)
            chain = chain.func.value
        moved = next((c for c in names if _moves(c, file)), None)
        subject = file.source(chain)
        if isinstance(chain, ast.Subscript):
            return
        if moved is not None:
            if (
                (isinstance(chain, ast.Call) and _makes_model(chain))
                or file.values.is_a(chain, "module")
                or _MODEL.search(subject)
            ) and not file.values.is_tensor(node.func.value):
                yield self._moved(node, moved, subject if isinstance(chain, ast.Name) else "model", file)
            return
        if names or not isinstance(chain, (ast.Name, ast.Attribute)) or not _MODEL.search(subject):
            return
        earlier = [
            call
            for call in (*file.calls_named("to"), *file.calls_named("cuda"))
            if node.lineno - _MOST_LINES <= call.lineno < node.lineno
            and isinstance(call.func, ast.Attribute)
            and file.source(call.func.value) == subject
            and _moves(call, file)
            and file.index.function_of(call) is file.index.function_of(node)
        ]
        if earlier and not file.values.is_tensor(chain):
            yield self._moved(node, earlier[-1], subject, file)

    def _moved(self, node: ast.Call, moved: ast.Call, name: str, file: SourceFile) -> Problem:
        where = f" on line {moved.lineno}" if moved.lineno != node.lineno else ""
        return Problem(
            node,
            f"The weights of `{name}` are sent to the GPU in full precision{where} and halved there, so they take twice the "
            f"memory for a moment and twice the transfer. Halve them first: `{name}.half().to(device)`.",
            0.45,
            (Evidence(moved.lineno, "sent in full precision"),) if where else (),
            facts={"same_statement": where == "", "lines_between": node.lineno - moved.lineno},
        )

    def _loaded(self, node: ast.Call, load: ast.Call, file: SourceFile) -> Problem:
        return Problem(
            node,
            f"{quote(file, load, 40)} has no dtype, so the weights may be loaded in float32 and only then converted, with both "
            "sizes in memory. Pass `torch_dtype=torch.float16` (or bfloat16) to `from_pretrained`.",
            0.4,
            facts={"from_pretrained": 1},
        )


def _makes_model(call: ast.Call) -> bool:
    """A class, or a function that is named for it: the call of a network gives activations."""
    name = last_name(call.func)
    return name[:1].isupper() or name.startswith(("build", "create", "get_", "load", "make", "from_"))


def _narrows(call: ast.Call, file: SourceFile) -> bool:
    """Does it convert to half precision, or to a dtype that is not named, and does not move?"""
    func = call.func
    if not isinstance(func, ast.Attribute):
        return False
    if func.attr in _HALVES:
        return not call.args and not call.keywords
    given = [*call.args, *(k.value for k in call.keywords)]
    if len(given) != 1 or not is_dtype(given[0], file):
        return False
    return not file.source(given[0]).endswith(("float32", "torch.float", "float64", "double"))


def _moves(call: ast.Call, file: SourceFile) -> bool:
    """Does it send to a device other than the CPU, without changing the dtype?"""
    func = call.func
    if not isinstance(func, ast.Attribute) or func.attr not in ("to", "cuda"):
        return False
    given = [*call.args, *(k.value for k in call.keywords if k.arg == "device")]
    if func.attr == "cuda":
        return True
    if len(given) != 1 or any(k.arg == "dtype" for k in call.keywords) or is_dtype(given[0], file):
        return False
    return "cpu" not in file.source(given[0])
