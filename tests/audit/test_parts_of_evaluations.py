"""What evaluations alone call belongs to the evaluation, whatever its name."""

from __future__ import annotations

import pytest

from ptopt.audit.values import State
from tests.audit.conftest import Auditor

TRAIN = """
    import torch

    def features_in_turn(model, loader):
        found = []
        for x in loader:
            found.append(model.encode_image(x).detach().cpu())
        return torch.cat(found)

    def neighbour_eval(model, loader):
        return features_in_turn(model, loader).mean()

    def evaluate(model, loader, bank):
        model.eval()
        with torch.inference_mode():
            for x in loader:
                model(x)
        neighbour_eval(model, bank)

    def main():
        model = torch.nn.Linear(64, 64)
        optimizer = torch.optim.AdamW(model.parameters())
        for x in batches():
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
        evaluate(model, images(), more())

    if __name__ == "__main__":
        main()
"""
CALL = "neighbour_eval(model, bank)"


@pytest.mark.parametrize(
    ("code", "state"),
    [
        (TRAIN, State.OFF),
        (TRAIN.replace("    def neighbour_eval", "    @torch.no_grad()\n    def neighbour_eval"), State.ON),
        (TRAIN.replace(f"        {CALL}", f"        with torch.no_grad():\n            {CALL}"), State.ON),
    ],
)
def test_a_function_that_evaluations_alone_call_is_one(audited: Auditor, code: str, state: State) -> None:
    measures = audited({"train.py": code}).entries[0].measures
    found = next(measure for measure in measures if measure.key == "evaluation")
    assert found.state is state
    if state is State.OFF:
        assert [place.line for place in found.evidence] == [7]
