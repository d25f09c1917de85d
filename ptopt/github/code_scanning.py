"""Hand a review to GitHub code scanning."""

from __future__ import annotations

from ptopt.findings import Review
from ptopt.github.client import GitHubClient
from ptopt.report import sarif


def upload(github: GitHubClient, repo: str, head_sha: str, ref: str, review: Review) -> None:
    """Upload the review as SARIF. Uploading it again replaces it."""
    github.upload_sarif(repo, head_sha, ref, sarif.render(review).encode("utf-8", "backslashreplace"))
