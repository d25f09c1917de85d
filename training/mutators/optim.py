"""Optimizers and data parallelism."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.code import add_keyword, has_unpacking, keyword_of, method_call
from ptopt.source.file import SourceFile
from training.mutators.base import (
    Mutation,
    bracketed,
    insert_before,
    is_known,
    need_import,
    pick,
    remove_keyword,
    replace,
    sites,
)


class OptimizerBuiltInLoop:
    """The optimizer is made again in the step that uses it."""

    rule = "optimizer-built-in-loop"
    examples = (
        (
            (
                "import torch\n\n\nfor x in loader:\n    loss = model(x.cuda())\n    optimizer.zero_grad()\n"
                "    loss.backward()\n    optimizer.step()\n"
            ),
            (
                "import torch\n\n\nfor x in loader:\n    loss = model(x.cuda())\n"
                "    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n    optimizer.zero_grad()\n"
                "    loss.backward()\n    optimizer.step()\n"
            ),
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for call in source.calls_named("zero_grad"):
            statement = source.index.statement_of(call)
            step = next((s for s in sites(source) if source.index.within(call, s.container)), None)
            if (
                step is None
                or not isinstance(statement, ast.Expr)
                or not isinstance(call.func, ast.Attribute)
                or statement.lineno > step.statement.lineno
            ):
                continue  # behind the step of the optimizer nobody makes another
            name = source.source(call.func.value)
            model = "self.model" if name.startswith("self.") else "model"
            rate = pick(("0.01", "1e-3", "0.1"), source, source.bounds(call)[0])
            # Without momentum: another optimizer has a state, which the loop would reset.
            made = f"torch.optim.SGD({model}.parameters(), lr={rate})"
            if not is_known(source, made, statement):
                continue
            edit = insert_before(source, statement, f"{name} = {made}")
            before_loop = (
                insert_before(source, step.container, f"{name} = {made}")
                if isinstance(step.container, ast.For)
                else None
            )
            if edit is not None and "optim" in name:
                imports = need_import(source, "torch", "import torch")
                fast = (*imports, before_loop) if before_loop else ()
                yield Mutation((*imports, edit), fast=fast, answered=bool(fast))


class DistributedToDataParallel:
    """Distributed data parallel training becomes `nn.DataParallel`. Answered where the processes are set up in sight."""

    rule = "data-parallel"
    examples = (
        (
            (
                "import torch\n\n\nmodel = torch.nn.parallel.DistributedDataParallel(model)\nfor x in loader:\n"
                "    model(x).backward()\n    optimizer.step()\n"
            ),
            (
                "import torch\n\n\nmodel = torch.nn.DataParallel(model)\nfor x in loader:\n"
                "    model(x).backward()\n    optimizer.step()\n"
            ),
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for name in ("DistributedDataParallel", "DDP"):
            for call in source.calls_named(name):
                if call.args:
                    text = f"torch.nn.DataParallel({source.source(call.args[0])})"
                    edits = (*need_import(source, "torch", "import torch"), replace(source, call, text))
                    yield Mutation(edits, answered="init_process_group" in source.text)


class ZeroGradKeepsTensors:
    """`zero_grad()` that fills with zeros."""

    rule = "zero-grad-keeps-tensors"
    examples = (
        (
            "import torch\n\n\nfor x in loader:\n    optimizer.zero_grad()\n    model(x).backward()\n",
            "import torch\n\n\nfor x in loader:\n    optimizer.zero_grad(set_to_none=False)\n    model(x).backward()\n",
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for call in source.calls_named("zero_grad"):
            value = keyword_of(call, "set_to_none")
            if value is not None:
                yield Mutation((replace(source, value, "False"),))
            elif not call.args and not has_unpacking(call):
                yield Mutation((add_keyword(source, call, "set_to_none=False"),))


class FusedOrForeachDisabled:
    """An optimizer configured to step parameter by parameter."""

    rule = "fused-or-foreach-disabled"
    examples = (
        (
            "import torch\n\n\nopt = torch.optim.AdamW(model.to(device).parameters(), lr=lr)\n",
            "import torch\n\n\nopt = torch.optim.AdamW(model.to(device).parameters(), lr=lr, foreach=False)\n",
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for name in ("Adam", "AdamW", "SGD", "RMSprop", "NAdam", "RAdam", "Adamax"):
            for call in source.calls_named(name):
                given = {k.arg for k in call.keywords}
                if given & {"fused", "foreach"} or has_unpacking(call) or not call.args:
                    continue
                word = pick(("foreach=False", "foreach=False", "fused=False"), source, source.bounds(call)[0])
                yield Mutation((add_keyword(source, call, word),))


class OptimizerNotFused:
    """`fused=True` taken away."""

    rule = "optimizer-not-fused"
    examples = (
        (
            (
                'import torch\n\n\nmodel = TransformerLM().to("cuda")\nopt = torch.optim.AdamW(model.parameters(), lr=lr, fused=True)\n'
                'for x in loader:\n    model(x.to("cuda")).mean().backward()\n    opt.step()\n'
            ),
            (
                'import torch\n\n\nmodel = TransformerLM().to("cuda")\nopt = torch.optim.AdamW(model.parameters(), lr=lr)\n'
                'for x in loader:\n    model(x.to("cuda")).mean().backward()\n    opt.step()\n'
            ),
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for name in ("Adam", "AdamW"):
            for call in source.calls_named(name):
                edit = remove_keyword(source, call, "fused")
                if edit is not None:
                    yield Mutation((edit,))


class MovingAverageAllocates:
    """An update in place becomes one through temporary tensors."""

    rule = "ema-update-allocates"
    examples = (
        (
            "import torch\n\n\nfor p, q in zip(a.parameters(), b.parameters()):\n    p.data.mul_(m).add_(q.data, alpha=1 - m)\n",
            "import torch\n\n\nfor p, q in zip(a.parameters(), b.parameters()):\n    p.data = p.data * m + q.data * (1 - m)\n",
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for call in source.calls_named("add_"):
            inner, alpha = method_call(call, "add_"), keyword_of(call, "alpha")
            target = method_call(inner, "mul_") if inner is not None else None
            statement = source.index.statement_of(call)
            if (
                target is None
                or alpha is None
                or not call.args
                or not isinstance(inner, ast.Call)
                or not inner.args
            ):
                continue
            if isinstance(statement, ast.Expr) and statement.value is call:
                p, q, m = (bracketed(source, part) for part in (target, call.args[0], inner.args[0]))
                slow = f"{p} = {p} * {m} + {q} * ({source.source(alpha)})"
                if isinstance(target, ast.Name):
                    slow = f"{p}.copy_({p} * {m} + {q} * ({source.source(alpha)}))"
                yield Mutation((replace(source, statement, slow),))
