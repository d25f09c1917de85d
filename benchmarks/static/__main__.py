"""How fast ptopt is, as ratios from one run.

    python -m benchmarks.static TREE [--rounds N]

TREE is a folder of Python files, best of 1,000 or more (an unpacked wheel of transformers will do). Prints:
- CPU time of the whole check (reading, filtering, parsing, rules, files around, verified fixes) over that of `ast.parse` alone,
  on the same files, in alternating rounds;
- the same of two processes, their start included: `ptopt check` of the whole tree by one process, and a script that parses it;
- CPU time per file and peak memory for a quarter, a half and all of the files: flat and linear, or not;
- wall time of a cold `ptopt --version`, and of a cold `ptopt review` of a 20-file change.
"""

from __future__ import annotations

import argparse
import ast
import functools
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

from ptopt import __version__
from ptopt.config import Config
from ptopt.inputs import change_from_paths, neighbours_in
from ptopt.project.facts import NO_FACTS
from ptopt.review import review_files

CHUNK = 40
COLD_RUNS = 7
COLD_FILES = 20


def check(files: list[Path], root: Path) -> int:
    """The whole check of `files`; returns the number of findings."""
    config = Config().model_copy(update={"skip": ()})
    stream = change_from_paths(files, root, wants=lambda path: True)
    review = review_files(
        stream, config=config, facts=NO_FACTS, limit_to_change=False, neighbours=_around(root)
    )
    return len(review.findings)


_around = functools.cache(neighbours_in)  # one listing of the tree, as in one run of the command


def parse(files: list[Path]) -> None:
    """`ast.parse` of the same files, reading left out of the measurement by `cpu_seconds`' caller."""
    for file in files:
        ast.parse(file.read_bytes())


def cpu_seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def ratio(files: list[Path], root: Path, rounds: int) -> None:
    """Parse and check in turn, a few files at a time, so that the machine's drift falls on both."""
    parsed = [0.0] * rounds
    checked = [0.0] * rounds
    for turn in range(rounds):
        for start in range(0, len(files), CHUNK):
            chunk = files[start : start + CHUNK]
            works: list[tuple[list[float], Callable[[], object]]] = [
                (parsed, functools.partial(parse, chunk)),
                (checked, functools.partial(check, chunk, root)),
            ]
            for seconds, work in works if (start // CHUNK + turn) % 2 else works[::-1]:
                seconds[turn] += cpu_seconds(work)
    found = check(files, root)
    ratios = [c / p for c, p in zip(checked, parsed, strict=True)]
    size = sum(f.stat().st_size for f in files) / 1e6
    print(f"{len(files)} files, {size:.1f} MB, {found} findings")
    print(f"ast.parse      {statistics.median(parsed):7.2f} cpu-s")
    print(f"ptopt check    {statistics.median(checked):7.2f} cpu-s")
    print(
        f"ratio          {statistics.median(ratios):7.2f}  (of {rounds} rounds: {min(ratios):.2f}..{max(ratios):.2f})"
    )


_PARSE = """\
import ast, pathlib, sys, warnings
warnings.simplefilter("ignore")
for file in sorted(pathlib.Path(sys.argv[1]).rglob("*.py")):
    try:
        ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        pass
"""


def ratio_of_processes(root: Path, rounds: int) -> None:
    """In turn, too. A process that only parses has no rules and no tables in memory for its collector to look through."""
    one = {**_installed(), "PTOPT_JOBS": "1"}
    parse_all = [sys.executable, "-c", _PARSE, str(root)]
    check_all = [sys.executable, "-W", "ignore", "-m", "ptopt", "check", str(root), "--all-paths"]
    child_seconds([sys.executable, "-m", "ptopt", "check", __file__], one)  # writes the bytecode
    pairs = [(child_seconds(parse_all, one), child_seconds(check_all, one)) for _ in range(rounds)]
    parsed, checked = (statistics.median(times) for times in zip(*pairs, strict=True))
    ratios = [c / p for p, c in pairs]
    print(
        f"as processes   {parsed:7.2f} and {checked:.2f} cpu-s, ratio {statistics.median(ratios):.2f}"
        f"  ({min(ratios):.2f}..{max(ratios):.2f})"
    )


def _installed() -> dict[str, str]:
    """The environment in which modules are compiled once, as whoever installs the package does."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def child_seconds(argv: list[str], environment: dict[str, str]) -> float:
    """CPU time of a command and of what it starts, in user and system mode."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(argv, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def growth(files: list[Path], root: Path) -> None:
    """Each size in a process of its own, so that peak memory is that size's alone."""
    print("\n files   cpu-ms/file   peak MB")
    for part in (len(files) // 4, len(files) // 2, len(files)):
        every = max(1, len(files) // max(1, part))
        code = (
            "import sys, time; from pathlib import Path; from benchmarks.static.__main__ import check, peak;"
            "names = sys.stdin.read().split(chr(0)); root = Path(sys.argv[1]); check([], root);"
            "t = time.process_time(); check([Path(n) for n in names], root); t = time.process_time() - t;"
            "print(t / len(names) * 1e3, peak())"
        )
        chosen = files[::every][:part]
        out = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code, str(root)],
            input="\0".join(map(str, chosen)), capture_output=True, text=True, check=True,
        )  # fmt: skip
        per_file, most = map(float, out.stdout.split())
        print(f"{len(chosen):6} {per_file:13.2f} {most:9.0f}")


def peak() -> float:
    """The most memory that this program had, in MB. `ru_maxrss` would count what started it as well."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def cold(files: list[Path]) -> None:
    """Wall time of the installed command, started afresh each time."""
    command = Path(sys.executable).with_name("ptopt")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        git = [
            "git",
            "-C",
            folder,
            "-c",
            "user.name=b",
            "-c",
            "user.email=b@example.org",
            "-c",
            "commit.gpgsign=false",
        ]
        subprocess.run([*git, "init", "-q", "-b", "main"], check=True)
        chosen = sorted(files, key=lambda f: f.stat().st_size)[len(files) // 2 :][:COLD_FILES]
        for i, file in enumerate(chosen):
            (root / f"file{i}.py").write_bytes(file.read_bytes())
        subprocess.run([*git, "add", "-A"], check=True)
        subprocess.run([*git, "commit", "-qm", "base"], check=True)
        for i in range(len(chosen)):
            with (root / f"file{i}.py").open("a", encoding="utf-8") as out:
                out.write("\n\nTHE_END = True\n")
        print()
        for title, argv in (
            ("ptopt --version", [str(command), "--version"]),
            (f"ptopt review, {len(chosen)} files", [str(command), "review", "--base", "main"]),
        ):
            walls = []
            for _ in range(COLD_RUNS + 1):
                start = time.perf_counter()
                subprocess.run(argv, cwd=folder, env=_installed(), check=True, capture_output=True)
                walls.append(time.perf_counter() - start)
            walls = walls[1:]  # the first run fills the file cache, and writes the bytecode
            print(
                f"{title:24} {statistics.median(walls):6.3f} s wall, cold process  ({min(walls):.3f}..{max(walls):.3f})"
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tree", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore", SyntaxWarning)
    root = options.tree.resolve()
    files = []
    for file in sorted(root.rglob("*.py")):
        try:
            ast.parse(file.read_bytes())
        except (SyntaxError, ValueError):
            continue
        files.append(file)
    print(
        f"ptopt {__version__}, Python {platform.python_version()}, {platform.machine()}, {time.strftime('%Y-%m-%d')}"
    )
    ratio(files, root, options.rounds)
    ratio_of_processes(root, options.rounds)
    growth(files, root)
    cold(files)


if __name__ == "__main__":
    main()
