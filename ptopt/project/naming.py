"""Is a configuration in use? It is where something else in the repository names it: a script, a page, a workflow, another file."""

from __future__ import annotations

import dataclasses
import re
from collections import ChainMap
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from ptopt.pathkind import folder_steps

MOST_BYTES = 200_000  # of one file
_SUFFIXES = (
    ".md", ".rst", ".sh", ".bash", ".slurm", ".sbatch", ".py", ".ipynb", ".yaml", ".yml", ".json", ".toml", ".cfg", ".mk", ".hcl",
)  # fmt: skip
_NAMES = re.compile(
    r"(?:gnu)?makefile|justfile|jenkinsfile|taskfile|procfile|(?:.*[.-])?(?:docker|container)file.*"
)
# Lists of what there is or was: no use of it.
_LISTS = re.compile(
    r"(?:changelog|changes|history|news|release|labeler|codeowners|dependabot|package-lock)", re.I
)
_ARCHIVE = frozenset("archive archived legacy deprecated obsolete attic old unmaintained".split())
_OUTDATED = re.compile(
    rb"\b(?:outdated|obsolete|deprecated|unmaintained|no longer (?:used|maintained|supported|updated))\b",
    re.I,
)
_HEADER = 400  # bytes of a file in which its comment says so
_ROOT_CONVENTION = re.compile(r"(?:Dockerfile|Containerfile|(?:docker-)?compose(?:\.[\w-]+)?\.ya?ml)$")
_ENDED = re.compile(
    r"no longer (?:being )?(?:actively )?(?:maintained|developed|supported|updated|under development)"
    r"|not (?:being )?(?:actively )?maintained|(?:is|been|was) (?:now )?(?:archived|deprecated|discontinued|unmaintained|sunset)",
    re.I,
)
_ITSELF = r"repo|repository|project|codebase|library|package"
_README = 4_000  # characters in which a README says such things
_HOLE = r"\$\{\{[^{}\n]{1,80}\}\}|\$\{[^{}\n]{1,60}\}|\$\w{1,40}|\{[\w.\[\]\"']{0,40}\}|<\w{1,40}>|\*{1,2}"
_MOST_PLACES, _REACH = 500, 160  # of one word in one text; bytes before and behind it
_WORD = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"
_IN_PATH = frozenset(bytes([c]) for c in _WORD + b"/$*<>")
_PATH = _WORD + b"/${}"
_GOES_ON = re.compile(rb"[\w-]|\.\w")
_BUILDS = tuple(b"docker podman buildx kaniko kubectl kustomize context: build: path:".split())
_BY_FOLDER = b"(?:" + b"|".join(_BUILDS) + rb")[^\n]{0,300}?"


def may_name(path: str) -> bool:
    """May the file at `path` name a configuration that it uses?"""
    name = path.rpartition("/")[2].lower()
    if _is_archived(path):
        return False
    return (name.endswith(_SUFFIXES) or _NAMES.fullmatch(name) is not None) and _LISTS.match(name) is None


def namers(paths: Iterable[str], changed: Collection[str], most: int) -> tuple[list[str], bool]:
    """At most `most` files that may name the changed configurations, the likeliest first; and whether these are all."""
    ranked = sorted(
        (
            min(
                (_steps(path, other) for other in changed),
                default=99,
            )
            - _likely(path),
            path,
        )
        for path in paths
        if may_name(path) and path not in changed
    )
    return [path for _, path in ranked[:most]], len(ranked) <= most


def _is_archived(path: str) -> bool:
    folders = path.lower().split("/")[:-1]
    return any(not _ARCHIVE.isdisjoint(re.split(r"[-_. ]", folder)) for folder in folders)


def _likely(path: str) -> float:
    """Pages, scripts and workflows name configurations more often than code does."""
    name = path.rpartition("/")[2].lower()
    if name.startswith(("readme", "makefile")) or path.startswith(".github/workflows/"):
        return 2.5
    return 1.5 if name.endswith((".sh", ".bash", ".md", ".mk")) else 0.0


def _steps(path: str, other: str) -> int:
    return folder_steps(path.rpartition("/")[0], other.rpartition("/")[0])


@dataclass(frozen=True)
class Naming:
    """Texts of a repository that may name its configurations, by path. `whole`: none that may is missing.

    `files` may read them when it is first asked; `more` are of a change, and go before these.
    """

    files: Mapping[str, bytes] = field(default_factory=dict)
    whole: bool | None = False  # None: `files` knows, as its `whole`
    more: Mapping[str, bytes] = field(default_factory=dict)

    def with_texts(self, more: Mapping[str, bytes]) -> Naming:
        """With further texts, which go before those of the same path."""
        added = {path: data for path, data in more.items() if may_name(path) and len(data) <= MOST_BYTES}
        return dataclasses.replace(self, more=added)

    def used(self, path: str, head: bytes = b"") -> bool | None:
        """Does anything use the configuration at `path`? None where that is not known."""
        *folders, name = path.split("/")
        if _is_archived(path) or _says_outdated(head) or self.abandoned:
            return False
        if path.startswith(".github/workflows/") or (not folders and _ROOT_CONVENTION.match(name)):
            return True  # by GitHub, and by `docker build` where it is called without a name
        if any(self._names(text, data, path) for text, data in self._texts.items() if text != path):
            return True
        return False if self._is_whole else None

    @property
    def _texts(self) -> Mapping[str, bytes]:
        return ChainMap(self.more, self.files) if self.more else self.files  # type: ignore[arg-type]

    @property
    def _is_whole(self) -> bool:
        return bool(getattr(self.files, "whole", False)) if self.whole is None else self.whole

    @cached_property
    def abandoned(self) -> bool:
        """Does the README say that the project has ended?"""
        name = next((n for n in ("README.md", "README.rst", "readme.md", "README") if n in self._texts), None)
        if name is None:
            return False
        text = self._texts[name][: 4 * _README].decode("utf-8", "replace")[:_README]
        title = re.search(r"^\s*#\s+\W*(\w[\w-]+)", text, re.M)
        about = re.compile(rf"\b(?:{_ITSELF}{'|' + re.escape(title[1]) if title else ''})\b", re.I)
        return any(
            _ENDED.search(sentence) and about.search(sentence)
            for sentence in re.split(r"(?<=[.!?])\s|\n\s*\n", text)
        )

    @cached_property
    def _by_name(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for path in self._texts:
            found.setdefault(path.rpartition("/")[2], []).append(path)
        return found

    def _names(self, text: str, data: bytes, path: str) -> bool:
        """Does the file at `text` name the one at `path`?"""
        folder, _, name = path.rpartition("/")
        stem = name.rpartition(".")[0] if name.endswith((".yaml", ".yml", ".json")) else ""
        parent = folder.rpartition("/")[2]
        if (stem or name).encode() in data:
            if self._by_path(text, data, path, name, parent):
                return True
            if stem and _by_stem(data, stem, parent, text.rpartition("/")[0] == folder):
                return True
        by_folder = bool(parent) and _may_be_built(name)
        if by_folder and (
            _is_linked(data, folder) or _as_folder(self._builds_in(text, data), folder, parent)
        ):
            return True
        suffix = name[name.rfind(".") :].encode() if stem else b"ockerfile"
        return any(_fits(found, path) for found in self._templates_of(text, data, suffix))

    # What is asked of the same text about each configuration is looked for once.

    def _templates_of(self, text: str, data: bytes, suffix: bytes) -> list[str]:
        if (text, suffix) not in self._templates:
            self._templates[text, suffix] = list(_templates(data, suffix))
        return self._templates[text, suffix]

    def _builds_in(self, text: str, data: bytes) -> list[bytes]:
        if text not in self._builds:
            self._builds[text] = _building_lines(data)
        return self._builds[text]

    @cached_property
    def _templates(self) -> dict[tuple[str, bytes], list[str]]:
        return {}

    @cached_property
    def _builds(self) -> dict[str, list[bytes]]:
        return {}

    def _by_path(self, text: str, data: bytes, path: str, name: str, parent: str) -> bool:
        word, at = name.encode(), -1
        for _ in range(_MOST_PLACES):
            at = data.find(word, at + 1)
            if at < 0:
                return False
            near = data[max(at - _REACH, 0) : at]
            before = near[len(near.rstrip(_PATH)) :].decode("utf-8", "replace")
            if before and not before.endswith("/") or _GOES_ON.match(data, at + len(word)):
                continue  # part of a longer name
            literal = before.split("/")[-2] if "/" in before else ""
            if literal in ("", ".", "..") or not re.fullmatch(r"[\w.-]+", literal):
                if self._is_nearest(text, path, name):
                    return True
            elif literal == parent:
                return True
        return False

    def _is_nearest(self, text: str, path: str, name: str) -> bool:
        """Of the files of this name, is this one as near to the text as any?"""
        own = _steps(text, path)
        return all(_steps(text, other) >= own for other in self._by_name.get(name, ()) if other != text)


NO_NAMING = Naming()


def _says_outdated(head: bytes) -> bool:
    """Does a comment at the start of the file say that it is outdated?"""
    lines = [line for line in head[:_HEADER].split(b"\n")[:6] if line.lstrip().startswith(b"#")]
    return any(_OUTDATED.search(line) for line in lines)


def _by_stem(data: bytes, stem: str, parent: str, same_folder: bool) -> bool:
    """Is it named without its suffix, as Hydra and recipes do?

    `trainer=gpu`, `- trainer: gpu`, `config_name="train"`, `llama3/8B_lora`; `- base` in the defaults of a neighbour.
    """
    word = re.escape(stem.encode())
    end = rb"(?![\w-]|\.\w)"
    ways = [
        rb"config[_-]name[\"']?[ \t]{0,4}[=: ][ \t]{0,4}[\"']?(?:[\w-]{1,60}/)?" + word + end,
        rb"\bcompose\(\s{0,20}[\"']" + word + end,
    ]
    if parent:
        group = re.escape(parent.encode())
        ways += [
            rb"(?<![\w-])" + group + rb"(?:@[\w.]{1,60})?[\"']?[ \t]{0,4}[=:][ \t]{0,4}[\"']?" + word + end,
            rb"(?<![\w-])" + group + rb"/" + word + end,
        ]
    if same_folder and b"defaults:" in data:
        ways.append(rb"^[ \t]{0,40}-[ \t]{1,4}[\"']?" + word + rb"[\"']?[ \t\r]{0,4}$")
    return any(re.search(way, data, re.M) for way in ways)


def _may_be_built(name: str) -> bool:
    """Is a file of that name found by what is given its folder?"""
    if name.startswith("Dockerfile.") or name.endswith(".Dockerfile"):
        return False  # only one of the standard name is taken from a folder
    return name.startswith(("Dockerfile", "Containerfile")) or name.endswith((".yaml", ".yml"))


def _is_linked(data: bytes, folder: str) -> bool:
    """Does a page link to the folder?"""
    word = folder.encode()
    return word in data and re.search(rb"\]\((?:\./)?" + re.escape(word) + rb"/?\)", data) is not None


def _building_lines(data: bytes) -> list[bytes]:
    """The lines that may build or apply what a folder holds, each from the first word on that says so."""
    starts: dict[int, int] = {}  # by the end of the line
    for word in _BUILDS:
        at = data.find(word)
        while at >= 0:
            end = data.find(b"\n", at)
            end = len(data) if end < 0 else end
            starts[end] = min(at, starts.get(end, at))
            at = data.find(word, end)
    return [data[start:end] for end, start in starts.items()]


def _as_folder(lines: Iterable[bytes], folder: str, parent: str) -> bool:
    """Is the folder built or applied: `docker build docker/`, `kubectl apply -f manifests`, `context: ./docker`?"""
    word = parent.encode()
    near = [line for line in lines if word in line]
    if not near:
        return False
    rest = re.escape(word) + rb"/?(?=[\s\"'`),}\]]|$)"
    pattern = _BY_FOLDER + rb"(?<![\w.-])((?:[\w.-]{1,80}/){0,12})" + rest
    for match in (match for line in near for match in re.finditer(pattern, line)):
        before = [
            part for part in match[1].decode("utf-8", "replace").split("/") if part not in ("", ".", "..")
        ]
        if [*before, parent] == folder.split("/")[-len(before) - 1 :]:
            return True
    return False


def _templates(data: bytes, suffix: bytes) -> Iterator[str]:
    """Paths with a part that is filled in or any: `configs/zero${STAGE}.json`, `deploy/*.yaml`."""
    at = -1
    for _ in range(_MOST_PLACES):
        at = data.find(suffix, at + 1)
        if at < 0:
            return
        near = data[max(at - _REACH, 0) : at + _REACH]
        if any(mark in near for mark in b"$*{<"):
            text = data[_edge(data, at, -1) : _edge(data, at + len(suffix), 1)].decode("utf-8", "replace")
            if re.search(_HOLE, text):
                yield text


def _edge(data: bytes, at: int, step: int) -> int:
    """Where the path that holds `at` starts (step -1) or ends (1); within braces there may be blanks."""
    opening, closing = (b"}", b"{") if step < 0 else (b"{", b"}")
    depth = 0
    for _ in range(_REACH):
        place = at - 1 if step < 0 else at
        char = data[place : place + 1] if 0 <= place < len(data) else b"\n"
        depth = depth + 1 if char == opening else max(depth - 1, 0) if char == closing else depth
        if char == b"\n" or (depth == 0 and char not in (opening, closing) and char not in _IN_PATH):
            break
        at += step
    return at


def _fits(template: str, path: str) -> bool:
    """May the template stand for the path? Something of its name or folder must be given."""
    *folders, name = re.split(r"/(?![^{}]*\})", template)
    given = re.sub(_HOLE, "", name)
    parent = path.rpartition("/")[0].rpartition("/")[2]
    if len(re.sub(r"\.(?:ya?ml|json)$", "", given)) < 3 and (
        not folders or folders[-1] != parent or not parent
    ):
        return False
    if folders and re.fullmatch(r"[\w.-]+", folders[-1]) and folders[-1] not in (".", "..", parent):
        return False
    pattern = "".join(
        r"[^/]*" if re.fullmatch(_HOLE, part) else re.escape(part) for part in re.split(rf"({_HOLE})", name)
    )
    return re.fullmatch(pattern, path.rpartition("/")[2]) is not None
