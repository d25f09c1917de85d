from __future__ import annotations

import re

from ptopt.findings import TEXTBOOK
from ptopt.rules.base import Invalid
from ptopt.rules.regressions._base import Loss, Regression
from ptopt.rules.regressions._loaders import hands_on_none, left_out, switched_off, training_file
from ptopt.rules.shared.item_work import in_memory, item_work
from ptopt.rules.shared.loaders import makes_device_items

_CLASS = re.compile(r"Loader\w*\(")


class WorkersRemoved(Regression):
    """A change loads data in the main process again."""

    id = "PTO956"
    name = "workers-removed"
    triggers = ("DataLoader", "num_workers")
    measure = re.compile(
        r"num_workers\s*=\s*(?:(?!0\b|None\b)\w[\w.]*|\[\s*[1-9][^\]]*\])|[\"']num_workers[\"']\s*:\s*(?!0\b)\w"
    )
    work = re.compile(r"[Ll]oader\w*\(")
    prior = 0.5
    message = (
        "Items are then read and prepared in the main process, between two steps, while the device waits. Keep the "
        "workers, or make their number an option."
    )
    why = (
        "Worker processes prepare the next batches during the step; without them the step waits for its data."
    )
    source = (
        "[PyTorch documentation: single- and multi-process data "
        "loading](https://docs.pytorch.org/docs/stable/data.html)"
    )
    when_wrong = "the items lie in memory and are cheap, or the dataset cannot be sent to another process"

    VALID = (
        """
        loader = DataLoader(dataset, batch_size=64, num_workers=4)
        """,
        """
        def loaders(dataset, workers):
            # - return DataLoader(dataset, num_workers=4)
            return DataLoader(dataset, num_workers=workers)
        """,
        """
        def loaders(dataset):
            # - return DataLoader(dataset, num_workers=4)
            return list(dataset)
        """,
        """
        def loaders(dataset, workers):
            common = dict(num_workers=workers)
            return DataLoader(
                dataset,
                # - num_workers=workers,
                batch_size=8,
                **common,
            )
        """,
        """
        def loaders(dataset, files):
            table = read_table(
                files,
                # - num_workers=4,
                # - progress=True,
                columns=2,
            )
            return DataLoader(dataset, batch_size=len(table))
        """,
        """
        def main(train, val):
            # - return create_loader([train, val], num_workers=[4, 4])
            return create_loader([train, val], num_workers=[0, 0])
        """,
        """
        def loaders(dataset, small):
            # - loader = DataLoader(dataset, batch_size=64, num_workers=8)
            if small:
                loader = DataLoader(dataset, batch_size=64, num_workers=0)
            else:
                loader = DataLoader(dataset, batch_size=64, num_workers=8, persistent_workers=True)
            return loader
        """,
        """
        def loaders(train, sample):
            # - loader = DataLoader(train, batch_size=64, num_workers=8)
            loader = DataLoader(sample, batch_size=64)
            every = DataLoader(train, batch_size=64, num_workers=8, shuffle=True)
            return loader, every
        """,
    )
    INVALID = (
        Invalid("""
            def loaders(dataset, held_out):
                # - train_loader = DataLoader(dataset, batch_size=64, num_workers=8, pin_memory=True, persistent_workers=True)
                train_loader = DataLoader(dataset, batch_size=32, num_workers=0)  # !
                return train_loader, DataLoader(held_out, batch_size=64)
        """),
        Invalid("""
            def loaders(dataset):
                # - return DataLoader(dataset, batch_size=64, num_workers=4)
                return DataLoader(dataset, batch_size=64, num_workers=0)  # !
        """),
        Invalid("""
            def loaders(dataset, workers):
                # - return DataLoader(dataset, batch_size=64, num_workers=workers)
                return DataLoader(dataset, batch_size=64)  # !
        """),
        Invalid("""
            def loaders(dataset):
                return DataLoader(
                    dataset,
                    # - num_workers=8,
                    shuffle=True,  # !
                )
        """),
        Invalid("""
            def loaders(dataset, options):
                return DataLoader(
                    dataset,
                    batch_size=64,
                    # - num_workers=options["workers"],
                    # - persistent_workers=True,
                    # - prefetch_factor=4,
                )  # !
        """),
        Invalid("""
            def loaders(dataset):
                options = {
                    "batch_size": 64,
                    # - "num_workers": 8,
                    # - "pin_memory": True,
                }  # !
                return DataLoader(dataset, **options)
        """),
        Invalid("""
            def loaders(train, val):
                # - train_loader = DataLoader(train, batch_size=64, num_workers=8)
                train_loader = DataLoader(train, batch_size=64, num_workers=0)  # !
                # - val_loader = DataLoader(val, batch_size=64)
                val_loader = DataLoader(val, batch_size=64, num_workers=4)
                return train_loader, val_loader
        """),
        Invalid("""
            def train_loader(dataset):
                # - return DataLoader(dataset, num_workers=8, shuffle=True)
                return DataLoader(dataset, shuffle=True)  # !


            def val_loader(dataset):
                # - return DataLoader(dataset, batch_size=64)
                return DataLoader(dataset, batch_size=64, num_workers=4)
        """),
    )

    def confidence(self, loss: Loss) -> float:
        """Textbook: `num_workers=0`, or none for a data set that is still the same, for a training on an accelerator.

        That goes for the loader of its evaluation, too. Readers found each of the zeros useful; what they found wrong was
        moved to options that the call takes as a whole.
        """
        return TEXTBOOK if self.is_shown(loss) and training_file(loss) is not None else self.prior

    def is_shown(self, loss: Loss) -> bool:
        if hands_on_none(loss, "num_workers"):
            return True
        loader = switched_off(loss, "num_workers")
        if loader is not None:
            return not makes_device_items(loader, loss.file)
        loader = left_out(loss, "num_workers")
        dataset = loader.arguments.get("dataset") if loader is not None else None
        if loader is None or dataset is None or in_memory(dataset, loss.file):
            return False
        if makes_device_items(loader, loss.file):
            return False  # which worker processes cannot make
        return item_work(dataset, loss.file) is not None or loss.kept(dataset)

    def is_loss(self, loss: Loss) -> bool:
        """A loader stands there, or a function of the repository that builds one is called with `num_workers=0`."""
        return _CLASS.search(loss.place) is not None or hands_on_none(loss, "num_workers")

    def is_moved(self, loss: Loss, still: re.Pattern[str]) -> bool:
        """A function that passes its argument on: `DataLoader(dataset, num_workers=num_workers)`."""
        return not hands_on_none(loss, "num_workers") and super().is_moved(loss, still)
