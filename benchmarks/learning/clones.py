"""A real git repository with one file, and what happens to a branch of it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

PATH = "train.py"
_ENVIRONMENT = {
    "PATH": os.environ.get("PATH", ""),
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_EDITOR": "true",
    "LC_ALL": "C.UTF-8",
    **{
        f"GIT_{role}_{name}": value
        for role in ("AUTHOR", "COMMITTER")
        for name, value in (("NAME", "dev"), ("EMAIL", "dev@example.org"), ("DATE", "1790000000 +0000"))
    },
}


class Clone:
    """`main`, and the branch `change` once it is made."""

    def __init__(self, folder: Path, base: str) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self.git("init", "-q", "-b", "main")
        self.commit(base)

    def git(self, *arguments: str, check: bool = True) -> str:
        done = subprocess.run(
            ["git", *arguments],
            cwd=self.folder,
            env=_ENVIRONMENT,
            capture_output=True,
            text=True,
            check=False,
        )
        if check and done.returncode:
            raise RuntimeError(f"git {arguments[0]}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout if check else str(done.returncode)

    def commit(self, text: str) -> None:
        """On the branch that is checked out; the text may be what it was."""
        (self.folder / PATH).write_text(text)
        self.git("add", PATH)
        self.git("commit", "-q", "--allow-empty", "-m", "A change")

    def branch(self, text: str) -> None:
        self.git("checkout", "-q", "-b", "change")
        self.commit(text)

    def text(self, revision: str = "HEAD") -> str:
        return self.git("show", f"{revision}:{PATH}")

    def rebase(self, base: str) -> bool:
        """Commits to main, and puts the branch on top of it; nothing is changed where that conflicts."""
        self.git("checkout", "-q", "main")
        self.commit(base)
        self.git("checkout", "-q", "change")
        if self.git("rebase", "-q", "main", check=False) == "0":
            return True
        self.git("rebase", "--abort")
        self.git("branch", "-q", "-f", "main", "main~1")
        return False

    def replace(self, text: str) -> None:
        """A force-push: all commits of the branch become one."""
        self.git("reset", "-q", "--soft", "main")
        self.commit(text)

    def revert(self, revision: str = "HEAD") -> None:
        self.git(
            "revert", "--no-commit", revision
        )  # of a commit that changed nothing there is nothing left to commit
        self.git("commit", "-q", "--allow-empty", "-m", "Revert")

    def merge(self, *, squash: bool) -> str:
        """The file on main afterwards."""
        self.git("checkout", "-q", "main")
        self.git("merge", "-q", *(["--squash"] if squash else ["--no-ff", "-m", "Merge"]), "change")
        if squash:
            self.git("commit", "-q", "--allow-empty", "-m", "Squashed")
        return self.text("main")
