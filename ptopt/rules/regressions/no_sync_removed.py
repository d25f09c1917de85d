from __future__ import annotations

import re

from ptopt.rules.base import Invalid
from ptopt.rules.regressions._base import Regression


class NoSyncRemoved(Regression):
    """A change lets gradients be reduced on every micro-batch."""

    id = "PTO955"
    name = "no-sync-removed"
    most_stated = 0.55
    triggers = ("backward",)
    measure = re.compile(r"\bno_sync\b|require_backward_grad_sync\s*=|set_requires_gradient_sync\(")
    work = re.compile(r"backward\(")
    work_says_all = True
    prior = 0.55
    message = (
        "Each backward pass then reduces all gradients across the processes, although only the last one before the "
        "optimizer step needs to. Keep `no_sync()` around the others."
    )
    why = "The all-reduce of all gradients runs once for each micro-batch instead of once for each optimizer step."
    source = (
        "[PyTorch documentation: DistributedDataParallel.no_sync](https://docs.pytorch.org/docs/stable/generated/torc "
        "h.nn.parallel.DistributedDataParallel.html)"
    )
    when_wrong = "gradients are no longer accumulated over several backward passes, or an engine does it"

    VALID = (
        """
        with model.no_sync() if accumulate else nullcontext():
            model(batch).mean().backward()
        """,
        """
        def step(model, batch, last):
            # - with model.no_sync():
            # -     model(batch).mean().backward()
            with model.no_sync() if not last else nullcontext():
                model(batch).mean().backward()
        """,
        """
        def step(model, batch):
            # - with model.no_sync():
            # -     model(batch).mean().backward()
            return model(batch)
        """,
    )
    INVALID = (
        Invalid("""
            def step(model, batch, last):
                # - with nullcontext() if last else model.no_sync():
                # -     model(batch).mean().backward()
                model(batch).mean().backward()  # !
        """),
        Invalid("""
            def step(model, batch, last):
                # - model.require_backward_grad_sync = last
                loss = model(batch).mean()  # !
                loss.backward()
        """),
        Invalid("""
            def run(model, batches):
                for batch in batches:
                    # - with no_sync(model):
                    # -     model(batch).backward()
                    model(batch).backward()  # !
        """),
    )
