"""Advice needs versions of libraries: each rule says which, and what a project pins an older version of is left out."""

from __future__ import annotations

import pytest
from packaging.version import Version

from ptopt.config_proposals import seen_in
from ptopt.configs.file import load
from ptopt.project.added import ADDED, named_in
from ptopt.project.facts import ProjectFacts, read_facts
from ptopt.rules import all_rules, find_rule, rules
from ptopt.rules.base import Rule
from ptopt.rules.configs import ConfigRule
from ptopt.rules.engine import run
from ptopt.rules.examples import as_file
from ptopt.source.file import SourceFile
from tests.rules.advised import names_of
from tests.rules.messages import messages

# The change took it out, so the project has it.
_HAD_IT = frozenset({"regressions"})


def pinned(*requirements: str) -> ProjectFacts:
    return read_facts({"requirements.txt": "\n".join(requirements).encode()})


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.id)
def test_a_rule_states_the_versions_that_its_advice_needs(rule: type[Rule]) -> None:
    if rule.family in _HAD_IT:
        return
    for name in names_of(rule):
        added = ADDED[name]
        stated = rule.since.get(added.package)
        covered = stated is not None and Version(stated) >= Version(added.version)
        assert covered or name in rule.partly, (
            f"{rule.name} advises `{name}`, which came with {added.package} {added.version}: add it to `since`, or to `partly`"
        )
    assert rule.partly <= ADDED.keys()


def test_names_are_found_as_texts_write_them() -> None:
    assert named_in("`torch.set_float32_matmul_precision(…)`") == {"set_float32_matmul_precision"}
    assert named_in("`self.register_buffer('x', …, persistent=False)`") == {"persistent=False"}
    assert named_in("with torch.inference_mode(): F.silu(x).mT") == {"inference_mode", "silu", "mT"}
    assert named_in("dataloader_persistent_workers=True") == {"dataloader_persistent_workers"}
    assert named_in("the format is squared; resilu(x)") == set()


OLDEST = (
    "torch==1.4.0", "transformers==2.0.0", "pytorch-lightning==0.7.5", "accelerate==0.1.0"
)  # fmt: skip


@pytest.mark.parametrize("rule", [r for r in rules() if r.family not in _HAD_IT], ids=lambda rule: rule.id)
def test_nothing_is_advised_that_the_pinned_versions_lack(rule: Rule) -> None:
    """On its own examples: what they had before may be named, whatever the pins say."""
    facts = pinned(*OLDEST)
    for case in rule.INVALID:
        code = as_file(case.code)
        file = SourceFile.parse("train.py", code.encode(), facts)
        for hit in run(file, [rule]):
            fix = hit.problem.fix
            said = [hit.problem.message, *(edit.replacement for edit in (fix.edits if fix else ()))]
            assert not named_in("\n".join(said)) - named_in(code)


TRAINING = """
    for x, y in loader:
        loss = criterion(model(x.cuda()), y.cuda())
        loss.backward()
        optimizer.step()
"""


def test_a_part_of_the_advice_is_left_out() -> None:
    (new,) = messages("full-precision-training", TRAINING, pinned("torch==2.4"))
    (old,) = messages("full-precision-training", TRAINING, pinned("torch==1.11"))
    assert "set_float32_matmul_precision" in new and "set_float32_matmul_precision" not in old
    assert "torch.autocast" in old
    assert messages("full-precision-training", TRAINING, pinned("torch==1.4.0")) == []


def test_one_process_a_gpu_is_started_with_what_torch_has() -> None:
    code = f"    model = torch.nn.DataParallel(model){TRAINING}"
    (new,) = messages("data-parallel", code, pinned("torch==1.10"))
    (old,) = messages("data-parallel", code, pinned("torch==1.9"))
    assert "started with torchrun" in new
    assert "started with `python -m torch.distributed.launch`" in old


def test_lightning_under_either_name() -> None:
    code = 'trainer = pl.Trainer(accelerator="gpu", max_epochs=3)\ntrainer.fit(model, data)\n'
    said = {
        pin: messages("trainer-in-full-precision", code, pinned(pin))[0]
        for pin in ("pytorch-lightning==0.7.5", "pytorch-lightning==1.9.0", "lightning>=2.1")
    }
    apex = messages("trainer-in-full-precision", code, pinned("pytorch-lightning==0.7.5", "torch==1.4.0"))
    assert "`precision=16`" in said["pytorch-lightning==0.7.5"] and apex == []
    assert '`precision="bf16"`' in said["pytorch-lightning==1.9.0"]
    assert '`precision="bf16-mixed"`' in said["lightning>=2.1"]


@pytest.mark.parametrize(
    ("pin", "written"),
    [
        ("pytorch-lightning==0.7.5", "16"),
        ("pytorch-lightning==1.8", "bf16"),
        ("lightning==2.4", "bf16-mixed"),
    ],
)
def test_configurations_are_held_to_the_versions_too(pin: str, written: str) -> None:
    text = "trainer:\n  accelerator: gpu\n  max_epochs: 3\n  precision: 32\n"
    file = load("configs/train.yaml", text.encode(), pinned(pin))
    assert file is not None
    rule = find_rule("full-precision")
    assert rule is not None and issubclass(rule, ConfigRule)
    ((_, problem),) = seen_in(file, [rule()])
    assert problem.fix is not None and problem.fix.edits[0].replacement == written
