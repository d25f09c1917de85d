"""What each training switch is worth on this machine.

    python -m benchmarks.training [--device cpu|cuda] [--config FILE] [--data FOLDER] [--tokens N] [--all]
                                  [--minutes N] [--only NAME ...] [--write [FOLDER]]
    python -m benchmarks.training audit CONFIG [KEY=VALUE ...] [--device cpu|cuda]

Trains the naive recipe (plain `Trainer`: fp32, padding, logits at every position), the product's recipe with every
switch off but one, and combinations, each in a process of its own on the same rows with as many rows in a step. Prints
real (unpadded) tokens per CPU and per wall second, peak memory, and the loss on held-out rows afterwards. The naive
recipe and the product's run again at the end with another seed: what differs then is noise. `--write` keeps the
result: data, a table and a plot, one set of files a machine, in benchmarks/training/results/.

`audit` names the switches that are off in a configuration and would help here, with what was measured for each.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import platform
import re
import shlex
import shutil
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.training.results import NAIVE, RECIPE, Measurement, Result, SkippedVariant, markdown, plot
from benchmarks.training.variants import OFF, VARIANTS, Geometry, Hardware, Variant, why_not

if TYPE_CHECKING:
    from benchmarks.training.measure import Padding, Task
    from training.recipes.settings import Settings

RESULTS = Path(__file__).parent / "results"
VERSIONS = ("torch", "transformers", "trl", "peft", "accelerate", "bitsandbytes")
# configuration, real tokens a variant, rows of one forward pass where the configuration has no say
DEFAULTS = {
    "cpu": ("configs/smollm2-cpu.yaml", 3500, 4),
    "cuda": ("configs/llama32-3b-gpu.yaml", 400_000, 4),
}
HELD_OUT = 24  # samples
PILOT = 40  # samples, to estimate how many make the wanted tokens
REPEATED = (RECIPE, NAIVE)
LIMIT_S = 900  # of one variant
GRACE_S = 60  # that the last one may take beyond --minutes


def main() -> None:
    if sys.argv[1:2] == ["audit"]:
        from benchmarks.training.audit import main as audit

        audit(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--config", help="a recipe's YAML; default: the one of the device")
    parser.add_argument("--data", type=Path, default=Path("data/demo"), help="default: data/demo")
    parser.add_argument("--base", help="a base model instead of the configuration's")
    parser.add_argument("--tokens", type=int, help="about so many real tokens a variant")
    parser.add_argument(
        "--minutes", type=float, help="begin no variant after so many, and end the last one within a minute"
    )
    parser.add_argument("--all", action="store_true", help="on a CPU too, the variants that say little there")
    parser.add_argument("--only", action="append", default=[], metavar="NAME")
    parser.add_argument(
        "--write",
        nargs="?",
        type=Path,
        const=RESULTS,
        metavar="FOLDER",
        help="keep the result; default: beside the code",
    )
    options = parser.parse_args()
    os.environ |= {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "TOKENIZERS_PARALLELISM": "false"}
    if options.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    from ptopt.model.interface import ModelUnavailableError
    from training.recipes.settings import SettingsError

    scratch = Path(tempfile.mkdtemp(prefix="ptopt-training-"))
    try:
        result = run(options, scratch)
    except (SettingsError, ModelUnavailableError, FileNotFoundError) as error:
        sys.exit(str(error))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print("\n" + markdown(result))
    if options.write:
        write(result, options.write)
    if any(one.why.startswith("failed") for one in result.skipped):
        sys.exit(1)


def chosen(options: argparse.Namespace, hardware: Hardware) -> list[Variant]:
    """What runs, in order: the variants, then the two that everything is held against once more."""
    known = {variant.name: variant for variant in VARIANTS}
    if unknown := [name for name in options.only if name not in known]:
        sys.exit(f"no such variant: {', '.join(unknown)}; there are: {', '.join(known)}")
    wanted = [
        variant for variant in VARIANTS
        if not why_not(variant, hardware)
        and (variant.name in options.only if options.only else variant.quick or options.all or options.device == "cuda")
    ]  # fmt: skip
    return wanted + [known[name] for name in REPEATED if known[name] in wanted]


def run(options: argparse.Namespace, scratch: Path) -> Result:
    """Raises SettingsError, ModelUnavailableError or FileNotFoundError for what cannot be used."""
    from benchmarks.training.measure import held_out_loss, quiet, training_rows
    from benchmarks.training.rows import cut
    from ptopt.model.backends.loading import resolve_base
    from training.recipes.settings import find, read

    start = time.monotonic()
    default, tokens, several = DEFAULTS[options.device]
    config = find(options.config or default)
    data = scratch / "data"
    fixed = [
        f"data.folder={data}", "data.rows=null", "evaluate.rows=0", "checkpoint.every=1000000", "tracking.mlflow=false",
        "limits.epochs=1", "limits.steps=null", "limits.minutes=null", "threads=1",
        "data.decontaminated=false",  # speed is measured; the adapters are thrown away
    ]  # fmt: skip
    fixed += [f"model.base={options.base}"] if options.base else []
    quiet()
    settings = read(config, fixed)
    base = resolve_base(settings.model.base)
    cut(options.data, data, PILOT, 1)
    mean = sum(map(len, training_rows(settings, base)["input_ids"])) / PILOT
    cut(options.data, data, round((options.tokens or tokens) / mean), HELD_OUT)
    lengths = list(map(len, training_rows(settings, base)["input_ids"]))
    geometry = Geometry.of(lengths, settings, several)
    hardware = Hardware.here(options.device)
    plan = [v for v in chosen(options, hardware) if not _is_redundant(v, config, fixed, settings)]
    loss, positions = held_out_loss(settings, base, options.device, None)
    print(f"{len(lengths)} rows, {sum(lengths):,} tokens, {geometry}; untrained loss {loss:.3f}", flush=True)
    measured: list[Measurement] = []
    skipped = [SkippedVariant(v.name, v.title, why) for v in VARIANTS if (why := why_not(v, hardware))]
    context = multiprocessing.get_context("forkserver")  # a fresh process each, the libraries imported once
    context.set_forkserver_preload(["benchmarks.training.measure"])
    for number, variant in enumerate(plan):
        again = variant in plan[:number]
        left = 60 * options.minutes + start - time.monotonic() if options.minutes is not None else math.inf
        if left <= 0:
            if not again:
                skipped.append(SkippedVariant(variant.name, variant.title, "no time was left"))
            continue
        task = _task(variant, config, fixed, geometry, options.device, scratch, again)
        found = _in_its_own_process(context, task, min(LIMIT_S, left + GRACE_S))
        if isinstance(found, str):
            print(f"{variant.name:22} failed: {found}", flush=True)
            skipped.append(SkippedVariant(variant.name, variant.title, f"failed: {found}"))
        else:
            print(
                f"{variant.name:22} {found.tokens / found.cpu_s:8.1f} tok/cpu-s {found.tokens / found.wall_s:8.1f} tok/s "
                f"{found.peak_mb:7.0f} MB  loss {found.loss:.3f}  {found.steps} steps",
                flush=True,
            )
            measured.append(found)
    return Result(
        machine=machine(hardware),
        device=options.device,
        versions={name: version(name) for name in VERSIONS},
        date=time.strftime("%Y-%m-%d"),
        command=shlex.join(["python", "-m", "benchmarks.training", *_without_local_paths(sys.argv[1:])]),
        config=options.config or default,
        base=settings.model.base,
        rows=len(lengths),
        tokens=sum(lengths),
        held_out=positions,
        base_loss=round(loss, 4),
        measured=tuple(measured),
        skipped=tuple(skipped),
    )


def _task(
    variant: Variant,
    config: Path,
    fixed: list[str],
    geometry: Geometry,
    device: str,
    scratch: Path,
    again: bool,
) -> Task:
    from benchmarks.training.measure import Task

    changed = (*(OFF if variant.alone else ()), *variant.changes)
    how = next((change.partition("=")[2] for change in reversed(changed) if change.startswith("batch=")), "")
    shown = (*(("every switch off",) if variant.alone else ()), *variant.changes)
    output = scratch / f"{variant.name}{'-again' if again else ''}"
    changes = (*fixed, *(c for c in changed if not c.startswith("batch=")), *geometry.changes(how))
    paddings: dict[str, Padding] = {NAIVE: "fixed", "naive-dynamic": "dynamic"}
    return Task(
        variant.name, variant.title, config, (*changes, f"output={output}", f"seed={int(again)}"), shown, geometry,
        device, output, paddings.get(variant.name, ""),
    )  # fmt: skip


def _is_redundant(variant: Variant, config: Path, fixed: list[str], settings: Settings) -> bool:
    """Does the configuration have these settings already?"""
    from training.recipes.settings import read

    if not variant.changes or variant.alone:
        return False
    if "batch=halved" in variant.changes:
        return settings.batch.size == 1
    own = [change for change in variant.changes if not change.startswith("batch=")]
    return read(config, [*fixed, *own]) == settings


def _in_its_own_process(
    context: multiprocessing.context.ForkServerContext, task: Task, limit: float
) -> Measurement | str:
    from benchmarks.training.measure import quietly

    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=quietly, args=(task, theirs))
    process.start()
    theirs.close()
    try:
        found: Measurement | str = ours.recv() if ours.poll(limit) else f"took more than {limit:.0f} s"
    except EOFError:
        process.join()
        found = f"the process died with status {process.exitcode}{' (out of memory?)' if process.exitcode == -9 else ''}"
    if process.is_alive():
        process.join(10)
        process.kill()
    process.join()
    return found


def machine(hardware: Hardware) -> str:
    """The GPU, or the processor and its threads, in words."""
    if hardware.device == "cuda":
        return f"{hardware.gpus} x {hardware.name}" if hardware.gpus > 1 else hardware.name
    info = Path("/proc/cpuinfo")
    model = re.search(r"model name\s*:\s*(.+)", info.read_text()) if info.exists() else None
    return f"{model.group(1).strip() if model else platform.processor() or platform.machine()}, 1 thread"


def _without_local_paths(arguments: list[str]) -> list[str]:
    """The command without the paths of this machine."""
    shown: list[str] = []
    last = ""
    for argument in arguments:
        if argument != "--write" and not (last == "--write" and not argument.startswith("-")):
            place = last in ("--data", "--config", "--base") and Path(argument).is_absolute()
            shown.append(Path(argument).name if place else argument)
        last = argument
    return shown


def write(result: Result, folder: Path) -> Path:
    """Data, table and plot under the machine's name; replaces an older result of it."""
    folder.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"[^a-z0-9]+", "-", result.machine.lower()).strip("-")
    plot(result, folder / f"{name}.svg")
    (folder / f"{name}.json").write_text(result.to_json(), encoding="utf-8")
    table = markdown(result) + f"\n![{result.machine}]({name}.svg)\n"
    (folder / f"{name}.md").write_text(table, encoding="utf-8")
    return folder / f"{name}.json"


if __name__ == "__main__":
    main()
