"""The rules: one folder a family, one file a rule. A new file is found without being listed anywhere.

Rules of other packages come through the entry point `ptopt.rules`; they are off unless they are selected.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType

from ptopt.rules.base import ModelRule, Rule
from ptopt.rules.configs import ConfigRule
from ptopt.spelling import BY_MODEL

GROUP = "ptopt.rules"


class RulePackageError(RuntimeError):
    """Rules of another package cannot be loaded. The text is for the user."""


def rules() -> tuple[Rule, ...]:
    """One instance of every rule about Python, by id."""
    return _every_rule()[0]


def config_rules() -> tuple[ConfigRule, ...]:
    """One instance of every rule about configurations, by id."""
    return _every_rule()[1]


def model_rules() -> tuple[ModelRule, ...]:
    """One instance of every rule that a model alone applies, by id."""
    return _every_rule()[2]


@cache
def _every_rule() -> tuple[tuple[Rule, ...], tuple[ConfigRule, ...], tuple[ModelRule, ...]]:
    found: dict[str, Rule] = {}
    for family in pkgutil.iter_modules(__path__):
        if not family.ispkg:
            continue
        package = importlib.import_module(f"{__name__}.{family.name}")
        for module in pkgutil.iter_modules(package.__path__):
            for rule in _rules_in(importlib.import_module(f"{package.__name__}.{module.name}")):
                found[rule.id] = rule()
    for entry in entry_points(group=GROUP):
        for rule in _third_party(entry):
            if rule.id in found:
                raise RulePackageError(
                    f"{entry.value}: the id {rule.id} is taken by {type(found[rule.id]).__module__}"
                )
            rule.default, rule.foreign = False, True
            found[rule.id] = rule()
    ordered = [found[key] for key in sorted(found)]
    return (
        tuple(rule for rule in ordered if not isinstance(rule, (ConfigRule, ModelRule))),
        tuple(rule for rule in ordered if isinstance(rule, ConfigRule)),
        tuple(rule for rule in ordered if isinstance(rule, ModelRule)),
    )


def _rules_in(module: ModuleType) -> Iterator[type[Rule]]:
    """The rules that the module defines; bases of rules have no id."""
    for value in vars(module).values():
        defined_here = isinstance(value, type) and value.__module__ == module.__name__
        if defined_here and issubclass(value, Rule) and hasattr(value, "id"):
            yield value


def _third_party(entry: EntryPoint) -> list[type[Rule]]:
    try:
        module = entry.load()
    except Exception as error:
        raise RulePackageError(
            f"the rules of {entry.value} cannot be loaded ({type(error).__name__}: {error}); repair or uninstall the package"
        ) from error
    found = list(_rules_in(module)) if isinstance(module, ModuleType) else []
    if not found:
        raise RulePackageError(
            f"{entry.value}: the entry point {GROUP} must name a module that defines rules"
        )
    return found


def all_rules() -> tuple[type[Rule], ...]:
    """Every rule class, by id."""
    every = (*rules(), *config_rules(), *model_rules())
    return tuple(type(rule) for rule in sorted(every, key=lambda rule: rule.id))


def find_rule(text: str) -> type[Rule] | None:
    """The rule with this id (any case) or name."""
    wanted = text.strip().lower()
    for rule in all_rules():
        if wanted in (rule.id.lower(), rule.name):
            return rule
    return None


def known_names() -> dict[str, str]:
    """Id, name or family -> which of the three it is; `BY_MODEL` for id and name of a rule that only a model can raise."""
    plain, by_model = ("id", "name", "family"), (BY_MODEL, BY_MODEL, "family")
    return {
        key: kind
        for rule in all_rules()
        for key, kind in zip(rule.keys(), by_model if issubclass(rule, ModelRule) else plain, strict=True)
    }
