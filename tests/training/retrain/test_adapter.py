"""The cycle of the adapter: dataset, fine-tuning, gate, canary; killed at any point, it goes on."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

import pytest
import yaml
from sqlalchemy import Engine, select

pytest.importorskip("torch")
pytest.importorskip("trl")
pytestmark = pytest.mark.model

from ptopt.model.adapter_folder import content_hash, read_card, why_unusable  # noqa: E402
from ptopt.model.registry import Registry  # noqa: E402
from service import versions  # noqa: E402
from service.database import reading, writing  # noqa: E402
from service.models import LearningEvent, Retraining, Version  # noqa: E402
from tests.model import weights  # noqa: E402
from tests.training.retrain.coded import Coded  # noqa: E402
from tests.worker.processes import wait_for  # noqa: E402
from training.recipes.tracking import read_metrics  # noqa: E402
from training.retrain import adapter  # noqa: E402
from training.retrain.adapter import Options  # noqa: E402
from training.retrain.records import Records, Run  # noqa: E402
from training.retrain.steps import NothingToLearnError, Result  # noqa: E402

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return weights.tiny(tmp_path_factory.mktemp("tiny"))


def recipe(folder: Path, base: str, **limits: object) -> Path:
    path = folder / "recipe.yaml"
    given = {
        "name": "t", "model": {"base": base}, "lora": {"r": 8, "dropout": 0.0},
        "data": {"folder": "-", "max_tokens": 480, "judge_tokens": 224, "views": {"judge": 1, "advise": 1}},
        "batch": {"size": 4, "accumulation": 1}, "optimizer": {"lr": 0.01, "warmup": 0},
        "limits": {"epochs": 1, **limits}, "checkpoint": {"every": 2}, "threads": 1,
    }  # fmt: skip
    path.write_text(yaml.safe_dump(given), encoding="utf-8")
    return path


def options(coded: Coded, recipe: Path) -> Options:
    return Options(
        coded.url, coded.folder, str(recipe), coded.clones, coded.registry, work=(coded.work,), fixes=(),
        gold=(coded.gold,), measured=(coded.gold,),
    )  # fmt: skip


def retrained(given: Options) -> Result:
    records = Records(given.database)
    run = records.claim("adapter", "of the test", 60)
    assert isinstance(run, Run)
    try:
        with records.kept(run, 60):
            return adapter.retrain(records, run, given)
    finally:
        records.close()


@pytest.fixture
def coded(tmp_path: Path, database_url: str, engine: Engine) -> Coded:
    return Coded(tmp_path, database_url, engine)


def seen(engine: Engine) -> tuple[list[str], dict[str, str], list[Retraining]]:
    """Kinds of the events, versions with their state, runs."""
    with reading(engine) as session:
        kinds = list(session.scalars(select(LearningEvent.kind).order_by(LearningEvent.id)))
        known = {
            v.hash: v.state for v in session.scalars(select(Version).where(Version.subject == "adapter"))
        }
        return kinds, known, list(session.scalars(select(Retraining).order_by(Retraining.id)))


STEPS = ["started", "dataset", "fitted", "evaluated"]


def test_what_people_say_becomes_a_canary_and_a_worse_one_is_refused(
    coded: Coded, engine: Engine, tmp_path: Path, tiny: Path
) -> None:
    coded.answers(16, 10)
    coded.judge(10, 6)
    given = options(coded, recipe(tmp_path, str(tiny), epochs=100, steps=30))
    result = retrained(given)
    assert result.state == "canary", result.reason
    kinds, known, (run,) = seen(engine)
    assert kinds == [*STEPS, "canary"] and known == {result.hash: "canary"} and run.result == result.hash
    (entry,) = Registry(coded.registry).entries()
    assert (entry.hash, entry.problem, entry.aliases) == (result.hash, "", ())
    figures = result.card["evaluation"]
    assert figures["feedback"]["gain"]["low"] > 0 and figures["calibration"]["judge"]["of_log_odds"] > 0
    calibration = json.loads((coded.registry / "adapters" / result.hash / "calibration.json").read_text())
    assert calibration == figures["calibration"] and entry.card["metrics"]["retraining"]["gold"]
    assert result.card["champion"] == "" and result.card["dataset"]["of them answers"] >= adapter.FEWEST
    # Readers say the opposite now: better on feedback, and wrong.
    promote(engine, result.hash)
    for name in coded.clones.glob("gold-*"):
        shutil.rmtree(name)
    coded.judge(10, 6, otherwise=True)
    coded.answers(2, 8)
    worse = retrained(given)
    assert worse.state == "refused" and worse.reason and worse.card["champion"] == result.hash
    assert seen(engine)[1] == {result.hash: "active", worse.hash: "refused"}
    assert [entry.hash for entry in Registry(coded.registry).entries()] == [result.hash]
    assert [folder.name for folder in coded.folder.iterdir()] == ["adapter-2"], "no code of before is kept"


def promote(engine: Engine, hash_: str) -> None:
    with writing(engine) as session:
        assert versions.promote(session, "adapter", datetime.now(timezone.utc), {}) == hash_


PROGRAM = """
import os, signal, sys, time
from pathlib import Path
from training.retrain import adapter
from training.retrain.records import Records, Run

url, folder, recipe, clones, registry, work, gold, point = sys.argv[1:]

def reached(at):
    print(at, flush=True)
    if at == point:
        os.kill(os.getpid(), signal.SIGKILL)

records = Records(url)
while not isinstance(run := records.claim("adapter", "of the test", 0.5), Run):
    time.sleep(0.1)
options = adapter.Options(
    url, Path(folder), recipe, Path(clones), Path(registry), work=(Path(work),), fixes=(), gold=(Path(gold),),
    measured=(), reached=reached,
)
with records.kept(run, 0.5):
    print(adapter.retrain(records, run, options).state)
"""


def process(coded: Coded, recipe: Path, point: str) -> subprocess.Popen[str]:
    given = (coded.url, coded.folder, recipe, coded.clones, coded.registry, coded.work, coded.gold, point)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *map(str, given)], cwd=ROOT, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def output(started: subprocess.Popen[str], code: int) -> list[str]:
    """The points that it reached until it ended so."""
    out, err = started.communicate(timeout=300)
    assert started.returncode == code, err
    return out.splitlines()


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_killed_while_it_learns_and_while_it_registers(
    coded: Coded, engine: Engine, tmp_path: Path, tiny: Path
) -> None:
    coded.answers(9, 8)
    coded.judge(8, 4)
    given = recipe(tmp_path, str(tiny), epochs=1000, steps=40)
    with process(coded, given, "") as learning:
        wait_for(lambda: list(coded.folder.glob("adapter-1/runs/*/checkpoints/checkpoint-*")), 300)
        learning.kill()
        assert output(learning, -signal.SIGKILL)[-1] == "tuning"
    rows = (coded.folder / "adapter-1" / "rows.jsonl").read_bytes()
    with process(coded, given, "added") as registering:
        points = output(registering, -signal.SIGKILL)
    assert points[1] == "dataset kept" and "fitted noted" in points and points[-1] == "added"
    (run_folder,) = (coded.folder / "adapter-1" / "runs").iterdir()
    steps = [line["step"] for line in read_metrics(run_folder)]
    assert steps == list(range(1, 41)), "it went on from the checkpoint"
    with process(coded, given, "") as last:
        points = output(last, 0)
    assert points[1:4] == ["dataset kept", "fitted kept", "evaluated kept"]
    assert (coded.folder / "adapter-1" / "rows.jsonl").read_bytes() == rows
    kinds, known, (run,) = seen(engine)
    assert kinds == [*STEPS, points[-1]] and list(known.items()) == [(run.result, points[-1])]
    added = [run.result] if points[-1] == "canary" else []
    assert [entry.hash for entry in Registry(coded.registry).entries()] == added


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_the_whole_cycle_with_real_weights(coded: Coded, engine: Engine, tmp_path: Path) -> None:
    """A few steps: what comes out is measured, registered, and usable, whether it is to be tried or not."""
    weights.real()
    coded.answers(8, 8)
    coded.judge(2, 4)
    result = retrained(options(coded, recipe(tmp_path, weights.SPEC, steps=3)))
    kinds, known, (run,) = seen(engine)
    assert kinds == [*STEPS, result.state] and known == {result.hash: result.state}
    assert (run.state, run.result, result.card["training"]) == ("done", result.hash, 3)
    figures = result.card["evaluation"]
    assert figures["gold"]["auc"]["rows"] == 8 and figures["calibration"]
    folder = coded.folder / "adapter-1" / "adapter"
    assert content_hash(folder) == result.hash and why_unusable(read_card(folder)) == ""


def test_without_code_there_is_nothing_to_learn(coded: Coded, tmp_path: Path, tiny: Path) -> None:
    coded.answers(3, 8)
    for name in coded.clones.glob("acme-*"):
        shutil.rmtree(name)
    coded.judge(1, 2)
    with pytest.raises(NothingToLearnError, match=r"0 answers with code .*120 left out: there is no clone"):
        retrained(options(coded, recipe(tmp_path, str(tiny), steps=1)))
