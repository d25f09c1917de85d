"""Fixtures for the tests of the chart."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bot.conftest import _shared, serve, served  # noqa: F401 (pytest finds fixtures by name)
from tests.helm.rendering import EXAMPLES, Object, render


@pytest.fixture(params=[None, *EXAMPLES], ids=lambda path: path.stem if path else "default")
def values(request: pytest.FixtureRequest) -> Path | None:
    """Each of the example values, and none."""
    path: Path | None = request.param
    return path


@pytest.fixture
def objects(values: Path | None) -> list[Object]:
    """What the chart makes of them."""
    return render(values)
