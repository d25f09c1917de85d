"""Statements that do not belong into every training step."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.source.file import SourceFile
from training.mutators.base import Mutation, Site, insert_before, need_import, pick, sites

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
    """Puts one of some statements behind the training step; a look-alike runs only now and then."""

    templates: tuple[str, ...]
    method_templates: tuple[str, ...] = ()
    imports: tuple[str, str] = ("torch", "import torch")
    needs_loss = True

    def fast(self, code: str, loss: str, guard: str) -> str:
        """What does the same as `code` without the problem; "" where nothing need be done."""
        return ""

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for site in sites(source):
            if self.needs_loss and not site.loss:
                continue
            choices = self.templates + (self.method_templates if site.method else ())
            place = source.offset(site.statement.lineno, 0)
            code = pick(choices, source, place)
            for key, value in _names(site).items():
                code = code.replace(key, value)
            if "COUNTER" in code:
                continue
            edit = site.put(source, code)
            if edit is None:
                continue
            imports = need_import(source, *self.imports)
            guard = _guard(site, source, place)
            fast = self.fast(code, site.loss, guard)
            better = site.put(source, fast) if fast else None
            yield Mutation((*imports, edit), fast=() if better is None else (*imports, better))
            guarded = site.put(source, _under(guard, code))
            if guard and guarded is not None:
                yield Mutation((*imports, guarded), guarded=True)


def _under(guard: str, code: str) -> str:
    return guard + "\n" + "\n".join(f"    {line}" for line in code.split("\n"))


def _names(site: Site) -> dict[str, str]:
    names = {"LOSS": site.loss, "OPTIMIZER": site.optimizer or "optimizer"}
    return names | ({"COUNTER": site.counter} if site.counter else {})


def _guard(site: Site, source: SourceFile, place: int) -> str:
    counter = site.counter or ("self.global_step" if site.method else "")
    every = pick(("50", "100", "args.log_interval", "log_every", "10", "500"), source, place + 1)
    rank = pick(("", "", "", "verbose"), source, place + 2)
    if rank and not site.method:
        return f"if {rank}:"
    return f"if {counter} % {every} == 0:" if counter else ""


class ItemEveryStep(_Statement):
    rule = "item-every-step"
    templates = (
        "losses.append(LOSS.item())",
        "running_loss += LOSS.item()",
        "history.append(float(LOSS))",
        "meter.update(LOSS.item())",
        'metrics["loss"] += LOSS.item()',
        "total_loss += LOSS.detach().item()",
    )
    method_templates = (
        "self.losses.append(LOSS.item())",
        "self.running_loss += LOSS.item()",
        "self.last_loss = float(LOSS)",
    )
    examples = _with("history.append(float(loss))")

    def fast(self, code: str, loss: str, guard: str) -> str:
        for read in (f"{loss}.detach().item()", f"{loss}.item()", f"float({loss})"):
            code = code.replace(read, f"{loss}.detach()")
        return code


class HostCopyEveryStep(_Statement):
    rule = "host-copy-every-step"
    templates = (
        "losses.append(LOSS.detach().cpu())",
        "history.append(LOSS.detach().cpu().numpy())",
        "loss_values.append(LOSS.data.cpu().numpy())",
        "epoch_losses.append(LOSS.detach().cpu().tolist())",
    )
    method_templates = (
        "self.losses.append(LOSS.detach().cpu())",
        "self.history.append(LOSS.detach().cpu().numpy())",
    )
    examples = _with("losses.append(loss.detach().cpu())")

    def fast(self, code: str, loss: str, guard: str) -> str:
        return f"{code.partition(f'({loss}.')[0]}({loss}.detach())"


class TensorLoggedEveryStep(_Statement):
    rule = "tensor-logged-every-step"
    templates = (
        'print(f"loss {LOSS:.4f}")',
        'print("loss", LOSS)',
        'logger.info("loss %s", LOSS)',
        "pbar.set_postfix(loss=LOSS)",
        'pbar.set_description(f"loss {LOSS:.3f}")',
        'writer.add_scalar("train/loss", LOSS, COUNTER)',
    )
    method_templates = (
        'self.writer.add_scalar("train/loss", LOSS, self.step_count)',
        'self.logger.info(f"loss {LOSS}")',
    )
    examples = _with('logger.info("loss %s", loss)')

    def fast(self, code: str, loss: str, guard: str) -> str:
        return _under(guard, code) if guard else ""


class SynchronizeEveryStep(_Statement):
    rule = "synchronize-every-step"
    needs_loss = False
    templates = ("torch.cuda.synchronize()", "torch.cuda.synchronize(device)", "torch.distributed.barrier()")
    examples = _with("torch.distributed.barrier()")


class CacheClearedEveryStep(_Statement):
    rule = "cache-cleared-every-step"
    needs_loss = False
    templates = ("torch.cuda.empty_cache()",)
    examples = _with("torch.cuda.empty_cache()")


class GarbageCollectedEveryStep(_Statement):
    rule = "cache-cleared-every-step"
    needs_loss = False
    templates = ("gc.collect()", "gc.collect()\ntorch.cuda.empty_cache()")
    imports = ("gc", "import gc")
    examples = _with("gc.collect()", "import gc\n")


class SaveEveryStep(_Statement):
    rule = "synchronous-save-every-step"
    needs_loss = False
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

    def fast(self, code: str, loss: str, guard: str) -> str:
        return _under(guard, code) if guard else ""


class MetricKeepsGraph(_Statement):
    """The losses are collected with their graphs; the start of the collection is written too."""

    rule = "metric-keeps-graph"
    templates = ("total_loss += LOSS", "losses.append(LOSS)", "running_loss += LOSS", "epoch_loss += LOSS")
    method_templates = (
        "self.losses.append(LOSS)",
        "self.running_loss += LOSS",
        "self.epoch_losses.append(LOSS)",
    )
    examples = (
        (
            _STEP,
            _STEP.replace("    for", "    total_loss = 0.0\n    for") + "        total_loss += loss\n",
        ),
    )

    def fast(self, code: str, loss: str, guard: str) -> str:
        head, _, tail = code.rpartition(loss)
        return f"{head}{loss}.detach(){tail}"

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        starts = {site.statement.lineno: site for site in sites(source)}
        for mutation in super().mutate(source):
            edit = mutation.edits[-1]
            site = starts.get(source.line_at(edit.start - 1))
            name = edit.replacement.split()[0].partition(".")[0]
            if mutation.guarded or site is None or not isinstance(site.container, ast.For) or name == "self":
                yield mutation
                continue
            value = "[]" if "append" in edit.replacement else "0.0"
            start = insert_before(source, site.container, f"{name} = {value}")
            if start is not None:
                fast = (*mutation.fast[:-1], start, *mutation.fast[-1:]) if mutation.fast else ()
                yield Mutation((*mutation.edits[:-1], start, edit), fast=fast)


class BranchOnTensor:
    """A branch on the value of the loss, before the backward pass."""

    rule = "branch-on-tensor"
    examples = (
        (
            _STEP,
            _STEP.replace(
                "        loss.backward()\n",
                "        if loss > 10:\n            loss = loss * 0.1\n        loss.backward()\n",
            ),
        ),
    )
    choices = (  # test; the loss where it holds
        ("LOSS > 10", "LOSS * 0.1"),
        ("LOSS < threshold", "LOSS + penalty"),
        ("LOSS.mean() > max_loss", "LOSS.clamp(max=max_loss)"),
        ("LOSS > 0", "LOSS + 1e-4 * regularizer(model)"),
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
