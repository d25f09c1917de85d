"""Hand a review to GitHub code scanning."""

from __future__ import annotations

from typing import Protocol

from ptopt.findings import Review
from ptopt.report import sarif


class CodeScanningClient(Protocol):
    def upload_sarif(self, repo: str, commit_sha: str, ref: str, sarif: bytes) -> None: ...


def upload(github: CodeScanningClient, repo: str, head_sha: str, ref: str, review: Review) -> None:
    """Upload the review as SARIF. Uploading it again replaces it."""
    github.upload_sarif(repo, head_sha, ref, sarif.render(review).encode("utf-8", "backslashreplace"))
