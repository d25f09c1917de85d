from __future__ import annotations

import re

from ptopt.findings import TEXTBOOK, Severity
from ptopt.rules.base import Invalid
from ptopt.rules.regressions._base import Loss, Regression
from ptopt.rules.regressions._loaders import feeds_training, switched_off, training_file

_QUEUED = re.compile(r"non_blocking\s*=\s*True")


class PinningRemoved(Regression):
    """A change stops pinning the memory of batches."""

    id = "PTO951"
    name = "pinning-removed"
    severity = Severity.LOW  # as `loader-without-pinning`: what a change without workers costs is more
    triggers = ("oader", ".to(", ".cuda(")
    measure = re.compile(
        r"pin_memory\s*=\s*(?!False|None)\w[\w.]*|\.pin_memory\(\)|[\"']pin_memory[\"']\s*:\s*(?!False)\w+"
    )
    still = re.compile(
        r"pin_memory(_device)?\s*=\s*(?!False|None)\w|\.pin_memory\(|[\"']pin_memory[\"']\s*:\s*(?!False)\w+"
    )
    work = re.compile(r"Loader\w*\(|\.to\(|\.cuda\(|loader|Tensor|torch\.\w+\(")
    prior = 0.5
    message = (
        "Batches then reach the device from pageable memory: each copy goes through a staging buffer and cannot run "
        "beside the computation, whatever `non_blocking` says. Keep `pin_memory=True`."
    )
    why = (
        "A copy from pageable memory goes through a staging buffer and makes Python wait; from page-locked memory it "
        "runs beside the computation."
    )
    source = "[PyTorch documentation: memory pinning](https://docs.pytorch.org/docs/stable/data.html)"
    when_wrong = "the host is short of memory, or the batches no longer go to a GPU"

    VALID = (
        """
        loader = DataLoader(dataset, batch_size=64, num_workers=4, pin_memory=True)
        """,
        """
        def loaders(dataset, pin):
            # - return DataLoader(dataset, num_workers=4, pin_memory=True)
            return DataLoader(dataset, num_workers=4, pin_memory=pin)
        """,
        """
        def options():
            # - loader = DataLoader(dataset, num_workers=4, pin_memory=True)
            return {"lr": 0.1}
        """,
    )
    INVALID = (
        Invalid("""
            def loaders(dataset):
                # - return DataLoader(dataset, num_workers=4, pin_memory=True)
                return DataLoader(dataset, num_workers=4)  # !
        """),
        Invalid("""
            def loaders(dataset):
                return DataLoader(
                    dataset,
                    # - pin_memory=True,
                    num_workers=4,  # !
                )
        """),
        Invalid("""
            def fetch(batch):
                # - return batch.pin_memory().to("cuda", non_blocking=True)
                return batch.to("cuda", non_blocking=True)  # !
        """),
    )

    def confidence(self, loss: Loss) -> float:
        """Textbook: the loader of a training that counts on pinned batches, by moving them with `non_blocking=True`.

        Where each copy waits in any case, readers found the advice true but trivial.
        """
        loader = switched_off(loss, "pin_memory")
        if loader is None or not feeds_training(loader, loss):
            return self.prior
        trains = training_file(loss)
        return TEXTBOOK if trains is not None and trains.search(_QUEUED) else self.prior

    def is_shown(self, loss: Loss) -> bool:
        return switched_off(loss, "pin_memory") is not None
