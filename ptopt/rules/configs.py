"""What a rule about a configuration file is: the same text, examples and fix as any rule, and another check."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from ptopt.configs.deliberate import is_explained
from ptopt.configs.file import ConfigFile
from ptopt.configs.kinds import Block
from ptopt.configs.values import Entry, Node, Scalar
from ptopt.findings import Edit, Evidence, Fix, Safety, Span
from ptopt.pathkind import language as path_language
from ptopt.rules.base import Rule, Severity
from ptopt.rules.examples import config_path, plain

__all__ = [
    "Block", "ConfigFile", "ConfigProblem", "ConfigRule", "Edit", "Entry", "Evidence", "Fix", "Node", "Safety", "Scalar",
    "Setting", "SettingRule", "Severity", "Span", "shown",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    """What a check yields. `start` and `end` are offsets in the text; `symbol` names the place, as in `trainer.precision`.

    `confidence` is left out where the rule's own holds.
    """

    start: int
    end: int
    message: str
    symbol: str = ""
    evidence: tuple[Evidence, ...] = ()
    fix: Fix | None = None
    confidence: float | None = None


class ConfigRule(Rule):
    """Base of rules about configurations. `prior` is the share of its comments that readers of real files found useful."""

    nodes: ClassVar[tuple[type[ast.AST], ...]] = ()
    libraries: ClassVar[tuple[str, ...]] = ()
    kinds: ClassVar[frozenset[str]]  # the file must be of one of these
    prior: ClassVar[float] = 0.6

    @classmethod
    def fenced(cls, code: str) -> str:
        text = plain(code).rstrip()
        language = "json" if text.startswith("{") else path_language(config_path(code))
        return f"```{language}\n{text}\n```"

    def check_config(self, file: ConfigFile) -> Iterator[ConfigProblem]:
        raise NotImplementedError(f"{type(self).__name__} has no check")


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting with a value that costs: `path` of keys within a block, its values, what to write instead, and why.

    `message` may hold `{value}` and `{key}`. Without `better` no fix is offered.
    """

    path: tuple[str, ...]
    bad: tuple[object, ...]
    message: str
    better: str | None = None
    assumption: str = ""
    confidence: float | None = None


class SettingRule(ConfigRule):
    """A rule that is a table of settings. Kind of block -> its settings."""

    settings: ClassVar[Mapping[str, tuple[Setting, ...]]]

    def check_config(self, file: ConfigFile) -> Iterator[ConfigProblem]:
        for block in file.blocks:
            for setting in self.settings.get(block.kind, ()):
                entry = block.mapping.entry(*setting.path)
                if entry is None or entry.merged or not isinstance(entry.value, Scalar):
                    continue
                if not _is_one_of(entry.value.value, setting.bad) or self.excused(block, setting, file):
                    continue
                if is_explained(file.lines, file.document.line(entry.value.start)):
                    continue
                yield self.problem(file, block, entry, setting)

    def excused(self, block: Block, setting: Setting, file: ConfigFile) -> bool:
        """Does something else in the file make the value right?"""
        return False

    def problem(self, file: ConfigFile, block: Block, entry: Entry, setting: Setting) -> ConfigProblem:
        fix = None
        if setting.better is not None:
            edit = replace(file, entry.value, setting.better)
            safety = Safety.UNSAFE if setting.assumption else Safety.SAFE
            fix = Fix(safety, (edit,), setting.assumption)
        return ConfigProblem(
            entry.key.start,
            entry.value.end,
            setting.message.format(key=setting.path[-1], value=shown(file, entry)),
            ".".join((*block.path, *setting.path)),
            fix=fix,
            confidence=setting.confidence,
        )


def _is_one_of(value: object, bad: Iterable[object]) -> bool:
    """`0` is not `False`; text counts in any case."""
    if isinstance(value, str):
        return value.lower() in bad
    return any(value == one and type(value) is type(one) for one in bad)


def replace(file: ConfigFile, node: Node, text: str) -> Edit:
    """Edit that puts `text` in the place of a value."""
    return Edit(file.document.byte(node.start), file.document.byte(node.end), text)


def shown(file: ConfigFile, entry: Entry, limit: int = 60) -> str:
    """A setting in a code span, for a message."""
    code = " ".join(file.text[entry.key.start : entry.value.end].split())
    return f"`{code if len(code) <= limit else code[: limit - 1] + '…'}`"
