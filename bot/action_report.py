"""The report of an unprivileged run on a fork's pull request, and what of it may be posted.

Who opened the pull request controls the run that wrote the report: it may hold anything. So it only chooses: what is
posted are findings that we find ourselves, in our words, on the head that GitHub says the run was for.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ptopt.github.client import GitHubClient
from ptopt.github.pipeline import Look, Outcome, look
from ptopt.report.json import as_data

_MAX_BYTES = 2_000_000
_MARK = r"^[0-9a-f]{32}$"


class ReportError(Exception):
    """The report is none."""


class _Finding(BaseModel):
    model_config = ConfigDict(extra="ignore")

    fingerprint: str = Field(pattern=_MARK)


class _Review(BaseModel):
    model_config = ConfigDict(extra="ignore")

    findings: list[_Finding] = Field(max_length=1000)


class _Report(BaseModel):
    model_config = ConfigDict(extra="ignore")

    repository: str = Field(max_length=255)
    pull_request: int = Field(ge=1)
    head_sha: str = Field(pattern=r"^[0-9a-f]{40,64}$")
    review: _Review


def write(path: Path, seen: Look) -> None:
    """Keep the review of a pull request for the run that may post it."""
    data = {
        "repository": seen.pull.repo,
        "pull_request": seen.pull.number,
        "head_sha": seen.pull.head_sha,
        "review": as_data(seen.review),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")


def confirmed(github: GitHubClient, repo: str, path: Path, run: Mapping[str, Any]) -> Look | Outcome:
    """Our own look at the pull request of the report, less what the report does not name.

    `run` is the `workflow_run` of the event, which GitHub wrote. Raises ReportError for what is no report.
    """
    told = _read(path)
    head_sha, head_repo = str(run["head_sha"]), (run.get("head_repository") or {}).get("full_name")
    if told.repository != repo or told.head_sha != head_sha:
        raise ReportError("the report is about another repository or commit than the run that wrote it")
    pull = github.pull(repo, told.pull_request)
    if pull.head_sha != head_sha or pull.head_repo != head_repo or not pull.open:
        return Outcome("superseded", "the pull request is closed, or its head is another one by now", pull)
    seen = look(github, repo, told.pull_request, head_sha=head_sha)
    if isinstance(seen, Outcome):
        return seen
    named = {finding.fingerprint for finding in told.review.findings}
    findings = tuple(f for f in seen.review.findings if f.fingerprint in named)
    unknown = len(named - {f.fingerprint for f in findings})
    if unknown:
        print(f"{unknown} findings of the report were not found again and are dropped.")
    return dataclasses.replace(seen, review=dataclasses.replace(seen.review, findings=findings))


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
