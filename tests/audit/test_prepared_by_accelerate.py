"""What Accelerate does with what it is given, and how rows name what decides them."""

from __future__ import annotations

import pytest

from ptopt.audit.values import Audit, Measure, State
from tests.audit.conftest import Auditor

TRAIN = """
    import argparse
    import torch
    import wandb
    from accelerate import Accelerator
    from accelerate.utils import DataLoaderConfiguration
    from torch import nn
    from torch.utils.data import DataLoader


    def main():
        parser = argparse.ArgumentParser()
        parser.add_argument("--grad-steps", type=int, default=1)
        parser.add_argument("--mixed-precision", default="no")
        args = parser.parse_args()
        accelerator = Accelerator(mixed_precision=args.mixed_precision, gradient_accumulation_steps=args.grad_steps, GIVEN)
        accelerator.init_trackers("run")
        net = nn.Linear(8, 8)
        optimizer = torch.optim.AdamW(net.parameters())
        loader = DataLoader(data(), num_workers=4, pin_memory=True)
        PREPARE
        for x, y in loader:
            x, y = x.to(accelerator.device), y.to(accelerator.device)
            with accelerator.accumulate(net):
                loss = (net(x) - y).pow(2).mean()
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            accelerator.log({"picture": wandb.Image(x)})


    if __name__ == "__main__":
        main()
"""
ALL = "net, optimizer, loader = accelerator.prepare(net, optimizer, loader)"


def audit(audited: Auditor, given: str = "log_with='wandb'", prepare: str = ALL, **more: str) -> Audit:
    return audited({"train.py": TRAIN.replace("GIVEN", given).replace("PREPARE", prepare), **more})


def row(found: Audit, key: str) -> Measure:
    return next(measure for measure in found.entries[0].measures if measure.key == key)


def line_of(text: str) -> int:
    return next(n for n, line in enumerate(TRAIN.splitlines(), 1) if text in line)


def test_the_copy_is_made_in_the_loader_that_is_prepared(audited: Auditor) -> None:
    found = audit(audited)
    copies = row(found, "non_blocking")
    assert copies.state is State.OFF
    assert "in the loader that it prepares" in copies.detail
    assert [place.line for place in copies.evidence] == [line_of("PREPARE")]
    gap = next(gap for gap in found.gaps if gap.key == "non_blocking")
    assert "dataloader_config=DataLoaderConfiguration(non_blocking=True)" in gap.action
    assert "Copy batches" not in gap.action


@pytest.mark.parametrize(
    ("given", "prepare"),
    [
        ("log_with='wandb'", "net, optimizer = accelerator.prepare(net, optimizer)"),
        ("device_placement=False", ALL),
    ],
)
def test_elsewhere_the_loop_copies(audited: Auditor, given: str, prepare: str) -> None:
    copies = row(audit(audited, given, prepare), "non_blocking")
    assert (copies.state, copies.detail) == (State.OFF, "copies of the batch wait")


def test_the_configuration_of_the_loaders_lets_the_copy_run(audited: Auditor) -> None:
    found = audit(audited, "dataloader_config=DataLoaderConfiguration(non_blocking=True)")
    assert row(found, "non_blocking").state is State.ON


def test_an_older_accelerate_cannot(audited: Auditor) -> None:
    found = audit(audited, **{"requirements.txt": "torch==2.1.0\naccelerate==0.21.0\n"})
    assert row(found, "non_blocking").state is State.NOT_APPLICABLE


def test_options_are_named_as_they_are_typed(audited: Auditor) -> None:
    readme = "```bash\naccelerate launch train.py --mixed-precision=fp16\n```\n"
    assert (
        "`--mixed-precision` of README.md" in row(audit(audited, **{"README.md": readme}), "precision").detail
    )


def test_the_option_that_asks_for_one_micro_batch_is_named(audited: Auditor) -> None:
    found = row(audit(audited), "accumulation")
    assert (found.state, found.detail) == (State.OFF, "1 micro-batch a step (default of `--grad-steps`)")


def test_a_tracker_stands_where_it_is_started_or_called(audited: Auditor) -> None:
    found = row(audit(audited), "monitoring")
    assert [place.line for place in found.evidence] == [line_of("init_trackers"), line_of("wandb.Image")]


@pytest.mark.parametrize(("version", "state"), [("0.21.0", State.OFF), ("0.28.0", State.ON), ("", State.ON)])
def test_accelerate_filled_gradients_with_zeros(audited: Auditor, version: str, state: State) -> None:
    pinned = f"accelerate=={version}\n" if version else ""
    found = row(audit(audited, **{"requirements.txt": f"torch==2.1.0\n{pinned}"}), "set_to_none")
    assert (found.state, "accelerate==0.21.0" in found.detail) == (state, state is State.OFF)


def test_the_tracker_is_the_one_that_an_option_names(audited: Auditor) -> None:
    asks = 'parser.add_argument("--report-to", default="tensorboard")\n        args = parser'
    code = (
        TRAIN.replace("GIVEN", "log_with=args.report_to")
        .replace("PREPARE", ALL)
        .replace("args = parser", asks)
    )
    found = row(audited({"train.py": code}), "monitoring")
    assert found.detail == "TensorBoard (default of `--report-to`)"
