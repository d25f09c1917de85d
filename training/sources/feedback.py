"""What people did with our comments: labels from the service's database, read only.

`training` and `feedback` stand side by side and do not import each other: the two tables are read as the database describes
them. The service keeps no code, so a label has none; it names the rule, the repository, the commit, and the adapter that had a say.
Repositories that are private are left out unless the operator names them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import closing
from typing import Any

from sqlalchemy import MetaData, Row, Table, create_engine, select
from sqlalchemy.exc import SQLAlchemyError

from training.sources.base import Cursor, Document, Page, SourceError
from training.sources.throttle import Clock, SystemClock, stamp

LICENCE = "LicenseRef-ptopt-feedback"
_PAGE = 500
_OF_A_MODEL = ("model", "adapter", "prompt_version", "schema_version")

# What a signal says, most trusted kinds first: (kind, value) -> good or bad.
_SAYS = (
    {("merged", "exact"): True, ("merged", "similar"): True},
    {("applied", "exact"): True, ("applied", "similar"): True},
    {("verdict", "good"): True, ("verdict", "bad"): False},
    {("ignored", "rule"): False, ("ignored", "here"): False},
    {
        **{("reaction", value): True for value in ("+1", "heart", "hooray", "rocket")},
        **{("reaction", value): False for value in ("-1", "confused")},
    },
)


class Feedback:
    """One document per comment that people said something clear about. The cursor is the last comment read.

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
                documents = [found for said in page if (found := self._document(*said)) is not None]
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
            fetched_at=stamp(self._clock),
            provenance=f"{comment.full_name}#{comment.pull}@{comment.head_sha}",
            raw={
                "rule": comment.rule,
                "origin": comment.origin,
                "confidence": comment.confidence,
                "fingerprint": comment.fingerprint,
                "head_sha": comment.head_sha,
                # A model that could not be asked had no say.
                **{name: "" if comment.model_note else getattr(comment, name) for name in _OF_A_MODEL},
                "label": "good" if good > bad else "bad",
                "votes": [good, bad],
                "by": tier,
            },
        )


def comments(url: str, after: int = 0) -> Generator[list[tuple[Row[Any], list[Row[Any]]]], None, None]:
    """Our comments from the one behind `after` on, some at a time, each with its signals. Raises SourceError.

    A comment knows its review (`head_sha`, the model) and its repository (`full_name`, `private`).
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
                said = connection.execute(
                    select(signals).where(signals.c.comment_id.in_(ids)).order_by(signals.c.id)
                ).all()
            if not found:
                return
            by_comment = defaultdict(list)
            for signal in said:
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
    """Votes for and against, one per person, of the most trusted kind that says anything; None where it is a draw."""
    said = votes(signals)
    if said is None:
        return None
    good = sum(said[0].values())
    bad = len(said[0]) - good
    return (good, bad, said[1]) if good != bad else None


def votes(signals: Sequence[Row[Any]]) -> tuple[dict[str, bool], str] | None:
    """Who says that the comment was good, and who that it was bad, by the most trusted kind that says anything.

    Of people known not to be allowed to write to the repository nothing counts. A reaction that was taken back is none.
    A person is a hash; "" is whoever pushed.
    """
    withdrawn = {s.source for s in signals if s.kind == "withdrawn"}
    for says in _SAYS:
        found: dict[str, bool] = {}
        for signal in signals:
            said = says.get((signal.kind, signal.value))
            taken_back = signal.kind == "reaction" and signal.source in withdrawn
            if said is None or signal.actor_writes is False or taken_back:
                continue
            found[signal.actor] = said
        if found:
            return found, next(iter(says))[0]
    return None


def _comments(tables: dict[str, Table], after: int) -> Any:
    comments, reviews, repositories = tables["comments"], tables["reviews"], tables["repositories"]
    told = (reviews.c[name] for name in ("head_sha", "model_note", *_OF_A_MODEL))
    return (
        select(comments, *told, repositories.c.full_name, repositories.c.private)
        .join(reviews, reviews.c.id == comments.c.review_id)
        .join(repositories, repositories.c.id == comments.c.repository_id)
        .where(comments.c.id > after)
        .order_by(comments.c.id)
        .limit(_PAGE)
    )
