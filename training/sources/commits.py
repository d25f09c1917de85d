"""Performance commits of local git clones: functions that a commit made faster, before and after.

The message, the diff and our rules decide; see `changes.evidence`. The licence is that of the clone's HEAD.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from pathlib import Path

from training.dataset import licences
from training.sources.base import Cursor, Document, Page, SourceError
from training.sources.changes import changed_functions, evidence, performance_score
from training.sources.git import Clone, Commit
from training.sources.throttle import Clock, SystemClock, timestamp

MOST_FILES = 25  # Python files; a larger commit is rarely about one thing
_COMMITS_PER_PAGE = 200


class Commits:
    """Pairs from the history of `clones`, one document per commit. The cursor holds the last commit read of each.

    A clone is a name and a folder; "" takes the name from its remote, or from the folder.
    """

    name = "commits"

    def __init__(
        self,
        clones: Sequence[tuple[str, Path]],
        *,
        opted_in: Collection[str] = (),
        clock: Clock | None = None,
        paths_left_out: Collection[str] = (),
    ) -> None:
        self._clones = clones
        self._opted_in = opted_in
        self._clock = clock or SystemClock()
        self._left_out = tuple(paths_left_out)

    def pull(self, cursor: Cursor | None, limit: int) -> Iterator[Page]:
        done: dict[str, str] = dict(cursor or {})
        number = 0
        seen = set[str]()
        for name, path in self._clones:
            with Clone(path) as clone:
                project, url = clone.project()
                project = name or project
                if project in seen:
                    raise SourceError(
                        f"{path}: another clone is called {project!r} too; name them: NAME=FOLDER"
                    )
                seen.add(project)
                licence = clone.licence() or licences.UNKNOWN
                verdict = licences.gate(licence, self._opted_in)
                if not verdict.store:
                    yield Page((), dict(done), (f"{project}: {verdict.reason}",))
                    continue
                waiting = iter(clone.commits(done.get(project)))
                while shas := list(islice(waiting, _COMMITS_PER_PAGE)):
                    found = [
                        document
                        for commit in clone.read(shas)
                        if (document := self._document(clone, commit, project, url, licence, verdict.train))
                    ]
                    done[project] = shas[-1]
                    number += len(found)
                    yield Page(tuple(found), dict(done))
                    if number >= limit:
                        return

    def _document(
        self, clone: Clone, commit: Commit, project: str, url: str, licence: str, train: bool
    ) -> Document | None:
        if len(commit.files) > MOST_FILES:
            return None
        pairs = []
        reasons = {}
        for path, before, after in commit.files:
            if path.startswith(self._left_out):
                continue
            old, new = clone.blob(before), clone.blob(after)
            if old is None or new is None:
                continue
            for function in changed_functions(path, old, new):
                reason = evidence(commit.message, function)
                if reason:
                    pairs.append(function)
                    reasons[f"{path}:{function.after.symbol}"] = reason
        if not pairs:
            return None
        address = f"{url}/commit/{commit.sha}" if url else ""
        return Document(
            source=self.name,
            id=f"{project}@{commit.sha}",
            url=address,
            project=project,
            text=commit.message,
            blocks=tuple(block for n, pair in enumerate(pairs, 1) for block in pair.blocks(n, address)),
            licence=licence,
            train=train,
            fetched_at=timestamp(self._clock),
            provenance=f"{project}@{commit.sha}",
            raw={"message_score": performance_score(commit.message), "reasons": reasons},
        )
