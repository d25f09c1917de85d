from __future__ import annotations

import ast
import re
from bisect import bisect_left
from collections.abc import Iterator

from ptopt.rules.base import Evidence, Fix, Invalid, Problem, Rule, Safety, Severity, SourceFile
from ptopt.rules.code import add_keyword, has_unpacking, keyword_of, method_call
from ptopt.source.file import remembered
from ptopt.source.index import FunctionNode, own_nodes

_PROCESSES = re.compile(
    r"init_process_group|DistributedDataParallel|local_rank|LOCAL_RANK|accelerat|mp\.spawn|torchrun"
)
_GPU = re.compile(r"^(?!.*\b(?:torch_)?xla\b).*(?:cuda|accelerat)", re.I | re.S)

_FIRST = 50  # calls after the load that are looked at for two objects to fill

_MAIN = re.compile(r"is_(local_)?main|is_master|main_process|rank")


class CheckpointLoadedOnGpu(Rule):
    """A checkpoint is read straight into GPU memory, beside the model it is meant for.

    ## What it does
    Finds `torch.load(path)` without `map_location` in files that use a GPU, whose result fills a model, an optimizer or an
    average by `load_state_dict` in the same function.

    ## Why it is slow
    Tensors go back to the device they were saved from. The whole checkpoint lies on the GPU while it is copied into
    the model and the optimizer that are there already; with several processes, each of them puts its copy on the
    same first GPU.

    ## When this is wrong
    When the checkpoint was saved from the CPU, or memory is plentiful and the load happens once.

    ## Fix safety
    Unsafe: values of the checkpoint that are used without `load_state_dict` stay on the CPU.

    ## Sources
    - [torch.load: map_location](https://docs.pytorch.org/docs/stable/generated/torch.load.html)
    """

    id = "PTO802"
    name = "checkpoint-loaded-on-gpu"
    family = "memory"
    severity = Severity.LOW
    triggers = ("torch.load(", "load(")
    requires = ("load_state_dict",)
    nodes = (ast.Call,)
    when_wrong = "the checkpoint was saved from the CPU"

    VALID = (
        """
        class Average:
            def load_state_dict(self, state_dict):
                self.shadow = state_dict

        def resume(model, optimizer, device):
            average = Average()
            states = torch.load("last.pt")
            model.to("cuda").load_state_dict(states[0])
            optimizer.load_state_dict(states[1])
            average.load_state_dict(states[2])
        """,
        """
        def resume(model, optimizer):
            if hvd.rank() == 0:
                states = torch.load("last.pt")
                model.cuda().load_state_dict(states["model"])
                optimizer.load_state_dict(states["optimizer"])
        """,
        """
        class Trainer:
            def load(self, path):
                if not self.accelerator.is_local_main_process:
                    return
                package = torch.load(path)
                self.model.cuda().load_state_dict(package["model"])
                self.optimizer.load_state_dict(package["optimizer"])
        """,
        """
        def resume(path, model, optimizer):
            checkpoint = torch.load(path, map_location="cpu")
            model.cuda().load_state_dict(checkpoint["model"])
            optimizer.load_state_dict(checkpoint["optimizer"])
        """,
        """
        def features(path):
            return torch.load(path)["features"].cuda()
        """,
        """
        def resume(path, model, optimizer):
            kwargs = {"map_location": "cpu"} if torch.cuda.is_available() else {}
            checkpoint = torch.load(path, **kwargs)
            model.load_state_dict(checkpoint["model"])
            optimizer.load_state_dict(checkpoint["optimizer"])
        """,
    )
    INVALID = (
        Invalid("""
            def resume(path, model, optimizer):
                checkpoint = torch.load(path)  # !
                # + checkpoint = torch.load(path, map_location="cpu")
                model.cuda().load_state_dict(checkpoint["model"])
                optimizer.load_state_dict(checkpoint["optimizer"])
        """),
        Invalid("""
            class Trainer:
                def load(self, path):
                    data = torch.load(str(path), weights_only=True)  # !
                    # + data = torch.load(str(path), weights_only=True, map_location="cpu")
                    self.net.load_state_dict(data["net"])
                    for i, optimizer in enumerate(self.optimizers):
                        optimizer.load_state_dict(data[f"optimizer{i}"])
                    self.net.cuda()
        """),
        Invalid("""
            def load_weights(path, model, local_rank):
                model.cuda(local_rank).load_state_dict(torch.load(path))  # !
                # + model.cuda(local_rank).load_state_dict(torch.load(path, map_location="cpu"))
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call) or file.imports.qualified(node.func) != "torch.load":
            return
        if (
            len(node.args) != 1
            or has_unpacking(node)
            or any(keyword_of(node, k) for k in ("map_location", "mmap"))
        ):
            return
        if not file.search(_GPU) or _mapped_elsewhere(node, file) or _in_one_process(node, file):
            return
        loads = _fills(node, file)
        if not loads or any(_takes_over(load, file) for load in loads):
            return
        several = file.search(_PROCESSES)
        owners = {file.source(load.func) for load in loads}
        if len(owners) == 1 and not several:
            return  # one set of weights, for a moment
        where = (
            "each process puts the whole of it on the GPU it was saved from"
            if several
            else "the whole of it lies in GPU memory beside what it fills"
        )
        yield Problem(
            node,
            f"Without `map_location` the checkpoint goes back to the device it was saved from: {where}. Pass "
            '`map_location="cpu"`; `load_state_dict` copies the values to the right device.',
            (0.68 if several else 0.62) if len(owners) > 1 else 0.4,
            tuple(Evidence(load.lineno, "filled from the checkpoint") for load in loads[:2]),
            Fix(
                Safety.UNSAFE,
                (add_keyword(file, node, 'map_location="cpu"'),),
                "all tensors of the checkpoint pass through `load_state_dict`",
            ),
            facts={"filled": len(owners), "processes": several},
        )


def _mapped_elsewhere(node: ast.Call, file: SourceFile) -> bool:
    """Does another branch of the function map the checkpoint, so that this one was left alone on purpose?"""
    return _maps(file.index.function_of(node), file)


def _in_one_process(node: ast.Call, file: SourceFile) -> bool:
    """Do all processes but the main one leave the function first: `if not self.is_main: return`?"""
    if any(
        isinstance(around, ast.If) and child in around.body and _MAIN.search(file.source(around.test))
        for around, child in file.index.ancestors(node)
    ):
        return True
    function = file.index.function_of(node)
    exits = file.guards.early_exits(function) if function is not None else []
    return any(early.lineno < node.lineno and _MAIN.search(file.source(early.test)) for early in exits)


def _takes_over(load: ast.Call, file: SourceFile) -> bool:
    """Does a class of its own keep what it is given, `self.shadow = state_dict`, with the device that it lies on?"""
    found = file.definition_of(load)
    if found is None:
        return False
    names = {a.arg for a in found[1].args.args[1:]}
    return any(
        isinstance(n, ast.Assign) and isinstance(n.value, ast.Name) and n.value.id in names
        for n in own_nodes(found[1])
    )


def _fills(node: ast.Call, file: SourceFile) -> list[ast.Call]:
    """The first `load_state_dict` calls of the same function that are given the checkpoint, or a part of it."""
    statement = file.index.statement_of(node)
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    if isinstance(target, ast.Name):
        found = _filling(target.id, file.index.function_of(node), file)
        return found[bisect_left(found, node.lineno, key=lambda c: c.lineno) :][:_FIRST]
    return [
        ancestor
        for ancestor, _ in file.index.ancestors(node)
        if isinstance(ancestor, ast.Call) and method_call(ancestor, "load_state_dict") is not None
    ][:1]


@remembered
def _maps(function: FunctionNode | None, file: SourceFile) -> bool:
    return any(keyword_of(call, "map_location") is not None for call in file.calls.calls_in(function))


@remembered
def _filling(name: str, function: FunctionNode | None, file: SourceFile) -> list[ast.Call]:
    """The `load_state_dict` calls of the function that are given a part of what the name holds, in source order."""
    found: list[ast.Call] = []
    for call in file.calls.calls_in(function):
        if method_call(call, "load_state_dict") is None or not call.args:
            continue
        if any(isinstance(n, ast.Name) and n.id == name for n in (call.args[0], *own_nodes(call.args[0]))):
            found.append(call)
    return sorted(found, key=lambda c: c.lineno)
