"""`python -m examples.service`: the demonstrations. A Ctrl-C ends them cleanly from the first moment on, so also while modules are imported."""

from __future__ import annotations

import os
import signal
from types import FrameType


def _end(number: int, frame: FrameType | None) -> None:
    """Nothing runs yet that would have to be stopped. 0: make would report any other status as an error."""
    os._exit(0)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, _end)
    from examples.service.walk import main

    main(prog_name="python -m examples.service")
