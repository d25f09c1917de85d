"""The loss: only where labels are, the same packed and alone, the same as TRL's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")
pytestmark = pytest.mark.model

ROWS = [17, 60, 5, 41]  # lengths


def batches(vocabulary: int) -> tuple[list[dict[str, Any]], dict[str, Any], dict[str, Any]]:
    """The rows one by one, packed, and padded, as TRL's collator gives them."""
    from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

    generator = torch.Generator().manual_seed(0)
    rows = []
    for length in ROWS:
        ids = torch.randint(10, vocabulary, (length,), generator=generator).tolist()
        labels = [-100] * length
        labels[length // 2], labels[-1] = 7, 9  # none of them is the input there
        rows.append({"input_ids": ids, "labels": labels})
    one_row = {
        "input_ids": [token for row in rows for token in row["input_ids"]],
        "labels": [label for row in rows for label in row["labels"]],
        "seq_lengths": ROWS,
    }
    padded = DataCollatorForLanguageModeling(0)
    packed = DataCollatorForLanguageModeling(0, padding_free=True)
    return [padded([row]) for row in rows], packed([one_row]), padded(rows)


@pytest.mark.parametrize("model", ["tiny", "smollm2"])
def test_packed_rows_do_not_read_each_other(model: str, request: pytest.FixtureRequest) -> None:
    from transformers import AutoModelForCausalLM

    from training.recipes.sft import labelled_loss

    torch.set_num_threads(1)
    folder: Path = request.getfixturevalue(model)
    loaded = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa")
    alone, packed, padded = batches(loaded.config.vocab_size)
    with torch.no_grad():
        apart = sum(float(labelled_loss(loaded, batch)[0]) for batch in alone)
        for together in (packed, padded):
            total, count = labelled_loss(loaded, together)
            assert count == 2 * len(ROWS)
            assert float(total) == pytest.approx(apart, rel=2e-5)
        # Read as one text, which is what a leak would amount to, the loss is another one.
        leaking = {**packed, "position_ids": torch.arange(sum(ROWS))[None]}
        assert abs(float(labelled_loss(loaded, leaking)[0]) - apart) > 1e-3 * apart


def test_loss_and_gradient_are_those_of_the_whole_logits(tiny: Path) -> None:
    from transformers import AutoModelForCausalLM

    from training.recipes.sft import labelled_loss

    model = AutoModelForCausalLM.from_pretrained(tiny, dtype=torch.float32, attn_implementation="sdpa")
    _, _, padded = batches(model.config.vocab_size)
    total, count = labelled_loss(model, padded)
    total.backward()
    ours = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    whole = model(**padded, use_cache=False).loss  # the mean
    (whole * count).backward()
    assert float(total / count) == pytest.approx(float(whole), rel=1e-5)
    for name, gradient in ours.items():
        torch.testing.assert_close(gradient, model.get_parameter(name).grad, rtol=1e-3, atol=1e-5)
