"""Types of what stands in an address."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query
from pydantic import BeforeValidator

from service.jobs import Kind

_MOST = 2**63 - 1  # of an id, in every database

Id = Annotated[int, Path(ge=0, le=_MOST)]
# A form sends "" where nothing is chosen.
_EMPTY = BeforeValidator(lambda text: None if text == "" else text)
Chosen = Annotated[int | None, _EMPTY, Query(ge=0, le=_MOST)]
ChosenKind = Annotated[Kind | None, _EMPTY]
