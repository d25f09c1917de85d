"""The review of a whole repository, and the audit made of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ptopt.audit.audit import audit
from ptopt.audit.values import Audit
from ptopt.ranker.model import threshold
from ptopt.review import review_files
from ptopt.runner import Runner, in_process

if TYPE_CHECKING:
    from ptopt.change import ChangedFile
    from ptopt.config import Config
    from ptopt.findings import NotReviewed
    from ptopt.project.facts import ProjectFacts

_BELOW = 0.8  # an audit also lists, as low, what is a little less sure than a comment on a pull request


def audit_of(
    name: str,
    files: Mapping[str, bytes],
    reviewable: Iterable[ChangedFile | NotReviewed],
    config: Config,
    facts: ProjectFacts,
    *,
    scripts: frozenset[str] = frozenset(),
    runner: Runner = in_process,
) -> Audit:
    """The audit of a repository: `files` by path, of which `reviewable` are reviewed."""
    sure = threshold(config.min_confidence)
    broad = config.model_copy(update={"min_confidence": sure * _BELOW})
    review = review_files(reviewable, config=broad, facts=facts, limit_to_change=False, runner=runner)
    return audit(name, files, facts, review, sure, scripts=scripts)
