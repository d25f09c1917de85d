"""Statements that do not belong into every training step."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import ClassVar

from ptopt.findings import Edit
from ptopt.source.file import SourceFile
from ptopt.source.frequency import Often
from training.mutators.base import (
    Mutation,
    Site,
    insert_after,
    insert_before,
    is_known,
    names,
    need_import,
    pick,
    sites,
)

_STEP = """import torch


def train(model, loader, optimizer, criterion):
    for i, (x, y) in enumerate(loader):
        loss = criterion(model(x.cuda()), y.cuda())
        loss.backward()
        optimizer.step()
"""


def _with(statement: str, before: str = "") -> tuple[tuple[str, str], ...]:
    return ((_STEP, f"{before}{_STEP}        {statement}\n"),)


class _Statement:
    """Puts one of some statements behind the training step; a look-alike runs only now and then.

    A template whose names the file does not show is not used. One that collects into a name gets the start of that name
    before the loop; its fast form collects what is on the device, and reads all of it behind the loop.
    """

    templates: tuple[str, ...]
    method_templates: tuple[str, ...] = ()
    imports: tuple[str, str] = ("torch", "import torch")
    needs_loss = True
    answered = True  # by the way back, or by `fast`
    guardable = True  # is it no problem when it is done now and then?
    starts: ClassVar[dict[str, str]] = {}  # by the name that a template collects into

    def fast(self, code: str, loss: str) -> tuple[str, str]:
        """What does the same as `code` without the problem, and what is then done behind the loop."""
        return "", ""

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for site in sites(source):
            if self.needs_loss and not site.loss:
                continue
            place = source.offset(site.statement.lineno, 0)
            usable = [c for t in self._templates(site) if (c := self._filled(source, site, t))]
            if not usable:
                continue
            code = pick(tuple(usable), source, place)
            started = self._start(source, site, code)
            edit = site.put(source, code)
            if edit is None:
                continue
            imports = need_import(source, *self.imports)
            before = () if started is None else (started,)
            fast, after = self.fast(code, site.loss)
            better = self._put_fast(source, site, fast, after) if fast else ()
            yield Mutation(
                (*imports, *before, edit),
                fast=(*imports, *before, *better) if better else (),
                answered=self.answered and (bool(better) or not fast),
            )
            guard = _guard(site, source, place)
            guarded = site.put(source, _under(guard, code))
            if guard and guarded is not None and self.guardable:
                yield Mutation((*imports, *before, guarded), guarded=True)
            if isinstance(site.container, ast.For) and self.guardable and not site.container.orelse:
                behind = insert_after(source, site.container, code)  # once, when the loop is done
                if behind is not None and site.counter not in code.split("(")[-1]:
                    yield Mutation((*imports, *before, behind), guarded=True)

    def _templates(self, site: Site) -> tuple[str, ...]:
        return self.templates + (self.method_templates if site.method else ())

    def _filled(self, source: SourceFile, site: Site, template: str) -> str:
        """The template with the names of the place; "" where the file does not show all of them."""
        code = template
        for key, value in _names(site).items():
            code = code.replace(key, value)
        if any(key in code for key in ("LOSS", "OPTIMIZER", "COUNTER")):
            return ""
        name = code.split("(")[0].split()[0].partition(".")[0]
        if name in self.starts:
            fresh = name not in names(source).used | names(source).set
            return code if fresh and self._start(source, site, code) is not None else ""
        return code if is_known(source, code, site.statement) else ""

    def _start(self, source: SourceFile, site: Site, code: str) -> Edit | None:
        name = code.split("(")[0].split()[0].partition(".")[0]
        if name not in self.starts or not isinstance(site.container, ast.For):
            return None
        function = source.index.function_of(site.container)
        if function is not None and source.index.function_of(function) is not None:
            return None  # a closure: how often it runs is not in sight
        if source.frequencies.of(site.container).often > Often.EPOCH:
            return None  # what a loop within a step collects is gone with the step
        return insert_before(source, site.container, f"{name} = {self.starts[name]}")

    def _put_fast(self, source: SourceFile, site: Site, fast: str, after: str) -> tuple[Edit, ...]:
        inside = site.put(source, fast)
        if inside is None or not after:
            return () if inside is None else (inside,)
        if not isinstance(site.container, ast.For) or site.container.orelse:
            return ()
        if source.frequencies.of(site.container).often > Often.EPOCH:
            return ()  # behind an inner loop it is read as often as the outer one turns
        behind = insert_after(source, site.container, after)
        if behind is None:
            return ()
        if behind.start == inside.start:  # the statement is the last of the loop
            return (Edit(inside.start, inside.end, inside.replacement + behind.replacement),)
        return (inside, behind)


def _under(guard: str, code: str) -> str:
    return guard + "\n" + "\n".join(f"    {line}" for line in code.split("\n"))


def _names(site: Site) -> dict[str, str]:
    found = {"LOSS": site.loss, "OPTIMIZER": site.optimizer, "COUNTER": site.counter}
    return {key: value for key, value in found.items() if value}


def _guard(site: Site, source: SourceFile, place: int) -> str:
    counter = site.counter or ("self.global_step" if site.method else "")
    every = pick(("50", "100", "200", "500"), source, place + 1)
    shown = counter and is_known(source, counter, site.statement)
    return f"if {counter} % {every} == 0:" if shown else ""


class ItemEveryStep(_Statement):
    rule = "item-every-step"
    starts: ClassVar = {"losses": "[]", "history": "[]", "running_loss": "0.0", "total_loss": "0.0"}
    templates = (
        "losses.append(LOSS.item())",
        "running_loss += LOSS.item()",
        "history.append(float(LOSS))",
        "total_loss += LOSS.detach().item()",
    )
    examples = (
        (
            _STEP,
            _STEP.replace("    for", "    losses = []\n    for") + "        losses.append(loss.item())\n",
        ),
    )

    def fast(self, code: str, loss: str) -> tuple[str, str]:
        for read in (f"{loss}.detach().item()", f"{loss}.item()", f"float({loss})"):
            code = code.replace(read, f"{loss}.detach()")
        return code, _read_later(code)


def _read_later(code: str) -> str:
    """The statement behind the loop that makes numbers of what `code` collected."""
    name = code.partition(".append(" if ".append(" in code else " +=")[0]
    if ".append(" not in code:
        return f"{name} = float({name})"
    return f"{name} = torch.stack({name}).tolist() if {name} else []"


class HostCopyEveryStep(_Statement):
    rule = "host-copy-every-step"
    starts: ClassVar = {"losses": "[]", "loss_values": "[]", "epoch_losses": "[]"}
    templates = (
        "losses.append(LOSS.detach().cpu())",
        "loss_values.append(LOSS.data.cpu())",
        "epoch_losses.append(LOSS.detach().cpu().tolist())",
    )
    examples = (
        (
            _STEP,
            _STEP.replace("    for", "    epoch_losses = []\n    for")
            + "        epoch_losses.append(loss.detach().cpu().tolist())\n",
        ),
    )

    def fast(self, code: str, loss: str) -> tuple[str, str]:
        name = code.partition(".append(")[0]
        kept = f"{name}.append({loss}.detach())"
        if code.endswith(".tolist())"):
            return kept, _read_later(kept)
        return kept, f"{name} = list(torch.stack({name}).cpu()) if {name} else []"


class TensorLoggedEveryStep(_Statement):
    """Without an answer: to log less often is the author's choice."""

    rule = "tensor-logged-every-step"
    answered = False
    templates = (
        'print(f"loss {LOSS:.4f}")',
        'print("loss", LOSS)',
        'logger.info("loss %s", LOSS)',
        "pbar.set_postfix(loss=LOSS)",
        'pbar.set_description(f"loss {LOSS:.3f}")',
        'writer.add_scalar("train/loss", LOSS, COUNTER)',
    )
    method_templates = (
        'self.writer.add_scalar("train/loss", LOSS, self.global_step)',
        'self.logger.info(f"loss {LOSS}")',
    )
    examples = _with('print(f"loss {loss:.4f}")')


class SynchronizeEveryStep(_Statement):
    rule = "synchronize-every-step"
    needs_loss = False
    templates = ("torch.cuda.synchronize()", "torch.cuda.synchronize(device)", "torch.distributed.barrier()")
    examples = _with("torch.cuda.synchronize()")


class CacheClearedEveryStep(_Statement):
    rule = "cache-cleared-every-step"
    needs_loss = False
    templates = ("torch.cuda.empty_cache()",)
    examples = _with("torch.cuda.empty_cache()")


class GarbageCollectedEveryStep(_Statement):
    rule = "cache-cleared-every-step"
    needs_loss = False
    templates = ("gc.collect()",)
    imports = ("gc", "import gc")
    examples = _with("gc.collect()", "import gc\n")


class SaveEveryStep(_Statement):
    """Without an answer: to save less often is the author's choice."""

    rule = "synchronous-save-every-step"
    needs_loss = False
    answered = False
    templates = (
        'torch.save(model.state_dict(), "last.pt")',
        'torch.save(OPTIMIZER.state_dict(), "optimizer.pt")',
        'torch.save({"model": model.state_dict(), "optimizer": OPTIMIZER.state_dict()}, checkpoint_path)',
        "model.save_pretrained(output_dir)",
    )
    method_templates = (
        "torch.save(self.model.state_dict(), self.checkpoint_path)",
        'torch.save(self.state_dict(), "last.pt")',
    )
    examples = _with('torch.save(model.state_dict(), "last.pt")')


class MetricKeepsGraph(_Statement):
    """The losses are collected with their graphs; the start of the collection is written too."""

    rule = "metric-keeps-graph"
    guardable = False
    starts: ClassVar = {"total_loss": "0.0", "losses": "[]", "running_loss": "0.0", "epoch_loss": "0.0"}
    templates = ("total_loss += LOSS", "losses.append(LOSS)", "running_loss += LOSS", "epoch_loss += LOSS")
    examples = (
        (
            _STEP,
            _STEP.replace("    for", "    total_loss = 0.0\n    for") + "        total_loss += loss\n",
        ),
    )

    def fast(self, code: str, loss: str) -> tuple[str, str]:
        head, _, tail = code.rpartition(loss)
        return f"{head}{loss}.detach(){tail}", ""


class BranchOnTensor:
    """A branch on the value of the loss, before the backward pass."""

    rule = "branch-on-tensor"
    examples = (
        (
            _STEP,
            _STEP.replace(
                "        loss.backward()\n",
                "        if loss > 100:\n            loss = loss / 100\n        loss.backward()\n",
            ),
        ),
    )
    choices = (  # test; the loss where it holds
        ("LOSS > 10", "LOSS * 0.1"),
        ("LOSS > 5.0", "5.0 + 0.1 * (LOSS - 5.0)"),
        ("LOSS > 100", "LOSS / 100"),
    )
    templates = tuple(f"if {test}:\n    LOSS = {value}" for test, value in choices)

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for call in source.calls_named("backward"):
            statement = source.index.statement_of(call)
            for site in sites(source):
                if not site.loss or "." in site.loss or not source.index.within(call, site.container):
                    continue
                template = pick(self.templates, source, source.offset(statement.lineno, 0))
                test, value = self.choices[self.templates.index(template)]
                edit, fast = (
                    insert_before(source, statement, code.replace("LOSS", site.loss))
                    for code in (template, f"LOSS = ({value}).where({test}, LOSS)")
                )
                if edit is not None and fast is not None:
                    yield Mutation((edit,), fast=(fast,))
