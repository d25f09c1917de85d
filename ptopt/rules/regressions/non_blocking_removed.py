from __future__ import annotations

import re

from ptopt.rules.base import Invalid
from ptopt.rules.regressions._base import Regression


class NonBlockingRemoved(Regression):
    """A change makes copies to the device wait again."""

    id = "PTO953"
    name = "non-blocking-removed"
    most_stated = 0.5
    triggers = (".to(", ".cuda(", "copy_(")
    measure = re.compile(r"non_blocking\s*=\s*(?!False)\w+")
    work = re.compile(r"\.to\(|\.cuda\(|copy_\(|\.cpu\(")
    prior = 0.5
    message = (
        "Python then waits for the copy instead of going on while it runs. Keep `non_blocking=True` where the source "
        "is pinned."
    )
    why = (
        "From pinned memory, an asynchronous copy runs beside the computation; without the argument, Python waits for "
        "its end."
    )
    source = (
        "[A guide on good usage of non_blocking and "
        "pin_memory](https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html)"
    )
    when_wrong = "the copy goes to the host, where reading the result without a synchronisation is an error"

    VALID = (
        """
        images = images.to("cuda", non_blocking=True)
        """,
        """
        def fetch(batch, device):
            # - x = batch["x"].to(device, non_blocking=True)
            x = batch["x"].to(device=device, non_blocking=True)
            return x
        """,
        """
        def fetch(batch, device):
            # - return batch.to(device, non_blocking=True)
            return batch
        """,
    )
    INVALID = (
        Invalid("""
            def fetch(batch, device):
                # - return batch.to(device, non_blocking=True)
                return batch.to(device)  # !
        """),
        Invalid("""
            def fetch(batch):
                # - images, labels = batch[0].cuda(non_blocking=True), batch[1].cuda(non_blocking=True)
                images, labels = batch[0].cuda(), batch[1].cuda()  # !
                return images, labels
        """),
        Invalid("""
            def copy(target, source):
                # - target.copy_(source, non_blocking=True)
                target.copy_(source)  # !
        """),
    )
