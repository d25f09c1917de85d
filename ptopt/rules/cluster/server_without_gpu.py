from __future__ import annotations

import re
from collections.abc import Iterator

from ptopt.rules.base import Invalid
from ptopt.rules.configs import ConfigFile, ConfigProblem, ConfigRule, Severity

_OTHER = re.compile(
    r"cpu|tpu|neuron|gaudi|hpu|habana|xpu|rocm|amd|ascend|router|lmcache|exporter|proxy|epd?\b", re.I
)
_ELSEWHERE = ("nodeSelector", "runtimeClassName", "resourceClaims")


class ServerWithoutGpu(ConfigRule):
    """A model server asks for no GPU.

    ## What it does
    Finds Deployments, StatefulSets and Pods that start vLLM, TGI or SGLang from an image for NVIDIA GPUs and set `resources`
    without a GPU.

    ## Why it is slow
    Without the request the scheduler gives the container no GPU: the server does not start, or computes on the CPU.

    ## Fix safety
    No fix is offered: how many GPUs the model needs cannot be judged.

    ## Sources
    - [Kubernetes: schedule GPUs](https://kubernetes.io/docs/tasks/manage-gpus/scheduling-gpus/)
    """

    id = "PTO055"
    name = "server-without-gpu"
    family = "cluster"
    severity = Severity.HIGH
    kinds = frozenset({"kubernetes"})
    prior = 0.6
    when_wrong = "the cluster gives GPUs to containers in another way"

    VALID = (
        """
        apiVersion: v1
        kind: Pod
        spec:
          containers:
            - name: server
              image: vllm/vllm-openai
              resources: {limits: {nvidia.com/gpu: 1}}
        """,
        """
        apiVersion: v1
        kind: Pod
        spec:
          containers:
            - name: server
              image: registry/vllm-cpu:1
              resources: {limits: {cpu: 8}}
        """,
        """
        apiVersion: v1
        kind: Pod
        spec:
          containers:
            - name: server
              image: vllm/vllm-openai
        """,
    )
    INVALID = (
        Invalid("""
            apiVersion: v1
            kind: Pod
            spec:
              containers:
                - name: server
                  image: vllm/vllm-openai:v0.10.0
                  resources: {limits: {cpu: 8}}  # !
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
                      resources:  # !
                        requests:
                          memory: 16Gi
        """),
        Invalid("""
            apiVersion: apps/v1
            kind: StatefulSet
            spec:
              template:
                spec:
                  containers:
                    - name: server
                      image: lmsysorg/sglang:latest
                      command: [python3, -m, sglang.launch_server]
                      resources:  # !
                        limits: {cpu: 16}
        """),
    )

    def check_config(self, file: ConfigFile) -> Iterator[ConfigProblem]:
        for container in file.containers:
            resources = container.mapping.entry("resources")
            pod = container.pod
            if resources is None or resources.merged or pod is None or not container.serves:
                continue
            known = container.kind in ("Deployment", "StatefulSet", "Pod")
            other = _OTHER.search(f"{container.image} {container.name} {container.command} {file.path}")
            claimed = (
                any(key in pod for key in _ELSEWHERE)
                or container.mapping.get("resources", "claims") is not None
            )
            asked = container.gpu is not None or container.mapping.mapping("resources") is None
            if not known or other or claimed or asked or "/" not in container.image:
                continue
            yield ConfigProblem(
                resources.key.start,
                resources.key.end,
                f"`{container.image}` serves models on GPUs, and these resources ask for none, so that the scheduler gives it "
                "none. Add `nvidia.com/gpu` to the limits.",
                container.name,
            )
