"""Values that cannot be meant are refused, by name."""

from __future__ import annotations

import pytest

from tests.helm.rendering import template
from tests.helm.tools import HELM


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ("bot.replica=3", "replica"),
        ("bots.replicas=3", "bots"),
        ("settings.PTOPT_DEBONCE=5", "PTOPT_DEBONCE"),
        ("settings.PTOPT_SECRET_KEY=x", "PTOPT_SECRET_KEY"),
        ("secretValues.PTOPT_DEBOUNCE=5", "PTOPT_DEBOUNCE"),
        ("modelServer.images.tag=x", "images"),
        ("bot.replicas=two", "replicas"),
        ("mode=serverless", "mode"),
        ("workerGraceSeconds=600", "workerGraceSeconds"),
        ("settings.PTOPT_REVIEWS_AT_ONCE=0", "PTOPT_REVIEWS_AT_ONCE"),
        ("training.nccl.LD_PRELOAD=x", "LD_PRELOAD"),
    ],
)
@pytest.mark.parametrize("version", HELM)
def test_a_wrong_value_is_refused_by_name(values: str, named: str, version: str) -> None:
    done = template("--set", values, version=version)
    assert done.returncode != 0
    assert named in done.stderr


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ("gpuWorker.enabled=true,modelServer.enabled=true", "choose one"),
        ("gpuWorker.enabled=true", "settings.PTOPT_MODEL"),
        ("modelServer.enabled=true,settings.PTOPT_MODEL=x", "modelServer.model"),
        ("gateway.enabled=true", "gateway.parentRefs"),
        ("existingSecret=", "existingSecret"),
        ("secretValues.PTOPT_SECRET_KEY=x", "secretValues.PTOPT_DATABASE_URL"),
        ("mode=embedded,keda.enabled=true", "keda.enabled: not with mode embedded"),
        ("keda.enabled=true,secretValues.PTOPT_BROKER_URL=x,secretValues.PTOPT_DATABASE_URL=postgresql+psycopg://h/n",
         "without +psycopg"),
    ],
)  # fmt: skip
def test_values_that_do_not_go_together_are_refused(values: str, says: str) -> None:
    done = template("--set", values)
    assert done.returncode != 0
    assert says in done.stderr
