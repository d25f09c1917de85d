"""Readers of the files in which a project names the versions of its libraries. Text in, pins out.

Nothing is executed. A reader raises ValueError with the reason where a file cannot be read.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator

from ptopt.project.pins import OF_INTEREST, Pin, Reading

_LOCKED = re.compile(r'^\[\[packages?\]\]\r?\nname = "([^"\n]+)"\r?\nversion = "([^"\n]+)"', re.MULTILINE)
# `conda list --explicit`: ".../linux-64/pytorch-1.4.0-py3.7_0.tar.bz2"; `conda list --export`: "pytorch=1.4.0=py3.7_0".
_CONDA_URL = re.compile(r"https?://(?:[^\s/]+/)+([a-z][\w.-]*)-(\d[\w.+!]*)-[\w.]+\.(?:tar\.bz2|conda)\b")
_CONDA_EXPORT = re.compile(r"([a-z][\w.-]*)=(\d[^=\s]*)=[^=\s]+$")
_MOST_DOTS = 200  # in a line of TOML
_IMAGE = re.compile(r"FROM\s+(?:--\S+\s+)*(?:docker\.io/)?pytorch/pytorch:(\d+\.\d+\.\d+)\b", re.IGNORECASE)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their continuations joined, and the number of the first."""
    start, held = 1, ""
    for number, line in enumerate(text.split("\n"), start=1):
        line = line.rstrip("\r")
        if not held:
            start = number
        elif line.lstrip().startswith("#"):
            continue
        if line.endswith("\\"):
            held += line[:-1] + " "
            continue
        yield start, held + line
        held = ""
    if held:
        yield start, held


def requirements(reading: Reading) -> None:
    """requirements.txt: requirements, hashes, markers, URLs, and other files by `-r` and `-c`; what `conda list` writes, too."""
    for number, line in _logical_lines(reading.text):
        line = re.sub(r"(?:^|\s)#.*$", "", line).strip()
        include = re.match(r"(?:-r|-c|--requirement|--constraint)[\s=]*(\S+)", line)
        built = _CONDA_URL.match(line) or _CONDA_EXPORT.match(line)
        if include:
            reading.includes.append(include[1])
        elif built:
            reading.add("torch" if built[1] == "pytorch" else built[1], f"=={built[2]}", number)
        elif re.match(r"(?:https?|file)://", line):
            reading.add_wheel(line.split()[0].split("#")[0], number)
        else:
            reading.add_requirement(re.split(r"\s--\w", line)[0].strip(), number)


def lock(reading: Reading) -> None:
    """uv.lock, poetry.lock, pdm.lock, pylock.toml; not by a TOML parser, which takes a second on a large one."""
    found = list(_LOCKED.finditer(reading.text))
    if not found:
        raise ValueError("no locked packages found")
    line, counted = 1, 0
    for package in found:
        line += reading.text.count("\n", counted, package.end())
        counted = package.end()
        if OF_INTEREST.match(package[1]):
            reading.add(package[1], f"=={package[2]}", line)


def pipfile_lock(reading: Reading) -> None:
    import json

    content = json.loads(reading.text, parse_int=str)
    for group in ("default", "develop"):
        reading.optional = group == "develop"
        for name, entry in _table(_table(content).get(group)).items():
            _table_entry(reading, name, entry, lambda version: version)


def pipfile(reading: Reading) -> None:
    content = _toml(reading.text)
    for group in ("packages", "dev-packages"):
        reading.optional = group == "dev-packages"
        for name, entry in _table(content.get(group)).items():
            _table_entry(reading, name, entry, lambda version: version)


def pyproject(reading: Reading) -> None:
    """PEP 621, PEP 735, Poetry, PDM, uv and Hatch tables of pyproject.toml."""
    content = _toml(reading.text)
    project, tool = _table(content.get("project")), _table(content.get("tool"))
    poetry, uv = _table(tool.get("poetry")), _table(tool.get("uv"))
    main = [project.get("dependencies"), uv.get("constraint-dependencies"), uv.get("override-dependencies")]
    groups = [
        *_table(project.get("optional-dependencies")).values(),
        *_table(content.get("dependency-groups")).values(),
    ]
    groups += [*_table(_table(tool.get("pdm")).get("dev-dependencies")).values(), uv.get("dev-dependencies")]
    for env in _table(_table(tool.get("hatch")).get("envs")).values():
        groups += [_table(env).get("dependencies"), _table(env).get("extra-dependencies")]
    poetry_groups = [_table(group).get("dependencies") for group in _table(poetry.get("group")).values()]
    for lists, tables in (
        (main, [poetry.get("dependencies")]),
        (groups, [poetry.get("dev-dependencies"), *poetry_groups]),
    ):
        reading.optional = lists is groups
        for value in (item for items in lists if isinstance(items, list) for item in items):
            if isinstance(value, str) and OF_INTEREST.match(value):
                reading.add_requirement(value, reading.line_of_string(value))
        for name, entry in (pair for table in tables for pair in _table(table).items()):
            _table_entry(reading, name, entry, _from_poetry)


def setup_cfg(reading: Reading) -> None:
    import configparser

    # configparser's pattern for options takes quadratic time on a run of blanks inside a line.
    reading.text = re.sub(r"(?<=\S)[^\S\n]{2,}", " ", reading.text)
    parser = configparser.RawConfigParser(strict=False)
    try:
        parser.read_string(reading.text)
    except configparser.Error as error:
        raise ValueError(str(error).split("\n")[0]) from None
    values = [parser.get("options", "install_requires", fallback="")]
    extras = parser.items("options.extras_require") if parser.has_section("options.extras_require") else []
    for blocks in (values, [value for _, value in extras]):
        reading.optional = blocks is not values
        for value in (line.strip() for block in blocks for line in (block or "").split("\n")):
            if OF_INTEREST.match(value):
                reading.add_requirement(value, reading.line_of(value))


def setup_py(reading: Reading) -> None:
    """String constants of `install_requires` and `extras_require`, and of the names they are given by."""
    from ptopt.syntax import parse_text

    wanted: dict[str, list[ast.expr]] = {"install_requires": [], "extras_require": []}
    assigned: dict[str, list[ast.expr]] = {}
    for node in ast.walk(parse_text(reading.text)):
        if isinstance(node, ast.keyword) and node.arg in wanted:
            wanted[node.arg].append(node.value)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                base = target.value if isinstance(target, ast.Subscript) else target
                if isinstance(base, ast.Name):
                    assigned.setdefault(base.id, []).append(node.value)
    for keyword, values in wanted.items():
        reading.optional = keyword == "extras_require"
        for value in values:
            for node in ast.walk(value):
                if isinstance(node, ast.Name):  # the list grows while it is walked; a name is followed once
                    values += assigned.pop(node.id, [])
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    for line in node.value.split("\n"):
                        reading.add_requirement(line.strip(), node.lineno)


def conda(reading: Reading) -> None:
    """environment.yml: the `dependencies` list and the `pip` list in it. Other YAML is passed over."""
    inside = False
    pip_indent: int | None = None
    seen = False
    for number, line in enumerate(reading.text.split("\n"), start=1):
        line = re.sub(r"(?:^|\s)#.*$", "", line).rstrip()
        if re.match(r"[\w\"']", line):
            inside = bool(re.fullmatch(r"dependencies\s*:", line))
            seen = seen or inside
            pip_indent = None
        item = re.match(r"([ \t]*)-\s+(.*)$", line)
        if not inside or not item:
            continue
        indent, value = len(item[1]), item[2].strip().strip("\"'")
        if pip_indent is not None and indent <= pip_indent:
            pip_indent = None
        if re.fullmatch(r"pip\s*:", value):
            pip_indent = indent
        elif pip_indent is not None:
            reading.add_requirement(value, number)
        else:
            reading.add_conda(value, number)
    if not seen:
        raise ValueError("no list of dependencies found")


def dockerfile(reading: Reading) -> None:
    """Tags of pytorch/pytorch images, and what `pip install` and `conda install` name with a version.

    Of several lines that name a package the last one counts: it decides what the image ends up with.
    """
    for number, line in _logical_lines(reading.text):
        line = line.strip()
        if line.startswith("#"):
            continue
        image = _IMAGE.match(line)
        if image:
            reading.add("torch", f"=={image[1]}", number)
        if not re.match(r"RUN\s", line, re.IGNORECASE):
            continue
        for command in re.split(r"&&|\|\||[;|]", line):
            install = re.search(r"\b(pip3?|conda|mamba|micromamba)\s+install\s+(.*)", command)
            if not install:
                continue
            add = reading.add_requirement if install[1].startswith("pip") else reading.add_conda
            for word in (quoted.strip("\"'") for quoted in install[2].split()):
                if word.startswith(("http://", "https://")):
                    reading.add_wheel(word, number)
                elif re.search(r"[=<>]", word):
                    add(word, number)
    last: dict[str, Pin] = {}
    for pin in reading.pins:
        if pin.exact or pin.package not in last:
            last[pin.package] = pin
    reading.pins = list(last.values())


def _toml(text: str) -> dict[str, object]:
    import sys

    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    # The parser walks from the root for each part of a dotted key, which is quadratic.
    deep = next((n for n, line in enumerate(text.split("\n"), 1) if line.count(".") > _MOST_DOTS), None)
    if deep is not None:
        raise ValueError(f"more than {_MOST_DOTS} dots in line {deep}")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        where = re.search(r"at line (\d+)", str(error))
        raise ValueError(f"not valid TOML at line {where[1]}" if where else "not valid TOML") from None


def _table(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _table_entry(reading: Reading, name: str, entry: object, read: Callable[[str], str]) -> None:
    """A `name = "version"`, `name = {version = "..."}` or `name = [{...}, {...}]` entry."""
    if not OF_INTEREST.match(name):
        return
    key = re.search(rf"^[ \t]*[\"']?{re.escape(name)}[\"']?\s*[=:]", reading.text, re.M)
    line = reading.text.count("\n", 0, key.end()) + 1 if key else 1
    entries: Iterable[object] = entry if isinstance(entry, list) else [entry]
    for one in entries:
        table = _table(one)
        url = table.get("url") or table.get("file")
        version = table.get("version", "*") if table else one
        if isinstance(url, str):
            reading.add_wheel(url, line)
        elif isinstance(version, str):
            reading.add(name, read(version), line)


def _from_poetry(version: str) -> str:
    """Poetry's own operators in terms of PEP 440: `^2.1`, `~2.1`, `2.1.0`, `2.*`."""
    clauses: list[str] = []
    for clause in version.replace(" ", "").split(","):
        caret = re.fullmatch(r"([\^~])(\d+(?:\.\d+)*)\S*", clause)
        if caret:
            parts = [int(part[:9]) for part in caret[2].split(".")]
            if caret[1] == "^":
                place = next((i for i, part in enumerate(parts) if part), len(parts) - 1)
            else:
                place = min(1, len(parts) - 1)
            upper = [*parts[:place], parts[place] + 1]
            clauses.append(f">={clause[1:]},<{'.'.join(map(str, upper))}")
        elif re.match(r"\d", clause):
            clauses.append(f"=={clause}")
        elif clause != "*":
            clauses.append(clause)
    return ",".join(clauses)
