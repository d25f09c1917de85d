"""A job is held on to while it is worked on."""

from __future__ import annotations

import io
import json
import time
from datetime import datetime, timezone

import pytest
from sqlalchemy import Engine

from fake_github.repos import Repo
from ptopt.github.errors import SupersededError
from service import logs
from service.lease_renewal import LeaseRenewal
from tests.worker.pulls import SLOW, job_for, run
from tests.worker.rows import add, change, claimed, row
from worker.job_context import Resources


def test_the_lease_is_renewed_until_the_end(engine: Engine) -> None:
    job = claimed(engine, add(engine))
    first = row(engine, job.id).lease_until
    assert first is not None
    with LeaseRenewal(engine, job, lease=0.3):
        deadline = time.monotonic() + 10
        while row(engine, job.id).lease_until == first and time.monotonic() < deadline:
            time.sleep(0.02)
    last = row(engine, job.id).lease_until
    assert last != first
    time.sleep(0.4)
    assert row(engine, job.id).lease_until == last


def test_check_renews_at_once(engine: Engine) -> None:
    job = claimed(engine, add(engine))
    with LeaseRenewal(engine, job, lease=60) as renewal:
        before = datetime.now(timezone.utc)
        renewal.check()
        until = row(engine, job.id).lease_until
        assert until is not None and (until - before).total_seconds() >= 60


def test_check_refuses_another_owner(engine: Engine) -> None:
    job = claimed(engine, add(engine))
    with LeaseRenewal(engine, job, lease=60) as renewal:
        change(engine, job.id, owner="another")
        with pytest.raises(SupersededError, match="lease"):
            renewal.check()


def test_check_refuses_a_stale_review(engine: Engine) -> None:
    job = claimed(engine, add(engine, "a"))
    with LeaseRenewal(engine, job, lease=60) as renewal:
        add(engine, "b")
        with pytest.raises(SupersededError, match="newer"):
            renewal.check()


def test_each_line_of_the_log_tells_whose_it_is(resources: Resources, repo: Repo) -> None:
    out = io.StringIO()
    pull = repo.pull(files={"train.py": SLOW}, author="dev")
    job_id = job_for(resources, pull)
    change(resources.engine, job_id, delivery="a-guid")
    logs.configure("INFO", "json", out)
    run(resources, job_id)
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    ours = [line for line in lines if line["event"].startswith("job ")]
    assert [line["event"] for line in ours] == ["job started", "job finished"]
    for line in ours:
        found = (line["job"], line["delivery"], line["repository"], line["pull"], line["kind"])
        assert found == (job_id, "a-guid", "octo/models", pull.number, "review")
