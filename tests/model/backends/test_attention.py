"""Which attention is chosen where, without the hardware; and the probe, on this CPU."""

from __future__ import annotations

import logging

import pytest

from ptopt.model.backends.attention import KERNELS, Capabilities, candidates, choose

ALL = frozenset({"flash-attn", "flash-attn-3", "flash-attn-4", "kernels"})


@pytest.mark.parametrize(
    ("capability", "half", "installed", "order"),
    [
        (None, True, ALL, ["sdpa"]),
        ((9, 0), False, ALL, ["sdpa"]),
        ((7, 5), True, ALL, ["sdpa"]),
        ((8, 0), True, ALL, ["flash_attention_2", "sdpa"]),
        ((8, 9), True, {"kernels"}, [KERNELS, "sdpa"]),
        ((8, 6), True, set(), ["sdpa"]),
        ((9, 0), True, ALL, ["flash_attention_3", "flash_attention_2", "sdpa"]),
        ((9, 0), True, {"kernels"}, [KERNELS, "sdpa"]),
        ((10, 0), True, ALL, ["flash_attention_4", "flash_attention_2", "sdpa"]),
        ((10, 3), True, {"flash-attn-3", "flash-attn"}, ["flash_attention_2", "sdpa"]),
        ((12, 0), True, {"flash-attn-4", "kernels"}, [KERNELS, "sdpa"]),
    ],
)
def test_the_order(
    capability: tuple[int, int] | None, half: bool, installed: set[str], order: list[str]
) -> None:
    there = Capabilities(capability, half, frozenset(installed))
    assert [choice.implementation for choice in candidates(there)] == order


def test_what_does_not_work_is_passed_over_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    there = Capabilities((9, 0), True, ALL)
    broken = {"flash_attention_3": "undefined symbol"}
    with caplog.at_level(logging.WARNING):
        assert choose(there, broken.get).implementation == "flash_attention_2"
    assert "flash_attention_3 does not work here: undefined symbol" in caplog.text
    assert choose(there, lambda _: "broken").implementation == "sdpa"


def test_the_best_that_works_is_the_only_one_tried() -> None:
    tried: list[str] = []
    choose(Capabilities((9, 0), True, ALL), lambda name: tried.append(name))
    choose(Capabilities(None, True, ALL), lambda name: tried.append(name))
    assert tried == ["flash_attention_3"]


def test_an_override_must_be_known_and_work() -> None:
    there = Capabilities((9, 0), True, ALL)
    assert choose(there, lambda _: None, "eager").implementation == "eager"
    with pytest.raises(ValueError, match="unknown attention 'org/evil'"):
        choose(there, lambda _: None, "org/evil")
    with pytest.raises(ValueError, match="does not work here: no"):
        choose(there, lambda _: "no", "flash_attention_2")


@pytest.mark.model
def test_the_probe_on_a_cpu(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from ptopt.model.backends.attention import ENVIRONMENT, probe, select

    cpu = torch.device("cpu")
    assert probe("sdpa", cpu, torch.float32) is None
    assert probe("sdpa", cpu, torch.bfloat16) is None
    assert "ImportError" in (probe("flash_attention_2", cpu, torch.bfloat16) or "")
    with caplog.at_level(logging.INFO):
        assert select(cpu, torch.bfloat16).implementation == "sdpa"
    assert "attention: sdpa (no CUDA device)" in caplog.text
    monkeypatch.setenv(ENVIRONMENT, "eager")
    assert select(cpu, torch.float32).implementation == "eager"
    monkeypatch.setenv(ENVIRONMENT, "flash_attention_3")
    with pytest.raises(ValueError, match="flash_attention_3"):
        select(cpu, torch.float32)
