"""Commands that start scripts, and what shell scripts hand on."""

from __future__ import annotations

from ptopt.audit.launches import launches


def test_a_script_that_calls_one_of_its_own_name_ends() -> None:
    files = {
        "run.sh": b'bash scripts/run.sh "$@"\n',
        "scripts/run.sh": b'python train.py --epochs 3 "$@"\n',
        "other/run.sh": b'python evaluate.py "$@"\n',
        "README.md": b"# Net\n\n```\nbash run.sh --amp\n```\n",
    }
    found = launches(files)
    assert {tuple(sorted(launch.options)) for launch in found["train.py"]} <= {("epochs",), ("amp", "epochs")}
    assert all("amp" not in launch.options for launch in found.get("evaluate.py", ()))
