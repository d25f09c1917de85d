from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Evidence, Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import quote
from ptopt.rules.shared.flow import assigned, runs_network
from ptopt.source.calls import last_name
from ptopt.source.frequency import Often
from ptopt.source.index import walk
from ptopt.source.values import is_loss_name

_SMALL = frozenset(
    "argmax argmin mean sum item numel size tolist numpy cpu max min any all norm loss topk append round mse_loss accuracy "
    "cross_entropy len float int str".split()
)
_GATHERED = frozenset({"cat", "concat", "stack", "vstack", "hstack"})


class ResultsKeptOnDevice(Rule):
    """The outputs of all batches are kept in device memory until a loop ends.

    ## What it does
    Finds a list that takes a tensor of each batch in a loop that does not train, and is joined by `torch.cat` or `torch.stack`
    afterwards, with no copy to the host in between.

    ## Why it is slow
    Device memory grows with the data set: the results of every batch stay allocated, and the join makes a second copy of
    them all. That memory is missing for a larger batch.

    ## Fix safety
    There is no fix: a copy to the host waits for the batch, which another design (a buffer of the final size) avoids.

    ## Sources
    - [PyTorch: understanding GPU memory](https://pytorch.org/blog/understanding-gpu-memory-1/)
    """

    id = "PTO815"
    name = "results-kept-on-device"
    family = "memory"
    most_stated = 0.35
    nodes = (ast.Call,)
    calls = frozenset({"append"})
    requires = ("cat(", "stack(", "concat(")
    when_wrong = "the results of all batches are small, or are used on the device at once"

    VALID = (
        """
        with torch.no_grad():
            for x in test_loader:
                features.append(model(x.cuda()).cpu())
        features = torch.cat(features)
        """,
        """
        with torch.no_grad():
            for x in test_loader:
                labels.append(model(x.cuda()).argmax(-1))
        labels = torch.cat(labels)
        """,
        """
        with torch.no_grad():
            for x in val_loader:
                loss = diffusion(x.cuda())
                losses.append(loss)
        print(torch.stack(losses).mean())
        """,
        """
        for layer in self.layers:
            states.append(layer(x))
        return torch.stack(states)
        """,
    )
    INVALID = (
        Invalid("""
            def extract(model, loader):
                features = []
                with torch.no_grad():
                    for x in loader:
                        features.append(model(x.cuda()))  # !
                        # ~ features.append(model(x.cuda()).cpu())
                return torch.cat(features)
        """),
        Invalid("""
            @torch.no_grad()
            def evaluate(net, val_loader, device):
                outputs = []
                for x, y in val_loader:
                    logits = net(x.to(device))
                    outputs.append(logits)  # !
                return torch.cat(outputs, dim=0)
        """),
        Invalid("""
            @torch.no_grad()
            def decode(vae, latents):
                frames = []
                for chunk in latents.split(8):
                    frames.append(vae.decode(chunk).sample)  # !
                return torch.cat(frames)
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or len(node.args) != 1:
            return
        grown, value = node.func.value, node.args[0]
        if not isinstance(grown, ast.Name) or not file.context.grad_off(node):
            return
        loop = next(file.index.loops_of(node), None)
        frequency = file.frequencies.of(node)
        if loop is None or frequency.often < Often.EVALUATION or frequency.trains or frequency.in_worker:
            return
        made = _origin(value, file)
        if is_loss_name(last_name(value)):
            return  # one number a batch
        if made is None or file.values.of(value).device == "cpu" or _emptied(grown.id, loop, file):
            return
        join = _join(grown, node, file)
        if join is None:
            return
        yield Problem(
            node,
            f"{quote(file, value, 30)} of every iteration stays in device memory until {quote(file, join, 30)} on line "
            f"{join.lineno} makes a second copy of all. Move each result to the host as it comes, or write it into a tensor "
            "of the final size.",
            0.35,
            (Evidence(loop.lineno, "the loop"), Evidence(join.lineno, "all results are joined")),
            cause=loop,
            subject=value,
            facts={"direct": made is value, "to_host_later": _to_host(join, file)},
        )


def _origin(value: ast.expr, file: SourceFile) -> ast.expr | None:
    """The call that made the value, when it is no small or host value."""
    made = assigned(value, file) if isinstance(value, ast.Name) else value
    if made is None:
        return None
    chain = made
    while isinstance(chain, (ast.Call, ast.Attribute, ast.Subscript)):
        if isinstance(chain, ast.Call):
            func = chain.func
            name = last_name(func)
            if name in _SMALL or any(k.arg == "device" for k in chain.keywords) or "loss" in name:
                return None
            if name == "to" and "cpu" in file.source(chain):
                return None
            chain = func.value if isinstance(func, ast.Attribute) else ast.Name("", ast.Load())
        else:
            chain = chain.value
    kind = file.values.of(made).kind
    network = any(runs_network(n, file) for n in walk(made) if isinstance(n, ast.Call))
    return made if network and kind in ("tensor", "") else None


def _join(grown: ast.Name, append: ast.Call, file: SourceFile) -> ast.Call | None:
    """The `torch.cat` or `torch.stack` of the list, after the loop."""
    for load in file.uses.loads(file.index.function_of(append), grown.id):
        call = file.index.parent(load)
        if isinstance(call, ast.Call) and load in call.args[:1] and call.lineno > append.lineno:
            module, _, name = file.imports.qualified(call.func).rpartition(".")
            if module == "torch" and name in _GATHERED and not file.index.within(call, _loop(append, file)):
                return call
    return None


def _loop(node: ast.AST, file: SourceFile) -> ast.AST:
    return next(file.index.loops_of(node), node)


def _emptied(name: str, loop: ast.AST, file: SourceFile) -> bool:
    """Is the list made anew in the same iteration?"""
    function = file.index.function_of(loop)
    return bool(file.bindings.inside(function, name, loop))


def _to_host(join: ast.Call, file: SourceFile) -> bool:
    attribute = file.index.parent(join)
    return isinstance(attribute, ast.Attribute) and attribute.attr in ("cpu", "numpy")
