from __future__ import annotations

import re

from ptopt.rules.base import Invalid
from ptopt.rules.regressions._base import Regression


class PersistentWorkersRemoved(Regression):
    """A change lets the workers of a loader be started again for each epoch."""

    id = "PTO957"
    name = "persistent-workers-removed"
    most_stated = 0.5
    triggers = ("num_workers",)
    measure = re.compile(
        r"persistent_workers\s*=\s*(?!False)\w+|[\"']persistent_workers[\"']\s*:\s*(?!False)\w"
    )
    work = re.compile(r"num_workers[\"']?\s*[=:](?!\s*(?:0|None)\b)")
    prior = 0.5
    message = (
        "The worker processes are then stopped and started for each pass over the data. Keep "
        "`persistent_workers=True`."
    )
    why = (
        "Each epoch starts with forking (or spawning) the workers, sending them the dataset and filling the first "
        "batches."
    )
    source = "[PyTorch documentation: DataLoader, persistent_workers](https://docs.pytorch.org/docs/stable/data.html)"
    when_wrong = "the dataset changes between epochs, or the host is short of memory"

    VALID = (
        """
        def loaders(dataset):
            # - return DataLoader(dataset, batch_size=64, num_workers=8, persistent_workers=True)
            return DataLoader(dataset, batch_size=64, num_workers=0)  # which persistent workers would not go with
        """,
        """
        loader = DataLoader(dataset, num_workers=4, persistent_workers=True)
        """,
        """
        def loaders(dataset, n):
            # - return DataLoader(dataset, num_workers=n, persistent_workers=True)
            return DataLoader(dataset, num_workers=n, persistent_workers=n > 0)
        """,
        """
        def loaders(dataset):
            # - return DataLoader(dataset, num_workers=4, persistent_workers=True)
            return DataLoader(dataset)
        """,
    )
    INVALID = (
        Invalid("""
            def loaders(dataset):
                # - return DataLoader(dataset, num_workers=4, persistent_workers=True)
                return DataLoader(dataset, num_workers=4)  # !
        """),
        Invalid("""
            def loaders(dataset):
                return DataLoader(
                    dataset,
                    # - persistent_workers=True,
                    num_workers=8,  # !
                )
        """),
        Invalid("""
            def loaders(dataset, n):
                # - return DataLoader(dataset, num_workers=n, persistent_workers=True)
                return DataLoader(dataset, num_workers=n, persistent_workers=False)  # !
        """),
    )
