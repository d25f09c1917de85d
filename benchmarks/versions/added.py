"""Looks up in wheels which version first has what advice names, and compares it with what ptopt takes for granted.

    pip download --no-deps --only-binary=:all: --python-version 3.7 --platform macosx_10_9_x86_64 torch==1.9.0
    python -m benchmarks.versions.added *.whl

The wheels are read, not installed, so that any Python can look at any version. Exit status 1: a wheel of the version that
`ptopt.project.added` gives lacks the name, or an older one has it; one newer than `ptopt.project.removed` gives has it, or one of just
that version lacks it.
"""

from __future__ import annotations

import argparse
import re
import sys
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from packaging.utils import parse_wheel_filename
from packaging.version import Version

from ptopt.project.added import ADDED, Added
from ptopt.project.pins import RENAMED
from ptopt.project.removed import REMOVED, Removed


def contains(wheel: zipfile.ZipFile, wanted: Iterable[Added]) -> set[str]:
    """The names that the wheel has."""
    texts: dict[str, str] = {}
    found = set()
    for added in wanted:
        path, pattern = re.compile(rf"(?:.*/)?(?:{added.path})"), re.compile(added.pattern, re.M)
        for name in wheel.namelist():
            if path.fullmatch(name) is None:
                continue
            if name not in texts:
                texts[name] = wheel.read(name).decode("utf-8", "replace")
            if pattern.search(texts[name]):
                found.add(added.name)
                break
    return found


def differences(wheels: Iterable[Path]) -> list[str]:
    """Where the wheels and `ADDED` differ, a sentence each."""
    found = []
    for path in wheels:
        name, version, _, _ = parse_wheel_filename(path.name)
        package = RENAMED.get(name, str(name))
        wanted = [added for added in ADDED.values() if added.package == package]
        with zipfile.ZipFile(path) as wheel:
            has = contains(wheel, wanted)
        for added in wanted:
            expected = version >= Version(added.version)
            if (added.name in has) is not expected:
                verb = "lacks" if expected else "has"
                found.append(f"{package} {version} {verb} `{added.name}`, from {added.version} on by ptopt")
    return found


def still_there(wheel: zipfile.ZipFile, removed: Removed) -> bool:
    """Does the wheel have what is to be imported? A name counts where the module defines, imports or lists it."""
    stem = removed.module.replace(".", "/")
    texts = [
        wheel.read(name).decode("utf-8", "replace")
        for name in wheel.namelist()
        if re.fullmatch(rf"(?:.*/)?{stem}(?:/__init__)?\.py", name)
    ]
    name = removed.name
    binds = rf"""^\s*(?:class\s+|def\s+)?{name}\b\s*[=(:]|\bimport\b.*\b{name}\b|["']{name}["']"""
    return any(not name or re.search(binds, text, re.M) for text in texts)


def outlived(wheels: Iterable[Path]) -> list[str]:
    """Where the wheels and `REMOVED` differ, a sentence each."""
    found = []
    for path in wheels:
        name, version, _, _ = parse_wheel_filename(path.name)
        package = RENAMED.get(name, str(name))
        with zipfile.ZipFile(path) as wheel:
            for removed in (one for one in REMOVED if one.package == package):
                has, expected = still_there(wheel, removed), version <= Version(removed.last)
                if has and not expected:
                    found.append(
                        f"{package} {version} has `{removed.spelled}`, up to {removed.last} by ptopt"
                    )
                elif expected and not has and version == Version(removed.last):
                    found.append(
                        f"{package} {version} lacks `{removed.spelled}`, up to {removed.last} by ptopt"
                    )
    return found


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.versions.added", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("wheels", nargs="+", type=Path, metavar="WHEEL")
    wheels = parser.parse_args(arguments).wheels
    found = [*differences(wheels), *outlived(wheels)]
    print("\n".join(found) or "all wheels agree")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
