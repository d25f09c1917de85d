"""Types of what stands in an address."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query
from pydantic import BeforeValidator

_MOST = 2**63 - 1  # of an id, in every database

Id = Annotated[int, Path(ge=0, le=_MOST)]
# A form sends "" where nothing is chosen.
Chosen = Annotated[
    int | None, BeforeValidator(lambda text: None if text == "" else text), Query(ge=0, le=_MOST)
]
