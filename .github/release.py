"""The version of a release: `python .github/release.py set 0.2.0`, `check v0.2.0`, `notes v0.2.0`.

`set` writes a version into ptopt/__init__.py, where it stands, and into the files that repeat it; `check` says why a
tag is not the release of this tree; `notes` prints its part of CHANGELOG.md.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = "ptopt/__init__.py"
CHANGELOG = "CHANGELOG.md"
_VERSION = re.compile(r"\d+\.\d+\.\d+")  # both Python's and Helm's form
_ASSIGNED = re.compile(r'(?<=^__version__ = ")[^"]+', re.M)

# The files that repeat the version, and where in them.
COPIES = {
    "helm/ptopt/Chart.yaml": r"(?<=^version: )\S+|(?<=^appVersion: )\S+",
    "docker/Dockerfile": r"(?<=^ARG VERSION=)\S+",
    "docker/gpu.Dockerfile": r"(?<=^ARG VERSION=)\S+",
    "docker/compose.yaml": r"(?<=\$\{IMAGE_TAG:-)[^}]+",
    "docker/example.env": r"(?<=^IMAGE_TAG=)\S+",
    "docs/*.md": r"(?P<before>ghcr\.io/ptopt/ptopt-[\w-]+:)\d[\d.]*\d|(?<= --version )\d[\d.]*\d",
}


def version(root: Path = ROOT) -> str:
    """The version of this tree."""
    (found,) = _ASSIGNED.findall((root / SOURCE).read_text(encoding="utf-8"))
    return str(found)


def write(new: str, root: Path = ROOT) -> None:
    """Make `new` the version of this tree. ValueError: not of the form 1.2.3."""
    if not _VERSION.fullmatch(new):
        raise ValueError(f"{new} is not of the form 1.2.3")

    def written(match: re.Match[str]) -> str:
        return (match.groupdict().get("before") or "") + new

    for glob, pattern in {SOURCE: _ASSIGNED.pattern, **COPIES}.items():
        for path in root.glob(glob):
            text = path.read_text(encoding="utf-8")
            path.write_text(re.sub(pattern, written, text, flags=re.M), encoding="utf-8")


def problems(tag: str, root: Path = ROOT) -> list[str]:
    """Why this tree cannot be released under the tag: sentences, none when it can."""
    found = []
    if tag != f"v{version(root)}":
        found.append(f"{SOURCE} has {version(root)}, and the tag is {tag}.")
    if not notes(tag, root):
        found.append(f"{CHANGELOG} has no section for {tag.removeprefix('v')}.")
    return found


def notes(tag: str, root: Path = ROOT) -> str:
    """The part of the changelog about a tag; empty when there is none."""
    text = (root / CHANGELOG).read_text(encoding="utf-8")
    heading = rf"^## \[{re.escape(tag.removeprefix('v'))}\] - \d{{4}}-\d\d-\d\d$"
    part = re.search(rf"{heading}\n(.*?)(?=^## \[|\Z)", text, re.M | re.S)
    return part[1].strip() if part else ""


def main() -> int:
    command, value = sys.argv[1:]
    if command == "set":
        write(value)
    elif command == "notes":
        print(notes(value))  # noqa: T201
    else:
        found = problems(value)
        print("\n".join(found), file=sys.stderr)  # noqa: T201
        return int(bool(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
