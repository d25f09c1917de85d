from __future__ import annotations

import re
from dataclasses import replace
from itertools import islice, takewhile

from ptopt.findings import TEXTBOOK
from ptopt.rules.base import Fix, Invalid, Severity
from ptopt.rules.regressions._base import Loss, Regression
from ptopt.rules.shared.autograd import turns_autograd_off
from ptopt.rules.shared.evaluation import Evaluation, evaluation_of
from ptopt.rules.shared.no_grad import decorate, wrap
from ptopt.source.index import Loop

_EVALUATES = 0.6  # how sure it must be that the code only evaluates


class NoGradRemoved(Regression):
    """A change lets autograd record code that ran without it."""

    id = "PTO952"
    name = "no-grad-removed"
    severity = Severity.HIGH
    triggers = ("model", "net", "forward")
    measure = re.compile(r"\bno_grad\(|\binference_mode\(|set_grad_enabled\(False\)|@torch\.no_grad\b")
    still = re.compile(r"no_grad|inference_mode|set_grad_enabled|enable_grad")
    work = re.compile(r"model|net\b|forward|\w+\(\w")
    prior = 0.4  # most that take it out have a reason
    message = (
        "Autograd records each operation here from now on and keeps its intermediate results, for gradients that "
        "nothing in this code asks for. Keep `torch.no_grad()`."
    )
    why = (
        "With autograd on, each operation builds a node of the graph and keeps what the backward pass would need: "
        "time, and often most of the memory."
    )
    source = (
        "[PyTorch documentation: locally disabling gradient "
        "computation](https://docs.pytorch.org/docs/stable/notes/autograd.html)"
    )
    fix_safety = (
        "Unsafe, and only where what is left surely evaluates a network: nothing that the function, or the loop, returns or "
        "stores may be backpropagated. Elsewhere there is no fix: the author had a reason."
    )
    when_wrong = "gradients of this code are wanted now, or every caller turns autograd off"

    VALID = (
        """
        @torch.no_grad()
        def evaluate(model, batch):
            return model(batch)
        """,
        """
        # - @torch.no_grad()
        @torch.inference_mode()
        def evaluate(model, batch):
            return model(batch)
        """,
        """
        # - @torch.no_grad()
        def step(model, batch):
            loss = model(batch).mean()
            loss.backward()
        """,
    )
    INVALID = (
        Invalid("""
            # - @torch.no_grad()
            def evaluate(model, batch):  # !
                return model(batch)
        """),
        Invalid("""
            import torch

            # - @torch.no_grad()
            def evaluate(model, loader):  # !
                model.eval()
                return sum((model(x).argmax(1) == y).sum() for x, y in loader)
        """),
        Invalid("""
            def evaluate(model, loader):
                # - with torch.no_grad():
                # -     for batch in loader:
                # -         score(model(batch))
                for batch in loader:  # !
                    score(model(batch))
        """),
        Invalid("""
            class Sampler:
                # - @torch.inference_mode()
                # - def sample(self, x):
                # -     return self.model(x)
                def sample(self, x, steps):  # !
                    return self.model(x, steps)
        """),
    )

    def narrowed(self, loss: Loss) -> Loss:
        """The evaluation loop that the removed `with` stood around, or stands in: the rest of the function may train.

        Elsewhere the lines that stood in its block: what is beside them may have autograd off by itself.
        """
        found = evaluation_of(loss.function, loss.file)
        if found is None or found.case.loop is None or not _stood_around(found.case.loop, loss):
            block = _block(loss)
            return super().narrowed(loss) if block is None else replace(loss, first=block[0], last=block[1])
        loop, run = found.case.loop, found.first[0].lineno
        return replace(
            loss,
            first=min(loss.line, loop.lineno),
            last=loop.end_lineno or loop.lineno,
            at=run if run in loss.change.added else 0,  # where `evaluation-records-graph` stands
        )

    def confidence(self, loss: Loss) -> float:
        """Textbook: what is left runs a network, and shows that it only evaluates it."""
        return self.prior if _evaluation(loss) is None else TEXTBOOK

    def fix(self, loss: Loss) -> Fix | None:
        found = _evaluation(loss)
        if found is None or loss.function is None:
            return None
        if found.case.loop is not None:
            return wrap(found.case.loop, "nothing that the loop leaves behind is backpropagated", loss.file)
        return decorate(loss.function, loss.file)

    def is_moved(self, loss: Loss, still: re.Pattern[str]) -> bool:
        return _covers_all(loss) and loss.moved(still, written=bool(_in_block(loss)))

    def is_loss(self, loss: Loss) -> bool:
        """Where the code backpropagates, autograd has to be on; elsewhere it may be off by other means."""
        if "backward(" in loss.place or loss.file.context.grad_off(loss.node):
            return False
        found = evaluation_of(loss.function, loss.file)
        if (
            found is not None
            and found.case.confidence >= TEXTBOOK
            and found.first[0].lineno in loss.change.added
        ):
            return False  # `evaluation-records-graph` says it, on a line of the change
        if not _covers_all(loss):
            return True
        lines = set(range(loss.first, loss.last + 1))
        if _in_block(loss):
            lines &= loss.change.added  # the block is written again without the `with`
        calls = loss.file.calls.calls_in(loss.function)
        return not any(turns_autograd_off(call, loss.file) for call in calls if call.lineno in lines)


def _stood_around(loop: Loop, loss: Loss) -> bool:
    """Did the removed line stand in the loop, or before it with nothing but lines of the change between?"""
    if not loss.text.lstrip().startswith("with"):
        return False
    if loop.lineno <= loss.line <= (loop.end_lineno or loop.lineno):
        return True
    between = (n for n in range(loss.line, loop.lineno + 1) if loss.file.line(n).strip())
    return loss.line <= loop.lineno and set(between) <= set(loss.change.added)


def _covers_all(loss: Loss) -> bool:
    """May a called function that turns autograd off do so for all of the place? Not where a decorator did it for other passes too."""
    return not (loss.text.lstrip().startswith("@") and _evaluation(loss) is not None)


def _block(loss: Loss) -> tuple[int, int] | None:
    """The lines that stood in the block of the removed `with` and stand there still, with another indentation."""
    block = _in_block(loss)
    lines = (n for n in range(loss.line, loss.last + 1) if loss.file.line(n).strip())
    written = list(islice(lines, len(block)))
    if not block or [loss.file.line(n).strip() for n in written] != block:
        return None
    return written[0], written[-1]


def _in_block(loss: Loss) -> list[str]:
    """The lines that were taken out with a `with`, of its block."""
    if not loss.text.lstrip().startswith("with"):
        return []
    indent = _indent(loss.text)
    block = takewhile(lambda text: not text.strip() or _indent(text) > indent, loss.after)
    return [text.strip() for text in block if text.strip()]


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip())


def _evaluation(loss: Loss) -> Evaluation | None:
    """The evaluation that is left where the measure stood; None where it is none, or not surely."""
    found = evaluation_of(loss.function, loss.file)
    if found is None or found.case.confidence < _EVALUATES:
        return None
    return found if any(loss.first <= call.lineno <= loss.last for call, _ in found.calls) else None
