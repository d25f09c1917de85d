from __future__ import annotations

from collections.abc import Iterator

from ptopt.configs.values import Mapping
from ptopt.rules.base import Invalid
from ptopt.rules.configs import ConfigFile, ConfigProblem, ConfigRule

_PATIENT = 300  # seconds; loading weights of several GB and capturing graphs takes minutes


class ServerWithoutStartupProbe(ConfigRule):
    """A model server is restarted while it loads its weights.

    ## What it does
    Finds containers of vLLM and similar servers with a GPU and a liveness probe that gives up within five minutes of the start, and without
    a startup probe.

    ## Why it is slow
    The server answers only when weights are downloaded and loaded and graphs are captured. A liveness probe that fails
    meanwhile restarts the container, and all of it begins again.

    ## Fix safety
    No fix is offered: how long the start takes cannot be judged.

    ## Sources
    - [Kubernetes: startup probes](https://kubernetes.io/docs/tasks/configure-pod-container/configure-liveness-readiness-startup-probes/)
    - [vLLM: deployment on Kubernetes](https://docs.vllm.ai/en/stable/deployment/k8s/)
    """

    id = "PTO054"
    name = "server-without-startup-probe"
    family = "cluster"
    kinds = frozenset({"kubernetes"})
    prior = 0.7
    when_wrong = "the model is small and lies on a local disk"

    VALID = (
        """
        apiVersion: v1
        kind: Pod
        spec:
          containers:
            - name: server
              image: vllm/vllm-openai
              resources: {limits: {nvidia.com/gpu: 1}}
              startupProbe: {httpGet: {path: /health, port: 8000}, failureThreshold: 120}
              livenessProbe: {httpGet: {path: /health, port: 8000}}
        """,
        """
        apiVersion: v1
        kind: Pod
        spec:
          containers:
            - name: server
              image: vllm/vllm-openai
              resources: {limits: {nvidia.com/gpu: 1}}
              livenessProbe: {httpGet: {path: /health, port: 8000}, initialDelaySeconds: 600}
        """,
        """
        apiVersion: v1
        kind: Pod
        spec:
          containers:
            - name: web
              image: nginx
              livenessProbe: {httpGet: {path: /health, port: 8000}}
        """,
    )
    INVALID = (
        Invalid("""
            apiVersion: v1
            kind: Pod
            spec:
              containers:
                - name: server
                  image: vllm/vllm-openai
                  resources: {limits: {nvidia.com/gpu: 1}}
                  livenessProbe: {httpGet: {path: /health, port: 8000}}  # !
        """),
        Invalid("""
            apiVersion: apps/v1
            kind: Deployment
            spec:
              template:
                spec:
                  containers:
                    - name: server
                      image: ghcr.io/huggingface/text-generation-inference:3.0
                      resources: {limits: {nvidia.com/gpu: 1}}
                      livenessProbe:  # !
                        httpGet: {path: /health, port: 80}
                        initialDelaySeconds: 60
                        periodSeconds: 10
        """),
        Invalid("""
            apiVersion: v1
            kind: Pod
            spec:
              containers:
                - name: server
                  image: registry/server:1
                  resources: {limits: {nvidia.com/gpu: 1}}
                  command: [vllm, serve, /models/llama]
                  livenessProbe: {tcpSocket: {port: 8000}, initialDelaySeconds: 120, failureThreshold: 5}  # !
        """),
    )

    def check_config(self, file: ConfigFile) -> Iterator[ConfigProblem]:
        for container in file.containers:
            probe = container.mapping.entry("livenessProbe")
            if probe is None or probe.merged or not container.serves or "startupProbe" in container.mapping:
                continue
            patience = _patience(probe.value) if isinstance(probe.value, Mapping) else None
            if patience is None or patience >= _PATIENT or container.gpu is None:
                continue
            yield ConfigProblem(
                probe.key.start,
                probe.key.end,
                f"This probe restarts the server when it has not answered {patience:g} s after its start, while it may still load "
                "weights; then all of it begins again. A `startupProbe` with a high `failureThreshold` holds the liveness probe back.",
                container.name,
            )


def _patience(probe: Mapping) -> float | None:
    """Seconds from the start until the container is restarted."""
    found = []
    for key, default in (("initialDelaySeconds", 0), ("periodSeconds", 10), ("failureThreshold", 3)):
        value = probe.scalar(key) if key in probe else default
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return None
        found.append(float(value))
    delay, period, failures = found
    return delay + period * failures
