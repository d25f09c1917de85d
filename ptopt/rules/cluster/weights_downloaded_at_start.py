from __future__ import annotations

import re
from collections.abc import Iterator

from ptopt.configs.containers import Container
from ptopt.configs.values import Mapping
from ptopt.rules.base import Invalid
from ptopt.rules.configs import ConfigFile, ConfigProblem, ConfigRule

_HUB = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*$")
_CACHES = (
    "HF_HOME",
    "HF_HUB_CACHE",
    "HUGGINGFACE_HUB_CACHE",
    "TRANSFORMERS_CACHE",
    "XDG_CACHE_HOME",
    "DOWNLOAD_DIR",
)
_DOWNLOADS = re.compile(
    r"\b(?:huggingface-cli|hf) download\b|snapshot_download|\bgit lfs pull\b|"
    r"\b(?:wget|curl|gsutil cp|aws s3 cp)\b[^&|;]{0,300}\.(?:safetensors|bin|ckpt|pth?|gguf)\b"
)
_SMALL = 4.0  # billion parameters
_LASTING = ("Deployment", "StatefulSet", "Pod", "ReplicaSet", "LeaderWorkerSet", "")


class WeightsDownloadedAtStart(ConfigRule):
    """A model server downloads its weights again at each start.

    ## What it does
    Finds containers of Kubernetes and Compose that serve a model of the Hugging Face Hub and mount no volume that could keep its
    files, and Dockerfiles whose `CMD` or `ENTRYPOINT` downloads weights.

    ## Why it is slow
    Files in a container go away with it. Each restart, new replica and node change downloads gigabytes before the first
    request is answered.

    ## When this is wrong
    When the model is small, the image brings the weights, or the cluster mirrors the hub.

    ## Fix safety
    No fix is offered: which storage there is cannot be judged.

    ## Sources
    - [vLLM: deployment on Kubernetes](https://docs.vllm.ai/en/stable/deployment/k8s/)
    - [Hugging Face: cache](https://huggingface.co/docs/huggingface_hub/guides/manage-cache)
    """

    id = "PTO053"
    name = "weights-downloaded-at-start"
    family = "cluster"
    kinds = frozenset({"kubernetes", "compose", "dockerfile"})
    prior = 0.6
    when_wrong = "the model is small, or the image brings it"

    VALID = (
        """
        services:
          server:
            image: vllm/vllm-openai
            command: --model meta-llama/Llama-3.1-8B-Instruct
            volumes: ["hub:/root/.cache/huggingface"]
        """,
        """
        services:
          server:
            image: vllm/vllm-openai
            command: --model /models/llama
        """,
        """
        services:
          server:
            image: vllm/vllm-openai
            command: --model meta-llama/Llama-3.2-1B-Instruct
        """,
        """
        apiVersion: apps/v1
        kind: Deployment
        spec:
          template:
            spec:
              containers:
                - name: server
                  image: vllm/vllm-openai
                  args: ["--model", "org/model"]
                  volumeMounts: [{name: cache, mountPath: /root/.cache/huggingface}]
              volumes: [{name: cache, persistentVolumeClaim: {claimName: cache}}]
        """,
    )
    INVALID = (
        Invalid("""
            services:
              server:
                image: vllm/vllm-openai  # !
                command: --model meta-llama/Llama-3.1-8B-Instruct
        """),
        Invalid("""
            apiVersion: apps/v1
            kind: Deployment
            spec:
              template:
                spec:
                  containers:
                    - name: server
                      image: vllm/vllm-openai:v0.10.0  # !
                      args: ["--model", "org/model"]
        """),
        Invalid("""
            apiVersion: apps/v1
            kind: Deployment
            spec:
              template:
                spec:
                  containers:
                    - name: server
                      image: registry/server:1  # !
                      command: [vllm, serve, org/model]
                      volumeMounts: [{name: shm, mountPath: /dev/shm}]
                  volumes: [{name: shm, emptyDir: {medium: Memory}}]
        """),
        Invalid("""
            FROM python:3.12
            CMD hf download org/model --local-dir /models && python serve.py  # !
        """),
    )

    def check_config(self, file: ConfigFile) -> Iterator[ConfigProblem]:
        yield from _downloading(file)
        for container in file.containers:
            image = container.mapping.entry("image")
            model = _model(container)
            if image is None or image.merged or model is None or not container.serves:
                continue
            if container.kind not in _LASTING or _keeps_files(container) or _is_small(model):
                continue
            yield ConfigProblem(
                image.key.start,
                image.value.end,
                f"`{model}` is downloaded from the Hub into the container, so each restart and each new replica loads it "
                "again before it answers. Mount a volume on the cache (`HF_HOME`).",
                container.name,
            )


def _downloading(file: ConfigFile) -> Iterator[ConfigProblem]:
    """What an image runs first downloads weights."""
    last = file.dockerfile.stages[-1].instructions if file.dockerfile is not None else ()
    for instruction in last:
        if instruction.name in ("CMD", "ENTRYPOINT") and _DOWNLOADS.search(" ".join(instruction.words)):
            yield ConfigProblem(
                instruction.start,
                instruction.end,
                "Each start of the container downloads the weights before it works. Download them when the image is built, or "
                "keep them on a volume.",
                instruction.name,
            )


def _model(container: Container) -> str | None:
    """The id of a model on the Hub that the command names."""
    found = container.option("model", "model-id", "model-path")
    words = [word.text for word in container.words]
    if found is None and "serve" in words[:-1]:
        found = words[words.index("serve") + 1]
    return found if found is not None and _HUB.match(found) else None


def _is_small(model: str) -> bool:
    """Does its name tell that it has less than 4 billion parameters, some gigabytes at most?"""
    sizes = re.findall(r"(?<![\d.])(\d+(?:\.\d+)?)([bm])(?![a-z\d])", model.lower())
    return bool(sizes) and all(unit == "m" or float(number) < _SMALL for number, unit in sizes)


def _keeps_files(container: Container) -> bool:
    """Is there a volume besides shared memory, secrets and the like?"""
    volumes: dict[str, Mapping] = {}
    for item in container.pod.sequence("volumes") if container.pod is not None else ():
        if isinstance(item, Mapping):
            volumes[str(item.scalar("name"))] = item
    for path, name in container.mounts():
        volume = volumes.get(name)
        passing = volume is not None and volume.keys() & {
            "emptyDir",
            "configMap",
            "secret",
            "projected",
            "downwardAPI",
        }
        if path.rstrip("/") != "/dev/shm" and not passing:  # noqa: S108 (a path in the container)
            return True
    # What is merged, extended or claimed by a template is not seen here.
    unseen = container.mapping.keys() & {"extends", "volumeDevices"}
    return bool(unseen) or any(entry.merged for entry in container.mapping)
