"""The Compose file: valid by the specification, and in step with settings, images and chart."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from compose_spec import PyCompose
from dotenv import dotenv_values

import ptopt
from service import settings_table
from service.jobs import QUEUES
from service.settings import Settings
from worker.app import make_app

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docker/compose.yaml").read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
EXAMPLE = ROOT / "docker/example.env"


def validate(compose: dict[str, Any]) -> PyCompose:
    """As a Compose implementation reads it: with the variables filled in, and nothing that it does not know."""
    text = re.sub(
        r"\$\{\w+:(-|\?)([^}]*)\}", lambda found: found[2] if found[1] == "-" else "x", json.dumps(compose)
    )
    read = PyCompose.from_json(text)
    read.validate()
    return read


def test_it_is_valid() -> None:
    assert set(validate(COMPOSE).service_names()) == set(SERVICES)


@pytest.mark.parametrize(
    ("service", "key"), [("bot", "ports"), ("valkey", "healthcheck"), ("vllm", "volumes")]
)
def test_a_planted_fault_is_found(service: str, key: str) -> None:
    broken = json.loads(json.dumps(COMPOSE))
    broken["services"][service][f"my-{key}"] = broken["services"][service].pop(key)
    with pytest.raises(ValueError, match=f"my-{key}"):
        validate(broken)


def test_volumes_are_declared_and_used() -> None:
    used = {
        volume.partition(":")[0] for service in SERVICES.values() for volume in service.get("volumes", ())
    }
    assert used == COMPOSE["volumes"].keys()


def test_every_variable_has_a_default_or_is_required_and_documented() -> None:
    documented = set(re.findall(r"^#?([A-Z_]+)=", EXAMPLE.read_text(), re.M))
    for name, rest in re.findall(r"\$\{(\w+)([^}]*)\}", TEXT):
        assert rest.startswith((":-", ":?")), name
        if not name.endswith("_TAG") or name == "IMAGE_TAG":
            assert name in documented, name
    assert set(re.findall(r"\$\{IMAGE_TAG:-(.+?)\}", TEXT)) == {ptopt.__version__}
    assert dotenv_values(EXAMPLE)["IMAGE_TAG"] == ptopt.__version__


def test_the_example_sets_settings_of_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    uncommented = re.sub(r"^#(?=[A-Z_]+=)", "", EXAMPLE.read_text(), flags=re.M)
    given = dict.fromkeys(re.findall(r"^(\w+)=", uncommented, re.M), "x")
    for service in SERVICES.values():
        given |= dict.fromkeys(service.get("environment", {}), "x")
    assert list(settings_table.unknown(given)) == []
    for name, value in dotenv_values(EXAMPLE).items():
        monkeypatch.setenv(name, value or "")
    assert Settings().public_url == "https://ptopt.example.org"


def test_containers_are_hardened() -> None:
    for name, service in SERVICES.items():
        assert service["read_only"] is True and service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert "ptopt-" in service["image"] or not service["user"].startswith("0"), name
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:"), name


def test_the_start_is_ordered_by_health() -> None:
    for name, service in SERVICES.items():
        for other, how in service.get("depends_on", {}).items():
            if how["condition"] == "service_healthy":
                assert "test" in SERVICES[other]["healthcheck"], (name, other)
            else:
                assert how["condition"] == "service_completed_successfully"
                assert SERVICES[other]["restart"] == "no"
    assert SERVICES["migrations"]["command"] == ["python", "-m", "service", "upgrade"]
    for name in ("bot", "worker", "worker-command", "scheduler"):
        assert "migrations" in SERVICES[name]["depends_on"]


def test_every_queue_has_a_worker_with_the_time_of_its_longest_job() -> None:
    queues = set()
    for name, service in SERVICES.items():
        command = service.get("command", [])
        if "-Q" in command:
            queues |= set(command[command.index("-Q") + 1].split(","))
            minutes = int(re.fullmatch(r"(\d+)m", service["stop_grace_period"])[1])  # type: ignore[index]
            assert minutes * 60 >= make_app(Settings()).conf.task_time_limit, name
    assert queues == set(QUEUES.values())


def test_images_are_those_of_the_chart() -> None:
    chart = yaml.safe_load((ROOT / "helm/ptopt/values.yaml").read_text(encoding="utf-8"))["images"]
    for service, image in (("bot", "bot"), ("worker", "worker"), ("training", "training"), ("vllm", "modelServer"),
                           ("postgresql", "postgresql"), ("valkey", "valkey")):  # fmt: skip
        name, _, tag = SERVICES[service]["image"].partition(":${")
        assert name == f"{chart[image]['registry']}/{chart[image]['repository']}"
        if chart[image]["tag"]:
            assert tag.endswith(f":-{chart[image]['tag']}}}")
