"""Typed mutators: one file a family. A new class with a `rule` is found without being listed anywhere."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from training.mutators.base import Mutation, Mutator


@cache
def mutators() -> tuple[Mutator, ...]:
    """One instance of every mutator, by rule and name."""
    found: list[Mutator] = []
    for module in pkgutil.iter_modules(__path__):
        loaded = importlib.import_module(f"{__name__}.{module.name}")
        found += [
            value()
            for value in vars(loaded).values()
            if isinstance(value, type) and value.__module__ == loaded.__name__ and hasattr(value, "rule")
        ]
    return tuple(sorted(found, key=lambda m: (m.rule, type(m).__name__)))


__all__ = ["Mutation", "Mutator", "mutators"]
