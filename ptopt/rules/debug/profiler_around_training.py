from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import ClassVar

from ptopt.rules.base import Evidence, Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import has_unpacking, is_literal, keyword_of
from ptopt.rules.debug._switches import always_on
from ptopt.source.index import LOOPS, own_nodes

_PROFILERS = frozenset(
    (
        "torch.profiler.profile",
        "torch.profiler.profiler.profile",
        "torch.autograd.profiler.profile",
        "torch.autograd.profiler.emit_nvtx",
    )
)
_TRAINER = re.compile(r"^(pytorch_lightning|lightning)(\.\w+)*\.Trainer$")
_ON_PURPOSE = re.compile(r"profil|bench|trace", re.I)


class ProfilerAroundTraining(Rule):
    """A profiler records the whole training.

    ## What it does
    Finds a profiler without a schedule around a training loop, and `Trainer(profiler="pytorch")` or "advanced", that
    no condition guards.

    ## Why it is slow
    Every operation is recorded and kept in memory until the profiler stops: steps become slower, and memory and the
    trace grow with the number of steps.

    ## Fix safety
    There is no fix: whether the profile is still wanted is the author's choice.

    ## Sources
    - [PyTorch profiler: long-running jobs](https://docs.pytorch.org/tutorials/recipes/recipes/profiler_recipe.html)
    """

    id = "PTO902"
    name = "profiler-around-training"
    family = "debug"
    triggers = ("profile(", "emit_nvtx", "profiler=")
    partly: ClassVar[frozenset[str]] = frozenset({"profiler.schedule"})
    nodes = (ast.Call,)
    when_wrong = "the file exists to profile, or the loop runs for a few steps only"

    VALID = (
        """
        with torch.profiler.profile(schedule=torch.profiler.schedule(wait=1, warmup=1, active=3)) as prof:
            for batch in loader:
                model(batch).loss.backward()
                optimizer.step()
                prof.step()
        """,
        """
        with torch.autograd.profiler.profile(enabled=args.profile, use_cuda=True) as prof:
            for batch in loader:
                model(batch).loss.backward()
                optimizer.step()
        """,
        """
        with torch.profiler.profile() as prof:
            for i, batch in enumerate(loader):
                if i == 10:
                    break
                model(batch).loss.backward()
                optimizer.step()
        """,
        """
        with torch.profiler.profile() as prof:
            model(example)
        """,
        'trainer = pl.Trainer(max_epochs=1, profiler="simple")',
    )
    INVALID = (
        Invalid("""
            with torch.profiler.profile(record_shapes=True) as prof:  # !
                for batch in loader:
                    model(batch).loss.backward()
                    optimizer.step()
        """),
        Invalid("""
            def fit(model, loader, optimizer):
                with torch.autograd.profiler.emit_nvtx():  # !
                    for epoch in range(10):
                        for batch in loader:
                            model(batch).loss.backward()
                            optimizer.step()
        """),
        Invalid('trainer = pl.Trainer(max_epochs=100, profiler="advanced")  # !'),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call):
            return
        name = file.imports.qualified(node.func)
        if _TRAINER.match(name):
            profiler = keyword_of(node, "profiler")
            if not (isinstance(profiler, ast.Constant) and profiler.value in ("pytorch", "advanced")):
                return
            evidence: tuple[Evidence, ...] = ()
        elif name in _PROFILERS:
            loop = _training_loop(node, file)
            if loop is None:
                return
            evidence = (Evidence(loop.lineno, "the training loop"),)
        else:
            return
        if not always_on(node, file) or _ON_PURPOSE.search(file.path) or _on_purpose(node, file):
            return
        yield Problem(
            node,
            "This profiler records every operation of every step, in every run: steps become slower and the trace "
            "grows in memory without end. Give it a schedule of a few steps, or put it behind an option.",
            0.7,
            evidence,
        )


def _training_loop(call: ast.Call, file: SourceFile) -> ast.stmt | None:
    """The loop that trains inside `with <call>:`, unless the profiler or the loop is limited."""
    item = file.index.parent(call)
    region = file.index.parent(item) if isinstance(item, ast.withitem) else None
    enabled = keyword_of(call, "enabled")
    if not isinstance(region, ast.With) or has_unpacking(call) or keyword_of(call, "schedule") is not None:
        return None
    if call.args or (enabled is not None and not is_literal(enabled, True)):
        return None
    inside = list(own_nodes(region))
    if any(isinstance(n, ast.Break) for n in inside):
        return None
    for loop in inside:
        if isinstance(loop, LOOPS) and file.context.step_mark(loop) is not None:
            return loop
    return None


def _on_purpose(node: ast.AST, file: SourceFile) -> bool:
    return bool(_ON_PURPOSE.search(file.index.symbol_of(node)))
