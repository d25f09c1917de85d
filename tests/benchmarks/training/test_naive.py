"""The naive recipe pads as tutorials do, whatever the tokenizer."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("trl")
pytestmark = pytest.mark.model


@pytest.mark.parametrize(("pad_to", "width"), [(8, 8), (None, 3)])
def test_rows_are_padded_by_a_tokenizer_without_a_token_for_it(
    tiny_base: Path, tmp_path: Path, pad_to: int | None, width: int
) -> None:
    from transformers import AutoTokenizer

    from benchmarks.training.naive import collator

    tokenizer = AutoTokenizer.from_pretrained(tiny_base)
    tokenizer.pad_token = None
    tokenizer.save_pretrained(tmp_path)
    assert AutoTokenizer.from_pretrained(tmp_path).pad_token_id is None
    rows = [{"input_ids": [5, 6, 7], "labels": [-100, 6, 7]}, {"input_ids": [8], "labels": [8]}]
    batch = collator(tmp_path, pad_to)(rows)
    assert batch["input_ids"].shape == batch["labels"].shape == (2, width)
    assert batch["attention_mask"].sum(1).tolist() == [3, 1]
    assert (batch["labels"] != -100).sum(1).tolist() == [2, 1]


def test_a_configuration_that_cannot_be_read_is_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from benchmarks.training import __main__ as command

    for name in ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "TOKENIZERS_PARALLELISM"):  # the command sets them
        monkeypatch.setenv(name, "")
    asked = ["benchmarks.training", "--device", "cuda", "--config", str(tmp_path / "none.yaml")]
    monkeypatch.setattr("sys.argv", asked)
    with pytest.raises(SystemExit, match=r"none\.yaml: no such file"):
        command.main()
