"""Sleeps that are written down instead of taken."""

from __future__ import annotations

import threading
import time

import pytest


def noted(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Every time.sleep of the test from now on, in seconds. Threads that other tests left sleep as ever."""
    slept: list[float] = []
    sleep, others = time.sleep, set(threading.enumerate()) - {threading.current_thread()}
    monkeypatch.setattr(
        time,
        "sleep",
        lambda seconds: (sleep if threading.current_thread() in others else slept.append)(seconds),
    )
    return slept
