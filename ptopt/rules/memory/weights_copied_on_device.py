from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import quote
from ptopt.source.calls import last_name
from ptopt.source.file import remembered
from ptopt.source.index import FunctionNode, walk

_TAKES_ANY_DEVICE = frozenset({"load_state_dict", "save", "len", "append", "deepcopy"})


class WeightsCopiedOnDevice(Rule):
    """A snapshot of the weights is kept in device memory.

    ## What it does
    Finds `copy.deepcopy(model.state_dict())`, `{k: v.clone() for k, v in model.state_dict().items()}` and
    `copy.deepcopy(model)` that are kept as the best, old or initial weights, or saved, with no copy to the host.

    ## Why it is slow
    `state_dict` refers to the parameters where they are. Its deep copy is a second set of all weights on the accelerator, which
    nothing computes with: that memory is missing for the batch. A snapshot can wait on the host.

    ## When this is wrong
    When the model is on the host or small, or the copy is computed with in another file.

    ## Example
    ```python
    best = copy.deepcopy(model.state_dict())
    ```

    ## Use instead
    ```python
    best = {k: v.detach().cpu().clone() for k, v in model.state_dict().items()}
    ```

    ## Fix safety
    There is no fix: where the weights are is decided elsewhere.

    ## Sources
    - [PyTorch: saving and loading models](https://docs.pytorch.org/tutorials/beginner/saving_loading_models.html)
    """

    id = "PTO887"
    name = "weights-copied-on-device"
    family = "memory"
    most_stated = 0.4
    nodes = (ast.Call, ast.DictComp)
    triggers = ("state_dict",)
    when_wrong = "the model is on the host or small, or the copy is computed with"

    VALID = (
        """
        best = {k: v.cpu() for k, v in model.state_dict().items()}
        """,
        """
        import copy
        import torch
        config = copy.deepcopy(optimizer_config)
        """,
        """
        torch.save(model.state_dict(), path)
        """,
        """
        class Trainer:
            def __init__(self, model):
                self.model = model.cuda()
                self.averaged = {k: v.detach().clone() for k, v in self.model.state_dict().items()}

            def update(self, d):
                for k, v in self.model.state_dict().items():
                    self.averaged[k] = self.averaged[k] * d + v * (1 - d)
        """,
        """
        def fit(model, batches, penalty):
            model.cuda()
            initial = {k: v.clone() for k, v in model.state_dict().items()}
            for x in batches:
                loss = model(x).mean() + penalty(model, initial)
                loss.backward()
        """,
    )
    INVALID = (
        Invalid("""
            import copy
            import torch
            def fit(model, epochs):
                model.cuda()
                best = copy.deepcopy(model.state_dict())  # !
                for epoch in range(epochs):
                    train(model)
                torch.save(best, "best.pt")
                model.load_state_dict({k: v.cuda() for k, v in best.items()})
        """),
        Invalid("""
            import copy
            import torch
            model.cuda()
            for epoch in range(epochs):
                if evaluate(model) > best:
                    weights = copy.deepcopy(model.state_dict())  # !
        """),
        Invalid("""
            from copy import deepcopy
            import torch
            def save(model, path, device):
                model.to(device)
                torch.save({"model": deepcopy(model.state_dict())}, path)  # !
        """),
        Invalid("""
            def reset(self, device):
                self.model.to(device)
                self.initial = {k: v.clone() for k, v in self.model.state_dict().items()}  # !
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        source = _copied(node, file)
        if source is None or not file.uses_accelerator:
            return
        owner = source.func.value if isinstance(source.func, ast.Attribute) else source
        if (
            "optim" in file.source(owner).lower()
            or "sched" in file.source(owner).lower()
            or _to_host(node, file)
        ):
            return
        statement = file.index.statement_of(node)
        if _is_computed_with(statement, file):
            return
        saved = any(isinstance(n, ast.Call) and last_name(n.func) == "save" for n in walk(statement))
        what = f"{quote(file, node, 50)} makes a second set of all weights where the model is, on the accelerator"
        advice = (
            "`torch.save` reads the tensors as they are: pass `state_dict()` itself."
            if saved
            else f"A snapshot can wait on the host: `{{k: v.detach().cpu().clone() for k, v in {file.source(source)}.items()}}`."
        )
        yield Problem(
            node,
            f"{what}. {advice}",
            0.4,
            cause=statement,
            subject=owner,
            facts={
                "saved": saved,
                "deepcopy": isinstance(node, ast.Call),
                "in_loop": next(file.index.loops_of(node), None) is not None,
            },
        )


def _copied(node: ast.AST, file: SourceFile) -> ast.Call | None:
    """The `state_dict()` call whose tensors are copied."""
    if isinstance(node, ast.Call):
        if file.imports.qualified(node.func) != "copy.deepcopy" or not node.args:
            return None
        inner = node.args[0]
        return inner if isinstance(inner, ast.Call) and last_name(inner.func) == "state_dict" else None
    if not isinstance(node, ast.DictComp) or not isinstance(node.value, ast.Call):
        return None
    if {"clone"} & {last_name(n.func) for n in walk(node.value) if isinstance(n, ast.Call)} and len(
        node.generators
    ) == 1:
        items = node.generators[0].iter
        if (
            isinstance(items, ast.Call)
            and isinstance(items.func, ast.Attribute)
            and items.func.attr == "items"
        ):
            inner = items.func.value
            return inner if isinstance(inner, ast.Call) and last_name(inner.func) == "state_dict" else None
    return None


def _is_computed_with(statement: ast.stmt, file: SourceFile) -> bool:
    """Is what keeps the copy read elsewhere for its tensors, or passed to a function that may read them: a moving average, a penalty?

    What is only saved, loaded into a model again, or returned can lie anywhere.
    """
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    kept = targets[0] if len(targets) == 1 else None
    if isinstance(kept, ast.Name):
        return _is_name_read(kept.id, file.index.function_of(statement), file)
    return isinstance(kept, ast.Attribute) and _is_attribute_read(kept.attr, file.source(kept), file)


@remembered
def _is_name_read(name: str, function: FunctionNode | None, file: SourceFile) -> bool:
    return any(_reads_tensors(read, file) for read in file.uses.loads(function, name))


@remembered
def _is_attribute_read(attribute: str, text: str, file: SourceFile) -> bool:
    return any(
        isinstance(each.ctx, ast.Load) and file.source(each) == text and _reads_tensors(each, file)
        for each in file.index.attributes_named(attribute)
    )


def _reads_tensors(read: ast.expr, file: SourceFile) -> bool:
    for outer, child in file.index.ancestors(read):
        if isinstance(outer, ast.Call) and child is not outer.func:
            return last_name(outer.func) not in _TAKES_ANY_DEVICE
        if isinstance(outer, ast.stmt):
            break
    parent = file.index.parent(read)
    return isinstance(parent, ast.Subscript) or (
        isinstance(parent, ast.Attribute) and parent.attr in ("items", "values", "get")
    )


def _to_host(node: ast.AST, file: SourceFile) -> bool:
    text = file.source(file.index.statement_of(node))
    return "cpu" in text.lower()
