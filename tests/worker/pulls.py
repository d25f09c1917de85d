"""Pull requests on the fake GitHub, and their jobs."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from fake_github import FakeGitHub, Pull
from service.jobs import Kind
from service.models import Job
from service.settings import Settings
from tests.worker.rows import add, row
from worker.job_context import Resources
from worker.run_job import execute

SLOW = b"""\
import torch


def train(model, loader, optimizer, device):
    total = 0.0
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total
"""
FAST = SLOW.replace(
    b"        total += loss.item()\n    return total\n",
    b"        total += loss.detach()\n    return float(total)\n",
)


def settings_for(github: FakeGitHub, database_url: str, **more: Any) -> Settings:
    given = {
        "github_url": github.url,
        "app_id": github.app.id,
        "private_key": github.app.private_key,
        "webhook_secret": github.app.webhook_secret,
        "secret_key": "a key of the tests",
        "database_url": database_url,
        "debounce": 0,
        "seconds_between_writes": 0,
    }
    return Settings(**given | more)


def now() -> datetime:
    return datetime.now(timezone.utc)


def job_for(
    resources: Resources, pull: Pull, kind: Kind = Kind.REVIEW, head: str | None = None, **more: Any
) -> int:
    """Add a job of a pull request, for its head; its id."""
    assert pull.repo.installation is not None
    return add(
        resources.engine,
        pull.head_sha if head is None else head,
        kind=kind,
        pull=pull.number,
        now=now(),
        installation_id=pull.repo.installation.id,
        repository_id=pull.repo.id,
        repository=pull.repo.full_name,
        **more,
    )


def run(resources: Resources, job_id: int) -> Job:
    """Do what the Celery task does; the job's row afterwards."""
    execute(resources, job_id)
    return row(resources.engine, job_id)
