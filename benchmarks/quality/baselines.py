"""Other tools on the same files: TorchFix (all its rules) and ruff (PERF). Each is run on copies of the head files."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path

from benchmarks.quality.changes import Cache, Material
from benchmarks.quality.score import Report
from ptopt.config import Config

RULES = {"torchfix": "ALL", "ruff": "PERF"}  # of each tool, what it is run with
NOTE = (
    "any report within three lines counts as found, whatever it says; reports on lines that the change did not add are "
    "left out, as are the files that ptopt skips"
)
_FILES_AT_ONCE = 100
_TORCHFIX_LINE = re.compile(r"^(.+\.py):(\d+):\d+: (\S+) ", re.MULTILINE)

_Places = list[tuple[int, int, str]]  # first and last line, code of the rule


class ToolError(Exception):
    """The tool is missing, or failed. The text is for the user."""


class Tool:
    """One of RULES."""

    def __init__(self, name: str, cache: Cache, jobs: int = 1) -> None:
        path = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
        if path is None:
            raise ToolError(f"{name} is not installed: pip install --group quality-benchmark")
        self._name = name
        self._path = path
        self._cache = cache
        self._jobs = jobs
        self.version = self._run("--version").strip()

    def reports(self, changes: Iterable[Material], config: Config) -> list[list[Report]]:
        """What it says of the added lines of each change."""
        changes = list(changes)
        wanted = [
            [file for file in change.files if config.why_skipped(file["path"]) is None] for change in changes
        ]
        places = self._places([file["head"].encode("latin-1") for files in wanted for file in files])
        return [
            [
                Report(file["path"], start, end, code)
                for file in files
                for start, end, code in places[_name(file["head"].encode("latin-1"))]
                if not set(range(start, end + 1)).isdisjoint(file["added"])
            ]
            for files in wanted
        ]

    def _places(self, heads: Iterable[bytes]) -> dict[str, _Places]:
        """What it says of each file, by `_name` of the content."""
        found: dict[str, _Places] = {}
        new: dict[str, bytes] = {}
        for head in heads:
            name = _name(head)
            kept = self._cache.get(self._key(name))
            if kept is None:
                new[name] = head
            else:
                found[name] = kept
        names = sorted(new)
        for start in range(0, len(names), _FILES_AT_ONCE):
            some = names[start : start + _FILES_AT_ONCE]
            with tempfile.TemporaryDirectory() as folder:
                for name in some:
                    (Path(folder) / f"{name}.py").write_bytes(new[name])
                said = self._torchfix(folder) if self._name == "torchfix" else self._ruff(folder)
            for name in some:
                found[name] = said.get(name, [])
                self._cache.put(self._key(name), found[name])
        return found

    def _key(self, name: str) -> Sequence[str]:
        return self._name, self.version, RULES[self._name], name

    def _torchfix(self, folder: str) -> dict[str, _Places]:
        output = self._run("--select", RULES["torchfix"], "-j", str(self._jobs), folder)
        said: dict[str, _Places] = {}
        for path, line, code in _TORCHFIX_LINE.findall(output):
            said.setdefault(Path(path).stem, []).append((int(line), int(line), code))
        return said

    def _ruff(self, folder: str) -> dict[str, _Places]:
        output = self._run(
            "check", "--isolated", "--no-cache", "--exit-zero", "--select", RULES["ruff"],
            "--output-format", "json", folder,
        )  # fmt: skip
        said: dict[str, _Places] = {}
        for report in json.loads(output):
            if str(report["code"]).startswith(RULES["ruff"]):  # not: a syntax error
                place = (report["location"]["row"], report["end_location"]["row"], report["code"])
                said.setdefault(Path(report["filename"]).stem, []).append(place)
        return said

    def _run(self, *arguments: str) -> str:
        done = subprocess.run(
            [self._path, *arguments], capture_output=True, encoding="utf-8", errors="replace"
        )
        # TorchFix exits with 1 when it cannot read a file, too, and goes on with the others.
        if done.returncode and "Finished checking" not in done.stderr:
            raise ToolError(f"{self._name} failed: {done.stderr.strip()[-500:]}")
        return done.stdout


def _name(head: bytes) -> str:
    return sha256(head).hexdigest()
