"""A name that an option makes one class or another: the table is that of the one which runs by default."""

from __future__ import annotations

import pytest

from ptopt.audit.values import State
from tests.audit.conftest import Auditor

SOLVER = """
    import torch
    from torch.utils.data import DataLoader

    class Solver:
        def __init__(self, args):
            self.model = torch.nn.Linear(64, 64)
            self.optimizer = torch.optim.AdamW(self.model.parameters())
            self.loader = DataLoader(Texts(args.root), num_workers={workers})

        def train(self):
            for x in self.loader:
                self.optimizer.zero_grad()
                self.model(x).sum().backward()
                self.optimizer.step()
"""
MAIN = """
    import argparse

    parser = argparse.ArgumentParser()
    parser.add_argument("--root")
    {option}
    args = parser.parse_args()
    if {test}:
        from language import Solver
    else:
        from speech import Solver
    Solver(args).train()
"""


@pytest.mark.parametrize(
    ("option", "test", "workers"),
    [
        ('parser.add_argument("--lm", action="store_true")', "args.lm", "6"),
        ('parser.add_argument("--no-lm", action="store_true")', "not args.no_lm", "0"),
        ('parser.add_argument("--no-lm", dest="lm", action="store_false")', "args.lm", "0"),
        ('parser.add_argument("--kind", default="asr")', 'args.kind == "lm"', "6"),
        ('parser.add_argument("--kind", default="lm")', 'args.kind == "lm"', "0"),
        ('parser.add_argument("--lm", action="store_true")', "args.lm and args.root", "6"),
        # Not known: the first, as before.
        ('parser.add_argument("--kind", required=True)', 'args.kind == "lm"', "0"),
        ('parser.add_argument("--lm", action="store_true"); parser.set_defaults(lm=True)', "args.lm", "0"),
    ],
)
def test_import_of_the_default(audited: Auditor, option: str, test: str, workers: str) -> None:
    files = {
        "main.py": MAIN.format(option=option, test=test),
        "language.py": SOLVER.format(workers=0),
        "speech.py": SOLVER.format(workers=6),
    }
    entry = audited(files).entries[0]
    row = next(measure for measure in entry.measures if measure.key == "workers")
    assert f"is {workers}" in row.detail
    assert row.state is (State.ON if workers != "0" else State.OFF)
