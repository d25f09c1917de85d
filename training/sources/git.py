"""Local git clones, read only: their commits, their files, their licence. Nothing of a clone is checked out or run."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from training.sources.base import SourceError, clean

_GIT = (
    "git",
    "--no-pager",
    *("-c", "core.quotepath=on", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"),
    *("-c", "protocol.allow=never", "-c", "safe.directory=*", "-c", "diff.external="),
)
_LICENCE_FILE = re.compile(r"(?:un)?licen[cs]e(?:[-_.][\w.\-]+)?|copying(?:\.[\w]+)?", re.I)
_REMOTE = re.compile(r"^(?:https?://|ssh://|git@)(?:[^@/]+@)?([\w.\-]+)[:/]([\w.\-]+/[\w.\-]+?)(?:\.git)?/?$")
_RAW = re.compile(r":100(?:644|755) 100(?:644|755) ([0-9a-f]{40,64}) ([0-9a-f]{40,64}) M\t([^\"\n]+\.py)")


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit and the Python files that it modified, as (path, blob before, blob after).

    `parent` is empty for a root commit, `date` the committer's day.
    """

    sha: str
    parent: str
    date: str
    message: str
    files: tuple[tuple[str, str, str], ...]


class Clone:
    """A repository on this machine, bare or not. Raises SourceError when `path` is none."""

    def __init__(self, path: Path, max_file: int = 1_000_000) -> None:
        self.path = path
        self._max_file = max_file
        self._blobs: subprocess.Popen[bytes] | None = None
        if not path.is_dir():
            raise SourceError(f"{path}: no such folder; give the folder of a git clone")
        self._head = self._run("rev-parse", "--verify", "--quiet", "HEAD^{commit}").strip()

    def __enter__(self) -> Clone:
        return self

    def __exit__(self, *_: object) -> None:
        if self._blobs is not None:
            self._blobs.kill()
            self._blobs.communicate()
            self._blobs = None

    @property
    def head(self) -> str:
        """The commit of HEAD."""
        return self._head

    def project(self) -> tuple[str, str]:
        """Name ("owner/name" where there is a remote that tells, else the folder's), and web address or ""."""
        remote = self._run("config", "--get", "remote.origin.url", may_fail=True).strip()
        match = _REMOTE.match(remote)
        if match:
            return match[2], f"https://{match[1]}/{match[2]}"
        folder = self.path.resolve()
        return (folder.parent if folder.name == ".git" else folder).name.removesuffix(".git"), ""

    def licence(self) -> str | None:
        """SPDX expression of the licence files at the top of HEAD; None unless every one of them is known."""
        from training.dataset import licences  # needs `.[training-data]`, which reading of commits does not

        names = self._run("ls-tree", "--name-only", self._head).split("\n")
        found = []
        for name in names:
            if _LICENCE_FILE.fullmatch(name):
                text = self.blob(f"{self._head}:{name}")
                found.append(licences.of_text(text.decode("utf-8", "replace")) if text is not None else None)
        if not found or None in found:
            return None
        return licences.together(licence for licence in found if licence)

    def commits(self, after: str | None = None) -> list[str]:
        """Commits without merges, parents first; with `after`, only those that it does not contain."""
        bounds = [self._head, f"^{after}"] if after else [self._head]
        known = after is None or self._run("cat-file", "-t", after, may_fail=True).strip() == "commit"
        return self._run(
            "rev-list", "--no-merges", "--topo-order", "--reverse", *(bounds if known else bounds[:1])
        ).split()

    def read(self, shas: Sequence[str]) -> Iterator[Commit]:
        """The commits, in this order; root commits have no files."""
        output = self._run(
            *(
                "log",
                "--no-walk=unsorted",
                "--stdin",
                "--raw",
                "--no-abbrev",
                "--no-renames",
                "--no-ext-diff",
            ),
            "--format=%x00%H%x00%P%x00%cs%x00%B%x00",
            stdin="".join(f"{sha}\n" for sha in shas),
        )
        parts = output.split("\0")[1:]
        for sha, parent, date, message, raw in zip(*(parts[i::5] for i in range(5)), strict=True):
            files = tuple((m[3], m[1], m[2]) for m in map(_RAW.match, raw.split("\n")) if m)
            yield Commit(sha, parent, date, clean(message, 10_000).strip(), files)

    def files(self, commit: str) -> list[tuple[str, str]] | None:
        """Path and blob of each file of a commit, links and submodules left out; None when it is not here."""
        listed = self._run(
            "ls-tree", "-r", "-z", "--full-tree", "--end-of-options", f"{commit}^{{commit}}", may_fail=True
        )
        entries = (entry.partition("\t") for entry in listed.split("\0"))
        return [
            (path, what.split()[2]) for what, _, path in entries if what.startswith(("100644 ", "100755 "))
        ] or None

    def changed(self, old: str, new: str) -> list[tuple[str, str, str]]:
        """Path, blob before and blob after of each file that differs; "" for a blob that is not there."""
        listed = self._output(
            "diff-tree", "-r", "-z", "--raw", "--no-abbrev", "--no-renames", "--end-of-options", old, new
        )
        parts = iter(os.fsdecode(listed).split("\0"))
        files = []
        for what in parts:
            if what:
                path, (_, _, before, after, _) = next(parts), what.split()
                files.append((path, before.strip("0") and before, after.strip("0") and after))
        return files

    def diff(self, old: str, new: str, paths: Sequence[str], *, renames: bool = False) -> bytes:
        """The unified diff of these paths, with three lines around each change."""
        return self._output(
            "diff", "--no-color", "--no-ext-diff", "--no-textconv", "-U3", "-M" if renames else "--no-renames",
            "--src-prefix=a/", "--dst-prefix=b/", "--end-of-options", old, new, "--",
            *(f":(top,literal){path}" for path in paths),
        )  # fmt: skip

    def blob(self, name: str) -> bytes | None:
        """A file by blob or `commit:path`; None when it is missing here, too large, or no file."""
        if self._blobs is None:
            self._blobs = subprocess.Popen(
                [*_GIT, "cat-file", "--batch"],
                cwd=self.path,
                env=_environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        requests, answers = self._blobs.stdin, self._blobs.stdout
        assert requests is not None and answers is not None  # noqa: S101 (they are pipes)
        try:
            requests.write(os.fsencode(name) + b"\n")
            requests.flush()
            answer = answers.readline().split()
        except OSError:
            answer = []
        if not answer:
            raise SourceError(f"{self.path}: git cat-file ended early; check the clone with `git fsck`")
        if len(answer) != 3 or not answer[2].isdigit():
            return None
        size = int(answer[2])
        if answer[1] != b"blob" or size > self._max_file:
            left = size + 1
            while left and (chunk := answers.read(min(left, 1 << 20))):
                left -= len(chunk)
            return None
        content = answers.read(size)
        answers.read(1)
        return content

    def _run(self, *arguments: str, stdin: str = "", may_fail: bool = False) -> str:
        return self._output(*arguments, stdin=stdin, may_fail=may_fail).decode("utf-8", "replace")

    def _output(self, *arguments: str, stdin: str = "", may_fail: bool = False) -> bytes:
        try:
            done = subprocess.run(
                [*_GIT, *arguments],
                cwd=self.path,
                env=_environment(),
                input=stdin.encode(),
                capture_output=True,
            )
        except FileNotFoundError:
            raise SourceError("git is not installed, or not on PATH") from None
        if done.returncode and not may_fail:
            why = done.stderr.decode("utf-8", "replace").strip()[-300:] or "not a git repository with commits"
            raise SourceError(f"{self.path}: git {arguments[0]} failed: {why}")
        return done.stdout


def clone_of(repository: str, clones: Path) -> Path | None:
    """The clone of "OWNER/NAME" below `clones`: OWNER/NAME, OWNER+NAME or OWNER+NAME/repo, bare ones with or without ".git"."""
    joined = repository.replace("/", "+")
    names = (repository, f"{repository}.git", f"{joined}/repo", f"{joined}/repo.git", joined, f"{joined}.git")
    # Only a folder that is a repository itself: git would search the folders above.
    return next(
        (at for n in names if ((at := clones / n) / ".git").exists() or (at / "HEAD").is_file()), None
    )


def _environment() -> dict[str, str]:
    """Nothing that a user or a clone configures may run a program, ask for a password, or fetch."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return kept | {
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "LC_ALL": "C",
    }
