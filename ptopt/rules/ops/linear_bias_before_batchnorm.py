from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import Benchmark, Evidence, Fix, Invalid, Problem, Rule, Safety, Severity, SourceFile
from ptopt.rules.code import add_keyword, has_unpacking, keyword_of, quote
from ptopt.rules.ops._bias_initialisers import bias_initialiser, may_fail_elsewhere
from ptopt.source.bindings import is_self
from ptopt.source.calls import called_name

_BIASED = {  # position of `bias` among the arguments
    "Linear": 2,
    "Conv1d": 7,
    "Conv2d": 7,
    "Conv3d": 7,
    "ConvTranspose1d": 7,
    "ConvTranspose2d": 7,
    "ConvTranspose3d": 7,
}
_NORMS = frozenset({"BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm"})
_PRETRAINED = re.compile(
    r"PreTrainedModel|pretrained|load_state_dict|state_dict_from_url|hf_hub|load_model\b", re.I
)
_LOADS = re.compile(rb"load_state_dict\(|load_model\(|load_checkpoint\(|load_weights\(")
_TRAINS = re.compile(r"\.backward\(|training_step|\boptim\.[A-Z]")
_NORM_NAME = re.compile(r"^(batch_?norm|bn)\d*$", re.I)


class LinearBiasBeforeBatchnorm(Rule):
    """A bias is added and subtracted again by the batch norm that follows.

    ## What it does
    Finds `nn.Linear` and convolutions with a bias that stand directly before a batch norm, in the arguments of
    `nn.Sequential`, in a list of layers, or in consecutive `layers.append(...)`, and layers whose output
    `forward` hands to a batch norm: `self.bn(self.conv(x))`.

    ## Why it is slow
    Batch norm subtracts the mean of each channel and adds a bias of its own: the first bias has no effect. It
    costs a kernel or a fused add, a gradient reduced over the whole batch, and optimizer state.

    ## When this is wrong
    When existing checkpoints hold the bias (where the repository loads weights into the class, nothing is said), or the batch
    norm is switched off by replacing it.

    ## Fix safety
    Unsafe: checkpoints saved before hold a key for the bias, and no longer load strictly. None is offered where code that
    initialises the weights sets `m.bias` of modules without a test for None, which would fail, or where nothing shows what
    contains the class.

    ## Sources
    - [PyTorch performance tuning guide: disable bias for convolutions directly followed by a batch norm](https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html)
    """

    id = "PTO414"
    name = "linear-bias-before-batchnorm"
    family = "ops"
    severity = Severity.LOW
    most_stated = 0.6
    triggers = ("BatchNorm", "batch_norm", "batchnorm")
    nodes = (ast.Call,)
    calls = frozenset(_BIASED)
    when_wrong = "existing checkpoints hold the bias"

    VALID = (
        """
        block = nn.Sequential(nn.Conv2d(64, 64, 3, bias=False), nn.BatchNorm2d(64))
        """,
        """
        block = nn.Sequential(nn.Conv2d(64, 64, 3), nn.ReLU(), nn.BatchNorm2d(64))
        """,
        """
        class Detector(nn.Module):
            def __init__(self, weights):
                self.block = nn.Sequential(nn.Conv2d(64, 64, 3), nn.BatchNorm2d(64), nn.ReLU())
                self.load_state_dict(torch.load(weights))
        """,
        """
        class Encoder(nn.Module):
            def __init__(self):
                self.block = nn.Sequential(nn.Conv2d(64, 64, 3), nn.BatchNorm2d(64), nn.ReLU())
        """,
        """
        block = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8, track_running_stats=True) if norm else nn.Identity())
        """,
        """
        self.heads = nn.ModuleDict({"a": nn.Linear(8, 8), "b": nn.BatchNorm1d(8)})
        """,
        """
        block = nn.Sequential(nn.Conv2d(3, 8, 3, 1, 1, 1, 1, use_bias), nn.BatchNorm2d(8))
        block = nn.Sequential(nn.Conv2d(3, 8, 3, bias=True), nn.BatchNorm2d(8))
        """,
    )
    INVALID = (
        Invalid("""
            optimizer = torch.optim.SGD(net.parameters(), 0.1)
            block = nn.Sequential(nn.Conv2d(64, 64, 3), nn.BatchNorm2d(64), nn.ReLU())  # !
            # + block = nn.Sequential(nn.Conv2d(64, 64, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU())
        """),
        Invalid("""
            class Net(nn.Module):
                def __init__(self):
                    self.block = nn.Sequential(nn.Conv2d(64, 64, 3), nn.BatchNorm2d(64), nn.ReLU())  # !
                    for m in self.modules():
                        if isinstance(m, nn.Conv2d):
                            nn.init.zeros_(m.bias)

            optimizer = torch.optim.SGD(Net().parameters(), 0.1)
        """),
        Invalid("""
            def init(m):
                if isinstance(m, nn.Linear) and m.bias is not None:
                    m.bias.data.zero_()
                elif isinstance(m, nn.BatchNorm1d):
                    nn.init.zeros_(m.bias)

            optimizer = torch.optim.SGD(net.parameters(), 0.1)
            block = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU())  # !
            # + block = nn.Sequential(nn.Linear(64, 64, bias=False), nn.BatchNorm1d(64), nn.ReLU())
        """),
        Invalid("""
            optimizer = torch.optim.SGD(net.parameters(), 0.1)
            layers = [
                nn.Linear(8, 16),  # !
                # + nn.Linear(8, 16, bias=False),
                nn.BatchNorm1d(16),
                nn.ReLU(),
            ]
            net = nn.Sequential(*layers)
        """),
        Invalid("""
            optimizer = torch.optim.SGD(net.parameters(), 0.1)
            for width, norm in blocks:
                layers.append(nn.Linear(width, width))  # !
                # + layers.append(nn.Linear(width, width, bias=False))
                layers.append(nn.BatchNorm1d(width))
        """),
        Invalid("""
            optimizer = torch.optim.SGD(net.parameters(), 0.1)
            for width, batch_norm in blocks:
                layers.append(nn.Linear(width, width))  # !
                # + layers.append(nn.Linear(width, width, bias=not batch_norm))
                if batch_norm:
                    layers.append(batch_norm)
        """),
    )
    BENCHMARK = Benchmark(
        setup=(
            "import torch\nfrom torch import nn\nx = torch.randn(16, 32, 28, 28)\n"
            "a = nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32))\n"
            "b = nn.Sequential(nn.Conv2d(32, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32))\n"
            "b[0].weight = a[0].weight"
        ),
        before="result = a(x)",
        after="result = b(x)",
        scope="the two layers",
        sizes="16 x 32 x 28 x 28 float32, forward",
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call):
            return
        leaf = called_name(node)
        if leaf not in _BIASED or has_unpacking(node) or len(node.args) > _BIASED[leaf]:
            return
        if keyword_of(node, "bias") is not None:
            return  # somebody decided
        if file.imports.qualified(node.func) != f"torch.nn.{leaf}":
            return
        if _weights_exist(node, file):
            return
        norm, condition = _next_layer(node, file)
        confidence = _confidence(file)
        if norm is None:
            norm, confidence = _norm_in_forward(node, file), min(confidence, 0.45)
        if norm is None:
            return
        value = f"not {condition}" if condition else "False"
        fails = bias_initialiser(node, leaf, file)
        there = f" of {fails.path}" if fails is not None and fails.path != file.path else ""
        besides = (
            f" Line {fails.line}{there} sets the bias of modules without a test for None, and would fail: add one first."
            if fails is not None
            else ""
        )
        edits = (add_keyword(file, node, f"bias={value}"),)
        when = f" whenever `{condition}` is set" if condition else ""
        yield Problem(
            node,
            f"The bias of {quote(file, node, 40)} has no effect{when}: the batch norm on line {norm.lineno} subtracts the mean of "
            f"each channel. Pass `bias={value}` to save its addition, its gradient and its optimizer state.{besides}",
            confidence,
            (Evidence(norm.lineno, "the batch norm that follows"),),
            Fix(
                Safety.UNSAFE,
                edits,
                "no checkpoint that holds the bias has to load, and nothing else reads the bias of the layer",
            )
            if fails is None and not may_fail_elsewhere(node, leaf, file)
            else None,
            cause=file.index.class_of(node) or file.index.tree,
        )


def _weights_exist(node: ast.AST, file: SourceFile) -> bool:
    """Does something load weights into the network, of which the bias is a part?"""
    if file.search(_PRETRAINED):
        return True
    cls = file.index.class_of(node)
    return cls is not None and file.repository.matches(_LOADS, having=cls.name.encode(), besides=file.path)


def _confidence(file: SourceFile) -> float:
    """A file that trains a model of its own has no weights to keep."""
    return 0.6 if file.search(_TRAINS) else 0.5


def _norm_in_forward(node: ast.Call, file: SourceFile) -> ast.expr | None:
    """The batch norm of the class that gets the output of the layer each time that a method runs it."""
    parent = file.index.parent(node)
    target = parent.targets[0] if isinstance(parent, ast.Assign) else None
    cls = file.index.class_of(node)
    if cls is None or not isinstance(target, ast.Attribute) or not is_self(target):
        return None
    after = file.once(_consumers).get((cls, target.attr), [])
    if not after or len(set(after)) != 1 or not after[0]:
        return None
    norm = file.bindings.attribute(cls, after[0])
    return norm if _is_norm(norm, file) else None


def _consumers(file: SourceFile) -> dict[tuple[ast.ClassDef, str], list[str]]:
    """(class, attribute of a layer) -> for each of its uses, the attribute that is called with the output ("" if none is)."""
    table: dict[tuple[ast.ClassDef, str], list[str]] = {}
    for name in file.uses.named("self"):
        attribute = file.index.parent(name)
        if not isinstance(attribute, ast.Attribute) or not isinstance(attribute.ctx, ast.Load):
            continue
        cls = file.index.class_of(attribute)
        call = file.index.parent(attribute)
        if cls is not None:
            run = call if isinstance(call, ast.Call) and call.func is attribute else None
            table.setdefault((cls, attribute.attr), []).append(
                _called_with(run, file) if run is not None else ""
            )
    return table


def _called_with(call: ast.Call, file: SourceFile) -> str:
    """`bn` of `self.bn(call)`, and of `x = call` with `x = self.bn(x)` in the next statement."""
    parent = file.index.parent(call)
    if isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Name):
        block = getattr(file.index.parent(parent), "body", [])
        following = block[block.index(parent) + 1 :][:1] if parent in block else []
        after = following[0] if following else None
        value = after.value if isinstance(after, (ast.Assign, ast.Return)) else None
        if isinstance(after, ast.Assign) and ast.dump(after.targets[0]) != ast.dump(parent.targets[0]):
            return ""  # the output of the layer may be read again
        while isinstance(value, ast.Call) and len(value.args) == 1 and isinstance(value.args[0], ast.Call):
            value = value.args[0]
        named = isinstance(value, ast.Call) and len(value.args) == 1 and isinstance(value.args[0], ast.Name)
        if not named or not isinstance(value, ast.Call) or ast.unparse(value.args[0]) != parent.targets[0].id:
            return ""
        parent = value
    if (
        not isinstance(parent, ast.Call)
        or len(parent.args) != 1
        or not isinstance(parent.func, ast.Attribute)
    ):
        return ""
    return parent.func.attr if is_self(parent.func) else ""


def _is_norm(node: ast.AST | None, file: SourceFile) -> bool:
    return (
        isinstance(node, ast.Call)
        and called_name(node) in _NORMS
        and file.imports.qualified(node.func).startswith("torch.nn.")
    )


def _next_layer(call: ast.Call, file: SourceFile) -> tuple[ast.expr | None, str]:
    """The batch norm that gets the output of `call`, and the condition under which it stands there ("" if always)."""
    parent = file.index.parent(call)
    if isinstance(parent, ast.Call) and call in parent.args and called_name(parent) == "append":
        return _next_append(parent, file)
    siblings: list[ast.expr] = []
    if isinstance(parent, ast.Call) and file.imports.qualified(parent.func) == "torch.nn.Sequential":
        siblings = parent.args
    elif isinstance(parent, (ast.List, ast.Tuple)) and isinstance(parent.ctx, ast.Load):
        siblings = parent.elts if _becomes_sequential(parent, file) else []
    if call not in siblings:
        return None, ""
    at = siblings.index(call) + 1
    after = siblings[at : at + 1]
    return (after[0], "") if after and _is_norm(after[0], file) else (None, "")


def _becomes_sequential(layers: ast.List | ast.Tuple, file: SourceFile) -> bool:
    """Is the list unpacked into `nn.Sequential`, returned, or added to a list called `layers`?"""
    parent = file.index.parent(layers)
    if isinstance(parent, ast.Starred):
        outer = file.index.parent(parent)
        return isinstance(outer, ast.Call) and file.imports.qualified(outer.func) == "torch.nn.Sequential"
    target: ast.expr | None = None
    if isinstance(parent, ast.Assign):
        target = parent.targets[0]
    elif isinstance(parent, ast.AugAssign) and isinstance(parent.op, ast.Add):
        target = parent.target
    elif (
        isinstance(parent, ast.Call)
        and isinstance(parent.func, ast.Attribute)
        and parent.func.attr == "extend"
    ):
        target = parent.func.value
    if target is None:
        return False
    return file.source(target) in file.once(_unpacked_into_sequential)


def _unpacked_into_sequential(file: SourceFile) -> frozenset[str]:
    arguments = (argument for call in file.calls_named("Sequential") for argument in call.args)
    return frozenset(file.source(a.value) for a in arguments if isinstance(a, ast.Starred))


def _next_append(append: ast.Call, file: SourceFile) -> tuple[ast.expr | None, str]:
    """The layer appended to the same list by the next statement, which may be `if batch_norm:`."""
    statement = file.index.parent(append)
    block = file.index.parent(statement) if isinstance(statement, ast.Expr) else None
    body = next(
        (b for b in (getattr(block, "body", None), getattr(block, "orelse", None)) if b and statement in b),
        None,
    )
    if body is None or not isinstance(append.func, ast.Attribute):
        return None, ""
    at = body.index(statement) + 1
    following = body[at : at + 1]
    condition = ""
    if following and isinstance(following[0], ast.If) and isinstance(following[0].test, ast.Name):
        if not _NORM_NAME.match(following[0].test.id) or following[0].orelse:
            return None, ""
        condition = following[0].test.id
        following = following[0].body[:1]
    call = following[0].value if following and isinstance(following[0], ast.Expr) else None
    if (
        not isinstance(call, ast.Call)
        or not isinstance(call.func, ast.Attribute)
        or call.func.attr != "append"
    ):
        return None, ""
    if not call.args or ast.dump(call.func.value) != ast.dump(append.func.value):
        return None, ""
    layer = call.args[0]
    named = isinstance(layer, ast.Name) and condition != "" and layer.id == condition
    return (layer, condition) if named or _is_norm(layer, file) else (None, "")
