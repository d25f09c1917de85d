"""The chart as Helm renders it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.helm.tools import FOLDER, tool

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm/ptopt"
EXAMPLES = sorted((CHART / "examples").glob("*.yaml"))
Object = dict[str, Any]


def helm(*arguments: str | Path, version: str = "helm-4") -> subprocess.CompletedProcess[str]:
    """Run Helm."""
    return subprocess.run(
        [tool(FOLDER / version), *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )


def template(*options: str | Path, version: str = "helm-4") -> subprocess.CompletedProcess[str]:
    """`helm template` of a release `ptopt` in the namespace `reviews`."""
    return helm("template", "ptopt", CHART, "--namespace", "reviews", *options, version=version)


@cache
def _rendered(*options: str | Path, version: str) -> str:
    done = template(*options, version=version)
    assert done.returncode == 0, done.stderr
    return done.stdout


def render(values: Path | None = None, *options: str, version: str = "helm-4") -> list[Object]:
    """The objects of a release."""
    given = ("--values", values) if values else ()
    text = _rendered(*given, *options, version=version)
    return [found for found in yaml.load_all(text, Loader=yaml.CSafeLoader) if found]


def of_kind(objects: list[Object], kind: str) -> dict[str, Object]:
    """By name."""
    return {found["metadata"]["name"]: found for found in objects if found["kind"] == kind}


def pod_templates(objects: list[Object]) -> Iterator[tuple[str, Object]]:
    """Labels and spec of every pod that may come of the objects, with a name."""
    for found in objects:
        name = f"{found['kind']}/{found['metadata']['name']}"
        if found["kind"] == "Pod":
            yield name, found
        elif found["kind"] == "CronJob":
            yield name, found["spec"]["jobTemplate"]["spec"]["template"]
        elif found["kind"] in ("Deployment", "StatefulSet", "Job"):
            yield name, found["spec"]["template"]


def containers(pod: Object) -> list[Object]:
    """All of them, those that run before the others too."""
    found: list[Object] = [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]
    return found


def matches(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Whether a selector's `matchLabels` select these labels."""
    return selector.items() <= labels.items()
