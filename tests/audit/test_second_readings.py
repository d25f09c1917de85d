"""What readers of the tables of fresh repositories found wrong: versions, loaders of libraries, and rows without a place."""

from __future__ import annotations

import pytest

from ptopt.audit.values import Measure, State
from ptopt.project.facts import read_facts
from tests.audit.conftest import Auditor
from tests.audit.test_pins import TRAIN, rows

ON, OFF, UNKNOWN, NOT_APPLICABLE = State.ON, State.OFF, State.UNKNOWN, State.NOT_APPLICABLE


@pytest.mark.parametrize(
    "text",
    [
        "My environment is\n```\npython==3.7.0  torchvision==0.5.0  pytorch==1.4.0  \n```\n",
        "python 3.7, numpy==1.18, torch==1.4.0",
    ],
)
def test_torch_is_read_behind_other_packages_of_a_line(audited: Auditor, text: str) -> None:
    found = rows(audited, {"train.py": TRAIN, "README.md": text})
    assert found["tf32"].state is NOT_APPLICABLE
    assert "torch==1.4.0 (README.md:" in found["tf32"].detail


@pytest.mark.parametrize("text", ["With pytorch==1.4.0 it was slow.", "Tested: torch 2.1, not torch==1.4.0"])
def test_torch_of_a_sentence_pins_nothing(text: str) -> None:
    assert not read_facts({"README.md": text.encode()}).excludes("torch", "1.5")


def test_torch_under_its_other_name_in_requirements(audited: Auditor) -> None:
    found = rows(audited, {"train.py": TRAIN, "requirements.txt": "pytorch >= 1.0.0\nnumpy\n"})
    assert "torch>=1.0.0 (requirements.txt:1) admits older ones" in found["set_to_none"].detail
    assert "torch>=1.0.0 (requirements.txt:1) admits older ones" in found["fused_optimizer"].detail
    assert not read_facts({"requirements.txt": b"pytorch==1.0.2\n"}).known("torch")


def test_workers_prefetch_before_the_option_came(audited: Auditor) -> None:
    row = rows(audited, {"train.py": TRAIN, "requirements.txt": "torch==1.4.0\n"})["prefetch"]
    assert row.state is ON
    assert row.detail.startswith("2 for each worker, fixed: torch has `prefetch_factor` since 1.7")
