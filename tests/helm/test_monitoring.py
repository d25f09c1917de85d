"""Alerts and dashboard: expressions that Prometheus can read, over metrics that the service has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import promql_parser
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.bot.conftest import Served, pull_request
from tests.helm.rendering import CHART, of_kind, render

_METRIC = re.compile(r"\bptopt_\w+")


def expressions() -> Iterator[tuple[str, str]]:
    rules = yaml.safe_load((CHART / "files/alerts.yaml").read_text(encoding="utf-8"))
    for group in rules["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]
    for panel in json.loads((CHART / "files/dashboard.json").read_text(encoding="utf-8"))["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


EXPRESSIONS = list(expressions())


@pytest.mark.parametrize("expression", [text for _, text in EXPRESSIONS])
def test_prometheus_can_read_it(expression: str) -> None:
    promql_parser.parse(expression)


def test_a_planted_fault_is_found() -> None:
    with pytest.raises(ValueError, match="unclosed"):
        promql_parser.parse("sum(rate(ptopt_jobs[5m])")


def test_its_metrics_are_those_of_the_service(served: Served) -> None:
    served.deliver("pull_request", pull_request())
    found = {
        name
        for family in text_string_to_metric_families(served.client.get("/metrics").text)
        for name in (family.name, f"{family.name}_total", f"{family.name}_bucket", f"{family.name}_count")
    }
    wanted = {metric for _, text in EXPRESSIONS for metric in _METRIC.findall(text)}
    assert wanted <= found
    labels = {label for _, text in EXPRESSIONS for label in re.findall(r'(\w+)=~?"', text)}
    assert labels <= {"state", "kind", "reason", "model", "quantile"}


def test_the_objects_hold_them_whole() -> None:
    """Templates of alerts and of the legend are not those of Helm."""
    objects = render(CHART / "examples/everything.yaml")
    (rules,) = of_kind(objects, "PrometheusRule").values()
    alerts = {rule["alert"]: rule for rule in rules["spec"]["groups"][0]["rules"]}
    assert "{{ $labels.kind }}" in alerts["PtoptDeadJobs"]["annotations"]["summary"]
    assert all({"summary", "description"} <= rule["annotations"].keys() for rule in alerts.values())
    dashboard = of_kind(objects, "ConfigMap")["reviewer-dashboard"]
    assert json.loads(dashboard["data"]["ptopt.json"])["uid"] == "ptopt"
    (monitor,) = of_kind(objects, "PodMonitor").values()
    port = monitor["spec"]["podMetricsEndpoints"][0]["port"]
    (bot,) = (d for d in of_kind(objects, "Deployment").values() if d["metadata"]["name"].endswith("-bot"))
    assert port in [p["name"] for p in bot["spec"]["template"]["spec"]["containers"][0]["ports"]]
