"""A rule of your own: copy this file, and change what it looks for."""

from __future__ import annotations

from collections.abc import Iterator

from ptopt.rules.base import Invalid, Problem, quote
from ptopt.rules.shared.calls import CallRule, ResolvedCall
from ptopt.source.frequency import Often


class ManualSeedEveryStep(CallRule):
    """The random generator is seeded on every step.

    ## What it does
    Finds `torch.manual_seed(...)` in code that runs on each step.

    ## Why it is slow
    Seeding also seeds every GPU, which fills the queue with small work, and repeats the same numbers in each step.

    ## When this is wrong
    When each step must be reproducible by itself.

    ## Example
    ```python
    for batch in loader:
        torch.manual_seed(0)
        loss = model(batch).mean()
        loss.backward()
        optimizer.step()
    ```

    ## Use instead
    ```python
    torch.manual_seed(0)
    for batch in loader:
        loss = model(batch).mean()
        loss.backward()
        optimizer.step()
    ```

    ## Fix safety
    No fix is offered.

    ## Sources
    - [Reproducibility](https://docs.pytorch.org/docs/stable/notes/randomness.html)
    """

    id = "ACME001"
    name = "manual-seed-every-step"
    family = "acme"
    functions = frozenset({"torch.manual_seed"})
    at_least = Often.STEP
    when_wrong = "each step must be reproducible by itself"

    VALID = (
        """
        torch.manual_seed(0)
        for batch in loader:
            loss = model(batch).mean()
            loss.backward()
            optimizer.step()
        """,
    )
    INVALID = (
        Invalid(
            """
            for batch in loader:
                torch.manual_seed(0)  # !
                loss = model(batch).mean()
                loss.backward()
                optimizer.step()
            """
        ),
    )

    def check_call(self, call: ResolvedCall) -> Iterator[Problem]:
        yield Problem(
            call.node,
            f"{quote(call.file, call.node)} runs {call.frequency.reason}. Seed once, before the loop.",
            0.7,
            call.evidence,
            cause=call.cause,
        )
