"""How people reacted to our comments: labels from the service's database, read only.

`training` and `feedback` stand side by side and do not import each other: the two tables are read as the database describes
them. The service keeps no code, so a label has none; it names the rule, the repository, the commit, and the adapter that judged.
Only repositories that opted in are read (`learn = true` in their base branch), private ones only if the operator names them, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import closing
from typing import Any

from sqlalchemy import MetaData, Row, Table, create_engine, select
from sqlalchemy.exc import SQLAlchemyError

from training.sources.base import Cursor, Document, Page, SourceError
from training.sources.throttle import Clock, SystemClock, timestamp

LICENCE = "LicenseRef-ptopt-feedback"
_PAGE = 500
_MODEL_COLUMNS = ("model", "adapter", "prompt_version", "schema_version")

# The label that a signal gives, most trusted kinds first: (kind, value) -> good or bad.
_LABELS = (
    {("merged", "exact"): True, ("merged", "similar"): True},
    {("applied", "exact"): True, ("applied", "similar"): True},
    {("changed", "suggested"): True},
    {("verdict", "good"): True, ("verdict", "bad"): False},
    {("ignored", "rule"): False, ("ignored", "here"): False},
    {("reply", "agreement"): True, ("reply", "disagreement"): False, ("reply", "intentional"): False},
    {("hidden", "hidden"): False, ("hidden", "deleted"): False},
    {
        **{("reaction", value): True for value in ("+1", "heart", "hooray", "rocket")},
        **{("reaction", value): False for value in ("-1", "confused")},
    },
)


class Feedback:
    """One document per comment with a clear vote. The cursor is the last comment read.

    New signals about older comments count in a pull from the start (`forget`).
    """

    name = "feedback"

    def __init__(
        self, database_url: str, *, private: Collection[str] = (), clock: Clock | None = None
    ) -> None:
        self._url = database_url
        self._private = frozenset(private)
        self._clock = clock or SystemClock()

    def pull(self, cursor: Cursor | None, limit: int) -> Iterator[Page]:
        number = 0
        with closing(comments(self._url, (cursor or {"comment": 0})["comment"])) as pages:
            for page in pages:
                documents = [found for entry in page if (found := self._document(*entry)) is not None]
                number += len(documents)
                yield Page(tuple(documents), {"comment": page[-1][0].id})
                if number >= limit:
                    return

    def _document(self, comment: Row[Any], signals: Sequence[Row[Any]]) -> Document | None:
        if comment.private and comment.full_name not in self._private:
            return None
        counted = tally(signals)
        if counted is None:
            return None
        good, bad, tier = counted
        return Document(
            source=self.name,
            id=str(comment.id),
            url="",
            project=comment.full_name,
            text="",
            blocks=(),
            licence=LICENCE,
            train=not comment.private or comment.full_name in self._private,
            fetched_at=timestamp(self._clock),
            provenance=f"{comment.full_name}#{comment.pull}@{comment.head_sha}",
            raw={
                "rule": comment.rule,
                "origin": comment.origin,
                "confidence": comment.confidence,
                "fingerprint": comment.fingerprint,
                "head_sha": comment.head_sha,
                # A model that was unavailable judged nothing.
                **{name: "" if comment.model_note else getattr(comment, name) for name in _MODEL_COLUMNS},
                "label": "good" if good > bad else "bad",
                "votes": [good, bad],
                "by": tier,
            },
        )


def comments(url: str, after: int = 0) -> Generator[list[tuple[Row[Any], list[Row[Any]]]], None, None]:
    """Our comments in repositories that opted in, after the one with the id `after`, in pages, each with its signals.

    A row has the columns of the comment, of its review (`head_sha`, the model) and of its repository (`full_name`, `private`,
    `installation_id`, `learn`). Raises SourceError.
    """
    try:
        engine = create_engine(url)
    except (SQLAlchemyError, ImportError) as error:
        raise SourceError(f"the database cannot be opened: {error}") from None
    try:
        metadata = MetaData()
        tables = {
            name: Table(name, metadata, autoload_with=engine)
            for name in ("comments", "signals", "reviews", "repositories")
        }
        signals = tables["signals"]
        while True:
            with engine.connect() as connection:
                found = connection.execute(_comments(tables, after)).all()
                ids = [row.id for row in found]
                found_signals = connection.execute(
                    select(signals).where(signals.c.comment_id.in_(ids)).order_by(signals.c.id)
                ).all()
            if not found:
                return
            by_comment = defaultdict(list)
            for signal in found_signals:
                by_comment[signal.comment_id].append(signal)
            after = ids[-1]
            yield [(row, by_comment[row.id]) for row in found]
    except KeyError as error:
        raise SourceError(
            f"the service's database has no column {error}: run `python -m service upgrade`"
        ) from None
    except SQLAlchemyError as error:
        why = str(error).partition("\n")[0][:300]
        raise SourceError(
            f"the service's database cannot be read: {why}; is its schema the newest?"
        ) from None
    finally:
        engine.dispose()


def tally(signals: Sequence[Row[Any]]) -> tuple[int, int, str] | None:
    """Votes for and against, one per person, of the most trusted kind of signal there is; None for a draw."""
    counted = votes(signals)
    if counted is None:
        return None
    by_person, tier = counted
    good = sum(by_person.values())
    bad = len(by_person) - good
    return (good, bad, tier) if good != bad else None


def votes(signals: Sequence[Row[Any]]) -> tuple[dict[str, bool], str] | None:
    """The votes by person (True: good), of the most trusted kind of signal there is, and that kind.

    Signals of people who may not write to the repository do not count, nor does what was taken back. A person is a hash; ""
    is whoever pushed, or hid the comment.
    """
    withdrawn = {(s.actor, s.value, s.source) for s in signals if s.kind == "withdrawn"}
    for labels in _LABELS:
        found: dict[str, bool] = {}
        for signal in signals:
            label = labels.get((signal.kind, signal.value))
            taken_back = (signal.actor, signal.value, signal.source) in withdrawn
            if label is None or signal.actor_writes is False or taken_back:
                continue
            found[signal.actor] = label
        if found:
            return found, next(iter(labels))[0]
    return None


def _comments(tables: dict[str, Table], after: int) -> Any:
    comments, reviews, repositories = tables["comments"], tables["reviews"], tables["repositories"]
    columns = (reviews.c[name] for name in ("head_sha", "model_note", *_MODEL_COLUMNS))
    of_repository = (repositories.c[name] for name in ("full_name", "private", "installation_id", "learn"))
    return (
        select(comments, *columns, *of_repository)
        .join(reviews, reviews.c.id == comments.c.review_id)
        .join(repositories, repositories.c.id == comments.c.repository_id)
        .where(comments.c.id > after, repositories.c["learn"])
        .order_by(comments.c.id)
        .limit(_PAGE)
    )
