"""`training calibrate` against a stand-in of a server: one that knows, one that guesses, one that fails."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sklearn", reason="the extra `training` is not installed")

from click.testing import CliRunner, Result

from ptopt.model.backends.openai import API_KEY
from ptopt.model.calibration import Calibration
from ptopt.model.general import General
from ptopt.ranker.model import threshold
from tests.model.backends.fake_server import FakeServer, Reply, chat, in_turn, serving, word
from tests.naps import noted
from tests.training.evaluation.conftest import a_sample
from training.__main__ import main
from training.dataset.rows import JUDGED
from training.evaluation.general import _own, few_shot, judge_fit
from training.evaluation.synthetic import AdviceCounts, OwnFinding

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two splits of judged code."""
    folder = tmp_path_factory.mktemp("judged")
    (folder / "samples").mkdir()
    for split, numbers in {"train": range(6), "validation": range(100, 160)}.items():
        chosen = [dataclasses.replace(a_sample(n, f"{split}-{n % 7}"), kind=JUDGED) for n in numbers]
        lines = "".join(f"{sample.to_json()}\n" for sample in chosen)
        (folder / "samples" / f"{split}.jsonl").write_text(lines, encoding="utf-8")
    return folder


def knows(body: dict[str, Any]) -> Reply:
    """Right about each question, and without findings of its own."""
    if "response_format" in body:
        return chat('{"findings": []}')
    user = body["messages"][1]["content"]
    code = user.partition(" is this:")[0]
    good = code.endswith("item-every-step") and "% 100" not in code
    return word("yes" if good else "no", (800, 1), yes=-0.1 if good else -4.0, no=-4.0 if good else -0.1)


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with serving() as fake:
        fake.replies["/v1/chat/completions"] = knows
        yield fake


@pytest.fixture
def calibrate(server: FakeServer, judged: Path, tmp_path: Path) -> Callable[..., tuple[Result, Path]]:
    def run(*options: str) -> tuple[Result, Path]:
        place = tmp_path / "m.json"
        given = [
            "--model-server",
            server.url,
            "--model",
            "m",
            "--data",
            str(judged),
            "--out",
            str(place),
            "--advised",
            "2",
        ]
        return CliRunner().invoke(main, ["calibrate", *given, *options]), place

    return run


def test_a_model_that_knows_becomes_a_veto(
    calibrate: Callable[..., tuple[Result, Path]], server: FakeServer
) -> None:
    done, place = calibrate("--price-in", "2", "--price-out", "8")
    assert done.exit_code == 0, done.output
    assert "The judge is on, as a veto" in done.output and "Its own findings are not shown" in done.output
    assert "90 answers, 800 tokens read and 1 written each, 0.001608 each" in done.output
    found = General.from_json(place.read_text())
    fit = found.calibration.judge
    assert fit is not None and fit.floor == threshold(None) and fit.of_confidence == 0
    limit = threshold(None)
    assert (
        found.calibration.confidence("item-every-step", 0.99, -3.9)
        < limit
        < found.calibration.confidence("", 0.5, 3.9)
    )
    assert {one.answer for one in found.examples} == {True, False}
    shown = server.bodies("/v1/chat/completions")[0]["messages"]
    assert "total_0 += loss.item()" in shown[0]["content"]  # from work
    assert all(
        "total_1" not in body["messages"][0]["content"] for body in server.bodies("/v1/chat/completions")
    )


def test_a_model_that_guesses_stays_silent_and_the_command_says_so(
    calibrate: Callable[..., tuple[Result, Path]], server: FakeServer
) -> None:
    server.replies["/v1/chat/completions"] = lambda body: (
        chat("nonsense") if "response_format" in body else word("yes", yes=-0.7, no=-0.7)
    )
    done, place = calibrate()
    assert done.exit_code == 0, done.output
    assert "no threshold reaches a precision of 75%" in done.output
    assert "The model stays silent: nothing reached the precision that is needed." in done.output
    assert General.from_json(place.read_text()).calibration == Calibration.off()


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (Reply(500, b""), "failed (500)"),
        (Reply(429, b"", headers={"Retry-After": "0"}), "failed (429)"),
        (Reply(401, {"error": {"message": "Incorrect API key"}}), "refused (401): Incorrect API key"),
        (Reply(200, b'{"choices": ['), "did not answer in JSON"),
        (Reply(200, {"choices": []}), "answered without a choice"),
        (Reply(200, {"choices": []}, after=3.0), "took longer than 1 s"),
    ],
    ids=range(6),
)
def test_a_server_that_fails_leaves_no_file_and_one_line(
    calibrate: Callable[..., tuple[Result, Path]], server: FakeServer, reply: Reply, says: str,
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.setenv(API_KEY, "sk-secret")
    server.replies["/v1/chat/completions"] = lambda _: reply
    with caplog.at_level(logging.DEBUG):
        done, place = calibrate("--timeout", "1")
    assert done.exit_code == 1 and not place.exists()
    assert f"Error: nothing was written: the model server {says}" in done.output
    assert server.authorization == {"Bearer sk-secret"}
    assert "sk-secret" not in done.output + caplog.text


def test_what_passes_is_waited_for(
    calibrate: Callable[..., tuple[Result, Path]], server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept = noted(monkeypatch)
    first = in_turn(Reply(429, b"", headers={"Retry-After": "7"}), Reply(503, b""), Reply(200))
    left = 2

    def sometimes(body: dict[str, Any]) -> Reply:
        nonlocal left
        left -= 1
        return first(body) if left >= 0 else knows(body)

    server.replies["/v1/chat/completions"] = sometimes
    done, place = calibrate("--at-once", "1")
    assert done.exit_code == 0 and place.exists()
    assert slept[0] == 7.0 and len(slept) == 2


def test_a_fit_needs_precision_in_projects_that_it_has_not_seen() -> None:
    projects = [f"p{n % 5}" for n in range(100)]
    truth = [n % 2 == 0 for n in range(100)]
    good = [2.0 if right else -2.0 for right in truth]
    fit, words = judge_fit(truth, good, projects)
    assert fit is not None and "50 of 50 are right" in words
    assert judge_fit(truth, [-s for s in good], projects)[0] is None  # the wrong way round
    assert judge_fit(truth, good, ["one"] * 100)[0] is None
    assert judge_fit([True] * 100, good, projects)[0] is None
    few = slice(0, 20)
    assert judge_fit(truth[few], good[few], projects[few])[0] is None
    noisy = [
        2.0 if right != (n % 5 == 0) else -2.0 for n, right in enumerate(truth)
    ]  # right in each project but one
    assert judge_fit(truth, noisy, [f"p{n % 2}" for n in range(100)])[0] is None


def test_own_findings_and_sentences_need_their_precision() -> None:
    right = [OwnFinding("item-every-step", 3.0, True)] * 40
    wrong = [OwnFinding("item-every-step", 1.0, False)] * 40
    fitted, words = _own(Calibration(), AdviceCounts(own=[*right, *wrong], explained=60, supported=60))
    assert fitted.advise_threshold == pytest.approx(0.9526, abs=1e-4) and fitted.explain
    assert "shown from 0.95" in words[0] and "Its sentences are shown" in words[1]
    fitted, words = _own(Calibration(), AdviceCounts(own=wrong, explained=60, supported=50))
    assert fitted == Calibration.off() and words[-1].startswith("The model stays silent")


def test_examples_are_of_both_answers_and_of_different_rules() -> None:
    work = [dataclasses.replace(a_sample(n, "p"), kind=JUDGED) for n in range(10)]
    shown = few_shot(work)
    assert [(one.rule, one.answer) for one in shown] == [
        ("item-every-step", True),
        ("item-every-step", False),
    ]
    assert few_shot([a_sample(0, "p"), a_sample(1, "p")]) == ()  # not judged by people
    assert few_shot(work[::2]) == ()  # one answer alone would say that it is always right
    assert json.loads(json.dumps([dataclasses.asdict(one) for one in shown]))
