"""Switches for debugging that are left on."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.findings import Edit
from ptopt.rules.code import has_unpacking
from ptopt.source.file import SourceFile
from ptopt.source.frequency import Often
from training.mutators.base import (
    Mutation,
    indent_of,
    insert_before,
    is_known,
    need_import,
    pick,
    reindent,
    replace,
    sites,
)

_SETUP = re.compile(
    r"^_?(main|train|fit|run|launch|worker|setup|init_distributed|finetune)(_(model|training|worker|loop|all))?$",
    re.I,
)
_STEPS = re.compile(r"optimi[sz]er\.step|backward\(|for .+ in .*[lL]oader")
_TRAINS = re.compile(r"optim|backward\(|[lL]oader|epoch|\btrain|init_process_group")


_MAIN = """import torch


def main(args):
    model = build(args).cuda()
    train(model)
"""


def _in_main(line: str, before: str = "") -> tuple[tuple[str, str], ...]:
    return ((_MAIN, before + _MAIN.replace("    model", f"    {line}\n    model")),)


class _Setting:
    """Puts one of some settings at the start of a function that sets things up."""

    templates: tuple[str, ...]
    imports: tuple[str, str] = ("torch", "import torch")
    look_alikes: tuple[str, ...] = ()

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for function in source.index.of_type(ast.FunctionDef):
            owner = source.index.class_of(function)
            if not _SETUP.search(function.name) or source.index.function_of(function) is not None:
                continue
            if owner is not None and source.context.is_module(owner):
                continue
            if not (_TRAINS if owner is None else _STEPS).search(source.source(function)):
                continue
            body = function.body
            documented = isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
            if documented and len(body) < 2:
                continue
            first = body[1] if documented else body[0]
            place = source.offset(first.lineno, 0)
            for templates, guarded in ((self.templates, False), (self.look_alikes, True)):
                choices = tuple(t for t in templates if is_known(source, t, function))
                edit = insert_before(source, first, pick(choices, source, place)) if choices else None
                if edit is not None:
                    yield Mutation((*need_import(source, *self.imports), edit), guarded)


class AnomalyDetectionOn(_Setting):
    rule = "anomaly-detection-on"
    templates = ("torch.autograd.set_detect_anomaly(True)", "torch.autograd.set_detect_anomaly(mode=True)")
    look_alikes = (
        "torch.autograd.set_detect_anomaly(False)",
        "if args.debug:\n    torch.autograd.set_detect_anomaly(True)",
    )
    examples = _in_main("torch.autograd.set_detect_anomaly(mode=True)")


class CudnnAutotuneOff(_Setting):
    rule = "cudnn-autotune-off"
    templates = ("torch.backends.cudnn.benchmark = False",)
    look_alikes = (
        "torch.backends.cudnn.benchmark = True",
        "torch.backends.cudnn.deterministic = True\ntorch.backends.cudnn.benchmark = False",
    )
    examples = _in_main("torch.backends.cudnn.benchmark = False")


class UnknownCudnnFlag(_Setting):
    rule = "unknown-cudnn-flag"
    templates = (
        "torch.backends.cudnn.benckmark = True",
        "torch.backends.cudnn.benchmarks = True",
        "torch.backends.cudnn.determinstic = True",
    )
    look_alikes = ("torch.backends.cudnn.benchmark = True", "torch.backends.cudnn.allow_tf32 = True")
    examples = _in_main("torch.backends.cudnn.benchmarks = True")


class BlockingLaunches(_Setting):
    rule = "blocking-launches"
    templates = (
        'os.environ["CUDA_LAUNCH_BLOCKING"] = "1"',
        'os.environ.setdefault("CUDA_LAUNCH_BLOCKING", "1")',
    )
    look_alikes = (
        'os.environ["CUDA_LAUNCH_BLOCKING"] = "0"',
        'if args.debug:\n    os.environ["CUDA_LAUNCH_BLOCKING"] = "1"',
    )
    imports = ("os", "import os")
    examples = _in_main('os.environ.setdefault("CUDA_LAUNCH_BLOCKING", "1")', "import os\n")


class DetectAnomalyAroundBackward:
    """The backward pass under anomaly detection."""

    rule = "anomaly-detection-on"
    examples = (
        (
            "import torch\n\n\nfor x in loader:\n    loss = model(x)\n    loss.backward()\n    optimizer.step()\n",
            (
                "import torch\n\n\nfor x in loader:\n    loss = model(x)\n"
                "    with torch.autograd.detect_anomaly():\n        loss.backward()\n    optimizer.step()\n"
            ),
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for call in source.calls_named("backward"):
            statement = source.index.statement_of(call)
            function = source.index.function_of(call)
            of_a_loss = len(call.args) <= 1 and not has_unpacking(
                call
            )  # no kernel's, and no `super().backward(*args)`
            if function is not None and function.name == "backward":
                continue
            if isinstance(statement, ast.Expr) and of_a_loss:
                edit = wrapped(source, statement, "with torch.autograd.detect_anomaly():")
                if edit is not None:
                    yield Mutation((*need_import(source, "torch", "import torch"), edit))


def wrapped(source: SourceFile, statement: ast.stmt, head: str) -> Edit | None:
    """Edit that puts the statement under the line `head`."""
    last = statement.end_lineno or statement.lineno
    body = reindent(source, statement.lineno, last, 4)
    if body is None or insert_before(source, statement, "pass") is None:
        return None
    start = source.offset(statement.lineno, 0)
    end = start + sum(len(source.line(n).encode()) + 1 for n in range(statement.lineno, last + 1))
    return Edit(start, min(end, len(source.data)), f"{indent_of(source, statement)}{head}\n{body}")


class ProfilerAroundTraining:
    """The training loop under a profiler without a schedule."""

    rule = "profiler-around-training"
    examples = (
        (
            "import torch\n\n\nfor x in loader:\n    model(x).backward()\n    optimizer.step()\n",
            (
                "import torch\n\n\nwith torch.profiler.profile(record_shapes=True) as prof:\n"
                "    for x in loader:\n        model(x).backward()\n        optimizer.step()\n"
            ),
        ),
    )
    heads = (
        "with torch.profiler.profile() as prof:",
        "with torch.profiler.profile(record_shapes=True) as prof:",
        "with torch.autograd.profiler.profile(use_cuda=True) as prof:",
        "with torch.autograd.profiler.emit_nvtx():",
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for site in sites(source):
            if not isinstance(site.container, ast.For):
                continue
            in_step = source.frequencies.of(site.container).often > Often.EPOCH
            if in_step or "backward(" not in source.source(site.container):
                continue  # not the whole training: a loop in a step, or one over optimizers
            place = source.offset(site.container.lineno, 0)
            edit = wrapped(source, site.container, pick(self.heads, source, place + len(self.heads)))
            if edit is not None and (edit.end - edit.start) < 3000:
                yield Mutation((*need_import(source, "torch", "import torch"), edit))


class CudnnBenchmarkFlipped:
    """`cudnn.benchmark = True` turned round."""

    rule = "cudnn-autotune-off"
    examples = (
        (
            "import torch\n\n\ndef main():\n    torch.backends.cudnn.benchmark = True\n    train()\n",
            "import torch\n\n\ndef main():\n    torch.backends.cudnn.benchmark = False\n    train()\n",
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for node in source.index.of_type(ast.Assign):
            target = node.targets[0]
            on = isinstance(node.value, ast.Constant) and node.value.value is True
            if on and isinstance(target, ast.Attribute) and target.attr == "benchmark":
                yield Mutation((replace(source, node.value, "False"),))
