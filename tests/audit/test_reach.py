"""Rows come from code that the script reaches, not from what a library that it imports could do besides."""

from __future__ import annotations

import pytest

from ptopt.audit.values import Measure, State
from tests.audit.conftest import Auditor

TRAIN = """
    import torch
    from torch import nn
    from library import loaders, models, patching, words


    def train():
        model = models.Net(nn.Linear(8, 8)).cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        for step in range(100):
            loss = model(torch.rand(4, 8, device="cuda")).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        {used}


    if __name__ == "__main__":
        train()
"""
LIBRARY = {
    "library/__init__.py": "",
    "library/loaders.py": """
        from torch.utils.data import DataLoader


        def make_pile(data):
            return DataLoader(data, batch_size=8)


        def make_code(data):
            return DataLoader(data, batch_size=4)


        LOADERS = {"pile": make_pile, "code": make_code}
        """,
    "library/models.py": """
        import torch
        from torch import nn


        class Net(nn.Module):
            def __init__(self, part: "nn.Module"):
                super().__init__()
                self.part = part

            def forward(self, x):
                return self.part(x)


        class HalfNet(Net):
            def __init__(self, part):
                super().__init__(part)
                self.model = part
                self.model.half()

            def read(self, tokens):
                return tokens.to("cuda")


        def patch(model: HalfNet, tokens):
            return model.read(tokens)


        def is_half(model):
            return isinstance(model, (HalfNet, nn.Linear))
        """,
    "library/patching.py": """
        from functools import partial

        from library.models import patch

        patch_first = partial(patch, tokens=None)
        patch_first.__doc__ = "Patches."
        """,
    "library/words.py": "from library.models import is_half, patch",
}


def row(audited: Auditor, key: str, used: str = "pass", **changed: str) -> Measure:
    """`changed`: files of the library, by name."""
    files = LIBRARY | {f"library/{name}.py": text for name, text in changed.items()}
    (entry,) = audited({"train.py": TRAIN.replace("{used}", used), **files}).entries
    return next(measure for measure in entry.measures if measure.key == key)


def test_a_table_that_nobody_reads_makes_no_loader(audited: Auditor) -> None:
    assert row(audited, "workers").state is State.NOT_APPLICABLE
    assert row(audited, "pin_memory").state is State.NOT_APPLICABLE


@pytest.mark.parametrize(
    "used",
    [
        "loaders.LOADERS['pile'](words)",
        "from library.loaders import LOADERS as known; known['pile'](words)",
        "getattr(loaders, words)(words)",
        "[make(words) for make in vars(loaders)['LOADERS']], loaders.__dict__[words]",
        "__import__('importlib').import_module('library.loaders')",
    ],
)
def test_a_table_that_is_read_makes_them(audited: Auditor, used: str) -> None:
    assert row(audited, "workers", used).state is State.OFF


def test_a_table_of_lambdas(audited: Auditor) -> None:
    loaders = """
        from torch.utils.data import DataLoader

        LOADERS = [lambda data: DataLoader(data, batch_size=8)]
        """
    assert row(audited, "workers", loaders=loaders).state is State.NOT_APPLICABLE
    assert row(audited, "workers", "loaders.LOADERS[0](words)", loaders=loaders).state is State.OFF


@pytest.mark.parametrize("used", ["pass", "words.is_half(model)", "words.patch(model, words)"])
def test_a_class_that_is_only_named_is_not_made(audited: Auditor, used: str) -> None:
    assert row(audited, "precision", used).state is State.OFF
    assert row(audited, "non_blocking", used).state is State.NOT_APPLICABLE


def test_a_class_that_is_made(audited: Auditor) -> None:
    assert row(audited, "precision", "patching.patch_first(models.HalfNet(model))").state is State.ON
    assert row(audited, "non_blocking", "patching.patch_first(models.HalfNet(model))").state is State.OFF


SET = """
    from library.models import HalfNet, Net

    def make_half(part):
        return HalfNet(part)

    HALF_TYPES = {{"bf16": torch.bfloat16}}
    {0}
    """


@pytest.mark.parametrize(
    "given", ["setattr(Net, 'half_of', staticmethod(make_half))", "Net.half_of = make_half"]
)
def test_a_method_that_is_set_runs_where_it_is_named(audited: Auditor, given: str) -> None:
    words = SET.format(given)
    assert row(audited, "precision", words=words).state is State.OFF
    assert row(audited, "precision", "model.half_of(model)", words=words).state is State.ON


@pytest.mark.parametrize("given", ["Net.forward = make_half", "Llama.attend = make_half"])
def test_a_method_that_others_call(audited: Auditor, given: str) -> None:
    assert row(audited, "precision", words=SET.format(given)).state is State.ON


def test_settings_that_a_parser_makes_of_an_annotation(audited: Auditor) -> None:
    code = """
        import torch
        import tyro
        from dataclasses import dataclass


        @dataclass
        class Settings:
            half: bool = True


        def main(settings: Settings):
            for x in data:
                with torch.autocast("cuda", torch.bfloat16, enabled=settings.half):
                    loss = model(x)
                loss.backward()
                optimizer.step()


        if __name__ == "__main__":
            tyro.cli(main)
        """
    (entry,) = audited({"train.py": code}).entries
    assert next(m for m in entry.measures if m.key == "precision").state is State.ON


@pytest.mark.parametrize(
    "copy",
    [
        "for name, value in model.state_dict().items():\n            value.to(device)",
        "keep(model).detach().to(device)",
    ],
)
def test_copies_of_weights_and_of_results_are_none_of_the_batch(audited: Auditor, copy: str) -> None:
    words = f"""
        def keep(model, device):
            {copy}
        """
    assert (
        row(audited, "non_blocking", "words.keep(model, 'cuda')", words=words).state is State.NOT_APPLICABLE
    )


def test_padding_that_a_training_may_not_reach(audited: Auditor) -> None:
    words = """
        def encode(tokenizer, given):
            if isinstance(given, str):
                return tokenizer(given, padding=True)
            return given
        """
    doubted = row(audited, "padding", "words.encode(tokenizer, batch())", words=words)
    assert doubted.state is State.UNKNOWN and doubted.detail.endswith("if `isinstance(given, str)`")
    plain = words.replace("isinstance(given, str)", "True")
    assert row(audited, "padding", "words.encode(tokenizer, batch())", words=plain).state is State.ON
    never = words.replace("isinstance(given, str)", "False")
    assert row(audited, "padding", "words.encode(tokenizer, batch())", words=never).state is not State.ON


def test_a_tokenizer_of_a_fixed_length(audited: Auditor) -> None:
    words = """
        import torch


        class SimpleTokenizer:
            def __call__(self, texts, context_length=77):
                return torch.zeros(len(texts), context_length)
        """
    assert row(audited, "padding", "words.SimpleTokenizer()(['a'])", words=words).state is State.OFF


@pytest.mark.parametrize(
    "look",
    [
        "for name, module in model.named_modules():\n        getattr(module, name)",
        "for name in ('First', 'Second'):\n        getattr(module, name)",
    ],
)
def test_parts_of_a_network_and_names_in_the_code_hide_no_class(audited: Auditor, look: str) -> None:
    words = f"def look(model):\n    {look}\n"
    assert row(audited, "compile", "words.look(model)", words=words).state is State.OFF


def test_a_part_by_its_type_hides_no_class(audited: Auditor) -> None:
    words = "def look(module: nn.Module, name):\n    getattr(module, name)\n"
    assert row(audited, "compile", "words.look(model, 'a')", words=words).state is State.OFF
    of_python = words.replace("nn.Module", "types.ModuleType")
    assert row(audited, "compile", "words.look(model, 'a')", words=of_python).state is State.UNKNOWN
