"""Writes values.schema.json and README.md of the chart from its values.yaml: `python -m helm.generate`.

The comment above a value describes it; a line `@schema` in it adds to what its default says of the type: JSON, or `settings`
or `secrets` for those of the service.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import SecretStr

from service.settings import Settings

CHART = Path(__file__).with_name("ptopt")
# May hold passwords.
SECRET_URLS = ("database_url", "broker_url")
_STRINGS = {"type": "object", "additionalProperties": {"type": "string"}}
_FREE: dict[str, dict[str, Any]] = {
    "affinity": {"type": "object"},
    "annotations": _STRINGS,
    "labels": _STRINGS,
    "nodeSelector": _STRINGS,
    "resources": {
        "type": "object",
        "properties": {"requests": {"type": "object"}, "limits": {"type": "object"}},
        "additionalProperties": False,
    },
}
_PLAIN = ("type", "enum", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_HEAD = """\
# Helm chart of ptopt

Generated from `values.yaml` by `make docs`; do not edit. How to install, upgrade and run it:
[docs/kubernetes.md](../../docs/kubernetes.md). Values for common cases: [examples](examples).

A value that does not exist, or is of the wrong type, is an error that names it.
"""


@dataclass(frozen=True, slots=True)
class Value:
    """A key of values.yaml. `values` are those of a mapping; a mapping on one line is shown as one value."""

    path: tuple[str, ...]
    default: Any
    text: str
    schema: str
    values: tuple[Value, ...]
    inline: bool

    @property
    def name(self) -> str:
        return self.path[-1]


def read(text: str) -> tuple[Value, ...]:
    """The values of a values.yaml, in its order."""
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    assert isinstance(node, yaml.MappingNode)
    return tuple(_values(node, text.split("\n"), ()))


def _values(node: yaml.MappingNode, lines: list[str], above: tuple[str, ...]) -> Iterator[Value]:
    for key, value in node.value:
        path = (*above, str(key.value))
        text, schema = _comment(lines, key.start_mark.line) if not node.flow_style else ("", "")
        mapping = isinstance(value, yaml.MappingNode) and bool(value.value)
        yield Value(
            path,
            yaml.safe_load(yaml.serialize(value)),
            text,
            schema,
            tuple(_values(value, lines, path)) if mapping else (),
            bool(value.flow_style) if mapping else True,
        )


def _comment(lines: list[str], line: int) -> tuple[str, str]:
    """The description above a line, and its `@schema`."""
    found: list[str] = []
    while line and lines[line - 1].lstrip().startswith("# "):
        line -= 1
        found.insert(0, lines[line].strip()[2:])
    schema = [text.removeprefix("@schema ") for text in found if text.startswith("@schema ")]
    return " ".join(text for text in found if not text.startswith("@schema ")), "".join(schema)


def schema(values: tuple[Value, ...]) -> dict[str, Any]:
    """The JSON schema of the whole."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Values of the chart ptopt",
        "type": "object",
        # Helm gives it to the charts of a parent.
        "properties": {"global": {"type": "object"}} | {value.name: _schema(value) for value in values},
        "additionalProperties": False,
    }


def _schema(value: Value) -> dict[str, Any]:
    about = {"description": value.text} if value.text else {}
    if value.schema in ("settings", "secrets"):
        names = {f"PTOPT_{name.upper()}": kind for name, kind in settings(secret=value.schema == "secrets")}
        return about | {"type": "object", "properties": names, "additionalProperties": False}
    if value.name in _FREE:
        return about | _FREE[value.name]
    more = json.loads(value.schema) if value.schema else {}
    if isinstance(value.default, dict):
        inner = {each.name: _schema(each) for each in value.values}
        return about | {"type": "object", "properties": inner, "additionalProperties": False} | more
    kinds = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array"}
    return about | {"type": kinds[type(value.default)]} | more


def settings(*, secret: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """The settings of the service that are secrets, or those that are not, and what a value of each may be."""
    properties = Settings.model_json_schema()["properties"]
    for name, field in Settings.model_fields.items():
        hidden = name in SECRET_URLS or SecretStr in (field.annotation, *get_args(field.annotation))
        if hidden is secret:
            about = properties[name]
            kind = next((k for k in about.get("anyOf", ()) if k.get("type") != "null"), about)
            plain = {word: kind[word] for word in _PLAIN if word in kind}
            yield name, {"description": str(field.description)} | plain


def readme(values: tuple[Value, ...]) -> str:
    """README.md of the chart."""
    parts = [_HEAD, "\n## General\n\n", _table([value for value in values if not _nested(value)])]
    for value in values:
        if _nested(value):
            parts += [
                f"\n## {value.name}\n\n",
                f"{value.text}\n\n" if value.text else "",
                _table(value.values),
            ]
    return "".join(parts)


def _nested(value: Value) -> bool:
    return bool(value.values) and not value.inline and value.schema != "settings"


def _table(values: list[Value] | tuple[Value, ...]) -> str:
    rows = "".join(
        f"| `{'.'.join(value.path)}` | `{json.dumps(value.default)}` | {value.text.replace('|', chr(92) + '|')} |\n"
        for value in _leaves(values)
    )
    return f"| Value | Default | Meaning |\n| --- | --- | --- |\n{rows}"


def _leaves(values: list[Value] | tuple[Value, ...]) -> Iterator[Value]:
    for value in values:
        if value.values and not value.inline and value.name not in _FREE and value.schema != "settings":
            yield from _leaves(value.values)
        else:
            yield value


def version(root: Path = CHART.parents[1]) -> str:
    """The version of the project, from its one place."""
    (found,) = re.findall(r'^__version__ = "(.+)"$', (root / "ptopt/__init__.py").read_text("utf-8"), re.M)
    return str(found)


def files() -> dict[str, str]:
    """What is generated, by path below the chart."""
    values = read((CHART / "values.yaml").read_text("utf-8"))
    chart = (CHART / "Chart.yaml").read_text("utf-8")
    return {
        "Chart.yaml": re.sub(r"^((?:appV|v)ersion): .*$", rf"\1: {version()}", chart, flags=re.M),
        "values.schema.json": json.dumps(schema(values), indent=2) + "\n",
        "README.md": readme(values),
    }


if __name__ == "__main__":
    for name, text in files().items():
        (CHART / name).write_text(text, encoding="utf-8")
