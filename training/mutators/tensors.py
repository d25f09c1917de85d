"""Tensor operations: the fast form replaced by the slow one, in place."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import has_unpacking, keyword_of, method_call
from ptopt.rules.removal import remove_keyword
from ptopt.source.file import SourceFile
from training.mutators.base import Mutation, alone, indent_of, need_import, pick, replace

_FACTORIES = ("zeros", "ones", "full", "empty", "arange", "eye", "linspace", "rand", "randn", "randint", "randperm")
_DTYPES = {
    "float": "FloatTensor",
    "long": "LongTensor",
    "int": "IntTensor",
    "half": "HalfTensor",
    "double": "DoubleTensor",
    "bool": "BoolTensor",
}


def _forward(body: str, base: str = "nn.Module") -> str:
    return f"import torch\nimport torch.nn.functional as F\nfrom torch import nn\n\n\nclass Net({base}):\n    def forward(self, x, y):\n        {body}\n"


class FactoryThenMove:
    """`torch.zeros(n, device=d)` becomes `torch.zeros(n).to(d)`."""

    rule = "factory-then-move"
    examples = (
        (
            _forward("return x + torch.arange(x.size(1), device=x.device)"),
            _forward("return x + torch.arange(x.size(1)).to(x.device)"),
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for name in _FACTORIES:
            for call in source.calls_named(name):
                device = keyword_of(call, "device")
                edit = remove_keyword(source, call, "device")
                if device is None or edit is None or keyword_of(call, "generator") is not None:
                    continue
                words = source.source(device)
                move = ".cuda()" if words in ('"cuda"', "'cuda'") else f".to({words})"
                start, end = source.bounds(call)
                if "\n" in words:
                    continue
                data = source.data
                inner = data[start : edit.start] + data[edit.end : end]
                yield Mutation((replace(source, call, inner.decode() + move),))


class AllocationThenMove:
    """`torch.zeros_like(x)` becomes `torch.zeros(x.shape).to(x.device)`."""

    rule = "factory-then-move"
    examples = (
        (_forward("return x + torch.ones_like(x)"), _forward("return x + torch.ones(x.shape).to(x.device)")),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for name in ("zeros_like", "ones_like", "empty_like", "randn_like", "rand_like"):
            for call in source.calls_named(name):
                if len(call.args) == 1 and not call.keywords and isinstance(call.args[0], (ast.Name, ast.Attribute)):
                    tensor = source.source(call.args[0])
                    slow = f"torch.{name.removesuffix('_like')}({tensor}.shape).to({tensor}.device)"
                    yield Mutation((replace(source, call, slow),))


class LegacyTensorType:
    """`x.float()` becomes `x.type(torch.FloatTensor)`."""

    rule = "legacy-tensor-type"
    examples = (
        (
            _forward("return self.linear(x.to(self.device).float())"),
            _forward("return self.linear(x.to(self.device).type(torch.FloatTensor))"),
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for name, legacy in _DTYPES.items():
            for call in source.calls_named(name):
                receiver = method_call(call, name)
                if receiver is not None and not call.args and not call.keywords:
                    text = f"{source.source(receiver)}.type(torch.{legacy})"
                    yield Mutation((*need_import(source, "torch", "import torch"), replace(source, call, text)))


class RepeatForBroadcast:
    """`expand` becomes `repeat`."""

    rule = "repeat-for-broadcast"
    examples = (
        (
            _forward("return x[:, None, :].expand(-1, n, -1) - y"),
            _forward("return x[:, None, :].repeat(1, n, 1) - y"),
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for call in source.calls_named("expand"):
            receiver = method_call(call, "expand")
            if receiver is None or len(call.args) < 2 or call.keywords or has_unpacking(call):
                continue
            sizes = ["1" if source.source(a) == "-1" else source.source(a) for a in call.args]
            if sizes.count("1") == len(sizes) - 1:
                yield Mutation((replace(source, call, f"{source.source(receiver)}.repeat({', '.join(sizes)})"),))


class LogOfSoftmax:
    """`log_softmax` becomes the logarithm of a softmax."""

    rule = "log-of-softmax"
    examples = (
        (_forward("return F.log_softmax(x, dim=-1)"), _forward("return torch.log(F.softmax(x, dim=-1))")),
        (_forward("return x.log_softmax(-1)"), _forward("return x.softmax(-1).log()")),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for call in source.calls_named("log_softmax"):
            text = source.source(call)
            if text.count("log_softmax") != 1:
                continue
            name = source.imports.qualified(call.func)
            slow = text.replace("log_softmax", "softmax")
            if name.startswith("torch"):
                if not isinstance(call.func, ast.Attribute):
                    continue
                log = pick((f"torch.log({slow})", f"{slow}.log()"), source, source.bounds(call)[0])
                yield Mutation((*need_import(source, "torch", "import torch"), replace(source, call, log)))
            elif isinstance(call.func, ast.Attribute) and len(call.args) + len(call.keywords) == 1:
                yield Mutation((replace(source, call, f"{slow}.log()"),))


class CrossEntropySpelledOut:
    """`cross_entropy` becomes the loss of the logarithm of a softmax."""

    rule = "log-of-softmax"
    examples = (
        (
            _forward("return F.cross_entropy(x, y)"),
            _forward("return F.nll_loss(torch.log(F.softmax(x, dim=1)), y)"),
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for call in source.calls_named("cross_entropy"):
            if len(call.args) != 2 or not isinstance(call.func, ast.Attribute) or has_unpacking(call):
                continue
            if keyword_of(call, "label_smoothing") is not None:
                continue
            module = source.source(call.func.value)
            logits = source.source(call.args[0])
            yield Mutation(
                (
                    *need_import(source, "torch", "import torch"),
                    replace(source, call.func, f"{module}.nll_loss"),
                    replace(source, call.args[0], f"torch.log({module}.softmax({logits}, dim=1))"),
                )
            )


class PythonReduction:
    """`x.sum()` becomes `sum(x)`."""

    rule = "python-reduction-over-tensor"
    examples = (
        (
            "import torch\n\n\ndef longest(lengths: torch.Tensor):\n    return lengths.max()\n",
            "import torch\n\n\ndef longest(lengths: torch.Tensor):\n    return max(lengths)\n",
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for name in ("sum", "max", "min", "any", "all"):
            for call in source.calls_named(name):
                receiver = method_call(call, name)
                if receiver is None or call.args or call.keywords:
                    continue
                start, end = source.bounds(call)
                if method_call(source.index.parent(call) or call, "item") is not None:
                    start, end = source.bounds(source.index.parent(call))  # type: ignore[arg-type]
                edit = replace(source, call, f"{name}({source.source(receiver)})")
                yield Mutation((type(edit)(start, end, edit.replacement),))


class ItemPerElement:
    """`x.tolist()` becomes a list of `.item()`."""

    rule = "item-per-element"
    examples = (
        (
            "import torch\n\n\ndef ids(tokens: torch.Tensor):\n    return tokens.tolist()\n",
            "import torch\n\n\ndef ids(tokens: torch.Tensor):\n    return [t.item() for t in tokens]\n",
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for call in source.calls_named("tolist"):
            receiver = method_call(call, "tolist")
            if receiver is not None and not call.args:
                name = pick(("t", "v", "x_i", "value"), source, source.bounds(call)[0])
                read = pick(("{}.item()", "int({})", "float({})", "{}.item()"), source, source.bounds(call)[0] + 3)
                each = read.format(name)
                yield Mutation((replace(source, call, f"[{each} for {name} in {source.source(receiver)}]"),))


class OneHotMatmul:
    """An embedding lookup becomes a product with one-hot rows."""

    rule = "one-hot-matmul"
    examples = (
        (
            _forward("return self.embed(x)"),
            _forward("return F.one_hot(x, self.embed.num_embeddings).float() @ self.embed.weight"),
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for call in source.index.of_type(ast.Call):
            func = call.func
            if not isinstance(func, ast.Attribute) or len(call.args) != 1 or call.keywords:
                continue
            if "emb" not in func.attr or not isinstance(func.value, ast.Name) or func.value.id != "self":
                continue
            if "\n" in source.source(call.args[0]):
                continue
            table, ids = source.source(func), source.source(call.args[0])
            text = f"F.one_hot({ids}, {table}.num_embeddings).float() @ {table}.weight"
            if isinstance(source.index.parent(call), (ast.BinOp, ast.Attribute, ast.Subscript)):
                text = f"({text})"
            imports = need_import(source, "F", "import torch.nn.functional as F")
            yield Mutation((*imports, replace(source, call, text)))


class MaskedSelectExpanded:
    """`x[mask]` becomes a masked select of expanded rows."""

    rule = "masked-select-expanded"
    examples = (
        (_forward("return x[mask]"), _forward("return x.masked_select(mask.unsqueeze(-1)).view(-1, x.size(-1))")),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for node in source.index.of_type(ast.Subscript):
            if not isinstance(node.ctx, ast.Load) or not isinstance(node.value, (ast.Name, ast.Attribute)):
                continue
            mask, rows = source.source(node.slice), source.source(node.value)
            if isinstance(node.slice, (ast.Name, ast.Attribute)) and "mask" in mask.lower():
                text = f"{rows}.masked_select({mask}.unsqueeze(-1)).view(-1, {rows}.size(-1))"
                yield Mutation((replace(source, node, text),))


class SyncInRepeatInterleave:
    """`output_size` taken from `repeat_interleave`."""

    rule = "sync-in-repeat-interleave"
    examples = (
        (
            "import torch\n\n\ndef centre(x: torch.Tensor, means: torch.Tensor, sizes: torch.Tensor):\n"
            "    return x - torch.repeat_interleave(means, sizes, dim=0, output_size=x.size(0))\n",
            "import torch\n\n\ndef centre(x: torch.Tensor, means: torch.Tensor, sizes: torch.Tensor):\n"
            "    return x - torch.repeat_interleave(means, sizes, dim=0)\n",
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for call in source.calls_named("repeat_interleave"):
            edit = remove_keyword(source, call, "output_size")
            if edit is not None:
                yield Mutation((edit,))


class ElementLoop:
    """An operation on a whole tensor becomes a loop over its first dimension."""

    rule = "element-loop"
    examples = (
        (
            "import torch\n\n\ndef squash(x: torch.Tensor):\n    y = torch.sigmoid(x)\n    return y\n",
            "import torch\n\n\ndef squash(x: torch.Tensor):\n    y = torch.zeros_like(x)\n"
            "    for i in range(len(x)):\n        y[i] = torch.sigmoid(x[i])\n    return y\n",
        ),
    )
    names = ("sigmoid", "tanh", "exp", "log", "sqrt", "abs", "relu", "sin", "cos", "square", "softplus", "gelu", "clamp")

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for node in source.index.of_type(ast.Assign):
            call, target = node.value, node.targets[0]
            if not isinstance(call, ast.Call) or not isinstance(target, ast.Name) or not alone(source, node):
                continue
            func = call.func
            if not isinstance(func, ast.Attribute) or func.attr not in self.names or has_unpacking(call):
                continue
            out, text = target.id, source.source(call)
            if source.imports.qualified(func).startswith("torch"):
                tensor = call.args[0] if call.args else None
            else:
                tensor = func.value
            if not isinstance(tensor, ast.Name) or tensor.id == out or "\n" in text:
                continue
            start, end = source.bounds(tensor)
            base = source.bounds(call)[0]
            one = text.encode()[: start - base] + f"{tensor.id}[i]".encode() + text.encode()[end - base :]
            indent = indent_of(source, node)
            slow = (
                f"{out} = torch.zeros_like({tensor.id})\n{indent}for i in range(len({tensor.id})):\n"
                f"{indent}    {out}[i] = {one.decode()}"
            )
            yield Mutation((*need_import(source, "torch", "import torch"), replace(source, node, slow)))


class InverseThenMultiply:
    """`solve` becomes a product with the inverse."""

    rule = "inverse-then-multiply"
    examples = (
        (_forward("return torch.linalg.solve(x, y)"), _forward("return torch.linalg.inv(x) @ y")),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for call in source.calls_named("solve"):
            if len(call.args) == 2 and not call.keywords and "linalg" in source.source(call.func):
                a, b = (source.source(x) for x in call.args)
                simple = isinstance(call.args[1], (ast.Name, ast.Attribute, ast.Call))
                right = b if simple else f"({b})"
                text = f"{source.source(call.func).removesuffix('solve')}inv({a}) @ {right}"
                if not isinstance(source.index.parent(call), (ast.Assign, ast.Return)):
                    text = f"({text})"
                yield Mutation((replace(source, call, text),))


class PairwiseLoop:
    """`cdist` becomes two loops."""

    rule = "pairwise-loop"
    examples = (
        (
            "import torch\n\n\ndef distances(x, y):\n    d = torch.cdist(x, y)\n    return d\n",
            "import torch\n\n\ndef distances(x, y):\n    d = torch.zeros(len(x), len(y))\n    for i in range(len(x)):\n"
            "        for j in range(len(y)):\n            d[i, j] = torch.norm(x[i] - y[j])\n    return d\n",
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for node in source.index.of_type(ast.Assign):
            call, target = node.value, node.targets[0]
            if not isinstance(call, ast.Call) or not isinstance(target, ast.Name) or len(call.args) < 2:
                continue
            a, b = call.args[:2]
            named = isinstance(call.func, ast.Attribute) and call.func.attr == "cdist"
            if not named or not alone(source, node) or not isinstance(a, ast.Name) or not isinstance(b, ast.Name):
                continue
            i, out = indent_of(source, node), target.id
            slow = (
                f"{out} = torch.zeros(len({a.id}), len({b.id}))\n{i}for i in range(len({a.id})):\n"
                f"{i}    for j in range(len({b.id})):\n{i}        {out}[i, j] = torch.norm({a.id}[i] - {b.id}[j])"
            )
            yield Mutation((replace(source, node, slow),))
