from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import Invalid, Problem, Rule, Severity, SourceFile
from ptopt.rules.code import is_literal, keyword_of
from ptopt.rules.shared.flow import assigned
from ptopt.source.bindings import is_self
from ptopt.source.calls import last_name
from ptopt.source.index import own_nodes, walk

_WRAPPER = "DistributedDataParallel"
_MOVES = frozenset("to cuda float half bfloat16 train requires_grad_".split())
_STEPS = 5
_BRANCHES = (ast.If, ast.IfExp, ast.For, ast.While, ast.Try, ast.ListComp, ast.GeneratorExp)
_NUMBERS = frozenset({"int", "float", "len", "max", "min"})
# What forward must do without, for each parameter to get a gradient on each step.
_SKIPS = re.compile(r"no_grad|inference_mode|detach|requires_grad|set_grad_enabled|freeze")


class FindUnusedParameters(Rule):
    """DDP looks for unused parameters on every step.

    ## What it does
    Finds `find_unused_parameters=True` written out where a model is wrapped of which the class is plain: all its layers
    come from `torch.nn`, and its `forward` runs each of them, under no condition. Other models may hold a head or a
    branch that gets no gradient.

    ## Why it is slow
    After every forward pass the autograd graph is walked on the CPU to find parameters that take no part in it. When
    all of them do, the walk is wasted.

    ## Example
    ```python
    model = DistributedDataParallel(model, find_unused_parameters=True)
    ```

    ## Use instead
    ```python
    model = DistributedDataParallel(model)
    ```

    ## Fix safety
    There is no fix: a loss may read only some of what `forward` returns.

    ## Sources
    - [DistributedDataParallel](https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html)
    """

    id = "PTO707"
    name = "find-unused-parameters"
    family = "optim"
    severity = Severity.LOW
    most_stated = 0.45
    triggers = ("find_unused_parameters",)
    nodes = (ast.Call,)
    when_wrong = "some parameters really get no gradient on some steps"

    VALID = (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = nn.Linear(8, 8)

            def forward(self, x):
                return self.layers(x)

        model = nn.parallel.DistributedDataParallel(Net(), find_unused_parameters=False)
        """,
        "model = nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)",
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = nn.Linear(8, 8)
                self.head = nn.Linear(8, 1000)

            def forward(self, x):
                return self.layers(x)

        model = nn.parallel.DistributedDataParallel(Net().cuda(), find_unused_parameters=True)
        """,
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.encoder = AutoModel.from_pretrained("some/model")
                self.head = nn.Linear(8, 2)

            def forward(self, x):
                return self.head(self.encoder(x).last_hidden_state)

        model = nn.parallel.DistributedDataParallel(Net().cuda(), find_unused_parameters=True)
        """,
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = nn.Linear(8, 8)
                self.extra = nn.Linear(8, 8)

            def forward(self, x, both):
                x = self.layers(x)
                return self.extra(x) if both else x

        model = nn.parallel.DistributedDataParallel(Net().cuda(), find_unused_parameters=True)
        """,
        'parser.add_argument("--find_unused_parameters", default=True)',
    )
    INVALID = (
        Invalid("""
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.layers = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
                    self.head = nn.Linear(8, 2)

                def forward(self, x):
                    return self.head(self.layers(x))

            model = nn.parallel.DistributedDataParallel(Net().cuda(), find_unused_parameters=True)  # !
        """),
        Invalid("""
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.conv = nn.Conv2d(3, 8, 3)

                def forward(self, x):
                    return self.conv(x)

            model = Net()
            model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
            model = nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)  # !
        """),
        Invalid("""
            class Net(nn.Module):
                def __init__(self, width):
                    super().__init__()
                    self.scale = nn.Parameter(torch.ones(width))
                    self.width = width

                def forward(self, x):
                    return x * self.scale

            def wrap(rank):
                net = Net(8)
                net.to(rank)
                return nn.parallel.DistributedDataParallel(module=net, find_unused_parameters=True)  # !
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call):
            return
        origin = file.imports.qualified(node.func).rpartition(".")[2] or last_name(node.func)
        if origin != _WRAPPER or not is_literal(keyword_of(node, "find_unused_parameters"), True):
            return
        model = node.args[0] if node.args else keyword_of(node, "module")
        if model is None or file.search(_SKIPS) or not _uses_all(model, file):
            return
        yield Problem(
            node,
            "DDP walks the autograd graph after every forward pass to look for unused parameters. Drop the switch if "
            "every parameter gets a gradient; torch warns in the log when it finds none unused.",
            0.45,
        )


def _uses_all(model: ast.expr, file: SourceFile) -> bool:
    """Does the forward of the model run all layers that its class makes?"""
    made = _made(model, file, _STEPS)
    name = last_name(made.func) if made is not None else ""
    if not name:
        return False
    local = next((c for c in file.index.of_type(ast.ClassDef) if c.name == name), None)
    found = (file, local) if local is not None else file.repository.class_named(file, name)
    return found is not None and _is_plain(found[1], found[0])


def _made(model: ast.expr, file: SourceFile, steps: int) -> ast.Call | None:
    """The call that makes the model, through names, moves and `convert_sync_batchnorm`."""
    if not steps:
        return None
    if isinstance(model, ast.Name):
        value = assigned(model, file)
        return _made(value, file, steps - 1) if value is not None else None
    if not isinstance(model, ast.Call):
        return None
    if last_name(model.func) == "convert_sync_batchnorm":
        return _made(model.args[0], file, steps - 1) if model.args else None
    if isinstance(model.func, ast.Attribute) and model.func.attr in _MOVES:
        return _made(model.func.value, file, steps - 1)
    return model


def _is_plain(cls: ast.ClassDef, file: SourceFile) -> bool:
    """A direct `nn.Module` whose layers are those of torch, each of them read in `forward`, which has no branches."""
    methods = {n.name: n for n in cls.body if isinstance(n, ast.FunctionDef)}
    init, forward = methods.get("__init__"), methods.get("forward")
    if init is None or forward is None or [last_name(base) for base in cls.bases] != ["Module"]:
        return False
    if _SKIPS.search(file.source(cls)) or any(isinstance(n, _BRANCHES) for n in own_nodes(forward)):
        return False
    read = {n.attr for n in own_nodes(forward) if isinstance(n, ast.Attribute) and is_self(n)}
    for node in own_nodes(init):
        if isinstance(node, _BRANCHES):
            return False
        calls = (
            [n for n in walk(node.value) if isinstance(n, ast.Call)] if isinstance(node, ast.Assign) else []
        )
        for target in node.targets if isinstance(node, ast.Assign) else []:
            if not calls or not (isinstance(target, ast.Attribute) and is_self(target)):
                continue
            if target.attr not in read or not all(_of_torch(call, file) for call in calls):
                return False
    return True


def _of_torch(call: ast.Call, file: SourceFile) -> bool:
    """A layer or a tensor of torch, or a number."""
    return file.imports.qualified(call.func).startswith("torch.") or last_name(call.func) in _NUMBERS
