"""Audits of clones with the recorded answers of a model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.quality import audits
from tests.benchmarks.clones import SLOW, Repository

MAIN = SLOW + "\n\nif __name__ == '__main__':\n    train(model, loader, optimizer, 'cuda')\n"
CHANGE = {"state": "on", "because": "The script says `--amp`.", "evidence": ["run.sh:1"], "agrees": False}


@pytest.fixture
def clones(tmp_path: Path) -> Path:
    repository = Repository(tmp_path / "clones" / "acme+net" / "repo")
    repository.commit_files(
        "start",
        {
            "train.py": MAIN,
            "run.sh": "python train.py --amp\n",
            ".hidden/train.py": MAIN,
            "requirements.txt": "torch==1.13.1\n",
        },
    )
    return tmp_path / "clones"


def _answer(file: Path) -> str:
    asked = json.loads(file.read_text())
    properties = asked["schema"]["properties"]
    if "rows" in properties:
        rows = [
            {"measure": key, "because": "", "evidence": [], "state": "on", "agrees": True} | (CHANGE if key == "precision" else {})
            for key in properties["rows"]["items"]["properties"]["measure"]["enum"]
        ]  # fmt: skip
        answer: object = {"rows": rows}
    elif "probability" in properties:
        answer = {"because": "so", "verdict": "right", "probability": 80}
    else:
        answer = {"because": "so", "verdict": "stands"}
    return json.dumps({"prompt": asked["prompt"], "answer": answer}) + "\n"


def test_answers_are_recorded_in_two_rounds(
    clones: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, lines = tmp_path / "out.json", ""
    for number in range(3):
        ask, answers = tmp_path / f"ask{number}", tmp_path / f"answers{number}.jsonl"
        answers.write_text(lines)
        common = ["--clones", str(clones), "acme/net", "--answers", str(answers), "--out", str(out)]
        assert audits.main([*common, "--ask", str(ask)]) == 0
        lines += "".join(map(_answer, sorted(ask.glob("*.json"))))
    assert not ask.exists()  # nothing was left to ask
    assert audits.main(common) == 0  # and the answers alone are enough
    found = json.loads(out.read_text())["acme/net"]
    assert len(found["sha"]) == 40
    (entry,) = found["audit"]["entry_points"]  # none of a hidden folder
    (row,) = [row for row in entry["measures"] if row["key"] == "precision"]
    assert row["state"] == "on" and row["evidence"] == [{"path": "run.sh", "line": 1}]
    (none,) = [row for row in entry["measures"] if row["key"] == "set_to_none"]
    assert "torch==1.13.1" in none["detail"]
    assert "1 changed, 0 refused" in capsys.readouterr().out.splitlines()[-1]


def test_without_answers_the_static_audit_is_written(clones: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    assert audits.main(["--clones", str(clones), "acme/net", "--out", str(out)]) == 0
    assert "model" not in json.loads(out.read_text())["acme/net"]["audit"]
    with pytest.raises(SystemExit):
        audits.main(["--clones", str(clones), "acme/none"])


def test_the_share_of_the_lines_that_readers_name(
    clones: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    readings = tmp_path / "readings.jsonl"
    reasons = [
        ("W", "run.sh:1 passes --amp (train.py:6)"),
        ("T", "train.py:4,90"),
        ("R", "train.py:99"),
        ("W", "timm/loader.py:3"),
    ]
    rows = [
        {
            "repo": "acme/net",
            "script": "train.py",
            "rule": "Mixed precision",
            "verdict": verdict,
            "reason": reason,
        }
        for verdict, reason in reasons
    ]
    readings.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert audits.main(["--clones", str(clones), "--readings", str(readings)]) == 0
    said = capsys.readouterr().out
    assert "train.py:90 is not shown" in said
    assert "3 of 4 lines that readers name are shown; all of them for 1 of 2 rows" in said
