"""Measures `ptopt profile`.

python -m benchmarks.profiles shares                    # beside torch.profiler's own table; needs torch
python -m benchmarks.profiles kinds [--rounds 10]       # seeded bottlenecks; those of the CPU need torch
python -m benchmarks.profiles size [--gigabytes 1] [--trace FILE]   # CPU time and memory for a large file
python -m benchmarks.profiles record NAME FILE [--stacks]           # one of the runs, as a trace; needs torch
"""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.profiles")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("shares", help="beside torch.profiler's own table, on five real runs")
    kinds = commands.add_parser("kinds", help="whether seeded bottlenecks are named")
    kinds.add_argument("--rounds", type=int, default=10)
    size = commands.add_parser("size", help="CPU time and memory for a large trace")
    size.add_argument("--gigabytes", type=float, default=1.0)
    size.add_argument("--trace", type=Path, help="repeat the events of this trace, too")
    record = commands.add_parser("record", help="write the trace of one of the runs")
    record.add_argument("name")
    record.add_argument("file", type=Path)
    record.add_argument("--stacks", action="store_true")
    chosen = parser.parse_args(arguments)
    if chosen.command == "shares":
        from benchmarks.profiles import shares

        shares.main()
    elif chosen.command == "kinds":
        from benchmarks.profiles import kinds as seeded

        seeded.main(chosen.rounds, importlib.util.find_spec("torch") is not None)
    elif chosen.command == "size":
        from benchmarks.profiles import size as large

        large.main(chosen.gigabytes, chosen.trace)
    else:
        from benchmarks.profiles import runs

        made = {**runs.ORDINARY, **runs.SEEDED}
        if chosen.name not in made:
            parser.error(f"{chosen.name}: not one of {', '.join(made)}")
        runs.record(made[chosen.name], chosen.file, stacks=chosen.stacks)


if __name__ == "__main__":
    main()
