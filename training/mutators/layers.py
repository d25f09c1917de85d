"""Modules that make constants, layers or tables again on each call, and a bias that does nothing."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.findings import Edit
from ptopt.rules.code import keyword_of
from ptopt.source.calls import last_name
from ptopt.source.file import SourceFile
from training.mutators.base import (
    Mutation,
    insert_before,
    names,
    need_import,
    pick,
    remove_keyword,
    replace,
    words,
)

_HEAD = "import math\nimport torch\nimport torch.nn.functional as F\nfrom torch import nn\n\n\nclass Net(nn.Module):\n"


def _forward(body: str) -> str:
    return f"{_HEAD}    def forward(self, x, q, k, v):\n" + "".join(
        f"        {line}\n" for line in body.split("\n")
    )


class ConstantRebuilt:
    """A number in an expression becomes a tensor that is copied to the device."""

    rule = "constant-rebuilt-every-step"
    examples = (
        (
            (
                "import torch\n\n\nfor x in loader:\n    x = torch.log(x.to(device))\n    loss = model(x * 0.5)\n"
                "    loss.backward()\n    optimizer.step()\n"
            ),
            (
                "import torch\n\n\nfor x in loader:\n    x = torch.log(x.to(device))\n    loss = model(x * torch.tensor(0.5, device=x.device))\n"
                "    loss.backward()\n    optimizer.step()\n"
            ),
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        known = {"device"} & {n.id for n in source.index.of_type(ast.Name)}
        for node in source.index.of_type(ast.BinOp):
            left, right = node.left, node.right
            if not isinstance(right, ast.Constant) or not isinstance(right.value, float):
                continue
            if isinstance(left, (ast.Name, ast.Attribute)):
                device = f"{source.source(left)}.device"
            elif known:
                device = "device"
            else:
                continue
            if not source.values.is_tensor(left):
                continue
            text = f"torch.tensor({source.source(right)}, device={device})"
            yield Mutation((*need_import(source, "torch", "import torch"), replace(source, right, text)))


class ScalarListRebuilt:
    """Images that a module is given are normalised by a list that is made a tensor each time."""

    rule = "constant-rebuilt-every-step"
    examples = (
        (
            f"{_HEAD}    def forward(self, images: torch.Tensor):\n        return self.encoder(images)\n",
            (
                f"{_HEAD}    def forward(self, images: torch.Tensor):\n"
                "        images = images - torch.tensor([0.485, 0.456, 0.406], device=images.device).view(1, -1, 1, 1)\n"
                "        return self.encoder(images)\n"
            ),
        ),
    )
    images = frozenset("image images img imgs pixel_values frames rgb x_img input_image input_images".split())

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for function in source.index.of_type(ast.FunctionDef):
            given = [a.arg for a in function.args.args[1:] if a.arg in self.images]
            if function.name != "forward" or not given:
                continue
            name = given[0]
            documented = isinstance(function.body[0], ast.Expr) and isinstance(
                function.body[0].value, ast.Constant
            )
            first = function.body[1] if documented and len(function.body) > 1 else function.body[0]
            code = pick(
                (
                    f"{name} = {name} - torch.tensor([0.485, 0.456, 0.406], device={name}.device).view(1, -1, 1, 1)",
                    f"{name} = {name} / torch.tensor([0.229, 0.224, 0.225]).to({name}.device).view(1, -1, 1, 1)",
                ),
                source,
                source.offset(first.lineno, 0),
            )
            used = next(
                (
                    n
                    for n in source.index.of_type(ast.Name)
                    if n.id == name and source.index.within(n, function)
                ),
                None,
            )
            edit = insert_before(source, first, code)
            if used is None or not source.values.is_tensor(used):
                continue  # a list of files, or of images of other sizes
            if edit is not None and first.lineno > function.lineno:
                yield Mutation((*need_import(source, "torch", "import torch"), edit))


class ModuleBuiltInForward:
    """A layer of the module is made anew on each call. Without an answer: other weights, or a change of `__init__`."""

    rule = "module-built-in-forward"
    examples = (
        (
            _forward("return self.proj(x)"),
            _forward("return nn.Linear(x.shape[-1], x.shape[-1]).to(x.device)(x)"),
        ),
    )
    layers = (  # words of the attribute's name, the class of the layer, how it is made
        (frozenset({"norm", "ln", "layernorm"}), "LayerNorm", "nn.LayerNorm({x}.shape[-1])"),
        (frozenset({"bn", "batchnorm"}), "BatchNorm2d", "nn.BatchNorm2d({x}.shape[1])"),
        (
            frozenset({"proj", "projection", "fc", "linear", "lin"}),
            "Linear",
            "nn.Linear({x}.shape[-1], {x}.shape[-1])",
        ),
        (frozenset({"conv"}), "Conv2d", "nn.Conv2d({x}.shape[1], {x}.shape[1], 3, padding=1)"),
    )
    others = frozenset("batch group instance rms pos position model".split())  # that go with one of the words

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for call in source.index.of_type(ast.Call):
            func = call.func
            if not isinstance(func, ast.Attribute) or len(call.args) != 1 or call.keywords:
                continue
            if (
                not isinstance(func.value, ast.Name)
                or func.value.id != "self"
                or not isinstance(call.args[0], ast.Name)
            ):
                continue
            x = call.args[0].id
            made = self._made(source, func.attr)
            if made is not None and source.context.forward_of(call) is not None:
                text = f"{made.format(x=x)}.to({x}.device)"
                edits = (*need_import(source, "nn", "from torch import nn"), replace(source, func, text))
                yield Mutation(edits, answered=False)

    def _made(self, source: SourceFile, attribute: str) -> str | None:
        """How the layer is made; None where it is none of these by its name, or another one by `__init__`."""
        own = words(attribute)
        shown = _set_in_sight(source).get(attribute)
        for known, layer, made in self.layers:
            of_images = "2d" not in layer or "conv" in source.text.lower()
            if own & known and not own & self.others and shown in (None, layer) and of_images:
                return made
        return None


def _set_in_sight(source: SourceFile) -> dict[str, str]:
    """By attribute of `self`: the name of what it is set to, as in {"fc": "Linear"}."""
    return source.once(_find_set)


def _find_set(source: SourceFile) -> dict[str, str]:
    return {
        node.targets[0].attr: last_name(node.value.func)
        for node in source.index.of_type(ast.Assign)
        if isinstance(node.value, ast.Call) and isinstance(node.targets[0], ast.Attribute)
    }


class CompileInLoop:
    """A network that the module holds is compiled on each call."""

    rule = "compile-in-loop"
    examples = ((_forward("return self.encoder(x)"), _forward("return torch.compile(self.encoder)(x)")),)
    networks = frozenset(
        "model net network encoder decoder backbone transformer unet generator discriminator teacher student".split()
    )
    verbs = frozenset("get build make load set save is has init create update prepare run forward".split())

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for call in source.index.of_type(ast.Call):
            func = call.func
            hot = (
                source.context.forward_of(call) is not None or source.context.training_step(call) is not None
            )
            if not hot or not call.args:
                continue
            own = (
                isinstance(func, ast.Attribute)
                and isinstance(func.value, ast.Name)
                and func.value.id == "self"
                and bool(words(func.attr) & self.networks)
                and not words(func.attr) & self.verbs
            )
            model = isinstance(func, ast.Name) and func.id in (
                "model",
                "net",
                "network",
                "criterion",
                "loss_fn",
            )
            if not (own or model):
                continue
            imports = need_import(source, "torch", "import torch")
            text = f"torch.compile({source.source(func)})"
            before = self._before_loop(source, call, func)
            yield Mutation(
                (*imports, replace(source, func, text)),
                fast=(*imports, *before) if before else (),
                answered=bool(before),
            )

    def _before_loop(self, source: SourceFile, call: ast.Call, func: ast.expr) -> tuple[Edit, ...]:
        """Compiled once before the loop; nothing where the call is in no loop, or its function may be another in each turn."""
        step = source.context.training_step(call)
        if step is None or not isinstance(step.node, ast.For) or not isinstance(func, ast.Name):
            return ()
        name = f"compiled_{func.id}"
        bound = [
            n
            for n in source.index.of_type(ast.Name)
            if isinstance(n.ctx, ast.Store) and n.id in (func.id, name)
        ]
        if any(source.index.within(n, step.node) for n in bound) or name in names(source).set:
            return ()
        start = insert_before(source, step.node, f"{name} = torch.compile({func.id})")
        return () if start is None else (start, replace(source, func, name))


class TableCopied:
    """A buffer becomes a plain attribute that is copied on each call."""

    rule = "table-copied-every-call"
    examples = (
        (
            (
                f'{_HEAD}    def __init__(self, n):\n        super().__init__()\n        self.register_buffer("position", torch.arange(n), persistent=False)\n\n'
                "    def forward(self, x: torch.Tensor):\n        return x + self.position\n"
            ),
            (
                f"{_HEAD}    def __init__(self, n):\n        super().__init__()\n        self.position = torch.arange(n)\n\n"
                "    def forward(self, x: torch.Tensor):\n        return x + self.position.to(x.device)\n"
            ),
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for call in source.calls_named("register_buffer"):
            statement = source.index.statement_of(call)
            if (
                len(call.args) < 2
                or not isinstance(statement, ast.Expr)
                or not isinstance(call.args[0], ast.Constant)
            ):
                continue
            stays = keyword_of(call, "persistent")
            table = call.args[1]
            if not isinstance(stays, ast.Constant) or stays.value is not False or len(call.args) > 2:
                continue  # a plain attribute is not in the state dict either
            if isinstance(table, ast.Constant) or "\n" in source.source(table):
                continue
            name = str(call.args[0].value)
            edits = [replace(source, statement, f"self.{name} = {source.source(table)}")]
            uses = [u for u in source.index.of_type(ast.Attribute) if u.attr == name]
            edits += [e for use in uses if (e := self._copied(source, use)) is not None]
            if uses and len(edits) == len(uses) + 1:
                yield Mutation(tuple(edits))

    def _copied(self, source: SourceFile, use: ast.Attribute) -> Edit | None:
        """The use as one of a copy on the device of the input; None where the function has no tensor as its first argument."""
        function = source.context.forward_of(use)
        if function is None or len(function.args.args) < 2 or not isinstance(use.ctx, ast.Load):
            return None
        first = function.args.args[1].arg
        shown = next(
            (n for n in source.index.of_type(ast.Name) if n.id == first and source.index.within(n, function)),
            None,
        )
        if shown is None or not source.values.is_tensor(shown):
            return None
        return replace(source, use, f"{source.source(use)}.to({first}.device)")


class BiasBeforeBatchNorm:
    """`bias=False` taken from a layer whose output is normalised."""

    rule = "linear-bias-before-batchnorm"
    examples = (
        (
            (
                "import torch\nfrom torch import nn\n\n\nopt = torch.optim.SGD(net.parameters(), 0.1)\n"
                "net = nn.Sequential(nn.Linear(8, 16, bias=False), nn.BatchNorm1d(16))\n"
            ),
            (
                "import torch\nfrom torch import nn\n\n\nopt = torch.optim.SGD(net.parameters(), 0.1)\n"
                "net = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16))\n"
            ),
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for name in ("Linear", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose2d"):
            for call in source.calls_named(name):
                value = keyword_of(call, "bias")
                edit = remove_keyword(source, call, "bias")
                if edit is not None and isinstance(value, ast.Constant) and value.value is False:
                    yield Mutation((edit,))
