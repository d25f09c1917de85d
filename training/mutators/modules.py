"""Modules: attention spelled out, constants and layers made again on each call, tables copied, needless bias."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.findings import Edit
from ptopt.rules.base import has_unpacking, keyword_of
from ptopt.rules.removal import remove_keyword
from ptopt.source.file import SourceFile
from training.mutators.base import Mutation, alone, indent_of, insert_after, insert_before, need_import, pick, replace, sites

_HEAD = "import math\nimport torch\nimport torch.nn.functional as F\nfrom torch import nn\n\n\nclass Net(nn.Module):\n"


def _forward(body: str) -> str:
    return f"{_HEAD}    def forward(self, x, q, k, v):\n" + "".join(f"        {line}\n" for line in body.split("\n"))


class AttentionByHand:
    """`scaled_dot_product_attention` spelled out."""

    rule = "attention-by-hand"
    examples = (
        (
            _forward("out = F.scaled_dot_product_attention(q, k, v)\nreturn out"),
            _forward(
                "scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))\n"
                "weights = scores.softmax(dim=-1)\nout = weights @ v\nreturn out"
            ),
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for call in source.calls_named("scaled_dot_product_attention"):
            statement = source.index.statement_of(call)
            known = {"attn_mask", "dropout_p", "is_causal", "query", "key", "value", "scale"}
            if has_unpacking(call) or not {k.arg for k in call.keywords} <= known or not alone(source, statement):
                continue
            if not isinstance(statement, (ast.Assign, ast.Return)) or getattr(statement, "value", None) is not call:
                continue
            given = dict(zip(("query", "key", "value", "attn_mask", "dropout_p", "is_causal"), call.args, strict=False))
            given |= {k.arg: k.value for k in call.keywords if k.arg}
            if not {"query", "key", "value"} <= set(given):
                continue
            parts = {name: " ".join(source.source(value).split()) for name, value in given.items()}
            q, k, v = (_bracketed(given[n], parts[n]) for n in ("query", "key", "value"))
            place = source.bounds(statement)[0]
            scores = pick(("scores", "attn", "att", "dots"), source, place)
            weights = pick(("weights", "probs", "attn_weights"), source, place + 1)
            scale = parts.get("scale", "None")
            divided = f"/ math.sqrt({q}.size(-1))" if scale == "None" else f"* {scale}"
            product = pick((f"{q} @ {k}.transpose(-2, -1)", f"torch.matmul({q}, {k}.transpose(-1, -2))"), source, place)
            lines = [f"{scores} = {product} {divided}"]
            mask = parts.get("attn_mask", "None")
            if mask != "None":
                add = f"{scores} = {scores} + {mask}"
                lines += [f"if {mask} is not None:", f"    {add}"] if mask.isidentifier() else [add]
            if parts.get("is_causal", "False") != "False":
                causal = f"torch.ones({q}.size(-2), {k}.size(-2), dtype=torch.bool, device={q}.device).triu(1)"
                masked = f'{scores} = {scores}.masked_fill({causal}, float("-inf"))'
                is_true = parts["is_causal"] == "True"
                lines += [masked] if is_true else [f"if {parts['is_causal']}:", f"    {masked}"]
            lines.append(f"{weights} = {pick((f'{scores}.softmax(dim=-1)', f'torch.softmax({scores}, dim=-1)'), source, place)}")
            dropout = parts.get("dropout_p", "0.0")
            if dropout not in ("0.0", "0"):
                lines.append(f"{weights} = torch.nn.functional.dropout({weights}, {dropout})")
            start = "return " if isinstance(statement, ast.Return) else f"{source.source(statement.targets[0])} = "
            lines.append(f"{start}{weights} @ {v}")
            indent = indent_of(source, statement)
            imports = [*need_import(source, "torch", "import torch"), *need_import(source, "math", "import math")]
            joined = Edit(0, 0, "".join(e.replacement for e in imports))
            edits = (joined,) if imports else ()
            yield Mutation((*edits, replace(source, statement, f"\n{indent}".join(lines))))


def _bracketed(node: ast.expr, text: str) -> str:
    return text if isinstance(node, (ast.Name, ast.Attribute, ast.Call, ast.Subscript)) else f"({text})"


class CausalMaskMaterialised:
    """`is_causal=True` becomes a mask."""

    rule = "causal-mask-materialised"
    examples = (
        (
            _forward("return F.scaled_dot_product_attention(q, k, v, is_causal=True)"),
            _forward(
                "mask = torch.tril(torch.ones(q.size(-2), q.size(-2), dtype=torch.bool, device=q.device))\n"
                "return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)"
            ),
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for call in source.calls_named("scaled_dot_product_attention"):
            statement = source.index.statement_of(call)
            causal = next((k for k in call.keywords if k.arg == "is_causal"), None)
            if causal is None or keyword_of(call, "attn_mask") is not None or len(call.args) != 3:
                continue
            if not isinstance(call.args[0], (ast.Name, ast.Attribute)) or not alone(source, statement):
                continue
            n = f"{source.source(call.args[0])}.size(-2)"
            device = f"{source.source(call.args[0])}.device"
            mask = f"torch.tril(torch.ones({n}, {n}, dtype=torch.bool, device={device}))"
            indent = indent_of(source, statement)
            at = source.offset(statement.lineno, 0)
            yield Mutation(
                (
                    *need_import(source, "torch", "import torch"),
                    Edit(at, at, f"{indent}mask = {mask}\n"),
                    replace(source, causal, "attn_mask=mask"),
                )
            )


class AttentionWeightsDiscarded:
    """`need_weights=False` taken away."""

    rule = "attention-weights-discarded"
    examples = (
        (
            f"{_HEAD}    def __init__(self):\n        self.attn = nn.MultiheadAttention(64, 4)\n\n"
            "    def forward(self, x):\n        return self.attn(x, x, x, need_weights=False)[0]\n",
            f"{_HEAD}    def __init__(self):\n        self.attn = nn.MultiheadAttention(64, 4)\n\n"
            "    def forward(self, x):\n        return self.attn(x, x, x)[0]\n",
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for call in source.index.of_type(ast.Call):
            value = keyword_of(call, "need_weights")
            if isinstance(value, ast.Constant) and value.value is False:
                edit = remove_keyword(source, call, "need_weights")
                if edit is not None:
                    yield Mutation((edit,))


class ConstantRebuilt:
    """A number in an expression becomes a tensor that is copied to the device."""

    rule = "constant-rebuilt-every-step"
    examples = (
        (
            "import torch\n\n\nfor x in loader:\n    x = x.to(device)\n    loss = model(x) * 0.5\n"
            "    loss.backward()\n    optimizer.step()\n",
            "import torch\n\n\nfor x in loader:\n    x = x.to(device)\n    loss = model(x) * torch.tensor(0.5, device=device)\n"
            "    loss.backward()\n    optimizer.step()\n",
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        known = {"device"} & {n.id for n in source.index.of_type(ast.Name)}
        for node in source.index.of_type(ast.BinOp):
            left, right = node.left, node.right
            if not isinstance(right, ast.Constant) or not isinstance(right.value, float):
                continue
            place = source.bounds(right)[0]
            if isinstance(left, (ast.Name, ast.Attribute)):
                device = f"{source.source(left)}.device"
            elif known:
                device = "device"
            else:
                continue
            number = source.source(right)
            value = pick((number, f"[{number}]", number), source, place)
            text = f"torch.tensor({value}, device={device})"
            yield Mutation((*need_import(source, "torch", "import torch"), replace(source, right, text)))


class ScalarListRebuilt:
    """A sum of scaled terms of the forward pass gets its factor from a list each time."""

    rule = "constant-rebuilt-every-step"
    examples = (
        (
            _forward("x = self.linear(x)\nreturn x"),
            _forward("x = self.linear(x)\nx = x * torch.tensor([0.5, 0.25, 0.25], device=x.device).sum()\nreturn x"),
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for function in source.index.of_type(ast.FunctionDef):
            if function.name != "forward":
                continue
            for statement in function.body:
                if not (isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call)):
                    continue
                target, func = statement.targets[0], statement.value.func
                layer = isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and func.value.id == "self"
                if not isinstance(target, ast.Name) or not layer:
                    continue
                name = target.id
                code = pick(
                    (
                        f"{name} = {name} * torch.tensor([0.5, 0.25, 0.25], device={name}.device).sum()",
                        f"{name} = {name} - torch.tensor([0.485, 0.456, 0.406], device={name}.device).view(1, -1, 1, 1)",
                        f"{name} = {name} / torch.tensor([0.229, 0.224, 0.225]).to({name}.device).view(1, -1, 1, 1)",
                        f"{name} = {name} + torch.tensor([1e-6, 0.0]).to({name}.device).max()",
                    ),
                    source,
                    source.offset(statement.lineno, 0),
                )
                edit = insert_after(source, statement, code)
                if edit is not None:
                    yield Mutation((*need_import(source, "torch", "import torch"), edit))
                break


class ModuleBuiltInForward:
    """A layer of the module is made anew on each call."""

    rule = "module-built-in-forward"
    examples = (
        (
            _forward("return self.proj(x)"),
            _forward("return nn.Linear(x.shape[-1], x.shape[-1]).to(x.device)(x)"),
        ),
    )
    layers = (
        (("norm", "ln"), "nn.LayerNorm({x}.shape[-1])"),
        (("bn",), "nn.BatchNorm2d({x}.shape[1])"),
        (("proj", "fc", "linear", "lin", "out", "head", "to_"), "nn.Linear({x}.shape[-1], {x}.shape[-1])"),
        (("conv",), "nn.Conv2d({x}.shape[1], {x}.shape[1], 3, padding=1)"),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for call in source.index.of_type(ast.Call):
            func = call.func
            if not isinstance(func, ast.Attribute) or len(call.args) != 1 or call.keywords:
                continue
            if not isinstance(func.value, ast.Name) or func.value.id != "self" or not isinstance(call.args[0], ast.Name):
                continue
            x = call.args[0].id
            made = next((made for words, made in self.layers if any(w in func.attr.lower() for w in words)), None)
            if made is not None and source.context.forward_of(call) is not None:
                text = f"{made.format(x=x)}.to({x}.device)"
                yield Mutation((*need_import(source, "nn", "from torch import nn"), replace(source, func, text)))


class CompileInLoop:
    """A part of the module is compiled on each call."""

    rule = "compile-in-loop"
    examples = (
        (_forward("return self.inner(x)"), _forward("return torch.compile(self.inner)(x)")),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for call in source.index.of_type(ast.Call):
            func = call.func
            hot = source.context.forward_of(call) is not None or source.context.training_step(call) is not None
            if not hot or not call.args:
                continue
            own = isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and func.value.id == "self"
            model = isinstance(func, ast.Name) and func.id in ("model", "net", "network", "criterion", "loss_fn")
            if own or model:
                text = f"torch.compile({source.source(func)})"
                yield Mutation((*need_import(source, "torch", "import torch"), replace(source, func, text)))


class TableCopied:
    """A buffer becomes a plain attribute that is copied on each call."""

    rule = "table-copied-every-call"
    examples = (
        (
            f'{_HEAD}    def __init__(self, n):\n        super().__init__()\n        self.register_buffer("position", torch.arange(n))\n\n'
            "    def forward(self, x):\n        return x + self.position\n",
            f"{_HEAD}    def __init__(self, n):\n        super().__init__()\n        self.position = torch.arange(n)\n\n"
            "    def forward(self, x):\n        return x + self.position.to(x.device)\n",
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for call in source.calls_named("register_buffer"):
            statement = source.index.statement_of(call)
            if len(call.args) < 2 or not isinstance(statement, ast.Expr) or not isinstance(call.args[0], ast.Constant):
                continue
            name = str(call.args[0].value)
            edits = [replace(source, statement, f"self.{name} = {source.source(call.args[1])}")]
            for use in source.index.of_type(ast.Attribute):
                function = source.context.forward_of(use)
                if use.attr != name or function is None or len(function.args.args) < 2:
                    continue
                edits.append(replace(source, use, f"self.{name}.to({function.args.args[1].arg}.device)"))
            if len(edits) > 1:
                yield Mutation(tuple(edits))


class BiasBeforeBatchNorm:
    """`bias=False` taken from a layer whose output is normalised."""

    rule = "linear-bias-before-batchnorm"
    examples = (
        (
            "import torch\nfrom torch import nn\n\n\nopt = torch.optim.SGD(net.parameters(), 0.1)\n"
            "net = nn.Sequential(nn.Linear(8, 16, bias=False), nn.BatchNorm1d(16))\n",
            "import torch\nfrom torch import nn\n\n\nopt = torch.optim.SGD(net.parameters(), 0.1)\n"
            "net = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16))\n",
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for name in ("Linear", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose2d"):
            for call in source.calls_named(name):
                value = keyword_of(call, "bias")
                edit = remove_keyword(source, call, "bias")
                if edit is not None and isinstance(value, ast.Constant) and value.value is False:
                    yield Mutation((edit,))


class DeviceMoveInDataset:
    """A dataset item or a collated batch is moved to the device."""

    rule = "device-move-in-dataset"
    examples = (
        (
            "import torch\n\n\nclass Images(torch.utils.data.Dataset):\n    def __getitem__(self, i):\n"
            "        return torch.from_numpy(self.images[i])\n",
            "import torch\n\n\nclass Images(torch.utils.data.Dataset):\n    def __getitem__(self, i):\n"
            "        return torch.from_numpy(self.images[i]).cuda()\n",
        ),
    )
    names = ("from_numpy", "tensor", "as_tensor", "stack", "cat", "FloatTensor", "LongTensor", "pad_sequence", "Tensor")

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for name in self.names:
            for call in source.calls_named(name):
                made = source.imports.qualified(call.func).startswith("torch") and keyword_of(call, "device") is None
                if made and source.context.is_item_code(call) is not None:
                    _, end = source.bounds(call)
                    move = pick((".cuda()", ".to(self.device)", ".to(device)"), source, end)
                    yield Mutation((Edit(end, end, move),))


class AccidentalFloat64:
    """Random numbers drawn by NumPy, in float64, instead of by torch."""

    rule = "accidental-float64"
    examples = (
        (
            "import torch\nimport numpy as np\n\n\nfor x in loader:\n    noise = torch.randn(x.shape, device=device)\n"
            "    criterion(model(x.to(device)) + noise).backward()\n    optimizer.step()\n",
            "import torch\nimport numpy as np\n\n\nfor x in loader:\n    noise = torch.from_numpy(np.random.randn(*x.shape)).to(device)\n"
            "    criterion(model(x.to(device)) + noise).backward()\n    optimizer.step()\n",
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for name, draw in (
            ("randn", "randn(*{})"), ("rand", "rand(*{})"), ("randn_like", "randn(*{}.shape)"), ("rand_like", "rand(*{}.shape)"),
        ):
            for call in source.calls_named(name):
                device = keyword_of(call, "device")
                simple = len(call.args) == 1 and isinstance(call.args[0], (ast.Name, ast.Attribute))
                if not simple or (device is None) == (not name.endswith("_like")):
                    continue
                tensor = source.source(call.args[0])
                where = source.source(device) if device is not None else f"{tensor}.device"
                text = f"torch.from_numpy(np.random.{draw.format(tensor)}).to({where})"
                imports = need_import(source, "np", "import numpy as np")
                yield Mutation((*imports, replace(source, call, text)))


class OptimizerBuiltInLoop:
    """The optimizer is made again in the step that uses it."""

    rule = "optimizer-built-in-loop"
    examples = (
        (
            "import torch\n\n\nfor x in loader:\n    loss = model(x.cuda())\n    optimizer.zero_grad()\n"
            "    loss.backward()\n    optimizer.step()\n",
            "import torch\n\n\nfor x in loader:\n    loss = model(x.cuda())\n"
            "    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)\n    optimizer.zero_grad()\n"
            "    loss.backward()\n    optimizer.step()\n",
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for call in source.calls_named("zero_grad"):
            statement = source.index.statement_of(call)
            within = any(source.index.within(call, site.container) for site in sites(source))
            if not within or not isinstance(statement, ast.Expr) or not isinstance(call.func, ast.Attribute):
                continue
            name = source.source(call.func.value)
            model = "self.model" if name.startswith("self.") else "model"
            made = pick(
                ("torch.optim.Adam({}.parameters(), lr=1e-3)", "torch.optim.SGD({}.parameters(), lr=lr)",
                 "torch.optim.AdamW({}.parameters(), lr=lr)"), source, source.bounds(call)[0],
            ).format(model)
            edit = insert_before(source, statement, f"{name} = {made}")
            if edit is not None and "optim" in name:
                yield Mutation((*need_import(source, "torch", "import torch"), edit))


class DistributedToDataParallel:
    """Distributed data parallel training becomes `nn.DataParallel`."""

    rule = "data-parallel"
    examples = (
        (
            "import torch\n\n\nmodel = torch.nn.parallel.DistributedDataParallel(model)\nfor x in loader:\n"
            "    model(x).backward()\n    optimizer.step()\n",
            "import torch\n\n\nmodel = torch.nn.DataParallel(model)\nfor x in loader:\n"
            "    model(x).backward()\n    optimizer.step()\n",
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for name in ("DistributedDataParallel", "DDP"):
            for call in source.calls_named(name):
                if call.args:
                    text = f"torch.nn.DataParallel({source.source(call.args[0])})"
                    yield Mutation((*need_import(source, "torch", "import torch"), replace(source, call, text)))


class TransformersAttentionFlag:
    """`attn_implementation="sdpa"` or a flash kernel turned to eager."""

    rule = "eager-attention"
    examples = (
        (
            'from transformers import AutoModel\n\n\nm = AutoModel.from_pretrained(name, attn_implementation="sdpa")\n',
            'from transformers import AutoModel\n\n\nm = AutoModel.from_pretrained(name, attn_implementation="eager")\n',
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for call in source.calls_named("from_pretrained"):
            value = keyword_of(call, "attn_implementation")
            if isinstance(value, ast.Constant) and value.value != "eager":
                yield Mutation((replace(source, value, '"eager"'),))


