"""Check runs and SARIF uploads."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fake_github import shapes
from fake_github.http import ApiError

if TYPE_CHECKING:
    from fake_github.accounts import App
    from fake_github.repos import Repo

Json = dict[str, Any]
ANNOTATIONS = 50  # in one request
TEXT = 65_535


@dataclass(eq=False)
class Sarif:
    id: str
    commit_sha: str
    ref: str
    data: Json  # the SARIF log
    login: str


@dataclass(eq=False)
class CheckRun:
    repo: Repo
    id: int
    app: App
    name: str
    head_sha: str
    status: str = "queued"
    conclusion: str | None = None
    external_id: str = ""
    details_url: str | None = None
    started: float = field(default_factory=time.time)
    completed: float | None = None
    title: str | None = None
    summary: str | None = None
    text: str | None = None
    annotations: list[Json] = field(default_factory=list)

    def update(self, data: Json) -> None:
        """Takes over what a request gives; annotations are added to those there are."""
        output = data.get("output") or {}
        annotations = output.get("annotations") or []
        if len(annotations) > ANNOTATIONS:
            message = f"No more than {ANNOTATIONS} annotations can be added in one request."
            raise ApiError(422, f"Invalid request.\n\n{message}")
        for name in ("summary", "text"):
            if len((output.get(name) or "").encode()) > TEXT:
                error = {"resource": "CheckRun", "code": "invalid", "field": name}
                raise ApiError(422, "Validation Failed", [error])
        if data.get("status") == "completed" and not (data.get("conclusion") or self.conclusion):
            raise ApiError(422, 'Invalid request.\n\n"conclusion" wasn\'t supplied.')
        for annotation in annotations:
            if annotation["start_line"] != annotation["end_line"] and "start_column" in annotation:
                raise ApiError(422, "Invalid request.\n\nColumns are for annotations of one line.")
        self.name = data.get("name", self.name)
        self.status = data.get("status", self.status)
        self.external_id = data.get("external_id", self.external_id)
        self.details_url = data.get("details_url", self.details_url)
        if data.get("conclusion"):
            self.conclusion, self.status = data["conclusion"], "completed"
            self.completed = time.time()
        self.title = output.get("title", self.title)
        self.summary = output.get("summary", self.summary)
        self.text = output.get("text", self.text)
        self.annotations += annotations

    def shape(self) -> Json:
        github = self.repo.github
        url = f"{github.url}/repos/{self.repo.full_name}/check-runs/{self.id}"
        html = f"{github.html}/{self.repo.full_name}/runs/{self.id}"
        return {
            "id": self.id,
            "name": self.name,
            "node_id": f"CR_{self.id:x}",
            "head_sha": self.head_sha,
            "external_id": self.external_id,
            "url": url,
            "html_url": html,
            "details_url": self.details_url or html,
            "status": self.status,
            "conclusion": self.conclusion,
            "started_at": shapes.stamp(self.started),
            "completed_at": shapes.stamp(self.completed) if self.completed else None,
            "output": {
                "title": self.title,
                "summary": self.summary,
                "text": self.text,
                "annotations_count": len(self.annotations),
                "annotations_url": f"{url}/annotations",
            },
            "check_suite": {"id": self.app.id},
            "app": shapes.app(github, self.app),
            "pull_requests": [],
        }

    def annotation_shape(self, annotation: Json) -> Json:
        html = f"{self.repo.github.html}/{self.repo.full_name}/blob/{self.head_sha}/{annotation['path']}"
        empty = {"start_column": None, "end_column": None, "title": None, "raw_details": None}
        return {**empty, **annotation, "blob_href": html}
