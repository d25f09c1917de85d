"""A real git repository, and what of a change is compared."""

from __future__ import annotations

import subprocess
from pathlib import Path

from ptopt.change import Change


class Repository:
    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)
        self.git("init", "-q", "-b", "main")

    def git(self, *arguments: str) -> bytes:
        done = subprocess.run(["git", *arguments], cwd=self.root, capture_output=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def write(self, files: dict[str, bytes]) -> None:
        for name, content in files.items():
            place = self.root / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)

    def commit(self, files: dict[str, bytes] | None = None) -> None:
        self.write(files or {})
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "x", "--allow-empty")


def added(change: Change) -> dict[str, list[int]]:
    return {file.path: sorted(file.added) for file in change.files}


def reasons(change: Change) -> dict[str, str]:
    return {item.path: item.reason for item in change.not_reviewed}
