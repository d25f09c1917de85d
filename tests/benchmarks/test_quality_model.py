"""A general model in the benchmark: recorded answers, prompts that are written out, and the threshold."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from benchmarks.quality import calibrate
from benchmarks.quality.changes import Material, config_of
from benchmarks.quality.comments import Work, comments, materials
from benchmarks.quality.experts import Reading, compare
from benchmarks.quality.model import UNANSWERED, ModelOptions
from ptopt.findings import CHECKED
from tests.benchmarks.clones import SLOW, Repository
from training.evaluation.labels import finds

EMPTY = "import torch\n\n\ndef train(model, loader, optimizer, device):\n    return 0.0\n"
CLAIM: dict[str, Any] = {
    "region": 1, "start_line": 1, "end_line": 1, "kind": "device-wait", "problem": "It waits.", "fix": "Wait once.", "sure": 70,
}  # fmt: skip


@pytest.fixture
def work(tmp_path: Path) -> Work:
    repository = Repository(tmp_path / "clones" / "acme+net" / "repo")
    repository.commit("start", EMPTY)
    sha = repository.commit("slow", SLOW)
    config = config_of(min_confidence=0.0, all_rules=False, budget=10**9, all_paths=False)
    return Work("acme/net", repository.path, tmp_path / "cache", [sha], config, True)


def _answered(work: Work, folder: Path, claim: dict[str, Any], probability: int) -> ModelOptions:
    """All prompts of the commit answered, in three rounds."""
    answers, ask = folder / "answers.jsonl", folder / "ask"
    answers.write_text("")
    for answer in (
        {"findings": [claim]},
        checked := {"because": "so", "verdict": "right", "probability": probability},
        checked,
    ):
        ((_, material),) = materials(work)
        assert isinstance(material, Material)
        # a file that was read is remembered: each round is a run of the command, and so a file, of its own
        answers = answers.rename(folder / f"{len(list(ask.glob('*')))}.jsonl")
        material.review(work.config, advisor=ModelOptions((answers,), ask).advisor())
        for prompt in sorted(ask.iterdir()):
            key = json.loads(prompt.read_text())["prompt"]
            if key not in answers.read_text():
                with answers.open("a") as file:
                    file.write(json.dumps({"prompt": key, "answer": answer}) + "\n")
    return ModelOptions((answers.rename(folder / "all.jsonl"),), threshold=0.0)


def test_answers_are_recorded_in_three_rounds(work: Work, tmp_path: Path) -> None:
    claim = CLAIM | {"start_line": 6, "end_line": 6}
    model = _answered(work, tmp_path, claim, 80)
    ((_, material),) = materials(work)
    assert isinstance(material, Material)
    review = material.review(work.config, advisor=model.advisor())
    found = [f for f in review.findings if f.name == "found-by-model"]
    assert [dict(f.features)[CHECKED] for f in found] == [0.8]
    at = found[0].span
    assert finds(found[0], "host-device-sync", at.start, at.end)
    assert not finds(found[0], "host-device-sync", at.end + 10, at.end + 10)
    assert not finds(found[0], "dataloader-no-workers", at.start, at.end)


def test_what_was_not_recorded_is_said(work: Work, tmp_path: Path) -> None:
    empty = tmp_path / "none.jsonl"
    empty.write_text("")
    ((_, material),) = materials(work)
    assert isinstance(material, Material)
    review = material.review(work.config, advisor=ModelOptions((empty,)).advisor())
    assert review.model is not None and "no answer was recorded to prompt" in review.model.note
    assert ModelOptions().advisor() is None
    asked = dataclasses.replace(work, model=ModelOptions((empty,)))
    assert comments(asked) == ([], [UNANSWERED])  # it is not counted as a commit without a comment
    assert compare(Reading(asked, {})) == ([], 0, 1)
    assert calibrate.judged(Reading(asked, {})) == ([], 0, {UNANSWERED: 1})


def test_a_comment_is_right_where_a_reader_would_post(work: Work, tmp_path: Path) -> None:
    claim = CLAIM | {"start_line": 6, "end_line": 6}
    model = _answered(work, tmp_path, claim, 80)
    ((sha, material),) = materials(work)
    assert isinstance(material, Material)
    reviewed = material.review(work.config, advisor=model.advisor())
    (line,) = (f.span.start for f in reviewed.findings if f.name == "found-by-model")
    asked = dataclasses.replace(work, model=model)
    remark = {"repo": "acme/net", "sha": sha, "path": "train.py", "line": line, "grade": 3}
    assert calibrate.judged(Reading(asked, {sha: [remark]})) == ([(sha, 0.8, True)], 1, Counter())
    assert calibrate.judged(Reading(asked, {sha: [remark | {"grade": 1}]})) == (
        [(sha, 0.8, False)],
        1,
        Counter(),
    )
    assert calibrate.judged(Reading(asked, {})) == ([(sha, 0.8, False)], 1, Counter())
    assert calibrate.judged(Reading(asked, None)) == ([(sha, 0.8, None)], 1, Counter())


def test_unread_commits_count_for_how_often_it_speaks_alone() -> None:
    read = [calibrate.Judged(str(at), 0.5 + at / 1000, True) for at in range(20)]
    unread = [calibrate.Judged(f"random {at}", 0.9 if at < 5 else 0.6, None) for at in range(20)]
    assert calibrate.decide(read + unread, 100) == (0.61, 1.0)  # of 100 commits 20 from 0.60 on, then 5


def test_the_threshold_is_the_least_that_is_right_often_enough() -> None:
    said = [(0.5, False)] * 12 + [(0.7, True)] * 8 + [(0.7, False)] * 4
    found = [calibrate.Judged(str(at), *one) for at, one in enumerate(said)]
    assert calibrate.decide(found, 1_000) == (0.51, 0.67)
    assert calibrate.decide(found[:12], 1_000) is None
    assert calibrate.decide([calibrate.Judged("a", 0.9, True)] * 5, 1_000) is None


def test_few_commits_are_commented() -> None:
    found = [calibrate.Judged(str(at), 0.4 + at / 100, True) for at in range(50)]
    assert calibrate.decide(found, 1_000) == (0.2, 1.0)
    assert calibrate.decide(found, 100) == (0.8, 1.0)  # the last ten


def test_a_server_is_asked_and_the_threshold_is_written(
    work: Work, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against a stand-in server: a file for a new model, which a review then takes."""
    pytest.importorskip("urllib3")
    from ptopt.model.general import read_general
    from tests.model.backends.fake_server import chat, serving

    def answer(body: dict[str, Any]) -> Any:
        findings = "findings" in json.dumps(body["response_format"])
        said = {"findings": [CLAIM | {"start_line": 6, "end_line": 6}]}
        return chat(
            json.dumps(said if findings else {"because": "so", "verdict": "right", "probability": 80})
        )

    monkeypatch.setattr(calibrate, "LEAST_COMMENTS", 1)
    remark = {"repo": "acme/net", "sha": work.shas[0], "path": "train.py", "line": 9, "grade": 3}

    def readings(which: str, folders: object, options: object, model: ModelOptions) -> list[Reading]:
        return [Reading(dataclasses.replace(work, model=model), {work.shas[0]: [remark]})]

    monkeypatch.setattr(calibrate, "readings", readings)
    file = tmp_path / "large.json"
    none = tmp_path / "none.jsonl"
    none.write_text("")
    with serving() as fake:
        fake.replies["/v1/chat/completions"] = answer
        arguments = [
            str(file),
            "--model",
            "m",
            "--model-server",
            fake.url,
            "--clones",
            str(tmp_path),
            "--reading",
            "third",
            "--most-commented",
            "1",
            "--random",
            str(none),
        ]
        assert calibrate.main(arguments) == 0
    written = read_general(str(file))
    assert (written.calibration.change_threshold, written.calibration.change_confidence) == (0.2, 1.0)
