"""The rules as a table, and as pages."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence

from ptopt import impact
from ptopt.pathkind import language
from ptopt.project.added import ADDED
from ptopt.ranker.model import shipped_ranker
from ptopt.report.text import PROSE, code_fence, gain, markdown_source, markdown_text
from ptopt.rules.base import ModelRule, Rule
from ptopt.rules.configs import ConfigRule
from ptopt.rules.engine import Prefilter
from ptopt.rules.examples import as_change, as_file, complete, config_path, plain

_TABLE = 120  # columns from which on a table is readable


_ON, _OFF, _ASKED = "on", "off", "on request"
_BY_DEFAULT = {_ON: "yes", _OFF: "no", _ASKED: "only on request"}
_MARKS = {_ON: "", _OFF: " *Off by default.*", _ASKED: " *On request.*"}


def _default(rule: type[Rule]) -> str:
    """Is the rule on, and run without being asked for?"""
    if not rule.default:
        return _OFF
    return _ON if rule.most_stated >= shipped_ranker().least_stated else _ASKED


def _on_request(who: str, verb: str) -> str:
    return (
        f"{who} {verb} run on request only, as a comment needs an estimate of {shipped_ranker().least_stated:g}: with `--select RULE` or "
        "`--extend-select RULE`, a `--min-confidence` below the threshold, or a model, and in audits."
    )


def as_table(rules: Sequence[type[Rule]], width: int, color: bool) -> str:
    if width < _TABLE:
        return _as_list(rules, width)
    import io

    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("id", "name", "family", "default"):
        table.add_column(title, no_wrap=True)
    table.add_column("what it does", max_width=PROSE)
    for rule in rules:
        default = _default(rule)
        cells = (rule.id, rule.name, rule.family, default, rule.summary())
        table.add_row(*(Text(cell) for cell in cells), style=None if default == _ON else "dim")
    console = Console(
        file=io.StringIO(),
        width=max(width, 60),
        force_terminal=color,
        color_system="standard" if color else None,
        legacy_windows=False,
        highlight=False,
        _environ={},
    )
    with console.capture() as captured:
        console.print(table)
    lines = [line.rstrip() for line in captured.get().split("\n")]
    return "\n".join(line for line in lines if line) + "\n"


def _as_list(rules: Sequence[type[Rule]], width: int) -> str:
    """Where a table would leave too little room for what each rule does."""
    lines: list[str] = []
    for rule in rules:
        default = _default(rule)
        said = "" if default == _ON else f", {default}{' by default' if default == _OFF else ''}"
        lines.append(f"{rule.id} {rule.name} ({rule.family}{said})")
        lines += textwrap.wrap(
            rule.summary(), max(min(width, PROSE), 40), initial_indent="  ", subsequent_indent="  "
        )
    return "".join(f"{line}\n" for line in lines)


def as_json(rules: Sequence[type[Rule]]) -> str:
    found = [
        {
            "id": rule.id,
            "name": rule.name,
            "family": rule.family,
            "severity": str(rule.severity),
            "default": rule.default,
            "most_stated": rule.most_stated,
            "since": dict(rule.since),
            "until": dict(rule.until),
            "partly": {name: f"{ADDED[name].package} {ADDED[name].version}" for name in sorted(rule.partly)},
            "summary": rule.summary(),
        }
        for rule in rules
    ]
    return json.dumps(found, indent=2) + "\n"


def as_markdown(rules: Sequence[type[Rule]]) -> str:
    """A table."""
    lines = ["| id | name | family | default | what it does |", "| --- | --- | --- | --- | --- |"]
    for rule in rules:
        cells = (rule.id, rule.name, rule.family, _default(rule), _cell(rule.summary()))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def page(rule: type[Rule]) -> str:
    """All about a rule, in Markdown: its text, the versions it holds for, and what it is worth."""
    facts = [
        f"Family: {rule.family}",
        f"Severity: {rule.severity}",
        f"On by default: {_BY_DEFAULT[_default(rule)]}",
        *(f"From {package} {version}" for package, version in rule.since.items()),
        *(
            f"`{name}` from {ADDED[name].package} {ADDED[name].version}"
            for name in sorted(rule.partly, key=str.lower)
        ),
        *(f"Before {package} {version}" for package, version in rule.until.items()),
    ]
    parts = [f"# {rule.id} {rule.name}", rule.summary(), " · ".join(facts)]
    if _default(rule) == _ASKED:
        parts.append(
            _on_request(
                f"Its own estimate of a case (not the confidence of a finding, which is the ranker's) is {rule.most_stated:g} at most. It",
                "is",
            )
        )
    for title, text in rule.sections().items():
        parts += [f"## {title}", text]
        if title == "Why it is slow":
            parts += _worth(rule)
    parts += ["## Try it", *_try_it(rule)]
    parts += ["## Switch it off", f"In the code: `# ptopt: ignore[{rule.id}] reason`."]
    parts.append(f'In `.ptopt.toml`: `ignore = ["{rule.name}"]`.')
    return "\n\n".join(parts) + "\n"


def _try_it(rule: type[Rule]) -> list[str]:
    """A whole file that the rule reports, and the command that does. Alone, few examples are worth a comment."""
    code = rule.INVALID[0].code
    if issubclass(rule, ModelRule):
        return [
            "`ptopt review --model FILE.json --model-server URL` asks the model that FILE.json was made for; rules alone never report it."
        ]
    if as_change("", plain(code)).removed:
        return [
            "`ptopt review` reports it on a branch that takes such a line out; `ptopt check` knows no change."
        ]
    config = issubclass(rule, ConfigRule)
    path = config_path(code) if config else "example.py"
    text = plain(code) if config else complete(code)
    if not config and not Prefilter([rule()])(text.encode()):
        text = as_file(code)  # it looks for a word that an unused import brings
    pins = " ".join(f"{pin.package}{pin.specifier}" for found in rule.PROJECT.pins.values() for pin in found)
    beside = f", beside a `requirements.txt` with `{pins}`" if pins else ""
    return [
        f"`ptopt check {path} --select {rule.id}` reports it in this file, saved as `{path}`{beside}:",
        code_fence(text, language(path)),
        _WHY_ALL,
    ]


_WHY_ALL = (
    "A rule that is named like this shows all that it finds. Otherwise a finding is shown only where it is likely enough that a "
    "maintainer would act on it, which a small example such as this one seldom shows: "
    "[how comments are chosen](../ranking.md)."
)


def _worth(rule: type[Rule]) -> list[str]:
    gains = impact.of_rule(rule.name)
    if not gains:
        return []
    ours = [f"- {markdown_text(gain(i))}" for i in gains if i.provenance == "measured"]
    others = [
        f"- {markdown_text(gain(i))} ({markdown_source(i.source)})"
        for i in gains
        if i.provenance != "measured"
    ]
    devices = dict.fromkeys(i.device for i in gains if i.provenance == "measured")
    commands = [
        f"`python -m benchmarks.impact{'' if device == 'cpu' else f' --device {device}'} --rule {rule.name}`"
        for device in devices
    ]
    again = f"To measure it again, in a clone with torch: {', '.join(commands)}."
    return ["## What the fix is worth", "\n".join([*ours, *others]), *([again] if ours else [])]


def pages(rules: Sequence[type[Rule]]) -> dict[str, str]:
    """File name -> text: a page per rule, and `README.md` that lists them by family."""
    parts = [
        "# Rules",
        "Written by `ptopt rules --docs docs/rules`.",
        _on_request("Rules marked *on request* have a low estimate of all their cases and", "are"),
    ]
    for family in dict.fromkeys(rule.family for rule in rules):
        lines = ["| rule | what it does |", "| --- | --- |"]
        for rule in (each for each in rules if each.family == family):
            default = _MARKS[_default(rule)]
            lines.append(f"| {rule.id} [{rule.name}](./{rule.name}.md) | {_cell(rule.summary())}{default} |")
        parts += [f"## {family}", "\n".join(lines)]
    index = "\n\n".join(parts) + "\n"
    return {"README.md": index, **{f"{rule.name}.md": page(rule) for rule in rules}}


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
