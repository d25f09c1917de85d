"""A bare git repository and what the fake GitHub asks of it. Answers are cached by SHA: they never change.

All repositories of a fork network share one object store, as on GitHub: the base repository sees the commits of
its forks. Refs are kept in memory and written through to files for `git upload-pack`.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from fake_github.diffs import FileDiff, parse_diff

_ENVIRONMENT = {
    "PATH": os.environ.get("PATH", ""),
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C.UTF-8",
}
_REF = re.compile(r"refs/(?!.*(?:\.\.|//|@\{|\.lock(?:/|$)))[^\x00-\x20~^:?*\[\\\x7f]+(?<![./])")


class GitError(Exception):
    """git refused; the text is what it wrote to stderr."""


@dataclass(frozen=True)
class Person:
    name: str
    email: str
    date: int  # seconds since 1970, UTC


@dataclass(frozen=True)
class Commit:
    sha: str
    tree: str
    parents: tuple[str, ...]
    author: Person
    committer: Person
    message: str


@dataclass
class Objects:
    """What we know of an object store without asking git."""

    blobs: dict[str, bytes]
    files: dict[str, dict[str, tuple[str, str]]]  # commit or tree -> path -> (mode, blob)
    commits: dict[str, Commit]
    diffs: dict[tuple[str, str, bool], tuple[FileDiff, ...]]
    merge_bases: dict[tuple[str, str], str | None]
    logs: dict[tuple[str, str], list[str]]


def blob_sha(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


class Git:
    """A bare repository at `folder`; with `parent`, one that shares the parent's objects."""

    def __init__(self, folder: Path, parent: Git | None = None) -> None:
        self.folder = folder
        self.refs: dict[str, str] = {}
        self.objects: Objects = parent.objects if parent else Objects({}, {}, {}, {}, {}, {})
        for name in ("refs/heads", "refs/tags", "objects/info", "objects/pack"):
            if not (parent and name.startswith("objects")):
                (folder / name).mkdir(parents=True)
        if parent:
            (folder / "objects").symlink_to(parent.folder / "objects", target_is_directory=True)
        (folder / "HEAD").write_text("ref: refs/heads/main\n")
        (folder / "config").write_text(
            "[core]\n\trepositoryformatversion = 0\n\tbare = true\n\tquotepath = off\n"
            "[uploadpack]\n\tallowAnySHA1InWant = true\n\tallowFilter = true\n[gc]\n\tauto = 0\n"
        )

    def run(self, *arguments: str, stdin: bytes = b"", environment: Mapping[str, str] | None = None) -> bytes:
        done = subprocess.run(
            ["git", "--git-dir", str(self.folder), *arguments],
            input=stdin,
            capture_output=True,
            env={**_ENVIRONMENT, **(environment or {})},
        )
        if done.returncode:
            raise GitError(done.stderr.decode("utf-8", "replace").strip() or f"git {arguments[0]} failed")
        return done.stdout

    def set_ref(self, ref: str, sha: str) -> None:
        if not _REF.fullmatch(ref):
            raise GitError(f"{ref!r} is not a valid ref name.")
        path = self.folder / ref
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(path.name + ".lock")
        new.write_text(sha + "\n")
        new.replace(path)
        self.refs[ref] = sha

    def delete_ref(self, ref: str) -> None:
        del self.refs[ref]
        (self.folder / ref).unlink(missing_ok=True)

    def resolve(self, name: str) -> str | None:
        """The commit of a branch, a tag, a full ref or a (possibly short) SHA."""
        for ref in (name, f"refs/heads/{name}", f"refs/tags/{name}", f"refs/{name}"):
            if ref in self.refs:
                return self.refs[ref]
        if not re.fullmatch(r"[0-9a-f]{7,40}", name):
            return None
        if name in self.objects.files:
            return name
        try:
            return self.run("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}").decode().strip()
        except GitError:
            return None

    def commit(
        self,
        ref: str,
        parent: str | None,
        files: Mapping[str, bytes | None],
        message: str,
        author: Person,
        committer: Person | None = None,
    ) -> str:
        """Commits `files` (None deletes) on top of `parent` and moves `ref` there."""
        committer = committer or author
        out = [b"commit refs/fake-github/new\nmark :1\n"]
        for role, person in ((b"author", author), (b"committer", committer)):
            out.append(
                b"%s %s <%s> %d +0000\n" % (role, person.name.encode(), person.email.encode(), person.date)
            )
        text = message.encode()
        out.append(b"data %d\n%s\n" % (len(text), text))
        if parent:
            out.append(b"from %s\n" % parent.encode())
        tree = dict(self.files(parent)) if parent else {}
        for path, data in files.items():
            quoted = _quote(path)
            if data is None:
                out.append(b"D %s\n" % quoted)
                tree.pop(path, None)
            else:
                mode = tree.get(path, ("100644", ""))[0]
                out.append(b"M %s inline %s\ndata %d\n%s\n" % (mode.encode(), quoted, len(data), data))
                sha = blob_sha(data)
                tree[path] = (mode, sha)
                self.objects.blobs[sha] = data
        out.append(b"\nget-mark :1\n")
        sha = self.run("fast-import", "--quiet", "--force", stdin=b"".join(out)).decode().strip()
        self.objects.files[sha] = tree
        self.set_ref(ref, sha)
        return sha

    def files(self, treeish: str) -> dict[str, tuple[str, str]]:
        """Path -> (mode, object SHA) of every file below a commit or tree."""
        known = self.objects.files.get(treeish)
        if known is None:
            known = {}
            for entry in self.run("ls-tree", "-r", "-z", "--full-tree", treeish).split(b"\0")[:-1]:
                head, path = entry.split(b"\t", 1)
                mode, _, sha = head.decode().split()
                known[path.decode("utf-8", "replace")] = (mode, sha)
            self.objects.files[treeish] = known
        return known

    def blob(self, sha: str) -> bytes | None:
        data = self.objects.blobs.get(sha)
        if data is None and re.fullmatch(r"[0-9a-f]{40}", sha):
            try:
                data = self.objects.blobs[sha] = self.run("cat-file", "blob", sha)
            except GitError:
                return None
        return data

    def kind(self, sha: str) -> str | None:
        """What git calls the object: blob, tree, commit or tag; None when there is none."""
        if sha in self.objects.blobs:
            return "blob"
        if not re.fullmatch(r"[0-9a-f]{40}", sha):
            return None
        try:
            return self.run("cat-file", "-t", sha).decode().strip()
        except GitError:
            return None

    def add_blob(self, data: bytes) -> str:
        sha = self.run("hash-object", "-w", "--stdin", stdin=data).decode().strip()
        self.objects.blobs[sha] = data
        return sha

    def add_tree(self, base: str | None, entries: list[tuple[str, str, str | None]]) -> str:
        """A tree of `base` with (mode, path, object SHA or None to delete) put in."""
        environment = {"GIT_INDEX_FILE": str(self.folder / f"index-{time.monotonic_ns()}")}
        try:
            self.run("read-tree", *([base] if base else ["--empty"]), environment=environment)
            lines = [
                f"{mode if sha else '0'} {sha or '0' * 40}\t{path}\0".encode() for mode, path, sha in entries
            ]
            self.run("update-index", "-z", "--index-info", stdin=b"".join(lines), environment=environment)
            return self.run("write-tree", environment=environment).decode().strip()
        finally:
            Path(environment["GIT_INDEX_FILE"]).unlink(missing_ok=True)

    def add_commit(
        self, tree: str, parents: list[str], message: str, author: Person, committer: Person
    ) -> str:
        environment = {}
        for role, person in (("AUTHOR", author), ("COMMITTER", committer)):
            environment[f"GIT_{role}_NAME"] = person.name
            environment[f"GIT_{role}_EMAIL"] = person.email
            environment[f"GIT_{role}_DATE"] = f"{person.date} +0000"
        flags = [flag for parent in parents for flag in ("-p", parent)]
        made = self.run("commit-tree", tree, *flags, stdin=message.encode(), environment=environment)
        return made.decode().strip()

    def read_commit(self, sha: str) -> Commit:
        known = self.objects.commits.get(sha)
        if known is None:
            head, message = self.run("cat-file", "commit", sha).decode("utf-8", "replace").split("\n\n", 1)
            fields = [line.split(" ", 1) for line in head.split("\n")]
            people = {role: _person(text) for role, text in fields if role in ("author", "committer")}
            known = Commit(
                sha=sha,
                tree=next(text for role, text in fields if role == "tree"),
                parents=tuple(text for role, text in fields if role == "parent"),
                author=people["author"],
                committer=people["committer"],
                message=message.removesuffix("\n"),
            )
            self.objects.commits[sha] = known
        return known

    def merge_base(self, one: str, two: str) -> str | None:
        key = (one, two)
        if key not in self.objects.merge_bases:
            try:
                found = self.run("merge-base", one, two).decode().strip()
            except GitError:
                found = None
            self.objects.merge_bases[key] = found
        return self.objects.merge_bases[key]

    def diff(self, base: str, head: str, *, context: bool = True) -> tuple[FileDiff, ...]:
        """The files that differ, with their hunks; without context lines when `context` is off."""
        key = (base, head, context)
        if key not in self.objects.diffs:
            flags = [
                "-r",
                "-M",
                "-z",
                "--raw",
                "-p",
                "--full-index",
                "--no-color",
                f"-U{3 if context else 0}",
            ]
            self.objects.diffs[key] = parse_diff(self.run("diff-tree", *flags, base, head))
        return self.objects.diffs[key]

    def raw_diff(self, base: str, head: str) -> bytes:
        return self.run("diff-tree", "-r", "-M", "-p", "--no-color", base, head)

    def log(self, base: str, head: str) -> list[str]:
        """Commits of `head` that `base` lacks, oldest first."""
        key = (base, head)
        if key not in self.objects.logs:
            found = self.run("rev-list", "--reverse", "--topo-order", f"{base}..{head}")
            self.objects.logs[key] = found.decode().split()
        return self.objects.logs[key]

    def is_ancestor(self, old: str, new: str) -> bool:
        return self.merge_base(old, new) == old

    @cached_property
    def upload_pack(self) -> tuple[list[str], dict[str, str]]:
        """Command (without its last flags) and environment that serve a fetch."""
        return ["git", "upload-pack", "--stateless-rpc"], _ENVIRONMENT


def _quote(path: str) -> bytes:
    if not path.startswith('"') and "\n" not in path:
        return path.encode()
    escaped = path.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'.encode()


def _person(text: str) -> Person:
    match = re.fullmatch(r"(.*) <(.*)> (\d+) [+-]\d+", text)
    assert match, text
    return Person(match[1], match[2], int(match[3]))
