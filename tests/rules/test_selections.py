"""What is advised in place of a selection by a mask leaves the result as it is."""

from __future__ import annotations

import pytest

from tests.rules.messages import messages

NAME = "size-read-from-device"
LOSS = """
class Loss(nn.Module):
    def forward(self, x: torch.Tensor, mask: torch.Tensor):
        return {}
"""


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        ("x[mask == 0].min()", 'Only the `min` of it is used: reduce `torch.where(mask, …, float("inf"))`,'),
        ("x[mask > 0].max()", '`torch.where(mask, …, -float("inf"))`'),
        ("(x[mask > 0] - 1).abs().mean()", "reduce `torch.where(mask, …, 0)`, which keeps the shape, and the count"),
        ("torch.masked_select(x, mask > 0).min()", '`torch.where(mask, …, float("inf"))`'),
        ("torch.sigmoid(x[mask > 0])", "`torch.where` or a weight of zero keeps the shape fixed."),
    ],
)  # fmt: skip
def test_what_stands_in_for_the_rest_is_neutral_to_what_reduces_it(code: str, advice: str) -> None:
    (message,) = messages(NAME, LOSS.format(code))
    assert advice in message


def test_each_reduction_has_its_own() -> None:
    (message,) = messages(
        NAME,
        """
        class Loss(nn.Module):
            def forward(self, x: torch.Tensor, mask: torch.Tensor):
                kept = x[mask > 0]
                return kept.max() - kept.min()
        """,
    )
    assert "Only the `max` and `min` of it are used" in message
    assert '`torch.where(mask, …, -float("inf"))` for `max`' in message
    assert '`torch.where(mask, …, float("inf"))` for `min`' in message


@pytest.mark.parametrize("code", ["x[mask > 0].argmin()", "x[mask > 0].median()"])
def test_where_the_selection_itself_is_needed_nothing_is_said(code: str) -> None:
    assert not messages(NAME, LOSS.format(code))


def test_other_waits_are_those_of_a_call_where_there_is_no_loop() -> None:
    code = """
    class Loss(nn.Module):
        def forward(self, x: torch.Tensor, mask: torch.Tensor):
            kept = torch.nonzero(mask > 0)
            return kept, torch.nonzero(x < 0)
    """
    found = messages(NAME, code)
    assert len(found) == 2 and all(" Each call also waits at line " in message for message in found)
