"""Which versions the imports of a module bound."""

from __future__ import annotations

import ast

import pytest

from ptopt.project.facts import NO_FACTS, read_facts
from ptopt.project.removed import bounds
from ptopt.source.file import SourceFile


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("from torch._six import inf", {"torch": "<=1.13.1"}),
        ("import torch._six", {"torch": "<=1.13.1"}),
        ("from torch import _six", {"torch": "<=1.13.1"}),
        ("from torch._six import container_abcs, string_classes", {"torch": "<=1.8.1"}),
        ("from transformers import AdamW, Trainer", {"transformers": "<=4.49.0"}),
        ("from transformers.modeling_bert import BertModel", {"transformers": "<=3.5.1"}),
        (
            "from torchvision.transforms.functional_tensor import rgb_to_grayscale",
            {"torch": "<=2.1.2", "torchvision": "<=0.16.2"},
        ),
        ("from torch.optim import AdamW", {}),
        ("from transformers import Trainer", {}),
        ("from ._six import inf", {}),
        ("try:\n    from torch._six import inf\nexcept ImportError:\n    inf = 0", {}),
        ("if OLD:\n    from torch._six import inf", {}),
        ("def norm():\n    from torch._six import inf", {}),
    ],
)
def test_an_import_that_newer_versions_lack_is_a_bound(text: str, found: dict[str, str]) -> None:
    facts = NO_FACTS.capped(bounds("a.py", ast.parse(text)))
    assert {package: pin.specifier for package, pin in facts.caps.items()} == found


def test_a_file_is_reviewed_for_the_versions_that_its_imports_admit() -> None:
    file = SourceFile.parse("a.py", b"from torch._six import inf\n")
    assert not file.facts.has("torch.vmap") and file.facts.has("torch.aminmax")
    assert file.facts.excludes("torch", "2.0") and file.facts.at_least("torch", "2.0") is False
    assert file.facts.at_least("torch", "1.12") is None


def test_a_pin_of_a_newer_version_says_that_the_import_is_not_what_it_seems() -> None:
    file = SourceFile.parse(
        "a.py", b"from torch._six import inf\n", read_facts({"requirements.txt": b"torch>=2.1\n"})
    )
    assert file.facts.has("torch.vmap") and not file.facts.excludes("torch", "2.0")
