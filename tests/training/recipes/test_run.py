"""The folder of a run and the card of its adapter; no model is needed."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ptopt.model.backends.loading import AdapterFolder
from ptopt.model.backends.open import OpenModel
from ptopt.model.calibration import Calibration
from ptopt.model.region import JUDGE_TOKENS
from tests.model.scripted import Scripted
from tests.training.recipes.conftest import a_sample
from training.dataset.views import judge_examples, judge_regions
from training.recipes.run import Run, card_of
from training.recipes.settings import Settings


def test_all_processes_of_a_run_may_begin_at_once(tmp_path: Path) -> None:
    run = Run(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        for _ in range(50):
            list(pool.map(lambda _: run.begin(), range(8)))
            (run.scratch / "checkpoint-2").mkdir()
            (run.scratch / "checkpoint-2" / "half").touch()
    run.begin()
    assert list(run.scratch.iterdir()) == []


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "dataset.json").write_text(json.dumps({"hash": "0" * 64}))
    data = {"folder": tmp_path, "judge_tokens": 40}
    return Settings.model_validate({"name": "t", "model": {"base": "package:x"}, "data": data})


def adapter(folder: Path, card: dict[str, object]) -> AdapterFolder:
    return AdapterFolder(folder, card, None, "c" * 64)


def test_how_much_code_a_judge_reads_goes_from_the_settings_to_the_reviews(
    tmp_path: Path, settings: Settings
) -> None:
    pytest.importorskip("transformers")
    found = adapter(tmp_path, card_of(settings, "sft", "b", None, {}))
    assert found.judge_tokens == 40 < JUDGE_TOKENS
    backend = Scripted()
    advisor = OpenModel(backend, Calibration.off(), found.content, found.judge_tokens).advisor()
    one = a_sample(6)
    advisor.judge(judge_regions(one))
    trained = judge_examples(one, 384, lambda text: len(text) // 9, settings.data.judge_tokens)
    assert backend.judged == [question for question, _ in trained]
    assert backend.judged != [question for question, _ in judge_examples(one)]


def test_feedback_leaves_an_adapter_the_code_it_was_made_to_read(tmp_path: Path, settings: Settings) -> None:
    pytest.importorskip("transformers")
    parent = adapter(tmp_path, {"base": "package:x", "judge_tokens": 1024})
    card = card_of(settings, "kto", "b", parent, {})
    assert (card["judge_tokens"], card["parent"]) == (1024, "c" * 64)
    assert card_of(settings, "sft", "b", parent, {})["judge_tokens"] == 40  # its rows are cut anew
