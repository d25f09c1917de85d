"""The argument RULE of a command."""

from __future__ import annotations

from bot.commands.base import UsageError, nearest, shown
from ptopt.rules import all_rules, find_rule, known_names
from ptopt.rules.base import Rule


def rule_named(word: str) -> type[Rule]:
    """The rule with this id or name. `UsageError` names the nearest one."""
    rule = find_rule(word)
    if rule is not None:
        return rule
    if known_names().get(word.lower()) == "family":
        members = ", ".join(f"`{rule.id}`" for rule in all_rules() if rule.family == word.lower())
        raise UsageError(f"`{word.lower()}` is a family of rules. Name one of them: {members}.")
    names = [key for key, kind in known_names().items() if kind == "name"]  # any id is near to another
    raise UsageError(f"There is no rule {shown(word)}.{nearest(word, names)}")
