"""The training audit: what it names on which hardware, and what it says of it."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("yaml")

from benchmarks.training.audit import CHECKS, SEVERITIES, audit, report
from benchmarks.training.results import Measurement, Result
from benchmarks.training.variants import OFF, VARIANTS, Geometry, Hardware, why_not
from training.recipes.settings import Settings, find, read

CPU = Hardware("cpu", "CPU", 0, None, fast_bf16=True, cores=2, packages=frozenset({"bitsandbytes"}))
GPU = Hardware("cuda", "NVIDIA H200", 1, (9, 0), fast_bf16=True, cores=16, packages=frozenset())


def _settings(tmp_path: Path, *changes: str) -> Settings:
    file = tmp_path / "c.yaml"
    file.write_text("name: c\nmodel: {base: some/base}\ndata: {folder: data}\n")
    return read(file, changes)


def _keys(settings: Settings, hardware: Hardware, severity: str) -> set[str]:
    return {r.check.key for r in audit(settings, hardware, []) if r.severity == severity}


def test_what_is_off_and_would_help_is_named_by_severity(tmp_path: Path) -> None:
    slow = _settings(tmp_path, "data.packing=false", "precision=fp32", "optimizer.name=adamw_torch")
    assert {"data.packing=true", "precision=bf16"} <= _keys(slow, GPU, "critical")
    assert "optimizer.name=adamw_torch_fused" in _keys(slow, GPU, "moderate")
    order = [SEVERITIES.index(r.severity) for r in audit(slow, GPU, [])]
    assert order == sorted(order)


def test_hardware_decides(tmp_path: Path) -> None:
    settings = _settings(tmp_path, "model.four_bit=true", "compile='off'")
    assert "model.four_bit=false" in _keys(settings, CPU, "moderate")
    assert "compile=default" in _keys(settings, GPU, "moderate")
    assert "compile=default" not in {r.check.key for r in audit(settings, CPU, [])}
    assert "torchrun" not in {r.check.key for r in audit(settings, GPU, [])}
    import dataclasses

    assert "torchrun" in _keys(settings, dataclasses.replace(GPU, gpus=8), "critical")


def test_an_impact_is_told_only_where_it_was_measured(tmp_path: Path) -> None:
    settings = _settings(tmp_path, "precision=fp32")

    def run(name: str, seconds: float) -> Measurement:
        return Measurement(name, name, (), 1000, 4, seconds, seconds, 1.0, 1000.0, 1.0)

    result = Result("Some CPU", "cpu", {}, "2026-01-01", "", "", "", 1, 1, 1, 1.0,
                    (run("labelled", 10.0), run("bf16", 5.0)), ())  # fmt: skip
    text = "\n".join(report(audit(settings, CPU, [result]), CPU))
    assert "2.00 x tokens/s" in text and "Some CPU, 2026-01-01" in text
    other = "\n".join(report(audit(settings, GPU, [result]), GPU))
    assert "Some CPU" not in other and "not measured on such a machine" in other


def test_nothing_to_mend_is_said(tmp_path: Path) -> None:
    settings = read(find("configs/smollm2-cpu.yaml"))
    worst = [r for r in audit(settings, CPU, []) if r.severity == "critical"]
    assert not worst


def test_checks_and_variants_speak_the_settings_language(tmp_path: Path) -> None:
    names = {variant.name for variant in VARIANTS}
    assert len(names) == len(VARIANTS)
    assert {check.variant for check in CHECKS} <= names | {""}
    assert {check.against for check in CHECKS} <= names
    for variant in VARIANTS:
        changes = [*(OFF if variant.alone else ()), *variant.changes]
        _settings(tmp_path, *(c for c in changes if not c.startswith("batch=")))


def test_a_variant_that_cannot_run_says_why() -> None:
    by_name = {variant.name: variant for variant in VARIANTS}
    assert "GPU" in why_not(by_name["compile"], CPU)
    assert not why_not(by_name["compile"], GPU)
    assert why_not(by_name["qlora"], GPU) == "bitsandbytes is not installed"
    assert "kernels" in why_not(by_name["recipe-flash"], GPU)
    assert not why_not(by_name["recipe"], CPU)


@pytest.mark.parametrize("packing", ["true", "false"])
def test_every_way_to_batch_sees_about_as_many_tokens_a_step(tmp_path: Path, packing: str) -> None:
    lengths = [100, 150, 200, 250, 300] * 100
    settings = _settings(
        tmp_path, "data.max_tokens=320", f"data.packing={packing}", "batch.size=2", "batch.accumulation=4",
        *(["data.pack_to=1600"] if packing == "true" else []),
    )  # fmt: skip
    geometry = Geometry.of(lengths, settings, 4)
    assert geometry.pad_to == 320 and geometry.own == (2, 4)
    assert Geometry.of(lengths[:24], settings, 4).own[1] < 4  # fewer rows a step, for enough steps
    mean = sum(lengths) / len(lengths)
    unpacked = [geometry.several * (geometry.rows // geometry.several) * mean, geometry.rows * mean]
    for tokens in (*unpacked, geometry.packed * geometry.pack_to):
        assert tokens == pytest.approx(geometry.rows * mean, rel=0.35)
    for how in ("", "one", "several", "packed", "halved"):
        _settings(tmp_path, "data.max_tokens=320", *geometry.changes(how))
