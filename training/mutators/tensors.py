"""Tensor operations: the fast form replaced by the slow one, in place."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.code import has_unpacking, keyword_of, method_call
from ptopt.source.file import SourceFile
from training.mutators.base import (
    Mutation,
    bracketed,
    need_import,
    pick,
    remove_keyword,
    replace,
)
from training.mutators.ranks import rank_of


def _forward(body: str, base: str = "nn.Module") -> str:
    return f"import torch\nimport torch.nn.functional as F\nfrom torch import nn\n\n\nclass Net({base}):\n    def forward(self, x, y):\n        {body}\n"


_EMBEDDED = (
    "import torch.nn.functional as F\nfrom torch import nn\n\n\nclass Net(nn.Module):\n    def __init__(self):\n"
    "        super().__init__()\n        self.embed = nn.Embedding(8, 4)\n\n    def forward(self, x):\n"
)


class RepeatForBroadcast:
    """`expand` becomes `repeat`."""

    rule = "repeat-for-broadcast"
    examples = (
        (
            "import torch\n\n\ndef cost(x: torch.Tensor, y, n):\n    return x[:, None, :].expand(-1, n, -1) - y\n",
            "import torch\n\n\ndef cost(x: torch.Tensor, y, n):\n    return x[:, None, :].repeat(1, n, 1) - y\n",
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for call in source.calls_named("expand"):
            receiver = method_call(call, "expand")
            if receiver is None or len(call.args) < 2 or call.keywords or has_unpacking(call):
                continue
            sizes = ["1" if source.source(a) == "-1" else source.source(a) for a in call.args]
            if sizes.count("1") == len(sizes) - 1:
                yield Mutation(
                    (replace(source, call, f"{bracketed(source, receiver)}.repeat({', '.join(sizes)})"),)
                )


class LogOfSoftmax:
    """`log_softmax` becomes the logarithm of a softmax."""

    rule = "log-of-softmax"
    examples = (
        (_forward("return F.log_softmax(x, dim=-1)"), _forward("return F.softmax(x, dim=-1).log()")),
        (_forward("return x.log_softmax(-1)"), _forward("return x.softmax(-1).log()")),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for call in source.calls_named("log_softmax"):
            text = source.source(call)
            if text.count("log_softmax") != 1:
                continue
            name = source.imports.qualified(call.func)
            slow = text.replace("log_softmax", "softmax")
            if name.startswith("torch."):
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
            imports = need_import(source, "torch", "import torch")
            loss = replace(source, call.func, f"{module}.nll_loss")
            slow, fast = (
                replace(source, call.args[0], text)
                for text in (
                    f"torch.log({module}.softmax({logits}, dim=1))",
                    f"{module}.log_softmax({logits}, dim=1)",
                )
            )
            yield Mutation((*imports, loss, slow), fast=(*imports, loss, fast))


class OneHotMatmul:
    """An embedding lookup becomes a product with one-hot rows."""

    rule = "one-hot-matmul"
    examples = (
        (
            f"{_EMBEDDED}        return self.embed(x)\n",
            f"{_EMBEDDED}        return F.one_hot(x, self.embed.num_embeddings).float() @ self.embed.weight\n",
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for call in source.index.of_type(ast.Call):
            func = call.func
            if not isinstance(func, ast.Attribute) or len(call.args) != 1 or call.keywords:
                continue
            if source.source(func) not in _embeddings(source) or "\n" in source.source(call.args[0]):
                continue
            table, ids = source.source(func), source.source(call.args[0])
            text = f"F.one_hot({ids}, {table}.num_embeddings).float() @ {table}.weight"
            if isinstance(source.index.parent(call), (ast.BinOp, ast.Attribute, ast.Subscript)):
                text = f"({text})"
            imports = need_import(source, "F", "import torch.nn.functional as F")
            fast = replace(source, call, f"F.embedding({ids}, {table}.weight)")
            yield Mutation((*imports, replace(source, call, text)), fast=(*imports, fast))


def _embeddings(source: SourceFile) -> frozenset[str]:
    """The attributes that are set to an `nn.Embedding`, as in "self.words"."""
    return source.once(_find_embeddings)


def _find_embeddings(source: SourceFile) -> frozenset[str]:
    return frozenset(
        source.source(node.targets[0])
        for node in source.index.of_type(ast.Assign)
        if isinstance(node.value, ast.Call)
        and source.imports.qualified(node.value.func).endswith("nn.Embedding")
        and isinstance(node.targets[0], ast.Attribute)
    )


class MaskedSelectExpanded:
    """`x[mask]` becomes a masked select of expanded rows."""

    rule = "masked-select-expanded"
    examples = (
        (
            _forward("b, n, d = x.shape\n        assert mask.ndim == 2\n        return x[mask]").replace(
                "x, y", "x, mask"
            ),
            _forward(
                "b, n, d = x.shape\n        assert mask.ndim == 2\n"
                "        return x.masked_select(mask.unsqueeze(-1)).view(-1, x.size(-1))"
            ).replace("x, y", "x, mask"),
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for node in source.index.of_type(ast.Subscript):
            if not isinstance(node.ctx, ast.Load) or not isinstance(node.value, (ast.Name, ast.Attribute)):
                continue
            mask, rows = source.source(node.slice), source.source(node.value)
            rank = rank_of(source, node.value)
            if isinstance(node.slice, ast.Name) and "mask" in mask.lower():
                if rank is None or rank_of(source, node.slice) != rank - 1:
                    continue
                text = f"{rows}.masked_select({mask}.unsqueeze(-1)).view(-1, {rows}.size(-1))"
                yield Mutation((replace(source, node, text),))


class SyncInRepeatInterleave:
    """`output_size` taken from `repeat_interleave`."""

    rule = "sync-in-repeat-interleave"
    examples = (
        (
            (
                "import torch\n\n\ndef centre(x: torch.Tensor, means: torch.Tensor, sizes: torch.Tensor):\n"
                "    return x - torch.repeat_interleave(means, sizes, dim=0, output_size=x.size(0))\n"
            ),
            (
                "import torch\n\n\ndef centre(x: torch.Tensor, means: torch.Tensor, sizes: torch.Tensor):\n"
                "    return x - torch.repeat_interleave(means, sizes, dim=0)\n"
            ),
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for call in source.calls_named("repeat_interleave"):
            edit = remove_keyword(source, call, "output_size")
            if edit is not None:
                yield Mutation((edit,))


class InverseThenMultiply:
    """`solve` becomes a product with the inverse."""

    rule = "inverse-then-multiply"
    examples = ((_forward("return torch.linalg.solve(x, y)"), _forward("return torch.linalg.inv(x) @ y")),)

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
