"""The rules: one folder a family, one file a rule. A new file is found without being listed anywhere."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from ptopt.rules.base import Rule


@cache
def rules() -> tuple[Rule, ...]:
    """One instance of every rule, by id."""
    found: dict[str, Rule] = {}
    for family in pkgutil.iter_modules(__path__):
        if not family.ispkg:
            continue
        package = importlib.import_module(f"{__name__}.{family.name}")
        for module in pkgutil.iter_modules(package.__path__):
            loaded = importlib.import_module(f"{package.__name__}.{module.name}")
            for value in vars(loaded).values():
                if (
                    isinstance(value, type)
                    and issubclass(value, Rule)
                    and value.__module__ == loaded.__name__
                    and hasattr(value, "id")  # not a base of rules
                ):
                    found[value.id] = value()
    return tuple(found[key] for key in sorted(found))


def all_rules() -> tuple[type[Rule], ...]:
    """Every rule class, by id."""
    return tuple(type(rule) for rule in rules())


def find_rule(text: str) -> type[Rule] | None:
    """The rule with this id (any case) or name."""
    wanted = text.strip().lower()
    for rule in all_rules():
        if wanted in (rule.id.lower(), rule.name):
            return rule
    return None


def known_names() -> dict[str, str]:
    """Id, name or family -> which of the three it is."""
    return {
        key: kind
        for rule in all_rules()
        for key, kind in zip(rule.keys(), ("id", "name", "family"), strict=True)
    }
