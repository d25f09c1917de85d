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


IN_PARTS = """
    import torch
    import yaml

    def predict_in_parts(model, x, size):
        with torch.no_grad():
            return torch.cat([model(part) for part in x.split(size)])

    def evaluate(model, loader, size=None):
        model.eval()
        with torch.no_grad():
            weights = table()
        for x in loader:
            if size is None:
                with torch.no_grad():
                    y = model(x)
            else:
                y = predict_in_parts(model, x, size)

    def main(path):
        config = yaml.safe_load(open(path))
        model = torch.nn.Linear(64, 64)
        optimizer = torch.optim.AdamW(model.parameters())
        for x in batches():
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
        evaluate(model, images(), config.get("size"))

    if __name__ == "__main__":
        main(sys.argv[1])
"""


def test_the_block_around_the_network_is_the_evidence(audited: Auditor) -> None:
    """Not the line of the function, and no other block in it."""
    measures = audited({"train.py": IN_PARTS}).entries[0].measures
    found = next(measure for measure in measures if measure.key == "evaluation")
    assert found.state is State.ON
    assert sorted(place.line for place in found.evidence) == [6, 15]


@pytest.mark.parametrize("path", ["configs/test/b100.yaml", "configs/test-b100.yaml"])
def test_configurations_of_tests_say_nothing_of_a_training(audited: Auditor, path: str) -> None:
    """Only those set the size with which the evaluation takes the other way, which is without a graph."""
    recorded = IN_PARTS.replace(
        "                with torch.no_grad():\n                    y = model(x)",
        "                y = model(x)",
    )
    files = {path: "batch_size: 1\nsize: 30000\n", "configs/train.yaml": "batch_size: 16\nlr: 0.1\n"}
    measures = audited({"train.py": recorded, **files}).entries[0].measures
    found = next(measure for measure in measures if measure.key == "evaluation")
    assert found.state is State.OFF


STEPS = """
from transformers import Trainer, TrainingArguments
import torch

class Pairs(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False):
        return model(**inputs).loss
{step}
def main():
    arguments = TrainingArguments("out", eval_strategy="steps")
    trainer = Pairs(model, arguments, train_dataset=texts)
    trainer.train()

main()
"""
PASS = "    def prediction_step(self, model, inputs, prediction_loss_only):\n        {}\n"


@pytest.mark.parametrize(
    ("step", "state"),
    [
        ("", State.ON),
        (PASS.format("return model(**inputs).loss.detach(), None, None"), State.OFF),
        (PASS.format("return self.compute_loss(model, inputs).detach(), None, None"), State.OFF),
        ("    @torch.no_grad()\n" + PASS.format("return model(**inputs).loss, None, None"), State.ON),
        (
            PASS.format("return super().prediction_step(model, inputs, prediction_loss_only)"),
            State.ON,
        ),
        (PASS.format("return model.generate(**inputs), None, None"), State.ON),
    ],
)
def test_a_step_that_replaces_the_one_of_transformers(audited: Auditor, step: str, state: State) -> None:
    (entry,) = audited({"train.py": STEPS.format(step=step)}).entries
    found = next(measure for measure in entry.measures if measure.key == "evaluation")
    assert found.state is state, found


IN_THE_TRAINING = """
import torch

def main(train_loader, val_loader, parts):
    optimizer = torch.optim.AdamW(parts["g"].parameters())
    for epoch in range(3):
        for x in train_loader:
            optimizer.zero_grad()
            parts["g"](x).sum().backward()
            optimizer.step()
        {part}

main([1], [2], {{}})
"""
IN_A_BLOCK = "with torch.no_grad():\n            for x in val_loader:\n                print(parts['g'](x))"


@pytest.mark.parametrize(("part", "state"), [(IN_A_BLOCK, State.ON), ("print(epoch)", State.UNKNOWN)])
def test_a_loop_over_evaluation_data_is_one_whatever_the_network_is_called(
    audited: Auditor, part: str, state: State
) -> None:
    measures = audited({"train.py": IN_THE_TRAINING.format(part=part)}).entries[0].measures
    assert next(measure for measure in measures if measure.key == "evaluation").state is state


@pytest.mark.parametrize(
    ("made", "state"),
    [("StableDiffusionPipeline.from_pretrained('x')", State.ON), ("Sampler('x')", State.UNKNOWN)],
)
def test_a_pipeline_of_diffusers_evaluates_without_a_graph(audited: Auditor, made: str, state: State) -> None:
    code = IN_THE_TRAINING.format(part="pipe(str(epoch))").replace(
        "    optimizer =", f"    pipe = {made}\n    optimizer ="
    )
    measures = (
        audited({"train.py": f"from diffusers import StableDiffusionPipeline\n{code}"}).entries[0].measures
    )
    assert next(measure for measure in measures if measure.key == "evaluation").state is state


PHASES = """
import torch

def main(loaders):
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.AdamW(model.parameters())
    for epoch in range(3):
        for phase in ["train", "val"]:
            for x in loaders[phase]:
                optimizer.zero_grad()
                {passes}
                if phase == "train":
                    y.sum().backward()
                    optimizer.step()

main({{}})
"""


@pytest.mark.parametrize(
    ("passes", "state"),
    [
        ("if phase == 'val':\n                    with torch.no_grad():\n                        y = model(x)\n                else:\n                    y = model(x)", State.ON),
        ("with torch.set_grad_enabled(phase == 'train'):\n                    y = model(x)", State.ON),
        ("with torch.no_grad():\n                    z = model(x)\n                y = model(x)", State.NOT_APPLICABLE),
    ],
)  # fmt: skip
def test_phases_of_one_loop(audited: Auditor, passes: str, state: State) -> None:
    measures = audited({"train.py": PHASES.format(passes=passes)}).entries[0].measures
    assert next(measure for measure in measures if measure.key == "evaluation").state is state


LEFT = """
import argparse
import torch

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--evaluate", action="store_true")
    parser.add_argument("--data")
    args = parser.parse_args()
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.AdamW(model.parameters())
    for x in batches(args.data):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
    evaluate(args, model)

@torch.no_grad()
def evaluate(args, model):
    {guard}
    for x in batches(args.data):
        print(model(x))

main()
"""


@pytest.mark.parametrize(
    ("guard", "state"),
    [
        ("if not args.evaluate:\n        return", State.NOT_APPLICABLE),
        ("if args.evaluate:\n        return", State.ON),
        ("if not args.evaluate:\n        raise ValueError", State.ON),  # who meets it gives other options
    ],
)
def test_what_a_function_returns_before_by_default_does_not_run(
    audited: Auditor, guard: str, state: State
) -> None:
    measures = audited({"train.py": LEFT.format(guard=guard)}).entries[0].measures
    assert next(measure for measure in measures if measure.key == "evaluation").state is state


@pytest.mark.parametrize(
    ("given", "state"),
    [
        ("train_dataset=texts", State.NOT_APPLICABLE),
        ("train_dataset=texts, eval_dataset=texts", State.ON),
        ("train_dataset=texts, **more", State.ON),
    ],
)
def test_a_trainer_without_evaluation_data(audited: Auditor, given: str, state: State) -> None:
    code = STEPS.format(step="").replace(
        "Pairs(model, arguments, train_dataset=texts", f"Trainer(model, arguments, {given}"
    )
    measures = audited({"train.py": code}).entries[0].measures
    assert next(measure for measure in measures if measure.key == "evaluation").state is state
