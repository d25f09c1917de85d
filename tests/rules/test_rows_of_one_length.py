"""A mask with lengths is the advice where rows differ in length, and only there."""

from __future__ import annotations

import pytest

from tests.rules.messages import messages

CODE = """
@torch.no_grad()
def score(model, mel: torch.Tensor, tokens: torch.Tensor, lengths):
    logits = model(mel, tokens[:, :-1])
    scores = []
    for i in range(tokens.shape[0]):
        logprobs = torch.log_softmax(logits[i].float(), dim=-1)
        {body}
    return scores
"""


@pytest.mark.parametrize(
    ("body", "ragged"),
    [
        ("scores.append(logprobs.gather(-1, tokens[i, 1:, None]).sum().item())", False),
        ("scores.append(logprobs.gather(-1, tokens[i, 1:, None]).sum())", False),
        ("scores.append(logprobs[: lengths[i]].sum().item())", True),
        ("scores.append(logprobs[: logits[i].argmax().item()].sum())", True),
    ],
)
def test_advice_by_the_length_of_the_rows(body: str, ragged: bool) -> None:
    (message,) = messages("per-sample-loop" if ragged else "slice-loop", CODE.format(body=body))
    assert ("lengths[:, None]" in message) == ragged
    assert ("at once, with `dim` counted in the whole tensor" in message) != ragged
