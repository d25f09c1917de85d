"""What the pods run: the commands, the work that scales them, and how they end."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from kombu import Connection
from sqlalchemy import create_engine, insert, text

from service import database
from service.jobs import QUEUES
from service.models import Job
from tests.bot.conftest import Serve
from tests.helm.rendering import CHART, Object, containers, of_kind, pod_templates, render
from worker.app import QUEUE_NAMES, make_app

KEDA = CHART / "examples/keda.yaml"


def test_commands_are_there(objects: list[Object]) -> None:
    for name, pod in pod_templates(objects):
        for container in containers(pod):
            command = container.get("command", [])
            if command[:2] == ["python", "-m"]:
                assert importlib.util.find_spec(command[2]) is not None, name
            elif command[:1] == ["celery"]:
                assert command[:4] == ["celery", "-A", "worker", "worker"], name
                assert set(command[command.index("-Q") + 1].split(",")) <= set(QUEUE_NAMES), name


def test_every_queue_has_a_worker(values: Path | None, objects: list[Object]) -> None:
    served = {
        queue
        for _, pod in pod_templates(objects)
        for container in containers(pod)
        if "-Q" in (command := container.get("command", []))
        for queue in command[command.index("-Q") + 1].split(",")
    }
    embedded = values is not None and values.stem == "embedded"
    assert served == (set() if embedded else set(QUEUES.values()))


def test_a_worker_has_the_time_that_its_longest_job_takes(objects: list[Object]) -> None:
    from service.settings import Settings

    limit = make_app(Settings()).conf.task_time_limit
    for name, deployment in of_kind(objects, "Deployment").items():
        spec = deployment["spec"]["template"]["spec"]
        if "-worker-" in name:
            assert spec["terminationGracePeriodSeconds"] >= limit
            # The file is not touched without the broker: jobs that need none must not be killed for it.
            probe = spec["containers"][0]["livenessProbe"]["exec"]["command"][-1]
            assert probe == 'test -n "$(find /tmp/heartbeat -mmin -15)"'
            assert limit < 15 * 60
            assert deployment["spec"]["strategy"] == {"type": "Recreate"}


def test_the_model_server_has_time_to_load() -> None:
    objects = render(CHART / "examples/model-server.yaml", "--set", "modelServer.startupSeconds=1234")
    (server,) = of_kind(objects, "Deployment")["ptopt-model-server"]["spec"]["template"]["spec"]["containers"]
    probe = server["startupProbe"]
    assert 1234 <= probe["periodSeconds"] * probe["failureThreshold"] < 1254


def test_a_retraining_knows_of_the_adapter_what_the_settings_say() -> None:
    given = {"PTOPT_RETRAIN_ADAPTER": "configs/llama32-3b-gpu.yaml", "PTOPT_RETRAIN_CLONES": "/runs/clones"}
    options = [word for name, value in given.items() for word in ("--set", f"settings.{name}={value}")]
    objects = render(CHART / "examples/everything.yaml", "--set", "retraining.enabled=true", *options)
    (job,) = (
        found for found in objects if found["kind"] == "CronJob" and "retraining" in found["metadata"]["name"]
    )
    (container,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    known = {one["name"]: one.get("value") for one in container["env"]}
    assert given.items() <= known.items() and known["PTOPT_MODEL_REGISTRY"]


def test_each_queue_is_scaled_by_the_jobs_that_are_its_own() -> None:
    scalers = of_kind(render(CHART / "examples/everything.yaml"), "ScaledObject")
    for queue in set(QUEUES.values()):
        query = scalers[f"reviewer-worker-{queue}"]["spec"]["triggers"][0]["metadata"]["query"]
        for kind, its in QUEUES.items():
            assert (f"'{kind}'" in query) is (its == queue)


def test_jobs_that_are_due_or_running_are_counted(postgres_url: str) -> None:
    """By the query of the chart, on a real PostgreSQL. Those that wait for later, or are over, hold no GPU."""
    scalers = of_kind(render(KEDA), "ScaledObject")
    trigger = scalers["ptopt-worker-review"]["spec"]["triggers"][0]
    query = trigger["metadata"]["query"]
    now = datetime.now(timezone.utc)
    engine = create_engine(postgres_url)

    def counted() -> int:
        with engine.connect() as connection:
            return int(connection.execute(text(query)).scalar_one())

    assert counted() == 0
    for number, (kind, state, due) in enumerate(
        [("review", "running", 0), ("review", "queued", -5), ("review", "queued", 3600), ("review", "done", 0),
         ("review", "dead", 0), ("review", "superseded", 0), ("command", "running", 0), ("poll", "queued", -5)]
    ):  # fmt: skip
        row = {"kind": kind, "installation_id": 1, "repository_id": 1, "repository": "a/b", "pull": number,
               "head_sha": str(number), "subject": "", "payload": {}, "state": state,
               "due_at": now + timedelta(seconds=due), "created_at": now}  # fmt: skip
        with engine.begin() as connection:
            connection.execute(insert(Job), row)
    assert counted() == 2
    engine.dispose()


def test_keda_gets_the_url_from_the_secret() -> None:
    (theirs,) = of_kind(render(KEDA), "TriggerAuthentication").values()
    assert theirs["spec"]["secretTargetRef"] == [
        {"parameter": "connection", "name": "ptopt-keda", "key": "url"}
    ]
    objects = render(CHART / "examples/everything.yaml")
    (builtin,) = of_kind(objects, "TriggerAuthentication").values()
    reference = builtin["spec"]["secretTargetRef"][0]
    url = of_kind(objects, "Secret")[reference["name"]]["stringData"][reference["key"]]
    assert url == "postgresql://ptopt:not-a-secret@reviewer-postgresql.reviews.svc/ptopt"


def test_a_password_may_hold_any_character() -> None:
    """In the URLs of the built-in services, as the service and Celery read them."""
    password = "a b+c/@:%25?#"
    options = [f"--set-string={name}.password={password}" for name in ("postgresql", "valkey")]
    secret = of_kind(render(CHART / "examples/minimal.yaml", *options), "Secret")["ptopt-builtin"][
        "stringData"
    ]
    assert secret["postgresql-password"] == secret["valkey-password"] == password
    url = database.engine(secret["PTOPT_DATABASE_URL"]).url
    assert (url.drivername, url.password) == ("postgresql+psycopg", password)
    assert (url.host, url.database) == ("ptopt-postgresql.reviews.svc", "ptopt")
    assert Connection(secret["PTOPT_BROKER_URL"]).password == password


@pytest.mark.slow
def test_helm_test(serve: Serve) -> None:
    """The script of the test pod, against the real application and against one that accepts anything."""
    (pod,) = of_kind(render(), "Pod").values()
    script = pod["spec"]["containers"][0]["args"][0]

    def run(port: int) -> subprocess.CompletedProcess[str]:
        environment = {"URL": f"http://127.0.0.1:{port}", "PATH": os.environ["PATH"]}
        return subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False
        )

    with serve() as served:
        done = run(served.port)
        assert done.returncode == 0, done.stderr
        assert "without a signature: 401" in done.stdout
    assert run(1).returncode != 0


@pytest.fixture
def node(tmp_path: Path) -> dict[str, str]:
    """The environment of a training pod, with a torchrun that writes down its arguments and ends like a run."""
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "torchrun").write_text(
        "#!/bin/bash\n"
        'printf "%s\\n" "$@" > arguments\n'
        'for word in "$@"; do case "$word" in output=*) run="${word#output=}/llama-1"; mkdir -p "$run"; '
        'touch "$run/settings.yaml";; esac; done\n'
        'if [ -n "$SLEEP" ]; then trap "echo stopped > stopped; exit 0" TERM; touch ready; sleep 30 & wait; fi\n'
        'if [ -z "$SLEEP" ] && [ -z "$FAIL" ]; then mkdir -p llama/llama-1/adapter; touch llama/llama-1/adapter/card.json; fi\n'
        'exit "${FAIL:-0}"\n'
    )
    (tools / "torchrun").chmod(0o755)
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    return {"PATH": path, "TRAINING": "llama", "NODES": "2", "PROCESSES": "4", "SLEEP": "", "FAIL": ""}


SCRIPT = CHART / "files/training.sh"
ARGUMENTS = ["configs/llama32-3b-gpu.yaml", "batch.accumulation=1"]


def test_a_training_begins_and_goes_on(node: dict[str, str], tmp_path: Path) -> None:
    def run(**more: str) -> int:
        return subprocess.run(
            ["bash", SCRIPT, *ARGUMENTS], cwd=tmp_path, env=node | more, check=False
        ).returncode

    assert run(FAIL="3") != 0
    first = (tmp_path / "arguments").read_text().split("\n")
    assert first[-4:-1] == [*ARGUMENTS, f"output={tmp_path}/llama"]
    assert "llama-0.llama:29400" in first and first[first.index("--nnodes") + 1] == "2"
    assert run() == 0
    again = (tmp_path / "arguments").read_text().split("\n")
    assert again[-3:-1] == ["--resume", f"{tmp_path}/llama/llama-1"]


def test_a_training_that_is_stopped_is_not_done(node: dict[str, str], tmp_path: Path) -> None:
    from tests.worker.processes import wait_for

    with subprocess.Popen(["bash", SCRIPT, *ARGUMENTS], cwd=tmp_path, env=node | {"SLEEP": "1"}) as running:
        wait_for((tmp_path / "ready").exists)
        running.terminate()
        assert running.wait(20) != 0  # it has a checkpoint, and no adapter: the Job starts it again
    assert (tmp_path / "stopped").exists()
