"""The review of a whole repository, and the audit made of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ptopt.audit.audit import audit
from ptopt.audit.stated import with_readme
from ptopt.audit.values import Audit
from ptopt.change import ChangedFile, whole_file
from ptopt.pathkind import is_reviewable
from ptopt.project.around import Neighbours
from ptopt.project.naming import Naming, may_name
from ptopt.ranker.model import threshold
from ptopt.review import review_files

if TYPE_CHECKING:
    from ptopt.config import Config
    from ptopt.findings import NotReviewed
    from ptopt.project.facts import ProjectFacts

_BELOW = 0.8  # an audit also lists, as low, what is a little less sure than a comment on a pull request


def audit_of(
    name: str,
    files: Mapping[str, bytes],
    config: Config,
    facts: ProjectFacts,
    not_read: Sequence[NotReviewed] = (),
    watch: Callable[[list[ChangedFile | NotReviewed]], Iterable[ChangedFile | NotReviewed]] = iter,
) -> Audit:
    """The audit of a repository, of its files by path; `watch` sees those that are reviewed, one after the other."""
    facts = dataclasses.replace(
        facts, naming=Naming({path: data for path, data in files.items() if may_name(path)}, whole=True)
    )
    sure = threshold(config.min_confidence)
    broad = config.model_copy(update={"min_confidence": sure * _BELOW})
    whole = [whole_file(path, data) for path, data in files.items() if is_reviewable(path)]
    review = review_files(
        watch([*whole, *not_read]), config=broad, facts=facts, limit_to_change=False,
        neighbours=Neighbours(lambda: files, files.get),
    )  # fmt: skip
    return audit(name, files, with_readme(facts, files), review, sure)
