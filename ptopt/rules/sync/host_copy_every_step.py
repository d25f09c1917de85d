from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import Invalid, Problem, Rule, Severity, SourceFile
from ptopt.rules.code import quote
from ptopt.rules.memory._results import is_large_result
from ptopt.rules.ops._calls import torch_op
from ptopt.rules.shared.export import for_export
from ptopt.rules.shared.flow import value_of
from ptopt.rules.shared.places import may_hold_a_step, often_place
from ptopt.rules.sync._reads import beside, picks_element, small_gain, tensor_of_copy, wait_facts
from ptopt.source.calls import called_name
from ptopt.source.context import STEP_WORDS, Step
from ptopt.source.uses import COMPARED, COMPUTED, HOST, PASSED, REDUCED, RETURNED, STORED

_ASSIGNS = re.compile(r"linear_sum_assignment|linear_assignment|lapjv|munkres|hungarian", re.I)


class HostCopyEveryStep(Rule):
    """A tensor is copied to the host in code that runs often.

    ## What it does
    Finds `.cpu()`, `.to("cpu")`, `.numpy()` and `.tolist()` on tensors in training steps and, less surely, in forward
    passes, losses, metrics, evaluation loops and functions that work on their caller's tensors, unless a condition
    makes the copy rare.

    ## Why it is slow
    The copy waits for every queued kernel, then for the transfer into pageable memory. Meanwhile nothing new is
    queued, and the GPU idles.

    ## When this is wrong
    When the copy feeds a library that has no GPU version (an assignment solver, a metric of scikit-learn that the loss
    needs), or when a replay buffer in host memory is the point of the loop. Where the copies are collected, nothing is said of
    large results of an evaluation: on the device they would pile up, of which `results-pile-up` speaks.

    ## Example
    ```python
    for x, y in loader:
        logits = model(x.to(device))
        loss = F.cross_entropy(logits, y.to(device))
        loss.backward()
        optimizer.step()
        predictions.extend(logits.argmax(1).cpu().tolist())
    ```

    ## Use instead
    ```python
    for x, y in loader:
        logits = model(x.to(device))
        loss = F.cross_entropy(logits, y.to(device))
        loss.backward()
        optimizer.step()
        predictions.append(logits.argmax(1))
    predictions = torch.cat(predictions).tolist()
    ```

    ## Fix safety
    No fix: where the values are needed is for the author to say.

    ## Sources
    - [PyTorch performance tuning guide: avoid unnecessary CPU-GPU synchronization](https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html)
    """

    id = "PTO102"
    name = "host-copy-every-step"
    family = "sync"
    severity = Severity.LOW
    triggers = (".cpu()", ".numpy()", ".tolist()")
    sure_triggers = STEP_WORDS
    nodes = (ast.Call,)
    calls = frozenset({"cpu", "numpy", "tolist", "to"})
    when_wrong = (
        "the host needs the values on every step, such as for a solver or a metric that has no GPU version"
    )

    VALID = (
        """
        @torch.no_grad()
        def encode(model, loader, device):
            encoded = []
            for batch in loader:
                output = model(batch.to(device))
                encoded.append(output.passages.cpu().numpy())
            return np.concatenate(encoded)
        """,
        """
        from scipy.optimize import linear_sum_assignment

        class Matcher(nn.Module):
            def forward(self, outputs: torch.Tensor, targets: torch.Tensor):
                cost = torch.cdist(outputs, targets)
                cost = cost.view(len(outputs), -1).cpu()
                return [linear_sum_assignment(part) for part in cost.split(1)]
        """,
        """
        for step, (x, y) in enumerate(loader):
            loss = F.cross_entropy(model(x.to(device)), y.to(device))
            loss.backward()
            optimizer.step()
            if step % 100 == 0:
                history.append(loss.detach().cpu().numpy())
        """,
        """
        for x, y in loader:
            cost = torch.cdist(model(x.to(device)), y.to(device))
            rows, columns = linear_sum_assignment(cost.detach().cpu().numpy())
            loss = cost[rows, columns].mean()
            loss.backward()
            optimizer.step()
        """,
        """
        def pairs(*indices):
            return torch.unique(torch.stack(indices), dim=1).tolist()

        for x, y in loader:
            loss = sum(model(x.to(device))[i] for i in pairs(x, y)[0])
            loss.backward()
            optimizer.step()
        """,
        """
        def evaluate(model, loader, device):
            outputs = []
            with torch.no_grad():
                for x, _ in loader:
                    outputs.append(model(x.to(device)).argmax(1).cpu())
            return torch.cat(outputs)
        """,
        """
        for x, lengths in loader:
            packed = pack_padded_sequence(x.to(device), lengths.cpu(), batch_first=True)
            loss = model(packed).mean()
            loss.backward()
            optimizer.step()
        """,
    )
    INVALID = (
        Invalid("""
            for x, y in loader:
                logits = F.softmax(model(x.to(device)), dim=1)
                loss = F.nll_loss(logits.log(), y.to(device))
                loss.backward()
                optimizer.step()
                predictions.extend(logits.argmax(1).cpu().tolist())  # !
        """),
        Invalid("""
            for x, y in loader:
                loss = F.mse_loss(model(x.cuda()), y.cuda())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.detach().cpu().numpy())  # !
        """),
        Invalid("""
            class Net(pl.LightningModule):
                def training_step(self, batch, batch_idx):
                    loss = F.cross_entropy(self(batch.x), batch.y)
                    self.train_losses.append(loss.detach().cpu())  # !
                    return loss
        """),
    )

    def may_be_sure(self, file: SourceFile) -> bool:
        """Only in a training step."""
        return may_hold_a_step(file)

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        tensor = tensor_of_copy(node, file)
        place = often_place(node, file) if tensor is not None else None
        if tensor is None or place is None or picks_element(tensor, node, file):
            return
        if for_export(node, file) or _for_matching(node, file):
            return
        if file.uses.of(node) == {HOST}:
            return  # what takes it takes nothing else
        large = is_large_result(tensor, place.node, file)
        if large and place.step is None and _is_kept(node, file):
            return  # on the device they would pile up: `results-pile-up` asks for the copy
        feeds = _feeds_a_call(node, file) or (
            place.step is not None and _made_for_caller(node, place.step, file)
        )
        sure = 0.75 if place.step is not None and place.step.kind == "loop" else place.prior(0.65)
        yield Problem(
            node,
            f"{quote(file, node)} copies to the host and makes Python wait for the GPU {place.words}. "
            f"{_advice(node, tensor, place.step is not None, file, large=large)}{small_gain(node, place, file)}{beside(node, place.node, file)}",
            0.3 if feeds else sure,
            place.evidence,
            cause=place.node,
            subject=tensor,
            facts={"feeds_call": float(feeds), **wait_facts(node, place.node, file)},
        )


def _is_kept(node: ast.AST, file: SourceFile) -> bool:
    """Is the copy only collected, or handed to the caller, who may collect it?"""
    return not file.uses.of(node) & {COMPUTED, PASSED, REDUCED, COMPARED}


def _advice(node: ast.AST, tensor: ast.expr, trains: bool, file: SourceFile, *, large: bool) -> str:
    """What to do instead, by where the copy goes."""
    ways = file.uses.of(node)
    if torch_op(value_of(tensor, file), file, "stack", "cat") is not None:
        return "It is one copy of several values already: make it only on the steps that use them."
    if REDUCED in ways and not ways & {COMPARED, COMPUTED, PASSED, RETURNED, STORED}:
        return "Only a sum or an extreme of it is used: compute that on the device, and read the one number."
    if ways & {COMPARED, COMPUTED, PASSED, REDUCED}:
        return "Compute on the device, and copy the result once."
    if large:
        return "Copy it only on the steps that report it."
    once = "Collect the detached tensor and copy once after the loop"
    return f"{once}, or only on the steps that report it." if trains else f"{once}."


def _for_matching(node: ast.AST, file: SourceFile) -> bool:
    """Does the function solve an assignment on the host, for which it copies the costs?"""
    function = file.index.function_of(node)
    return function is not None and any(
        _ASSIGNS.search(called_name(call)) for call in file.calls.calls_in(function)
    )


def _made_for_caller(node: ast.AST, step: Step, file: SourceFile) -> bool:
    """Does a helper of the step return the copy? Then host values are what its caller wants of it."""
    function = file.index.function_of(node)
    helper = (
        function is step.node
        and step.mark is not function
        and file.index.function_of(step.mark) is not function
    )
    return helper and isinstance(file.index.statement_of(node), ast.Return)


def _feeds_a_call(node: ast.AST, file: SourceFile) -> bool:
    """Does the copy, directly or under one name, go into a function other than a container's or a logger's?

    Such a function may well need host memory: `linear_sum_assignment(cost.cpu())`, `replay.add(state.numpy())`.
    """
    parent = file.index.parent(node)
    if isinstance(parent, ast.keyword):
        parent = file.index.parent(parent)
    if isinstance(parent, ast.Call):
        name = parent.func.attr if isinstance(parent.func, ast.Attribute) else ""
        return name not in ("append", "extend")
    return not (isinstance(parent, ast.AugAssign) or isinstance(file.index.statement_of(node), ast.Return))
