"""Writes docs/configuration.md from the model of the configuration, the example of docs/add-a-rule.md, and the project's address
and commit into the snippets.

python docs/pages.py
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ptopt.address import REPOSITORY, REVISION
from ptopt.config import config_schema

ROOT = Path(__file__).resolve().parents[1]
SNIPPETS = ("README.md", "SECURITY.md", "CHANGELOG.md", "pyproject.toml", "docs/*.md", "docs/workflows/*.yml")

# What is shown for each key. Each is valid in a .ptopt.toml: tests/test_docs.py loads them.
EXAMPLES = {
    "select": 'select = ["full-precision-training", "sync"]',
    "extend-select": 'extend-select = ["full-precision-training"]',
    "ignore": 'ignore = ["PTO301", "attention"]',
    "per-path-ignores": '[per-path-ignores]\n"scripts/" = ["sync"]\n"**/legacy_*.py" = ["item-every-step"]',
    "include": 'include = ["src/", "train.py"]',
    "exclude": 'exclude = ["third_party/", "*_pb2.py"]',
    "skip": 'skip = ["tests"]',
    "budget": "budget = 3",
    "min-confidence": "min-confidence = 0.6",
    "learn": "learn = true",
    "pull-requests": "[pull-requests]\ndrafts = true",
    "pull-requests.enabled": "[pull-requests]\nenabled = false",
    "pull-requests.drafts": "[pull-requests]\ndrafts = true",
    "pull-requests.bots": "[pull-requests]\nbots = true",
    "pull-requests.skip-authors": '[pull-requests]\nskip-authors = ["dependabot[bot]"]',
    "pull-requests.skip-labels": '[pull-requests]\nskip-labels = ["no-perf-review"]',
    "pull-requests.max-files": "[pull-requests]\nmax-files = 100",
    "pull-requests.max-lines": "[pull-requests]\nmax-lines = 5000",
    "pull-requests.check-run": "[pull-requests]\ncheck-run = true",
    "pull-requests.sarif": "[pull-requests]\nsarif = true",
}

_HEAD = """\
# Configuration

Generated from `ptopt/config.py` by `make docs`; do not edit.

All keys are optional. They stand in `.ptopt.toml` at the root of the repository, or in the table `[tool.ptopt]` of
`pyproject.toml` (where both exist, only `.ptopt.toml` is read; `[pull-requests]` becomes `[tool.ptopt.pull-requests]`). On the command
line, `--config FILE` names another file, and options such as `--ignore` override it.

On GitHub the configuration of the base branch applies, so that a pull request cannot change its own review. A repository without
one gets that of `.ptopt.toml` in the repository `.github` of its owner.

`ptopt config show` prints the effective settings, `ptopt config check` checks them, `ptopt config schema` prints its JSON schema. A rule is named by its id (`PTO101`),
its name (`item-every-step`), its family (`sync`), or the start of ids (`PTO1`); [rules](rules/README.md) lists them. Globs are those of `.gitignore`, without `!`.
"""


def main() -> None:
    (ROOT / "docs" / "configuration.md").write_text(configuration(), encoding="utf-8")
    rule = ROOT / "docs" / "add-a-rule.md"
    rule.write_text(with_example(rule.read_text(encoding="utf-8")), encoding="utf-8")
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    written = re.search(r'^Source = "https://github\.com/(.+)"$', project, re.M)
    for path in (path for glob in SNIPPETS for path in ROOT.glob(glob)):
        text = path.read_text(encoding="utf-8")
        if written is not None:
            old = re.escape(written[1])
            new = re.sub(rf"(github\.com/|uses: ){old}\b", rf"\g<1>{REPOSITORY}", text)
            path.write_text(pinned(new), encoding="utf-8")


def with_example(text: str) -> str:
    """The page with the rule of examples/rule-package in it."""
    example = (ROOT / "examples/rule-package/acme_rules/seeds.py").read_text(encoding="utf-8")
    return re.sub(r"(?s)(?<=````python\n).*?(?=````\n)", lambda _: example, text)


def pinned(text: str) -> str:
    """The text with our commit where a snippet pins this project: `uses:`, `pip install git+…@`, and `rev:` of pre-commit."""
    ours = rf"{re.escape(REPOSITORY)}(?:@|\n +rev: )"
    return re.sub(rf"(?<=[/ ])({ours})[0-9a-f]{{40}}\b", rf"\g<1>{REVISION}", text)


def configuration() -> str:
    """The page of all keys."""
    return _HEAD + "".join(f"\n{section}" for section in _sections())


def _sections() -> Iterator[str]:
    schema = config_schema()
    for key, field in schema["properties"].items():
        table = field.get("$ref", "").rpartition("/")[2]
        yield _section("##", key, key, field)
        for inner, inner_field in schema["$defs"].get(table, {}).get("properties", {}).items():
            yield _section("###", inner, f"{key}.{inner}", inner_field)


def _section(level: str, title: str, key: str, field: Mapping[str, Any]) -> str:
    kind, default = _kind(field), _default(field.get("default"))
    facts = f"\nType: {kind}. Default: {default}.\n" if kind else ""
    return f"{level} `{title}`\n\n{field['description']}\n{facts}\n```toml\n{EXAMPLES[key]}\n```\n"


def _kind(field: Mapping[str, Any]) -> str:
    if "$ref" in field:
        return ""
    if "anyOf" in field:
        return _kind(next(each for each in field["anyOf"] if each.get("type") != "null"))
    if field["type"] == "array":
        items = field["items"]
        each = ", ".join(f"`{value}`" for value in items["enum"]) if "enum" in items else "strings"
        return f"list of: {each}" if "enum" in items else f"list of {each}"
    if field["type"] == "object":
        return "table from globs to lists of strings"
    if field["type"] in ("integer", "number"):
        return f"{field['type']} from {field['minimum']:,} to {field['maximum']:,}"
    return str(field["type"])


def _default(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, (list, tuple)):
        return "`[" + ", ".join(f'"{each}"' for each in value) + "]`"
    return "empty" if value == {} else f"`{value}`"


if __name__ == "__main__":
    main()
