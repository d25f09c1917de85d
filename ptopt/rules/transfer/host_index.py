from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Evidence, Fix, Invalid, Problem, Rule, Safety, SourceFile
from ptopt.rules.code import add_keyword, quote
from ptopt.rules.shared.flow import entries_of
from ptopt.rules.transfer._hot import hot_place
from ptopt.rules.transfer._origins import built_from_factories

_LONGEST = 40  # characters of an indexed expression that is named in full


class HostIndex(Rule):
    """A tensor on the device is indexed with a tensor that was made on the CPU.

    ## What it does
    Finds `x[torch.arange(n), labels]` and the like, where the index tensor is made by a factory call without `device=`,
    in code that runs often.

    ## Why it is slow
    The index is filled on the CPU and copied to the device on each call, from pageable memory: Python waits for the copy.

    ## Fix safety
    Safe: the index has the same values, on the device of what it indexes.

    ## Sources
    - [PyTorch performance tuning guide: create tensors directly on the target device](https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html)
    """

    id = "PTO231"
    name = "host-index"
    family = "transfer"
    most_stated = 0.6
    triggers = (
        "arange",
        "randperm",
        "randint",
        "triu_indices",
        "tril_indices",
        "linspace",
        "eye",
        "ones",
        "zeros",
    )
    nodes = (ast.Subscript,)
    when_wrong = "the indexed tensor lies on the CPU"

    VALID = (
        """
        def pick(logits: torch.Tensor, labels):
            return logits[torch.arange(len(labels), device=logits.device), labels]
        """,
        """
        def rows(data: np.ndarray, n):
            return data[torch.arange(n)]
        """,
        """
        def every_fourth(frames: torch.Tensor, n):
            first = torch.arange(n) % 4 == 0
            return frames[first]
        """,
        """
        class Items(Dataset):
            def __getitem__(self, i):
                x = self.images[i].unsqueeze(0)
                return x[torch.randperm(3)]
        """,
    )
    INVALID = (
        Invalid("""
            def pick(logits: torch.Tensor, labels):
                return logits[torch.arange(len(labels)), labels]  # !
                # + return logits[torch.arange(len(labels), device=logits.device), labels]
        """),
        Invalid("""
            def layers(outputs: torch.Tensor, n, step):
                indices = (torch.arange(0, n) * step).floor().long()
                # + indices = (torch.arange(0, n, device=outputs.device) * step).floor().long()
                return outputs[indices]  # !
        """),
        Invalid("""
            class Mix(nn.Module):
                def forward(self, x: torch.Tensor):
                    order = torch.randperm(x.size(0))
                    return x + x[order]  # !
        """),
    )

    def candidates(self, file: SourceFile) -> list[ast.AST]:
        return file.index.computed_subscripts

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Subscript) or isinstance(node.slice, (ast.Constant, ast.Slice)):
            return
        parts = entries_of(node)
        index = next(
            (p for p in parts if isinstance(p, (ast.Name, ast.Call, ast.BinOp)) and _on_host(p, file)), None
        )
        if index is None:
            return
        value = file.values.of(node.value)
        made = built_from_factories(index, file)
        if value.kind != "tensor" or value.device == "cpu" or made is None:
            return
        hot = hot_place(node, file)
        if hot is None:
            return
        base = file.source(node.value)
        device = f"device={base}.device" if len(base) <= _LONGEST and "\n" not in base else "device=…"
        yield Problem(
            node,
            f"The index {quote(file, index)} is made on the CPU, so it is copied to the device {hot.words}, and Python waits "
            f"for the copy. Make it there: {quote(file, made[0], 40)} with `{device}`.",
            0.6 if value.device == "moved" else 0.5,
            (Evidence(made[0].lineno, "made on the CPU"), *hot.evidence)
            if made[0].lineno != node.lineno
            else hot.evidence,
            _fix(node, made, base, file),
            cause=hot.node,
            subject=node.value,
        )


def _on_host(index: ast.expr, file: SourceFile) -> bool:
    value = file.values.of(index)
    # On the device a mask would make Python wait as well, for the number of elements that it picks.
    return value.kind == "tensor" and value.device == "cpu" and not file.waits.is_mask(index, anywhere=True)


def _fix(node: ast.Subscript, made: list[ast.Call], base: str, file: SourceFile) -> Fix | None:
    """Adds `device=` to the one factory call, when its result is an index here and nothing else."""
    if (
        len(made) != 1
        or "rand" in ast.unparse(made[0].func)
        or not isinstance(node.value, ast.Name)  # whatever else it is, reading it twice may not be the same
    ):
        return None
    target = file.index.parent(made[0])
    while target is not None and not isinstance(target, ast.stmt):
        target = file.index.parent(target)
    if target is not file.index.statement_of(node):
        name = target.targets[0] if isinstance(target, ast.Assign) else None
        function = file.index.function_of(node)
        if not isinstance(name, ast.Name) or len(file.uses.loads(function, name.id)) != 1:
            return None
        binding = file.bindings.last_before(node.value)
        if binding is None or binding.line > made[0].lineno:
            return None
    return Fix(Safety.SAFE, (add_keyword(file, made[0], f"device={base}.device"),))
