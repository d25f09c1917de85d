"""Candidates for labelled cases, from local git clones: small commits of code that uses torch.

    python -m benchmarks.quality mine --clones DIR [--code | --clean] [--most 8] [--out FILE] [--exclude FILE ...]

Fixes are found by what their message says or, with --code, whose message says nothing, by names in the changed lines;
--clean takes random commits without such a message. One JSON object a line: `repo`, `sha`, `parent`, `date`, `subject`, the
`words` that matched, and `files` with the changed `lines`: of a fix those at the parent, where the problem stands; with
--clean, those at the commit. A person reads each commit and makes a case of it, or not: a word proves nothing.
The same clones and seed give the same lines. Git objects are read; nothing is checked out or run.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.quality.common import read_rows
from ptopt.report.text import one_line
from training.sources.base import SourceError
from training.sources.git import Clone, Commit

MOST_FILES = 4  # Python files that a commit may modify and still be about one thing
MOST_LINES = 150  # lines that it may remove and add there
DEEPEST = 4  # folders between DIR and a git directory
_COMMITS_AT_ONCE = 500
# What people write when they make code faster or smaller. Half of it means something else half of the time
# ("performance" of a model, the package "accelerate"): the reader decides.
_WORDS = re.compile(
    r"""\b(?:
      speed(?:s|ed|ing|-?up)?|fast(?:er|est)?|quick(?:er|ly)|slow(?:er|ly|ness|down)?|accelerat(?:ed?|es|ing|ion)|
      perf|performan(?:ce|t)|efficien(?:cy|t|tly)|optimi[sz](?:es?|ed|ing|ations?)|overhead|bottleneck|latency|throughput|
      memory|mem|vram|oom|out[ -]of[ -]memory|leak(?:s|ed|ing|age)?|footprint|redundant|unnecessary|needless|useless|
      a?sync|synchroni[sz](?:es?|ed|ing|ation)|blocking|non_blocking|pin(?:ned)?[_ -]memory|num_workers|workers|
      persistent_workers|prefetch(?:es|ed|ing)?|parallel(?:i[sz]e[ds]?)?|multi[ -]?process(?:ing)?|
      no_?grad|inference_mode|detach(?:ed|ing)?|empty_cache|cache[ds]?|caching|vectori[sz](?:es?|ed|ing|ation)|
      in-?place|copy|copies|clones?|fus(?:ed?|ing|ion)|compiled?|cudnn|benchmark=true|tf32|amp|autocast|
      mixed[ -]precision|fp16|half[ -]precision|bf16|channels_last|flash[ -_]?att\w*|sdpa|scaled_dot_product\w*|
      set_to_none|ddp|once|lazy|lazily|gpu|cuda|cpu|item\(\)|loops?
    )\b""",
    re.IGNORECASE | re.VERBOSE,
)
# Names that come or go when PyTorch code is made faster or smaller, for repositories whose messages say "update".
_NAMES = re.compile(
    rb"\b(?:no_grad|inference_mode|detach|item|tolist|numpy|cpu|non_blocking|pin_memory|num_workers|persistent_workers|"
    rb"empty_cache|synchronize|benchmark|autocast|GradScaler|amp|half|inplace|set_to_none|no_sync|checkpoint|compile|fused|"
    rb"scaled_dot_product_attention|DistributedDataParallel|contiguous|clone|deepcopy|repeat|nonzero|lru_cache|einsum|vmap|"
    rb"gather|scatter_?|cumsum|index_select|baddbmm|bmm|stack|searchsorted|Pool|mmap|prefetch\w*|del)\b"
)
USES_TORCH = re.compile(rb"^[ \t]*(?:import|from)[ \t]+torch\b", re.MULTILINE)
_NOT_PRODUCT = re.compile(r"(?:^|/)(?:tests?|docs?)/|(?:^|/)(?:test_[^/]*|[^/]*_test|conftest|setup)\.py$")


@dataclass(frozen=True)
class Search:
    """What is looked for: `kind` is "message", "code" or "clean" (see the module); `files` and `lines` bound a commit."""

    kind: str
    most: int
    seed: int
    files: int
    lines: int


@dataclass(frozen=True)
class ChangedFile:
    """Line ranges of one side of a change, how many lines it removed and added, and what names are in them."""

    path: str
    lines: list[tuple[int, int]]
    removed: int
    added: int
    names: list[str]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.quality mine",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--clones", type=Path, required=True, help="folder with git clones, bare or not")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument(
        "--code", action="store_true", help="look at changed lines where the message says nothing"
    )
    kind.add_argument("--clean", action="store_true", help="random small commits whose message says nothing")
    parser.add_argument("--most", type=int, default=8, help="candidates of one repository (default: 8)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--files", type=int, default=MOST_FILES, help="Python files that a commit may modify")
    parser.add_argument(
        "--lines", type=int, default=MOST_LINES, help="lines that a commit may remove and add there"
    )
    parser.add_argument("--out", type=Path, help="where to write (default: standard output)")
    parser.add_argument(
        "--exclude", type=Path, nargs="+", default=[], help="JSON lines whose commits are not wanted again"
    )
    options = parser.parse_args(arguments)
    if not options.clones.is_dir():
        parser.error(f"{options.clones}: no such folder")
    search = Search(
        kind="clean" if options.clean else "code" if options.code else "message",
        most=options.most,
        seed=options.seed,
        files=options.files,
        lines=options.lines,
    )
    known = known_commits(options.exclude)
    found = 0
    with options.out.open("w", encoding="utf-8") if options.out else sys.stdout as out:
        for folder in clones(options.clones):
            try:
                with Clone(folder) as clone:
                    repository = clone_name(folder) or one_line(clone.project()[0])
                    for row in candidates(clone, known, search):
                        out.write(json.dumps({"repo": repository} | row) + "\n")
                        found += 1
            except SourceError as error:
                print(f"left out: {one_line(str(error))}", file=sys.stderr)
    print(f"{found} candidates", file=sys.stderr)
    return 0


def clones(top: Path, deepest: int = DEEPEST) -> Iterator[Path]:
    """Each git clone below `top`, bare or not, in order."""
    for folder in sorted(path for path in top.iterdir() if path.is_dir()):
        if (folder / ".git").exists() or all(
            (folder / part).exists() for part in ("HEAD", "objects", "refs")
        ):
            yield folder
        elif deepest > 1:
            yield from clones(folder, deepest - 1)


def clone_name(folder: Path) -> str:
    """OWNER/NAME of a clone in OWNER+NAME or OWNER+NAME/repo; "" for others."""
    owner, plus, name = (folder.parent if folder.name == "repo" else folder).name.partition("+")
    return f"{owner}/{name}" if plus else ""


def known_commits(files: Sequence[Path]) -> frozenset[str]:
    """Commits that rows of JSON lines name as `sha`, `parent` or `intro_sha`."""
    return frozenset(
        row[key] for row in read_rows(files) for key in ("sha", "parent", "intro_sha") if row.get(key)
    )


def words(message: str) -> list[str]:
    """The words of a message that may speak of performance, lower case, each once, in order."""
    return list(dict.fromkeys(match[0].lower() for match in _WORDS.finditer(message)))


def candidates(clone: Clone, known: Collection[str], search: Search) -> Iterator[dict[str, Any]]:
    """At most `search.most` rows of a clone: the most telling messages first, then in random order."""

    def rank(commit: Commit) -> tuple[int, str]:
        telling = 2 * len(words(commit.message.partition("\n")[0])) + len(words(commit.message))
        return -telling, sha256(f"{search.seed} {commit.sha}".encode()).hexdigest()

    commits = [
        commit
        for commit in _commits(clone)
        if commit.sha not in known
        and commit.parent
        and 0 < len(commit.files) <= search.files
        and bool(words(commit.message)) == (search.kind == "message")
    ]
    rows = (_row(clone, commit, search) for commit in sorted(commits, key=rank))
    yield from islice((row for row in rows if row), search.most)


def _commits(clone: Clone) -> Iterator[Commit]:
    shas = clone.commits()
    for start in range(0, len(shas), _COMMITS_AT_ONCE):
        yield from clone.read(shas[start : start + _COMMITS_AT_ONCE])


def _row(clone: Clone, commit: Commit, search: Search) -> dict[str, Any] | None:
    """The row of a commit; None when it is too large, uses no torch, or a file of it is not here."""
    files = []
    torch = False
    for path, old, new in commit.files:
        before, after = clone.blob(old), clone.blob(new)
        if before is None or after is None:
            return None
        if _NOT_PRODUCT.search(path):
            continue
        torch = torch or bool(USES_TORCH.search(before) or USES_TORCH.search(after))
        files.append(changed(path, before, after, new_side=search.kind == "clean"))
    if not torch or not 0 < sum(file.removed + file.added for file in files) <= search.lines:
        return None
    names = list(dict.fromkeys(name for file in files for name in file.names))
    if search.kind == "clean" and not any(file.added for file in files):
        return None
    if search.kind == "code" and not names:
        return None
    return {
        "sha": commit.sha,
        "parent": commit.parent,
        "date": commit.date,
        "subject": one_line(commit.message.partition("\n")[0])[:200],
        "words": names if search.kind == "code" else words(commit.message),
        "files": [
            {"path": file.path, "lines": file.lines, "removed": file.removed, "added": file.added}
            for file in files
        ],
    }


def changed(path: str, before: bytes, after: bytes, *, new_side: bool) -> ChangedFile:
    """What changed, as line ranges (from 1) of one side; an insertion or removal is the line before it there."""
    old, new = before.split(b"\n"), after.split(b"\n")
    lines = []
    names: dict[str, None] = {}
    removed = added = 0
    for tag, i, j, k, m in SequenceMatcher(None, old, new).get_opcodes():
        if tag != "equal":
            removed, added = removed + j - i, added + m - k
            names |= {match[0].decode(): None for match in _NAMES.finditer(b"\n".join(old[i:j] + new[k:m]))}
            start, end = (k, m) if new_side else (i, j)
            lines.append((start + 1, end) if end > start else (max(1, start), max(1, start)))
    return ChangedFile(path, lines, removed, added, list(names))
