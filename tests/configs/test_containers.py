"""Containers of manifests and Compose files, in one form."""

from ptopt.configs.containers import Container, containers, cores, services
from ptopt.configs.reading import read_config
from ptopt.configs.values import Document

JOB = """\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
spec:
  pytorchReplicaSpecs:
    Worker:
      template:
        spec:
          containers:
            - name: train
              image: registry/train:1
              command: ["bash", "-c"]
              args:
                - |
                  pip list
                  torchrun --nproc-per-node=4 \\
                    train.py --num_workers 8
              env: [{name: NCCL_DEBUG, value: INFO}]
              resources: {limits: {nvidia.com/gpu: 4, cpu: 3500m}}
              volumeMounts: [{name: shm, mountPath: /dev/shm}]
          volumes: [{name: shm, emptyDir: {medium: Memory}}]
"""
COMPOSE = """\
services:
  server:
    image: vllm/vllm-openai:latest
    command: --model org/model --tensor-parallel-size=2
    environment: {HF_HOME: /cache}
    volumes: ["hub:/cache:rw", {source: data, target: /data}]
    gpus: all
  router:
    image: lmcache/vllm-router
"""


def only(text: str) -> Container:
    document = read_config("a.yaml", text.encode())
    assert isinstance(document, Document)
    (found,) = containers(document.roots[0])
    return found


def test_containers_of_any_kind_of_object() -> None:
    found = only(JOB)
    assert (found.name, found.kind, found.trains, found.serves) == ("train", "PyTorchJob", True, False)
    assert found.option("nproc-per-node") == "4" and found.option("num-workers") == "8"
    assert found.option("epochs") is None
    assert found.gpu is not None and found.gpu.key.text == "nvidia.com/gpu"
    assert list(found.mounts()) == [("/dev/shm", "shm")]
    assert found.pod is not None and "volumes" in found.pod
    assert cores(found.mapping.get("resources", "limits", "cpu")) == 3.5


def test_services() -> None:
    document = read_config("compose.yaml", COMPOSE.encode())
    assert isinstance(document, Document) and document.root is not None
    server, router = services(document.root)
    assert server.serves and not router.serves and not server.trains
    assert server.option("tensor-parallel-size") == "2" and server.option("model") == "org/model"
    assert list(server.mounts()) == [("/cache", "hub"), ("/data", "data")]
    assert server.gpu is not None and server.pod is None and router.gpu is None


def test_a_quantity_that_is_none() -> None:
    found = only(JOB)
    assert cores(found.mapping.get("image")) is None and cores(None) is None
