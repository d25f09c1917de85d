"""Changed scripts that start training are named among the files that a review did not read."""

from __future__ import annotations

import pytest

from ptopt.change import whole_file
from ptopt.config import Config
from ptopt.project.facts import NO_FACTS
from ptopt.review import review_files


def _unread(path: str, text: str, *, limit_to_change: bool = True) -> list[str]:
    files = [whole_file(path, text.encode()), whole_file("a.py", b"x = 1\n")]
    review = review_files(files, config=Config(), facts=NO_FACTS, limit_to_change=limit_to_change)
    return [f"{item.path}: {item.reason}" for item in review.not_reviewed]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("run.sh", "set -e\npython train.py \\\n  --lr 1e-4\n"),
        ("jobs/a.slurm", "#SBATCH --gpus=8\nsrun --label torchrun train.py\n"),
        ("go.bash", "CUDA_VISIBLE_DEVICES=0 accelerate launch train.py\n"),
    ],
)
def test_a_script_that_starts_python_is_named(path: str, text: str) -> None:
    assert _unread(path, text) == [f"{path}: a launch script: its options and environment are not read"]
    assert _unread(path, text, limit_to_change=False) == []


@pytest.mark.parametrize(
    ("path", "text"),
    [("build.sh", "make all\n"), ("run.sh", "# python train.py\n"), ("notes.txt", "python train.py\n")],
)
def test_other_files_are_not(path: str, text: str) -> None:
    assert _unread(path, text) == []
