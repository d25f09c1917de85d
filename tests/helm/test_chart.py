"""The chart, rendered by real Helm for each of its examples: valid, whole and hardened."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.helm.rendering import (
    CHART,
    EXAMPLES,
    Object,
    containers,
    helm,
    matches,
    of_kind,
    pod_templates,
    render,
    template,
)
from tests.helm.tools import CHECKOV, HELM, tool

KUBERNETES = ("1.35", "1.36", "1.37")
# What other projects define; their schemas are not among those of Kubernetes.
CUSTOM = {"ScaledObject", "TriggerAuthentication", "PodMonitor", "PrometheusRule", "HTTPRoute"}
SNAPSHOT = Path(__file__).with_name("default.yaml")
# Not followed, and why.
UNCHECKED = {
    "CKV_K8S_15": "IfNotPresent: tags of a release do not move",
    "CKV_K8S_43": "images are pinned by digest in images.*.digest; the chart cannot know the digest of what is built after it",
    "CKV_K8S_40": "the images of PostgreSQL, Valkey and vLLM have users of their own below 10000",
    "CKV_K8S_8": "the pod of helm test ends by itself; those of Deployments: test_probes",
    "CKV_K8S_9": "workers have no Service; pods that have one: test_probes",
    "CKV_K8S_35": "the service reads files; PostgreSQL, Valkey, vLLM and training read variables",
}


@pytest.mark.parametrize("version", HELM)
@pytest.mark.parametrize("path", [None, *EXAMPLES], ids=lambda path: path.stem if path else "default")
def test_lint(path: Path | None, version: str) -> None:
    given = ("--values", path) if path else ()
    done = helm("lint", "--strict", CHART, *given, version=version)
    assert done.returncode == 0, done.stdout + done.stderr


def test_there_are_examples_for_the_common_cases() -> None:
    needed = {"minimal", "embedded", "gpu", "keda", "external", "air-gapped", "enterprise", "everything"}
    assert needed <= {path.stem for path in EXAMPLES}


@pytest.mark.slow
@pytest.mark.parametrize("version", KUBERNETES)
def test_it_is_valid_for_the_newest_versions_of_kubernetes(version: str) -> None:
    different = {json.dumps(found, sort_keys=True) for path in (None, *EXAMPLES) for found in render(path)}
    objects = [found for found in map(json.loads, sorted(different)) if found["kind"] not in CUSTOM]
    assert len(objects) > 100
    for found in objects:
        kubernetes_validate.validate(found, version, strict=True)


def test_a_planted_fault_is_found() -> None:
    (service,) = of_kind(render(), "Service").values()
    service["spec"]["prots"] = service["spec"].pop("ports")
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(service, KUBERNETES[-1], strict=True)


def test_both_versions_of_helm_render_the_same(values: Path | None) -> None:
    # Random where none is given.
    fixed = ("--set", "postgresql.password=x", "--set", "valkey.password=x")
    assert render(values, *fixed) == render(values, *fixed, version="helm-3")


def test_the_default_is_the_snapshot() -> None:
    """`helm template` of the default, for the eyes of a reviewer: `python -m tests.helm.snapshot` writes it."""
    assert SNAPSHOT.read_text(encoding="utf-8") == template().stdout


def test_names_are_unique_and_in_the_namespace(objects: list[Object]) -> None:
    names = [(found["kind"], found["metadata"]["name"]) for found in objects]
    assert len(set(names)) == len(names)
    assert {found["metadata"]["namespace"] for found in objects} == {"reviews"}
    assert all(len(name) <= 63 for _, name in names)


def test_a_long_name_is_cut() -> None:
    long = "a-very-long-name-of-a-release-that-somebody-chose"
    values = CHART / "examples/everything.yaml"
    for found in render(
        values, "--set", f"fullnameOverride={long}", "--set", "training.name=twenty-characters-ab"
    ):
        longest = 52 if found["kind"] == "CronJob" else 60  # a pod of a Job adds its index
        assert len(found["metadata"]["name"]) <= longest, found["metadata"]["name"]


def test_every_pod_is_hardened(objects: list[Object]) -> None:
    for name, pod in pod_templates(objects):
        spec, security = pod["spec"], pod["spec"]["securityContext"]
        assert security["runAsNonRoot"] is True and security["runAsUser"] > 0, name
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert spec["automountServiceAccountToken"] is False and spec["enableServiceLinks"] is False, name
        assert not any(spec.get(word) for word in ("hostNetwork", "hostPID", "hostIPC")), name
        assert not any("hostPath" in volume for volume in spec.get("volumes", ())), name
        for container in containers(pod):
            own = container["securityContext"]
            assert own["readOnlyRootFilesystem"] is True, name
            assert own["allowPrivilegeEscalation"] is False and own["capabilities"] == {"drop": ["ALL"]}, name
            assert container["resources"]["requests"] and container["resources"]["limits"]["memory"], name


def test_probes(objects: list[Object]) -> None:
    """What runs for ever can be found dead; what has a Service says when it is ready."""
    services = [found["spec"]["selector"] for found in of_kind(objects, "Service").values()]
    for kind in ("Deployment", "StatefulSet"):
        for name, found in of_kind(objects, kind).items():
            pod = found["spec"]["template"]
            (container,) = pod["spec"]["containers"]
            assert "livenessProbe" in container, name
            has_service = any(matches(selector, pod["metadata"]["labels"]) for selector in services)
            assert ("readinessProbe" in container) is has_service, name


def test_what_an_object_names_is_there(objects: list[Object]) -> None:
    """ConfigMaps, Secrets, claims, accounts, pods and targets: of the release, or named by the values."""
    given = {
        "Secret": {"ptopt", "ptopt-production", "ptopt-keda", "model-hub", "ptopt-tls", "registry"},
        "ConfigMap": {"company-ca"},
        "PersistentVolumeClaim": {"models"},
        "ServiceAccount": {"ptopt", "default"},
    }
    there = {kind: set(of_kind(objects, kind)) | names for kind, names in given.items()}
    pods = [pod["metadata"]["labels"] for _, pod in pod_templates(objects)]
    for kind, name in _references(objects):
        assert name in there[kind], (kind, name)
    for found in objects:
        if found["kind"] in ("Service", "PodDisruptionBudget"):
            selector = found["spec"]["selector"]
            assert any(matches(selector.get("matchLabels", selector), labels) for labels in pods) or (
                "job-name" in str(selector)
            ), found["metadata"]["name"]
    workloads = {name for kind in ("Deployment", "StatefulSet") for name in of_kind(objects, kind)}
    for kind in ("ScaledObject", "HorizontalPodAutoscaler"):
        for scaler in of_kind(objects, kind).values():
            target = scaler["spec"]["scaleTargetRef"]["name"]
            assert target in workloads
            assert "replicas" not in of_kind(objects, "Deployment")[target]["spec"], (
                "it would undo the scaling"
            )


def _references(node: Any) -> list[tuple[str, str]]:
    """Kind and name of all that is referred to by name."""
    found = []
    if isinstance(node, dict):
        for key, kind in (("secretRef", "Secret"), ("secretKeyRef", "Secret"), ("configMapRef", "ConfigMap"),
                          ("configMap", "ConfigMap"), ("secret", "Secret")):  # fmt: skip
            if isinstance(node.get(key), dict) and "name" in node[key]:
                found.append((kind, node[key]["name"]))
        for key, kind in (("claimName", "PersistentVolumeClaim"), ("serviceAccountName", "ServiceAccount")):
            if key in node:
                found.append((kind, node[key]))
        return found + [each for value in node.values() for each in _references(value)]
    return [each for value in node for each in _references(value)] if isinstance(node, list) else []


def test_only_documented_paths_are_public() -> None:
    from bot.webhook import PATH

    def paths(*options: str) -> dict[str, str]:
        (ingress,) = of_kind(render(CHART / "examples/embedded.yaml", *options), "Ingress").values()
        (rule,) = ingress["spec"]["rules"]
        return {path["path"]: path["pathType"] for path in rule["http"]["paths"]}

    everything = {PATH: "Exact", "/dashboard": "Prefix", "/setup": "Prefix"}
    assert paths() == everything
    closed = ("--set", "ingress.setup=false", "--set", "settings.PTOPT_DASHBOARD=false")
    assert paths(*closed) == {PATH: "Exact"}
    (route,) = of_kind(render(CHART / "examples/keda.yaml"), "HTTPRoute").values()
    found = {match["path"]["value"]: match["path"]["type"] for match in route["spec"]["rules"][0]["matches"]}
    assert found == {path: kind.replace("Prefix", "PathPrefix") for path, kind in everything.items()}


def test_only_review_workers_reach_the_model_server() -> None:
    objects = render(CHART / "examples/everything.yaml")
    policies = list(of_kind(objects, "NetworkPolicy").values())
    labels = {pod["metadata"]["labels"]["app.kubernetes.io/component"]: pod["metadata"]["labels"]
              for _, pod in pod_templates(objects)}  # fmt: skip

    def reached(component: str) -> list[Object]:
        found = [
            p["spec"] for p in policies if matches(p["spec"]["podSelector"]["matchLabels"], labels[component])
        ]
        assert found, component
        return [peer for spec in found for rule in spec.get("ingress", ()) for peer in rule["from"]]

    peers = [peer["podSelector"]["matchLabels"] for peer in reached("model-server")]
    assert {name for name in labels if any(matches(peer, labels[name]) for peer in peers)} == {
        "worker-review"
    }
    for component in ("scheduler", "worker-command", "retraining"):
        assert reached(component) == []


def test_the_hook_needs_nothing_that_comes_later(objects: list[Object]) -> None:
    """At pre-install only hooks and what the operator made exist."""
    hooks = [found for found in objects if "pre-install" in _hook(found)]
    later = {("Secret", name) for name, found in of_kind(objects, "Secret").items() if found not in hooks}
    later |= {(kind, name) for kind in ("ConfigMap", "ServiceAccount", "PersistentVolumeClaim")
              for name, found in of_kind(objects, kind).items() if found not in hooks}  # fmt: skip
    assert not later.intersection(_references(hooks))


def _hook(found: Object) -> str:
    return str(found["metadata"].get("annotations", {}).get("helm.sh/hook", ""))


def test_the_schema_is_made_before_it_is_needed() -> None:
    for path, when in ((None, "pre-install,pre-upgrade"), (CHART / "examples/minimal.yaml", "pre-upgrade")):
        (job,) = (found for found in render(path) if found["kind"] == "Job")
        assert _hook(job) == when
        assert job["spec"]["template"]["spec"]["containers"][0]["command"] == [
            "python",
            "-m",
            "service",
            "upgrade",
        ]
    waits = {
        name.rpartition("-ptopt-")[2] or name: pod["spec"]["initContainers"][0]["command"][-1]
        for name, pod in pod_templates(render(CHART / "examples/minimal.yaml"))
        if "initContainers" in pod["spec"]
    }
    assert sorted(waits.values()) == sorted(
        [f"until python -m service {word}; do sleep 3; done" for word in ("upgrade", *["check"] * 4)]
    )


def test_large_numbers_are_written_out() -> None:
    (settings,) = of_kind(render(CHART / "examples/enterprise.yaml"), "ConfigMap").values()
    assert settings["data"]["PTOPT_MAX_LINES"] == "200000"


def test_a_mirror_and_digests() -> None:
    mirror = "registry.example.internal"
    digest = "sha256:" + "0" * 64
    options = ("--set", f"images.bot.digest={digest}")
    images = {
        container["image"]
        for _, pod in pod_templates(render(CHART / "examples/air-gapped.yaml", *options))
        for container in containers(pod)
    }
    assert all(image.startswith(f"{mirror}/") for image in images)
    assert f"{mirror}/ptopt/ptopt-bot@{digest}" in images


@pytest.mark.slow
def test_checkov(tmp_path: Path) -> None:
    for path in (None, *EXAMPLES):
        file = tmp_path / f"{path.stem if path else 'default'}.yaml"
        file.write_text(yaml.safe_dump_all(render(path)))
    command = [tool(CHECKOV), "--directory", tmp_path, "--framework", "kubernetes", "--compact", "--quiet",
               "--skip-check", ",".join(UNCHECKED), "--skip-download"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    # Quiet about what is well: that something was looked at, a planted fault shows.
    (deployment, *_) = of_kind(render(), "Deployment").values()
    deployment["spec"]["template"]["spec"]["containers"][0]["securityContext"]["privileged"] = True
    (tmp_path / "default.yaml").write_text(yaml.safe_dump(deployment))
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "CKV_K8S_16" in again.stdout


def test_notes_say_what_is_left_to_do() -> None:
    for example, says in (
        ("minimal", ["create secret generic ptopt", "/setup?token=", "helm test ptopt", "for trials"]),
        ("embedded", ["https://ptopt.example.org/setup?token="]),
    ):
        values = CHART / f"examples/{example}.yaml"
        done = helm("install", "ptopt", CHART, "--dry-run=client", "--values", values)
        assert done.returncode == 0, done.stderr
        notes = done.stdout.partition("NOTES:")[2]
        assert all(text in notes for text in says), notes
