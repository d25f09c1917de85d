"""Head files by path, from a folder or from a commit."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from ptopt.change import Change
from ptopt.inputs.git import GIT, CheckoutError, environment

MAX_FILE = 5_000_000  # bytes of a file under review
MAX_PROJECT_FILE = 1_000_000  # bytes of a requirements file and the like


def together_too_large(limit: int) -> str:
    """Why a file is not read when `limit` bytes of files are read already, or would be."""
    return f"the files of the change are too large together, the limit is {limit / 1e6:g} MB"


class _Heads:
    """Head files by path. Remembers why it did not give one."""

    def __init__(self, limit: int = MAX_FILE) -> None:
        self.limit = limit
        self.reasons: dict[str, str] = {}

    def refuse(self, path: str, reason: str) -> bytes | None:
        self.reasons[path] = reason
        return None

    def explain(self, change: Change) -> Change:
        not_reviewed = (
            replace(item, reason=self.reasons.get(item.path, item.reason)) for item in change.not_reviewed
        )
        return replace(change, not_reviewed=tuple(not_reviewed))

    def too_large(self, size: int) -> str:
        return f"too large: {size / 1e6:.1f} MB, the limit is {self.limit / 1e6:g} MB"


class Tree(_Heads):
    """Files of a folder. Links that lead out of it are not followed; links themselves are not read."""

    def __init__(self, root: str | Path, limit: int = MAX_FILE) -> None:
        super().__init__(limit)
        self.root = os.path.realpath(root)
        self._inside: dict[str, bool] = {}

    def __call__(self, path: str) -> bytes | None:
        try:
            place = os.path.join(self.root, path)
            if not self._holds(os.path.dirname(place)):
                return self.refuse(path, "a link in its path leads out of the tree")
            found = os.lstat(place)
            if stat.S_ISLNK(found.st_mode):
                return self.refuse(path, "a symbolic link, not a file")
            if not stat.S_ISREG(found.st_mode):
                return self.refuse(path, "not a regular file")
            if found.st_size > self.limit:
                return self.refuse(path, self.too_large(found.st_size))
            with open(place, "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            return self.refuse(path, f"cannot be read: {getattr(error, 'strerror', None) or error}")

    def _holds(self, folder: str) -> bool:
        """Does the folder lie in the tree, links followed? Remembered: most files have their folder in common."""
        if folder not in self._inside:
            self._inside[folder] = Path(os.path.realpath(folder)).is_relative_to(self.root)
        return self._inside[folder]


class Blobs(_Heads):
    """Files of a commit, through one `git cat-file` for all."""

    def __init__(
        self,
        root: Path,
        commit: str,
        most: int = sys.maxsize,
        variables: Mapping[str, str] | None = None,
        limit: int = MAX_FILE,
    ) -> None:
        super().__init__(limit)
        self._left = self._most = most  # bytes of all of them together
        self._commit = commit.encode()
        self._process = subprocess.Popen(
            [*GIT, "cat-file", "--batch"],
            cwd=root,
            env=environment() if variables is None else variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def __enter__(self) -> Blobs:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def __call__(self, path: str) -> bytes | None:
        requests, answers = self._process.stdin, self._process.stdout
        if requests is None or answers is None:
            raise CheckoutError("git cat-file was started without pipes")
        if "\n" in path:
            return self.refuse(path, "a line break in the file name")
        try:
            requests.write(b"%s:%s\n" % (self._commit, os.fsencode(path)))
            requests.flush()
            line = answers.readline()
        except OSError:
            line = b""
        if not line:
            raise CheckoutError("git cat-file ended early; check the repository with `git fsck`")
        answer = line.split()
        if len(answer) != 3 or answer[1] not in (b"blob", b"tree", b"commit", b"tag"):
            return None
        size = int(answer[2])
        reason = self._refusal(answer[1], size)
        if reason:
            left = size + 1
            while left and (chunk := answers.read(min(left, 1 << 20))):
                left -= len(chunk)
            return self.refuse(path, reason)
        self._left -= size
        content = answers.read(size)
        answers.read(1)
        return content

    def _refusal(self, kind: bytes, size: int) -> str:
        if kind != b"blob":
            return "not a regular file"
        if size > self.limit:
            return self.too_large(size)
        return "" if size <= self._left else together_too_large(self._most)
