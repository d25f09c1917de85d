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

    from training.recipes.sft import label_losses

    torch.set_num_threads(1)
    folder: Path = request.getfixturevalue(model)
    loaded = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa")
    alone, packed, padded = batches(loaded.config.vocab_size)
    with torch.no_grad():
        apart = sum(float(label_losses(loaded, batch).sum()) for batch in alone)
        for together in (packed, padded):
            losses = label_losses(loaded, together)
            assert int((losses > 0).sum()) == 2 * len(ROWS)
            assert float(losses.sum()) == pytest.approx(apart, rel=2e-5)
        # Read as one text, which is what a leak would amount to, the loss is another one.
        leaking = {**packed, "position_ids": torch.arange(sum(ROWS))[None]}
        assert abs(float(label_losses(loaded, leaking).sum()) - apart) > 1e-3 * apart


def test_loss_and_gradient_are_those_of_the_whole_logits(tiny: Path) -> None:
    from transformers import AutoModelForCausalLM

    from training.recipes.sft import label_losses

    model = AutoModelForCausalLM.from_pretrained(tiny, dtype=torch.float32, attn_implementation="sdpa")
    _, _, padded = batches(model.config.vocab_size)
    losses = label_losses(model, padded)
    losses.sum().backward()
    ours = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    whole = model(**padded, use_cache=False).loss  # the mean
    count = 2 * len(ROWS)
    (whole * count).backward()
    assert float(losses.sum() / count) == pytest.approx(float(whole), rel=1e-5)
    for name, gradient in ours.items():
        torch.testing.assert_close(gradient, model.get_parameter(name).grad, rtol=1e-3, atol=1e-5)


def test_the_fused_head_of_a_gpu_gives_the_same_losses(tiny: Path) -> None:
    from transformers import AutoModelForCausalLM
    from trl.trainer.utils import add_fused_lm_head

    from training.recipes.sft import fused_label_losses, label_losses

    model = AutoModelForCausalLM.from_pretrained(tiny, dtype=torch.float32, attn_implementation="sdpa")
    add_fused_lm_head(model)
    _, packed, padded = batches(model.config.vocab_size)
    with torch.no_grad():
        for batch in (packed, padded):
            torch.testing.assert_close(fused_label_losses(model, batch), label_losses(model, batch))


def test_each_row_counts_the_same_however_many_labels_it_has() -> None:
    """A judge's row with one label beside an explanation with forty: each is half of the loss."""
    from training.recipes.sft import label_weights

    judged = {"input_ids": [1] * 50, "labels": [-100] * 49 + [7]}
    explained = {"input_ids": [1] * 50, "labels": [-100] * 10 + [9] * 40}
    from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

    padded = label_weights(DataCollatorForLanguageModeling(0)([judged, explained]))
    together = {key: judged[key] + explained[key] for key in judged} | {"seq_lengths": [50, 50]}
    packed = label_weights(
        DataCollatorForLanguageModeling(0, padding_free=True, pad_to_multiple_of=64)([together])
    )
    assert padded.shape == (2, 49) and packed.shape == (1, 127)
    assert [float(part.sum()) for part in padded] == pytest.approx([1, 1])
    assert [float(part.sum()) for part in (packed[0, :49], packed[0, 49:])] == pytest.approx([1, 1])
    assert int((packed > 0).sum()) == 41
