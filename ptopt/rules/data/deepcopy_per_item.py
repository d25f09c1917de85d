from __future__ import annotations

import re
from collections.abc import Iterator

from ptopt.rules.base import Invalid, Problem, Severity, quote
from ptopt.rules.shared.calls import CallRule, ResolvedCall
from ptopt.source.frequency import Often

_MODEL = re.compile(
    r"model|net|state_dict|encoder|decoder|layer|module|config|params|actor|critic|policy", re.I
)


class DeepcopyPerItem(CallRule):
    """Items are copied deeply each time they are read.

    ## What it does
    Finds `copy.deepcopy` in code that runs for each item of a dataset, or for each batch or step of a loop.

    ## Why it is slow
    `deepcopy` walks the whole object in Python, keeps a table of what it has seen, and copies every array and string in it: it
    is hundreds of times as slow as copying the one container that is changed.

    ## When this is wrong
    When nested parts of the item are changed in place afterwards.

    ## Example
    ```python
    def __getitem__(self, i):
        item = copy.deepcopy(self.items[i])
        item["image"] = read(item["path"])
        return item
    ```

    ## Use instead
    ```python
    def __getitem__(self, i):
        item = dict(self.items[i])
        item["image"] = read(item["path"])
        return item
    ```

    ## Fix safety
    No fix: whether nested parts are changed later cannot be told from here.

    ## Sources
    - [Python documentation: copy](https://docs.python.org/3/library/copy.html)
    """

    id = "PTO337"
    name = "deepcopy-per-item"
    family = "data"
    severity = Severity.LOW
    functions = frozenset({"copy.deepcopy"})
    when_wrong = "nested parts of the value are changed in place afterwards"

    VALID = (
        """
        import copy, torch
        class Rows(Dataset):
            def __getitem__(self, i):
                return dict(self.items[i])
        """,
        """
        import copy, torch
        def build(model):
            return copy.deepcopy(model)
        """,
        """
        import copy, torch
        def train(model, loader, optimizer):
            best = copy.deepcopy(model.state_dict())
            for batch in loader:
                model(batch).mean().backward()
                optimizer.step()
        """,
    )
    INVALID = (
        Invalid(
            """
            import copy, torch
            class Rows(Dataset):
                def __getitem__(self, i):
                    item = copy.deepcopy(self.items[i])  # !
                    item["image"] = read(item["path"])
                    return item
            """
        ),
        Invalid(
            """
            import torch
            from copy import deepcopy
            def train(model, loader, optimizer):
                for batch in loader:
                    inputs = deepcopy(batch)  # !
                    model(inputs).mean().backward()
                    optimizer.step()
            """
        ),
        Invalid(
            """
            import copy, torch
            def collate(items):
                items = copy.deepcopy(items)  # !
                return torch.stack(items)
            """
        ),
    )

    def check_call(self, call: ResolvedCall) -> Iterator[Problem]:
        frequency = call.frequency
        if call.subject is None or not (
            frequency.in_worker or (frequency.trains and frequency.often >= Often.STEP)
        ):
            return
        if call.value.kind in ("module", "optimizer", "class") or _MODEL.search(
            call.file.source(call.subject)
        ):
            return
        shallow = (
            "`dict(…)` or `list(…)`"
            if call.frequency.in_worker
            else "`.clone()` for a tensor, `dict(…)` or `list(…)` else"
        )
        yield Problem(
            call.node,
            f"{quote(call.file, call.node)} walks and copies the whole object in Python, {call.frequency.reason}. Copy only what is "
            f"changed: {shallow}.",
            0.45,
            call.evidence,
            cause=call.cause,
            subject=call.subject,
        )
