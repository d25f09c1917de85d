"""Tiny git clones for the tests of the benchmarks."""

from __future__ import annotations

import subprocess
from pathlib import Path

SLOW = """import torch


def train(model, loader, optimizer, device):
    total = 0.0
    for x in loader:
        loss = model(x.to(device)).loss
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total
"""


class Repository:
    """A repository whose commits each write one file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True)
        self.git("init", "-q", "-b", "main")

    def git(self, *arguments: str) -> str:
        who = ("-c", "user.name=T", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false")
        done = subprocess.run(
            ["git", *who, *arguments], cwd=self.path, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    def commit(self, message: str, text: str, path: str = "train.py") -> str:
        return self.commit_files(message, {path: text})

    def commit_files(self, message: str, files: dict[str, str]) -> str:
        for path, text in files.items():
            file = self.path / path
            file.parent.mkdir(exist_ok=True, parents=True)
            file.write_text(text)
        self.git("add", "-A")
        self.git("commit", "-q", "-m", message)
        return self.git("rev-parse", "HEAD")

    def lose(self, name: str) -> None:
        """Take an object out, as in a clone that was not fetched whole."""
        blob = self.git("rev-parse", name)
        (self.path / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
