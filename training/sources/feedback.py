"""What people did with our comments: labels from the service's database, read only.

`training` and `feedback` stand side by side and do not import each other: the two tables are read as the database describes
them. The service keeps no code, so a label has none; it names the rule, the repository, the commit, and the adapter that had a say.
Repositories that are private are left out unless the operator names them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from sqlalchemy import MetaData, Row, Table, create_engine, select
from sqlalchemy.exc import SQLAlchemyError

from training.sources.base import Cursor, Document, Page, SourceError
from training.sources.pace import Clock, SystemClock, stamp

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
        after = (cursor or {"comment": 0})["comment"]
        try:
            engine = create_engine(self._url)
        except (SQLAlchemyError, ImportError) as error:
            raise SourceError(f"the database cannot be opened: {error}") from None
        try:
            metadata = MetaData()
            tables = {
                name: Table(name, metadata, autoload_with=engine)
                for name in ("comments", "signals", "reviews", "repositories")
            }
            number = 0
            while number < limit:
                with engine.connect() as connection:
                    comments = connection.execute(_comments(tables, after)).all()
                    ids = [row.id for row in comments]
                    signals = tables["signals"]
                    said = connection.execute(
                        select(signals).where(signals.c.comment_id.in_(ids)).order_by(signals.c.id)
                    ).all()
                if not comments:
                    return
                by_comment = defaultdict(list)
                for signal in said:
                    by_comment[signal.comment_id].append(signal)
                documents = [
                    document
                    for row in comments
                    if (document := self._document(row, by_comment[row.id])) is not None
                ]
                after = ids[-1]
                number += len(documents)
                yield Page(tuple(documents), {"comment": after})
        except KeyError as error:
            raise SourceError(
                f"the service's database has no column {error}: run `python -m feedback upgrade`"
            ) from None
        except SQLAlchemyError as error:
            why = str(error).partition("\n")[0][:300]
            raise SourceError(
                f"the service's database cannot be read: {why}; is its schema the newest?"
            ) from None
        finally:
            engine.dispose()

    def _document(self, comment: Row[Any], signals: Sequence[Row[Any]]) -> Document | None:
        if comment.private and comment.full_name not in self._private:
            return None
        votes = tally(signals)
        if votes is None:
            return None
        good, bad, tier = votes
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


def tally(signals: Sequence[Row[Any]]) -> tuple[int, int, str] | None:
    """Votes for and against, one per person, of the most trusted kind that says anything; None where it is a draw.

    Of people known not to be allowed to write to the repository nothing counts. A reaction that was taken back is none.
    """
    withdrawn = {s.source for s in signals if s.kind == "withdrawn"}
    for says in _SAYS:
        votes: dict[str, bool] = {}
        for signal in signals:
            said = says.get((signal.kind, signal.value))
            taken_back = signal.kind == "reaction" and signal.source in withdrawn
            if said is None or signal.actor_writes is False or taken_back:
                continue
            votes[signal.actor] = said
        good = sum(votes.values())
        bad = len(votes) - good
        if good != bad:
            return good, bad, next(iter(says))[0]
        if votes:
            return None
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
