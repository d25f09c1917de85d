"""The report of an unprivileged run on a fork's pull request, and how it is used.

Who opened the pull request controls the run that wrote the report: it may hold anything, and leave out anything. So
it only says which pull request to look at. The review in it is for people who open the artifact.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ptopt.findings import Review
from ptopt.github.client import GitHubClient
from ptopt.github.pipeline import Outcome, PreparedReview, prepare_review
from ptopt.report.json import as_data

_MAX_BYTES = 2_000_000


class ReportError(Exception):
    """The report is none."""


class _Report(BaseModel):
    model_config = ConfigDict(extra="ignore")

    repository: str = Field(max_length=255)
    pull_request: int = Field(ge=1)
    head_sha: str = Field(pattern=r"^[0-9a-f]{40,64}$")


def write_report(path: Path, repo: str, number: int, head_sha: str, review: Review | None) -> None:
    """Keep what was found for the run that may post; None where there was nothing to review."""
    data = {
        "repository": repo,
        "pull_request": number,
        "head_sha": head_sha,
        "review": None if review is None else as_data(review),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")


def review_again(
    github: GitHubClient, repo: str, path: Path, run: Mapping[str, Any]
) -> PreparedReview | Outcome:
    """Our own review of the pull request of the report, if the report was written for its head.

    `run` is the `workflow_run` of the event, which GitHub wrote. Raises ReportError for what is no report.
    """
    report = _read(path)
    head_sha, head_repo = str(run["head_sha"]), (run.get("head_repository") or {}).get("full_name")
    if report.repository != repo or report.head_sha != head_sha:
        raise ReportError("the report is about another repository or commit than the run that wrote it")
    pull = github.pull(repo, report.pull_request)
    if pull.head_sha != head_sha or pull.head_repo != head_repo or not pull.open:
        return Outcome("superseded", "the pull request is closed, or its head has changed", pull)
    return prepare_review(github, repo, report.pull_request, head_sha=head_sha)


def _read(path: Path) -> _Report:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise ReportError(f"{path}: the report cannot be read: {error.strerror}") from None
    if len(data) > _MAX_BYTES:
        raise ReportError(f"{path}: the report is larger than {_MAX_BYTES} bytes")
    try:
        return _Report.model_validate_json(data)
    except ValidationError as error:
        raise ReportError(f"{path}: not a report of ptopt: {error.error_count()} fields are wrong") from None
