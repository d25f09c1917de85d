"""Pages and code made to keep an audit busy: each audit ends within seconds and a gigabyte."""

from __future__ import annotations

import json

import pytest

from tests.audit.test_critical import train
from tests.limits import run_limited

_AUDIT = """
import json, sys
from ptopt.audit.run import audit_of
from ptopt.config import Config
from ptopt.project.facts import NO_FACTS

files = {path: text.encode() for path, text in json.load(sys.stdin).items()}
print(len(audit_of("net", files, Config(), NO_FACTS).entries))
"""


def _layers(width: int = 60) -> str:
    """An evaluation that a script reaches on more ways than anybody can follow."""
    lines = ["def features(model, loader):", "    for x in loader:", "        found = model(x)"]
    below = ["features"]
    for layer in range(4):
        names = [f"{'evaluate' if layer == 3 else 'layer'}_{layer}_{at}" for at in range(width)]
        for name in names:
            lines += [f"def {name}(model, loader):", *(f"    {each}(model, loader)" for each in below)]
        below = names
    under = ["with torch.no_grad():", *(f"    {each}(Net(), [])" for each in below)]
    return "\n".join([*lines, *under]) + "\n"


_FILES = {
    "slashes in a page": {"README.md": "constrain.py\n" + "/" * 190_000},
    "empty lines in a manifest": {
        "README.md": "train.py\n",
        "setup.cfg": "\n" * 190_000,
        "pyproject.toml": " \n" * 90_000,
    },
    "functions that all call each other": {"train.py": train() + _layers()},
}


@pytest.mark.slow
@pytest.mark.parametrize("case", _FILES)
def test_an_audit_ends_within_seconds_and_a_gigabyte(case: str) -> None:
    files = {"train.py": train(), **_FILES[case]}
    assert run_limited(_AUDIT, json.dumps(files).encode()) == "1\n"
