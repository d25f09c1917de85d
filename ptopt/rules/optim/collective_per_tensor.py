from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import Evidence, Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import is_literal, keyword_of, quote

_COLLECTIVES = frozenset(
    "all_reduce broadcast reduce all_gather all_gather_into_tensor reduce_scatter".split()
)
_SENDS_ITEMS = re.compile(
    r"parameters\(|params|grads?\b|buffers|state_dict|\.items\(|\.values\(|\.keys\(|tensors|metrics|stats"
)


_JOINED = re.compile(r"buckets?|grad_buffers?|flat(tened)?_", re.I)


class CollectivePerTensor(Rule):
    """Tensors are reduced or sent over the processes one by one.

    ## What it does
    Finds `all_reduce`, `broadcast`, `all_gather`, … of `torch.distributed` in a loop over tensors or metrics, and the same
    call on two tensors in a row.

    ## Why it is slow
    Each collective waits for every process and pays its latency, however small the tensor is. One call on tensors that are
    put together pays it once.

    ## Fix safety
    None: the parts have to be put together and taken apart again.

    ## Sources
    - [torch.distributed](https://docs.pytorch.org/docs/stable/distributed.html)
    """

    id = "PTO445"
    name = "collective-per-tensor"
    family = "optim"
    most_stated = 0.45
    triggers = tuple(f"{name}(" for name in sorted(_COLLECTIVES))
    nodes = (ast.Call,)
    calls = _COLLECTIVES
    when_wrong = "the tensors are large, or the loop runs once at the start"

    VALID = (
        """
        import torch.distributed as dist

        class Wrapped:
            def reduce(self):
                for dtype, buffer in self._grad_buffers.items():
                    dist.all_reduce(buffer.data)
        """,
        """
        import torch.distributed as dist

        for step, batch in enumerate(loader):
            loss = model(batch)
            dist.all_reduce(loss)
        """,
        """
        import torch.distributed as dist

        for p in model.parameters():
            handles.append(dist.all_reduce(p.grad, async_op=True))
        """,
        """
        import torch.distributed as dist

        dist.broadcast(size, src=0)
        dist.broadcast(data, src=0)
        """,
    )
    INVALID = (
        Invalid("""
            import torch.distributed as dist

            for p in model.parameters():
            # ~ flat = torch.cat([p.grad.flatten() for p in model.parameters()])
            # ~ dist.all_reduce(flat)
                dist.all_reduce(p.grad)  # !
                # ~
        """),
        Invalid("""
            import torch.distributed as dist

            def reduced(total, count):
                dist.all_reduce(total)
                dist.all_reduce(count)  # !
                return total / count
        """),
        Invalid("""
            import torch.distributed as dist

            def reduced(metrics):
                for name, value in metrics.items():
                    dist.all_reduce(value)  # !
                    metrics[name] = value.item()
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call) or not _blocks(node, file):
            return
        name = file.source(node.func)
        loop = next(file.index.loops_of(node), None)
        if isinstance(loop, ast.For) and _JOINED.search(file.source(loop.iter)):
            return  # each holds many tensors already
        if isinstance(loop, ast.For) and _SENDS_ITEMS.search(file.source(loop.iter)):
            yield Problem(
                node,
                f"{quote(file, node, 50)} waits for all processes once for each item of {quote(file, loop.iter, 40)}. Put the tensors "
                f"together (`torch.cat` of the flattened ones, or `torch.stack` of numbers), call `{name}` once, and split the "
                "result.",
                0.45,
                (Evidence(loop.lineno, "the loop over the tensors"),),
                cause=loop,
                facts={"in_loop": 1, "parameters": "param" in file.source(loop.iter)},
            )
            return
        before = _before(node, file) if name.endswith("all_reduce") else None
        if before is not None and _before(before, file) is None:
            yield Problem(
                node,
                f"This is the second {quote(file, node.func, 40)} in a row, and each waits for all processes. Put the two tensors "
                f"into one (`torch.stack([{_arg(before, file)}, {_arg(node, file)}])` where they have one shape and type), call it once, "
                "and take the parts out.",
                0.4,
                (Evidence(before.lineno, "the first"),),
                cause=before,
                facts={"in_loop": 0},
            )


def _blocks(call: ast.Call, file: SourceFile) -> bool:
    """A collective of torch.distributed that waits, on a tensor."""
    if not file.imports.qualified(call.func).startswith("torch.distributed.") or not call.args:
        return False
    waits = keyword_of(call, "async_op")
    return waits is None or is_literal(waits, False)


def _before(call: ast.Call, file: SourceFile) -> ast.Call | None:
    """The same collective in the statement just before, with the same operation."""
    statement = file.index.parent(call)
    block = file.index.parent(statement) if isinstance(statement, ast.Expr) else None
    for body in (getattr(block, "body", None), getattr(block, "orelse", None)):
        if isinstance(body, list) and statement in body and (at := body.index(statement)):
            earlier = body[at - 1]
            other = earlier.value if isinstance(earlier, ast.Expr) else None
            if isinstance(other, ast.Call) and _blocks(other, file) and _alike(other, call):
                return other
    return None


def _alike(first: ast.Call, second: ast.Call) -> bool:
    parts = [
        [
            ast.unparse(c.func),
            *(ast.unparse(a) for a in c.args[1:]),
            *sorted(ast.unparse(k) for k in c.keywords),
        ]
        for c in (first, second)
    ]
    return parts[0] == parts[1]


def _arg(call: ast.Call, file: SourceFile) -> str:
    return quote(file, call.args[0], 30).strip("`")
