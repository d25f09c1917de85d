"""A configuration is in use where something else in the repository names it."""

from __future__ import annotations

import pickle

import pytest

from ptopt.project.naming import Naming, may_name, namers

USED = {
    "a script names its path": ("conf/zero3.json", {"train.sh": "deepspeed train.py --deepspeed conf/zero3.json"}),
    "a script in its folder": ("runs/a/zero3.json", {"runs/a/go.sh": "--deepspeed zero3.json"}),
    "the default of an option": ("conf/zero3.json", {"train.py": 'parser.add_argument("--ds", default="./conf/zero3.json")'}),
    "another configuration": ("conf/zero3.json", {"conf/sft.yaml": "deepspeed: conf/zero3.json"}),
    "a workflow": ("docker/Dockerfile.gpu", {".github/workflows/image.yml": "file: docker/Dockerfile.gpu"}),
    "a page, by a variable folder": ("conf/sft.yaml", {"README.md": "`axolotl train $ROOT/conf/sft.yaml`"}),
    "a group of Hydra": ("conf/trainer/gpu.yaml", {"README.md": "python train.py trainer=gpu"}),
    "defaults of Hydra": ("conf/trainer/gpu.yaml", {"conf/train.yaml": "defaults:\n  - trainer: gpu\n"}),
    "an override of Hydra": ("conf/trainer/gpu.yaml", {"conf/x.yaml": "defaults:\n  - override /trainer: gpu\n"}),
    "a neighbour of Hydra": ("conf/model/base.yaml", {"conf/model/big.yaml": "defaults:\n  - base\n"}),
    "the name of a configuration": ("conf/train.yaml", {"train.py": '@hydra.main(config_path="conf", config_name="train")'}),
    "a recipe without suffix": ("recipes/llama3/8B_lora.yaml", {"README.md": "tune run lora --config llama3/8B_lora"}),
    "a path with a variable": ("conf/zero3.json", {"go.sh": "--deepspeed conf/zero${STAGE}.json"}),
    "a matrix": ("docker/Dockerfile.gpu", {".github/workflows/i.yml": "file: docker/Dockerfile.${{ matrix.kind }}"}),
    "a pattern": ("deploy/pod.yaml", {"Makefile": "apply:\n\tkubectl apply -f deploy/*.yaml\n"}),
    "a folder that is built": ("images/train/Dockerfile", {"build.sh": "docker build -t t images/train"}),
    "a folder of Compose": ("images/train/Dockerfile", {"compose.yaml": "services: {a: {build: ./images/train}}"}),
    "a folder that is applied": ("deploy/pod.yaml", {"README.md": "    kubectl apply -f deploy/\n"}),
    "a link to its folder": ("docker/Dockerfile", {"README.md": "See the [image](./docker/)."}),
}  # fmt: skip
UNUSED = {
    "nothing": ("conf/zero3.json", {"train.sh": "python train.py"}),
    "a longer name": ("conf/zero3.json", {"train.sh": "--deepspeed conf/my_zero3.json conf/zero3.json.bak"}),
    "one of another folder": ("old_runs/zero3.json", {"train.sh": "--deepspeed conf/zero3.json"}),
    "a nearer one of the same name": (
        "b/zero3.json", {"a/go.sh": "--deepspeed zero3.json", "a/zero3.json": "{}"},
    ),
    "the list of changes": ("conf/zero3.json", {"CHANGELOG.md": "added conf/zero3.json"}),
    "an archived script": ("conf/zero3.json", {"scripts/archived/go.sh": "--deepspeed conf/zero3.json"}),
    "a folder of the archive": ("legacy/zero3.json", {"go.sh": "--deepspeed legacy/zero3.json"}),
    "another value of the group": ("conf/trainer/gpu.yaml", {"README.md": "trainer=gpu_big model=gpu"}),
}  # fmt: skip


def naming(files: dict[str, str], whole: bool = True) -> Naming:
    return Naming({path: text.encode() for path, text in files.items() if may_name(path)}, whole)


@pytest.mark.parametrize("case", USED)
def test_used(case: str) -> None:
    path, files = USED[case]
    assert naming(files).used(path) is True


@pytest.mark.parametrize("case", UNUSED)
def test_not_used(case: str) -> None:
    path, files = UNUSED[case]
    assert naming(files).used(path) is False


def test_what_is_taken_without_a_name() -> None:
    found = naming({"a.sh": "true"})
    assert (
        found.used("Dockerfile")
        and found.used(".github/workflows/ci.yml")
        and found.used("docker-compose.gpu.yml")
    )


def test_not_known_where_texts_are_missing() -> None:
    assert naming({"a.sh": "true"}, whole=False).used("conf/zero3.json") is None
    assert Naming().used("conf/zero3.json") is None


def test_a_comment_says_that_it_is_outdated() -> None:
    found = naming({"a.sh": "docker build -f docker/Dockerfile.ui ."})
    assert found.used("docker/Dockerfile.ui", b"# as of April this Dockerfile is outdated\nFROM a\n") is False
    assert found.used("docker/Dockerfile.ui", b"FROM a\nRUN echo outdated\n") is True


@pytest.mark.parametrize(
    ("text", "ended"),
    [
        ("# tuner\n\nThis repository is no longer actively maintained.\n", True),
        ("# tuner\n\nNote: `tuner` is no longer being actively developed.\n", True),
        ("# tuner\n\nPython 3.8 is no longer supported.\n", False),
        ("# tuner\n\nThis project is fast.\n", False),
    ],
)
def test_a_project_that_has_ended(text: str, ended: bool) -> None:
    assert (naming({"README.md": text}).used("Dockerfile") is False) == ended


def test_texts_of_a_change_name_too() -> None:
    found = naming({"a.sh": "true"}).with_texts(
        {"go.sh": b"--deepspeed conf/zero3.json", "x.png": b"conf/zero3.json"}
    )
    assert found.used("conf/zero3.json") and not found.used("conf/zero2.json")
    assert pickle.loads(pickle.dumps(found)).used("conf/zero3.json")


def test_the_likeliest_come_first() -> None:
    paths = ["src/a/deep/x.py", "conf/go.sh", "README.md", "data.csv", "conf/zero3.json", "CHANGELOG.md"]
    assert namers(paths, {"conf/zero3.json"}, 2) == (["README.md", "conf/go.sh"], False)
    assert namers(paths, {"conf/zero3.json"}, 3) == (["README.md", "conf/go.sh", "src/a/deep/x.py"], True)
