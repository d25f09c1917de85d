"""What was done now and then, done on every step."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.source.file import SourceFile
from training.mutators.base import (
    Mutation,
    alone,
    unwrapped,
)


class _Unguarded:
    """What was done now and then is done on every step. Without an answer: how often it is done is the author's choice."""

    words: tuple[str, ...]
    answered = False

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for node in source.index.of_type(ast.If):
            if node.orelse or not alone(source, node):
                continue
            text = "\n".join(source.source(s) for s in node.body)
            modulo = any(isinstance(n, ast.Mod) for n in ast.walk(node.test))
            if modulo and any(word in text for word in self.words):
                edit = unwrapped(source, node, node.body)
                if edit is not None:
                    yield Mutation((edit,), answered=self.answered)


def _guarded(line: str) -> tuple[tuple[str, str], ...]:
    head = (
        "import torch\n\n\ndef train(model, loader, optimizer):\n    for i, x in enumerate(loader):\n        loss = model(x.cuda())\n"
        "        loss.backward()\n        optimizer.step()\n"
    )
    return ((f"{head}        if i % 10 == 0:\n            {line}\n", f"{head}        {line}\n"),)


class ItemUnguarded(_Unguarded):
    rule = "item-every-step"
    words = (".item()", "float(")
    examples = _guarded("print(loss.item())")


class LogUnguarded(_Unguarded):
    rule = "tensor-logged-every-step"
    words = ("print(", "log", "add_scalar", "set_postfix", "set_description")
    examples = _guarded("print(loss)")


class SaveUnguarded(_Unguarded):
    rule = "synchronous-save-every-step"
    words = ("save",)
    examples = _guarded('torch.save(model.state_dict(), "last.pt")')


class CopyUnguarded(_Unguarded):
    rule = "host-copy-every-step"
    words = (".cpu()", ".numpy()", ".tolist()")
    examples = _guarded("history.append(loss.detach().cpu())")


class CacheUnguarded(_Unguarded):
    rule = "cache-cleared-every-step"
    words = ("empty_cache", "collect()")
    answered = True  # by its deletion
    examples = _guarded("torch.cuda.empty_cache()")
