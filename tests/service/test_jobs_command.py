"""The operator's command line."""

from __future__ import annotations

import pytest
from click.testing import CliRunner, Result

from service.__main__ import main
from service.jobs import Kind
from tests.worker.rows import add, change, row
from worker.job_context import Resources


@pytest.fixture
def invoke(resources: Resources, monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.setenv("PTOPT_DATABASE_URL", resources.settings.database_url)

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(main, arguments)

    return run


def test_jobs_and_retry(resources: Resources, invoke) -> None:  # type: ignore[no-untyped-def]
    assert "No jobs." in invoke("jobs").output
    fine, broken = add(resources.engine, "a" * 40), add(resources.engine, "b" * 40, pull=4)
    change(
        resources.engine, broken, state="dead", attempts=3, error="Traceback\n  File\nValueError: \x1b[31mred"
    )
    everything = invoke("jobs").output
    assert f"{fine} queued review octo/models#3 aaaaaaa" in everything
    polls = [add(resources.engine, "", kind=Kind.POLL, pull=9, subject=state) for state in ("done", "dead")]
    for job, state in zip(polls, ("done", "dead"), strict=True):
        change(resources.engine, job, state=state)
    command = add(resources.engine, "", kind=Kind.COMMAND, pull=8)
    listed = invoke("jobs").output
    assert f"{polls[0]} done" not in listed and f"{polls[1]} dead look for reactions" in listed
    assert f"{command} queued slash command" in listed
    assert f"{polls[0]} done look for reactions" in invoke("jobs", "--polls").output
    assert invoke("retry", str(polls[1])).exit_code == 0
    dead = invoke("jobs", "--dead").output
    assert f"{broken} dead review octo/models#4 bbbbbbb attempts=3" in dead
    assert "ValueError" in dead and "File" not in dead and "\x1b" not in dead
    assert "octo/models#3" not in dead
    assert "File" in invoke("jobs", "--id", str(broken)).output
    refused = invoke("retry", str(fine))
    assert refused.exit_code == 1 and "not dead" in refused.output
    assert invoke("retry", str(broken)).exit_code == 0
    assert row(resources.engine, broken).state == "queued"
    assert "No dead jobs." in invoke("jobs", "--dead").output
