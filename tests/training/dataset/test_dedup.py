from __future__ import annotations

import json
from pathlib import Path

import pytest

from training.dataset.dedup import Evaluation, NearDuplicates, evaluation_texts, pack, signature, unpack

CODE = "\n".join(
    f"def f{n}(x, y):\n    value_{n} = compute_{n}(x) + weigh(y, scale={n})\n    return value_{n}"
    for n in range(12)
)


def test_near_duplicates_are_seen() -> None:
    seen = NearDuplicates()
    assert seen.add("a", signature(CODE))
    assert not seen.add("b", signature(CODE.replace("def f3", "def g3") + "\n# a comment\n"))
    assert seen.add(
        "c", signature(CODE.replace("value", "result").replace("compute", "make").replace("x", "z"))
    )


def test_a_signature_survives_packing() -> None:
    values = pack(signature(CODE))
    assert json.loads(json.dumps(values)) == values
    assert unpack(values).jaccard(signature(CODE)) == 1.0


@pytest.mark.parametrize("text", ["", "\n", "x", "# only\n# comments"])
def test_texts_without_shingles_have_a_signature(text: str) -> None:
    assert signature(text).jaccard(signature(text)) == 1.0


def test_code_of_the_evaluation_is_found() -> None:
    evaluation = Evaluation([CODE])
    assert evaluation.contaminates(CODE)
    part = "\n".join(CODE.split("\n")[3:9])
    assert evaluation.contaminates(f"def other():\n    pass\n{part}\n    more = 1\n")
    assert not evaluation.contaminates(
        "def other(model, loader):\n    for batch in loader:\n        model(batch).backward()\n"
    )


def test_nothing_to_compare_with_contaminates_nothing() -> None:
    assert not Evaluation([])


def test_evaluation_texts_are_read_in_all_forms(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("alpha = 1\n")
    (tmp_path / "b.diff").write_text("+beta = 2\n-gamma = 3\n")
    cases = tmp_path / "cases"
    cases.mkdir()
    (cases / "c.jsonl").write_text(
        json.dumps({"id": "x", "head": "delta = 4"}) + "\n\n" + json.dumps({"id": 1}) + "\n"
    )
    (tmp_path / "d.bin").write_bytes(b"\xff")
    texts = "\n".join(evaluation_texts([tmp_path]))
    assert {"alpha = 1", "beta = 2", "gamma = 3", "delta = 4"} <= set(texts.split("\n"))
    assert list(evaluation_texts([cases / "c.jsonl"])) == ["delta = 4"]
    with pytest.raises(FileNotFoundError, match="decontaminate"):
        list(evaluation_texts([tmp_path / "none"]))
