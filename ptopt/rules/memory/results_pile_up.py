from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import Evidence, Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import quote
from ptopt.rules.memory._results import (
    SMALL,
    is_large_result,
    kept_value,
    network_ran,
    outliving,
    parts_of,
)
from ptopt.rules.memory.results_kept_on_device import ResultsKeptOnDevice
from ptopt.rules.ops._calls import FEW
from ptopt.rules.shared.dicts import is_dict
from ptopt.source.calls import called_name
from ptopt.source.frequency import Often
from ptopt.source.index import LOOPS

_BATCHED = re.compile(r"range\([^()]*,[^()]*,")
_DATA = re.compile(
    r"load|batch|tile|chunk|split\(|window|patch|prompt|caption|files?\b|paths?\b|tqdm|progress|track|range\([^()]*,[^()]*,|dataset|images|"
    r"frames|videos|state_dict|sd\b|names|_sd\.|samples|queries|docs|texts|slicers|^(enumerate\()?self\)?$",
    re.I,
)
_OWN = ResultsKeptOnDevice()


class ResultsPileUp(Rule):
    """Large tensors of all iterations are kept on the device in a list or dictionary.

    ## What it does
    Finds `results.append(model(x))`, `results[key] = weight @ other` and the like in a loop that does not train, where the
    container outlives the loop and nothing moves the tensor to the host.

    ## Why it is slow
    Device memory grows with the number of batches, tiles or layers, until the container is dropped. What is only written to a
    file, merged or returned later can wait in host memory.

    ## Fix safety
    There is no fix: later code may need the tensors on the device.

    ## Sources
    - [PyTorch: understanding GPU memory](https://pytorch.org/blog/understanding-gpu-memory-1/)
    """

    id = "PTO880"
    name = "results-pile-up"
    family = "memory"
    most_stated = 0.35
    triggers = ("append(", "extend(", "] =", "+=", "for ")
    nodes = (ast.Call, ast.Assign, ast.AugAssign, ast.ListComp)
    when_wrong = "the results are small or few, or are used on the device at once"

    VALID = (
        """
        @torch.no_grad()
        def evaluate(model, loader):
            results = []
            for part in loader:
                found = net(part)
                print(found["height"])
                results.append(found)
            return results
        """,
        """
        @torch.no_grad()
        def evaluate_all(model, names, loaders):
            results = []
            for name, data_loader in zip(names, loaders):
                result = model(data_loader)
                results.append(result)
            return results
        """,
        """
        class Segmenter(Base):
            def slide(self, patches, index):
                logits = []
                for i in range(0, patches.shape[0], self.batch_size):
                    part = patches[i : i + self.batch_size]
                    out = self.encode_decode(part, index)
                    logits.append(out.view(-1, 8))
                logits = torch.cat(logits, dim=0)
                total = torch.zeros(8, device=patches.device)
                return total.scatter_add_(0, index, logits)
        """,
        """
        @torch.no_grad()
        def answers(model, tokenizer, prompts, device):
            found = []
            for prompt in tqdm(prompts):
                batch = tokenizer(prompt, return_tensors="pt").to(device)
                tokens = model.generate(**batch, max_new_tokens=128)
                found.append(tokenizer.decode(tokens[0], skip_special_tokens=True).strip())
            return found
        """,
        """
        @torch.no_grad()
        def test(model, loader):
            results = []
            for data in loader:
                result = model(return_loss=False, **data)
                results.append(result)
            return results
        """,
        """
        @torch.no_grad()
        def test_all(model, loaders):
            results = {}
            for name in loaders:
                result = inference_on_dataset(model, loaders[name])
                results[name] = result
            return results
        """,
        """
        with torch.no_grad():
            for x in test_loader:
                features.append(model(x.cuda()).cpu())
        """,
        """
        for x, y in loader:
            outputs.append(model(x))
            loss_fn(outputs[-1], y).backward()
            optimizer.step()
        """,
        """
        class Net(nn.Module):
            def forward(self, x):
                outs = []
                for layer in self.layers:
                    x = layer(x)
                    outs.append(x)
                return outs
        """,
    )
    INVALID = (
        Invalid("""
            @torch.no_grad()
            def upscale(model, tiles, device):
                outputs = []
                for tile in tiles:
                    outputs.append(model(tile.to(device)))  # !
                    # ~ outputs.append(model(tile.to(device)).cpu())
                return merge(outputs)
        """),
        Invalid("""
            @torch.no_grad()
            def merge(models, names):
                merged = {}
                for name in names:
                    up, down = load(name)
                    weight = torch.matmul(up.to("cuda"), down.to("cuda"))
                    merged[name] = weight  # !
                return merged
        """),
        Invalid("""
            class Net(pl.LightningModule):
                def validation_step(self, batch, batch_idx):
                    logits = self.net(batch["x"])
                    self.validation_outputs.append({"logits": logits, "y": batch["y"]})  # !
        """),
    )

    def candidates(self, file: SourceFile) -> list[ast.AST]:
        adds = (
            *file.calls_named("append"),
            *file.calls_named("extend"),
            *file.index.of_type(ast.Assign, ast.AugAssign),
        )
        return [*file.index.of_type(ast.ListComp), *(n for n in adds if kept_value(n) is not None)]

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if isinstance(node, ast.ListComp):
            yield from _comprehension(node, file)
            return
        held = kept_value(node)
        if held is None:
            return
        container, value = held
        frequency = file.frequencies.of(node)
        if frequency.often < Often.EVALUATION or frequency.trains or frequency.in_worker:
            return
        loop = outliving(container, node, file)
        if loop is None or not _is_result_code(node, loop, file):
            return
        parts = parts_of(value)
        large = next((p for p in parts if is_large_result(p, loop, file) and not is_dict(p, file)), None)
        if large is None or (isinstance(node, ast.Call) and next(_OWN.check(node, file), None) is not None):
            return
        name = file.source(container)
        if SMALL.search(name):
            return
        if file.index.class_of(node) is not None and _joined_after(container, loop, file):
            return  # the method goes on with them
        no_grad = file.context.grad_off(node)
        if not no_grad and isinstance(node, ast.Call) and not network_ran(large, loop, file):
            return  # a part of a formula that autograd may need
        graph = "" if no_grad else ", and each holds its autograd graph where autograd is on"
        yield Problem(
            node,
            f"`{name}` keeps {quote(file, large, 40)} of every iteration in device memory until it is dropped: the peak grows with "
            f"their number{graph}. Move each to the host as it comes, {quote(file, large, 40)[:-1]}.cpu()`, or reduce or write it at once.",
            0.35,
            (Evidence(loop.lineno, "the loop"),) if isinstance(loop, LOOPS) else (),
            cause=loop,
            subject=large,
            facts={
                "no_grad": no_grad,
                "on_self": "." in name,
                "keyed": isinstance(node, ast.Assign),
                "network": network_ran(large, loop, file),
                "few": isinstance(loop, ast.For) and bool(FEW.search(file.source(loop.iter))),
            },
        )


def _comprehension(node: ast.ListComp, file: SourceFile) -> Iterator[Problem]:
    """`[model(x) for x in loader]` where autograd is off."""
    over = node.generators[0].iter
    function = file.index.function_of(node)
    if (
        len(node.generators) > 1
        or re.match(r"range\([^,]*\)$", file.source(over))
        or not _DATA.search(file.source(over))
        or not file.context.grad_off(node)
    ):
        return
    if function is None or file.context.forward_of(node) is not None or FEW.search(file.source(over)):
        return
    parent = file.index.parent(node)
    if isinstance(parent, ast.Call) and "sum" in file.source(parent.func):
        return
    if not is_large_result(node.elt, node, file):
        return
    yield Problem(
        node,
        f"The list holds {quote(file, node.elt, 40)} of every item of {quote(file, over, 30)} in device memory at once. Move each to the host as it comes, "
        f"{quote(file, node.elt, 40)[:-1]}.cpu()`, or reduce or write it at once.",
        0.3,
        cause=node,
        subject=node.elt,
        facts={"no_grad": True, "comprehension": True, "network": network_ran(node.elt, node, file)},
    )


def _is_result_code(node: ast.AST, loop: ast.AST, file: SourceFile) -> bool:
    """Does the code evaluate, rather than make part of a forward or training step?"""
    function = file.index.function_of(node)
    if file.context.training_step(node) is not None or file.context.forward_of(node) is not None:
        return False
    if function is not None and (file.context.trains(function) or function.name == "forward"):
        return False
    if not isinstance(loop, LOOPS):
        return function is not None and file.context.is_eval_function(function)
    if isinstance(loop, ast.While) or file.context.goes_through_sets(loop):
        return False
    if _in_module(node, file) and not file.context.grad_off(node):
        return _BATCHED.search(file.source(loop.iter)) is not None
    return bool(_DATA.search(file.source(loop.iter))) or file.context.is_eval_loop(loop)


def _joined_after(container: ast.expr, loop: ast.AST, file: SourceFile) -> bool:
    """Does the same function make one tensor of the list behind the loop?"""
    return any(
        call.lineno > getattr(loop, "end_lineno", 0)
        and called_name(call) in ("cat", "stack", "concat", "vstack", "hstack")
        and call.args
        and file.source(call.args[0]) == file.source(container)
        for call in file.calls.calls_in(file.index.function_of(loop))
    )


def _in_module(node: ast.AST, file: SourceFile) -> bool:
    """Is it a method of a network, which may be a part of its forward?"""
    cls = file.index.class_of(node)
    return cls is not None and file.context.is_module(cls)
