"""Files are recognised by their content."""

import pytest

from ptopt.configs.file import ConfigFile, load
from ptopt.configs.values import Refused
from ptopt.pathkind import is_config, is_reviewable, language

FILES = {
    "transformers": "model: x\ntraining:\n  per_device_train_batch_size: 8\n",
    "axolotl": "base_model: a/b\ndatasets: []\nmicro_batch_size: 2\n",
    "llamafactory": "model_name_or_path: a/b\nstage: sft\n",
    "torchtune": "model:\n  _component_: torchtune.models.llama3.llama3_8b\n",
    "lightning": "trainer:\n  max_epochs: 3\n  devices: 2\n",
    "dataloader": "data:\n  - _target_: torch.utils.data.DataLoader\n    num_workers: 0\n",
    "accelerate": "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\n",
    "deepspeed": '{"zero_optimization": {"stage": 2}}',
    "vllm": "model: a/b\ngpu-memory-utilization: 0.9\n",
    "kubernetes": "kind: List\napiVersion: v1\n---\napiVersion: v1\nkind: Pod\n",
    "compose": "services:\n  web:\n    image: nginx\n",
    "workflow": "on: push\njobs:\n  test:\n    runs-on: ubuntu-latest\n",
}


@pytest.mark.parametrize("kind", FILES)
def test_the_kind_of_a_file(kind: str) -> None:
    found = load("some.yaml", FILES[kind].encode())
    assert isinstance(found, ConfigFile) and found.kinds == {kind}


@pytest.mark.parametrize(
    "text",
    [
        "base_model: a\nmerge_method: slerp\n",
        "trainer: me\n",
        "services: [a, b]\n",
        "jobs: 3\n",
        "_target_: my.Thing\n",
        "- trainer\n",
        "apiVersion: v1\n",
        "",
    ],
)
def test_files_of_other_purposes(text: str) -> None:
    assert load("some.yaml", text.encode()) is None


def test_a_template_is_refused_with_a_reason() -> None:
    for text in (
        "apiVersion: v1\nkind: Pod\nspec:\n{{- toYaml .Values.spec }}\n",
        'apiVersion: v1\nkind: Pod\nname: "{{ .Release.Name }}"\n',
        "{% if gpu %}\njobs: {}\n{% endif %}",
    ):
        found = load("templates/pod.yaml", text.encode())
        assert isinstance(found, Refused) and "template" in found.reason


def test_expressions_of_workflows_are_no_template() -> None:
    text = "on: push\njobs:\n  t:\n    runs-on: ${{ matrix.os }}\n"
    assert isinstance(load(".github/workflows/a.yml", text.encode()), ConfigFile)


def test_what_is_broken_counts_where_it_is_surely_ours() -> None:
    assert isinstance(load("a.yaml", b"base_model: a\nbase_model: b\n"), Refused)
    assert load("a.yaml", b"trainer: a\ntrainer: b\n") is None


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("train.py", "python"),
        ("docker/Dockerfile", "dockerfile"),
        ("Dockerfile.gpu", "dockerfile"),
        ("gpu.dockerfile", "dockerfile"),
        ("Containerfile", "dockerfile"),
        ("conf/train.yaml", "yaml"),
        ("k8s/job.yml", "yaml"),
        ("ds_config.json", "json"),
        ("configs/zero/big.json", "json"),
        ("train_configs/mistral.json", "json"),
        ("data/vocab.json", None),
        ("package.json", None),
        ("tokenizer_config.json", None),
        ("Dockerfile.md", None),
        ("my_dockerfile_reader.txt", None),
        ("README.md", None),
    ],
)
def test_the_path_decides_first(path: str, expected: str | None) -> None:
    assert (language(path) if is_reviewable(path) else None) == expected
    assert is_config(path) == (expected not in (None, "python"))
