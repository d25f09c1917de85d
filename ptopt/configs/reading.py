"""Reads a configuration file into values with places, or says why not. Whatever the bytes are, nothing is raised."""

from __future__ import annotations

from ptopt.configs.compose import RefusedError, compose
from ptopt.configs.values import Document, Refused
from ptopt.syntax import ParseError, check_text

MAX_BYTES = 256_000  # a configuration that people write has a few thousand
FORMATS = {".yaml": "yaml", ".yml": "yaml", ".json": "json", ".toml": "toml"}


def read_config(path: str, data: bytes) -> Document | Refused:
    """The values of the YAML, JSON or TOML file at `path`; its suffix names the format."""
    format_ = FORMATS.get(path[path.rfind(".") :].lower()) if "." in path else None
    if format_ is None:
        return Refused("neither YAML, JSON nor TOML")
    text = decoded(data)
    return text if isinstance(text, Refused) else read_text(format_, text)


def decoded(data: bytes) -> str | Refused:
    """The text of a configuration or Dockerfile, without a byte order mark."""
    if len(data) > MAX_BYTES:
        return Refused(f"larger than {MAX_BYTES // 1000} KB, treated as generated")
    if b"\0" in data:
        return Refused("holds NUL bytes: a binary file, or UTF-16")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return Refused("not UTF-8", data.count(b"\n", 0, error.start) + 1)
    try:
        check_text(text)
    except ParseError as error:
        return Refused(error.reason, error.line)
    return text


def read_text(format_: str, text: str) -> Document | Refused:
    """The values of a text that has the limits of `decoded`."""
    try:
        if format_ == "toml":
            from ptopt.configs.toml_values import toml_values

            return Document(format_, text, (toml_values(text),))
        if format_ == "json":
            from ptopt.configs.json_events import json_events

            return Document(format_, text, compose(json_events(text)))
        from ptopt.configs.yaml_events import yaml_events

        return Document(format_, text, compose(yaml_events(text)))
    except RefusedError as error:
        at = None if error.offset is None else text.count("\n", 0, error.offset) + 1
        shown = "".join(c if c.isprintable() else "?" for c in error.reason[:160])
        return Refused(shown, at)
