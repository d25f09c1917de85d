"""What a pull request changes, with the head files under review, and the library versions of its project.

The ladder: the diff and the blobs of the API; git itself where the API leaves something out; else a change that
lists what was not reviewed. A pull request is never too large to be read, only too large to be read whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace

from ptopt.change import Change, ChangedFile, ChangeError, parse_diff
from ptopt.config import Config
from ptopt.findings import NotReviewed
from ptopt.github.client import GitHubClient
from ptopt.github.errors import (
    ForbiddenError,
    NotFoundError,
    RejectedError,
    SupersededError,
    TooLargeError,
    UnavailableError,
)
from ptopt.github.git_diff import MAX_HEADS, FetchError, fetch_change
from ptopt.github.together import AT_ONCE, threads
from ptopt.github.values import PullFile, PullRequest, TreeEntry
from ptopt.inputs import MAX_FILE, MAX_PROJECT_FILE, together_too_large
from ptopt.launch_scripts import may_launch
from ptopt.pathkind import PYTHON, is_config, is_config_for_sure, is_reviewable, may_evaluate
from ptopt.project.around import MOST_BYTES, MOST_FILES, files_around
from ptopt.project.facts import FACT_FILES, PIN_FILES, README_FILES
from ptopt.project.naming import NO_NAMING, Naming, namers

_REST = "*.py"  # stands for the files that nobody listed
_MOST_FACT_FILES = 12
# A review makes at most 8 queries for files that it does not review: any 40 of at most MOST_BYTES fit into 8 of so many
# bytes, and those of 99 in 100 changes to real repositories into one. Without GraphQL only the nearest are read.
_QUERY_BYTES = 6 * MOST_BYTES
_MOST_BY_REST = 8
_MOST_NAMERS = 16  # of the 40, where code and configurations change together
_MOST_CONFIGS = 40
_MOST_SCRIPTS = 8  # read only to be named among what is not reviewed; each is a request
_TOO_MANY = f"more than {_MOST_CONFIGS} YAML and JSON files"


def list_files(github: GitHubClient, pull: PullRequest) -> list[PullFile]:
    """The files of the diff, as far as GitHub lists them: none where it refuses to make the diff."""
    try:
        return github.pull_files(pull.repo, pull.number)
    except (TooLargeError, RejectedError):
        return []


def may_hold_code(pull: PullRequest, files: Sequence[PullFile]) -> bool:
    """Whether there may be something to review among the files of `list_files`, and those that it leaves out."""
    return len(files) < pull.changed_files or any(is_reviewable(file.path) for file in files)


def read_change(
    github: GitHubClient, pull: PullRequest, config: Config, files: Sequence[PullFile] | None = None
) -> Change:
    """The files to review that the pull request changes; `files` are those of `list_files`.

    Heads are read only of those that `config` has reviewed. Raises SupersededError when the head moves meanwhile.
    """

    def why_not(path: str) -> str | None:
        if not (is_reviewable(path) or may_launch(path)):
            return "not Python, a notebook or a configuration"
        if may_evaluate(path):  # what is in it decides whether it is a test: the review looks
            return config.naming([path]).why_skipped(path)
        return config.why_skipped(path)

    listed = list_files(github, pull) if files is None else files
    unlisted = pull.changed_files - len(listed)
    not_reviewed: list[NotReviewed] = []
    if unlisted:
        try:
            return fetch_change(github, pull, why_not=why_not)
        except FetchError as error:
            if unlisted > 0:
                many = f"{unlisted:,} of the {pull.changed_files:,} changed files"
                not_reviewed.append(NotReviewed(_REST, f"GitHub does not list {many}, and {error}"))
    scripts = _scripts(listed, why_not)
    too_many = _too_many(listed)

    def why_not_here(path: str) -> str | None:
        return _TOO_MANY if path in too_many else why_not(path)

    wanted = [file for file in listed if is_reviewable(_shown(file)) or _shown(file) in scripts]
    return _from_api(github, pull, wanted, why_not_here, not_reviewed)


def _scripts(listed: Sequence[PullFile], why_not: Callable[[str], str | None]) -> frozenset[str]:
    """The scripts that are read, so that a review can say that it does not judge those that start Python."""
    found = [
        path
        for file in listed
        if _has_head(file) and may_launch(path := _shown(file)) and why_not(path) is None
    ]
    return frozenset(found[:_MOST_SCRIPTS])


def _too_many(listed: Sequence[PullFile]) -> frozenset[str]:
    """The YAML and JSON files beyond those that are read: each is a request, and in a change of so many most are data."""
    unsure = [path for file in listed if is_config(path := _shown(file)) and not is_config_for_sure(path)]
    return frozenset(unsure[_MOST_CONFIGS:])


def _from_api(
    github: GitHubClient,
    pull: PullRequest,
    listed: Sequence[PullFile],
    why_not: Callable[[str], str | None],
    not_reviewed: list[NotReviewed],
) -> Change:
    heads = _Heads(
        github, pull, [file for file in listed if _has_head(file) and why_not(_shown(file)) is None]
    )
    found: list[ChangedFile] = []
    missing: set[str] = set()
    for file in listed:
        path = _shown(file)
        if file.status == "removed":
            continue
        if not file.additions + file.deletions:  # renamed, empty, or binary
            if file.status in ("modified", "changed"):
                not_reviewed.append(
                    NotReviewed(path, "GitHub shows no diff of it: binary, or only its mode changed")
                )
        elif (reason := why_not(path)) is not None:
            not_reviewed.append(NotReviewed(path, reason))
        elif (change := _read(file, heads)) is None:
            missing.add(path)
        else:
            found += change.files
            not_reviewed += change.not_reviewed
    if missing:
        try:
            change = fetch_change(
                github, pull, why_not=lambda path: None if path in missing else "read already"
            )
            found += change.files
            not_reviewed += (item for item in change.not_reviewed if item.path in missing)
            reason = "neither GitHub nor git shows a diff of it"
        except FetchError as error:
            reason = f"GitHub omits its diff, and {error}"
        missing -= {file.path for file in found} | {item.path for item in not_reviewed}
        not_reviewed += (NotReviewed(path, reason) for path in missing)
    return Change(tuple(sorted(found, key=lambda file: file.path)), tuple(sorted(not_reviewed)))


def _shown(file: PullFile) -> str:
    return file.path.encode("utf-8", "backslashreplace").decode()


def _has_head(file: PullFile) -> bool:
    """Whether its head may be read: it has lines, and the API gives its diff."""
    whole = file.patch is not None and "\N{REPLACEMENT CHARACTER}" not in file.patch
    return whole and file.status != "removed" and bool(file.additions + file.deletions)


def _read(file: PullFile, heads: _Heads) -> Change | None:
    """The one file as a change; None when the API does not give its diff, whole and as it is."""
    # U+FFFD stands for bytes that are not UTF-8: the lines of the diff are then not those of the file.
    if file.patch is None or "\N{REPLACEMENT CHARACTER}" in file.patch:
        return None
    try:
        change = parse_diff(unified_diff(file), lambda _: heads.of(file))
    except ChangeError:
        return None
    not_reviewed = (replace(item, reason=heads.reason or item.reason) for item in change.not_reviewed)
    return replace(change, not_reviewed=tuple(not_reviewed))


class _Heads:
    """Head files by blob, of `files` several at once; `reason` says why the last one was not given."""

    def __init__(self, github: GitHubClient, pull: PullRequest, files: Sequence[PullFile]) -> None:
        self._github, self._pull = github, pull
        self._wanted = [file.blob_sha for file in files if file.blob_sha is not None]
        self._read: dict[str, Future[bytes]] = {}
        self._left = MAX_HEADS
        self.reason = ""

    def of(self, file: PullFile) -> bytes | None:
        self.reason = ""
        if file.blob_sha is None:
            return None
        if self._left <= 0:
            self.reason = together_too_large(MAX_HEADS)
            return None
        try:
            head = self._blob(file.blob_sha)
        except TooLargeError:
            self.reason = f"too large: the limit is {MAX_FILE / 1e6:g} MB"
            return None
        except (NotFoundError, RejectedError):  # gone, or no blob
            self._same_head()
            return None
        self._left -= len(head)
        return head

    def _blob(self, sha: str) -> bytes:
        if sha not in self._read:
            # This one and those that come next, no more than fit into memory together.
            start = self._wanted.index(sha) if sha in self._wanted else 0
            batch = dict.fromkeys([sha, *self._wanted[start : start + AT_ONCE]][: AT_ONCE + 1])
            with threads() as pool:
                self._read = {
                    one: pool.submit(self._github.blob, self._pull.repo, one, MAX_FILE) for one in batch
                }
        return self._read[sha].result()

    def _same_head(self) -> None:
        pull = self._pull
        if self._github.pull(pull.repo, pull.number).head_sha != pull.head_sha:
            raise SupersededError(f"the head of {pull.repo}#{pull.number} moved while it was read")


def unified_diff(file: PullFile) -> bytes:
    """The file's part of the diff as git would write it, with every name in git's quotes."""
    old, new = _quoted("a/", file.previous_path or file.path), _quoted("b/", file.path)
    header = [f"diff --git {old} {new}"]
    if file.status in ("renamed", "copied") and file.previous_path:
        verb = "rename" if file.status == "renamed" else "copy"
        header += [f"{verb} from {_quoted('', file.previous_path)}", f"{verb} to {_quoted('', file.path)}"]
    if file.status == "added":
        header.append("new file mode 100644")
    header += [f"--- {'/dev/null' if file.status == 'added' else old}", f"+++ {new}", file.patch or "", ""]
    return "\n".join(header).encode("utf-8", "surrogatepass")


def _quoted(prefix: str, path: str) -> str:
    octal = (
        chr(byte) if 0x20 <= byte < 0x7F and byte not in b'"\\' else f"\\{byte:03o}"
        for byte in path.encode("utf-8", "surrogatepass")
    )
    return f'"{prefix}{"".join(octal)}"'


# --- other files of the repository


def list_repository(github: GitHubClient, pull: PullRequest) -> list[TreeEntry]:
    """Every file at the head, as far as GitHub lists them; none where the list is too long."""
    try:
        return github.tree(pull.repo, pull.head_sha, recursive=True)
    except (NotFoundError, RejectedError, TooLargeError):
        return []


def read_around(
    github: GitHubClient, pull: PullRequest, change: Change, entries: Sequence[TreeEntry]
) -> Change:
    """The change with files around it, which answer questions about it: see `ptopt.project.around`.

    The review can do without any of them.
    """
    blobs = _small(entries)
    code = {file.path for file in change.files if file.path.endswith(PYTHON)}
    if not code:
        return change
    most = MOST_FILES - _MOST_NAMERS if len(code) < len(change.files) else MOST_FILES
    chosen = [blobs[path] for path in files_around(blobs, code, most)]
    return replace(change, around=_texts(github, pull, chosen))


def read_naming(
    github: GitHubClient, pull: PullRequest, change: Change, entries: Sequence[TreeEntry]
) -> Naming:
    """What may name the configurations of the change, besides its own files: see `ptopt.project.naming`."""
    changed = {file.path for file in change.files}
    configs = {path for path in changed if is_config(path)}
    if not configs or not entries:
        return NO_NAMING
    blobs = {
        path: entry
        for path, entry in _small(entries).items()
        if path not in changed and path not in change.around
    }
    chosen, whole = namers(blobs, configs, MOST_FILES if len(configs) == len(changed) else _MOST_NAMERS)
    read = _texts(github, pull, [blobs[path] for path in chosen])
    return Naming({**change.around, **read}, whole=whole and len(read) == len(chosen))


def _small(entries: Sequence[TreeEntry]) -> dict[str, TreeEntry]:
    return {entry.path: entry for entry in entries if entry.type == "blob" and entry.size <= MOST_BYTES}


def _texts(github: GitHubClient, pull: PullRequest, chosen: Sequence[TreeEntry]) -> dict[str, bytes]:
    """The files by path, as far as GitHub gives them."""
    try:
        with threads() as pool:
            parts = pool.map(lambda part: github.text_blobs(pull.repo, part), _queries(chosen))
            read = {sha: data for part in parts for sha, data in part.items()}
    except (ForbiddenError, NotFoundError, RejectedError, TooLargeError, UnavailableError):
        # No GraphQL for this token or on this server, or a query that takes too long.
        read = _blobs_by_rest(github, pull, chosen[:_MOST_BY_REST])
    return {entry.path: read[entry.sha] for entry in chosen if entry.sha in read}


def _queries(entries: Sequence[TreeEntry]) -> list[list[str]]:
    """The ids of the blobs, each once and in order, split into what one query reads."""
    queries: list[list[str]] = []
    left = 0
    for sha, size in {entry.sha: entry.size for entry in entries}.items():
        if not queries or size > left:
            queries.append([])
            left = _QUERY_BYTES
        queries[-1].append(sha)
        left -= size
    return queries


def _blobs_by_rest(github: GitHubClient, pull: PullRequest, entries: Sequence[TreeEntry]) -> dict[str, bytes]:
    def blob(entry: TreeEntry) -> bytes | None:
        try:
            return github.blob(pull.repo, entry.sha, MOST_BYTES)
        except (NotFoundError, RejectedError, TooLargeError):
            return None

    with threads() as pool:
        read = zip(entries, pool.map(blob, entries), strict=True)
        return {entry.sha: data for entry, data in read if data is not None}


# --- library versions


def project_files(
    github: GitHubClient, pull: PullRequest, listed: Sequence[TreeEntry] = ()
) -> dict[str, bytes]:
    """The files in which the project names its library versions, at the head: what the code under review will run with.

    Unlike the settings, they decide nothing but which advice applies, so that the pull request may bring them. `listed`
    is what `list_repository` gave; without it, the folders in question are listed.
    """
    entries = {entry.path: entry for entry in listed}
    try:
        if not entries:
            entries = {entry.path: entry for entry in github.tree(pull.repo, pull.head_sha)}
            for folder in sorted({name.rpartition("/")[0] for name in FACT_FILES} & entries.keys()):
                if entries[folder].type == "tree":
                    inside = github.tree(pull.repo, entries[folder].sha)
                    entries.update({f"{folder}/{entry.path}": entry for entry in inside})
    except NotFoundError:
        return {}
    present = [
        (name, entries[name])
        for name in FACT_FILES
        if name in entries and entries[name].type == "blob" and entries[name].size <= MAX_PROJECT_FILE
    ]
    if any(name in PIN_FILES for name, _ in present):  # a README speaks where nothing else does
        present = [(name, entry) for name, entry in present if name not in README_FILES]
    with threads() as pool:
        read = {
            name: pool.submit(github.blob, pull.repo, entry.sha, MAX_PROJECT_FILE)
            for name, entry in present[:_MOST_FACT_FILES]
        }
    return {name: blob.result() for name, blob in read.items()}
