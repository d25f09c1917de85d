"""What readers get of a dataset, and what its prompts take."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from training.__main__ import main
from training.dataset import rule_examples
from training.dataset.split import SPLITS


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("dataset")
    (place / "samples").mkdir()
    made = [sample for at, sample in enumerate(rule_examples.examples()) if at % 4 == 0]
    for at, split in enumerate(SPLITS):
        lines = "".join(f"{sample.to_json()}\n" for sample in made[at :: len(SPLITS)])
        (place / "samples" / f"{split}.jsonl").write_text(lines, encoding="utf-8")
    return place


def drawn(folder: Path, out: Path, *options: str) -> dict[str, str]:
    done = CliRunner().invoke(main, ["data", "sheet", str(folder), "--out", str(out), *options])
    assert done.exit_code == 0, done.output
    return {file.name: file.read_text("utf-8") for file in out.iterdir()}


def test_questions_come_without_their_answers_and_each_has_one_reader(folder: Path, tmp_path: Path) -> None:
    files = drawn(folder, tmp_path / "a", "--size", "12", "--readers", "2")
    key = [json.loads(line) for line in files["judge-key.jsonl"].splitlines()]
    assert len(key) == 12 and {row["answer"] for row in key} == {"yes", "no"}
    sheets = [files[f"judge-{number}.md"] for number in (1, 2)]
    for row in key:
        assert sum(f"## {row['id']}\n" in sheet for sheet in sheets) == 1
    assert all("Answer yes" not in sheet.replace("Answer yes or no", "") for sheet in sheets)
    assert sum(sheet.count(" Answer\n~~~~~~") for sheet in sheets) == 12


def test_an_answer_is_shown_with_the_code_that_it_leaves(folder: Path, tmp_path: Path) -> None:
    files = drawn(folder, tmp_path / "a", "--size", "2")
    assert files["answers-1.md"].count("\nBefore:\n") == files["answers-1.md"].count("\nAfter:\n") == 2
    assert len(files["answers-key.jsonl"].splitlines()) == 2


def test_a_seed_draws_the_same_and_another_one_others(folder: Path, tmp_path: Path) -> None:
    first, same = (drawn(folder, tmp_path / name, "--size", "9", "--seed", "1") for name in "ab")
    other = drawn(folder, tmp_path / "c", "--size", "9", "--seed", "2")
    assert first == same != other


def test_sizes_add_up(folder: Path) -> None:
    done = CliRunner().invoke(main, ["data", "sizes", str(folder)])
    assert done.exit_code == 0, done.output
    rows = re.findall(r"^(judge|advise) +(.+?) +(\d+)(?: +\d+)?$", done.output, re.M)
    means = {(view, part): int(mean) for view, part, mean in rows}
    for view in ("judge", "advise"):
        of_view = {part: mean for (shown, part), mean in means.items() if shown == view}
        parts = ("around", "code", "facts, task and questions")
        assert abs(sum(of_view[part] for part in parts) - of_view["all"]) <= 2  # each is rounded
        assert 0 < of_view["left to read with a cache"] <= of_view["all"]


def test_a_folder_without_a_dataset_is_named(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["data", "sheet", str(tmp_path / "none"), "--out", str(tmp_path / "out")])
    assert done.exit_code == 1 and "no dataset is there" in done.output
