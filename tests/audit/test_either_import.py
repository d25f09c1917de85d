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


RUNNER = """
    class Runner:
        def __init__(self, args):
            if args.kind == "lm" or args.kind == "big_lm":
                from language import Solver
            else:
                from speech import Solver
            self.solver = Solver(args)
"""
OPTIONS = """
    import argparse

    def get_parser():
        parser = argparse.ArgumentParser()
        parser.add_argument("--root")
        parser.add_argument("--kind", default="{default}")
        return parser
"""
START = """
    from options import get_parser
    from runner import Runner

    if __name__ == "__main__":
        Runner(get_parser().parse_args()).solver.train()
"""


@pytest.mark.parametrize(
    ("default", "more", "workers"), [("asr", {}, "6"), ("lm", {}, "0"), ("asr", {"other": "lm"}, "0")]
)
def test_import_in_a_function_by_an_option_of_another_file(
    audited: Auditor, default: str, more: dict[str, str], workers: str
) -> None:
    files = {
        "main.py": START,
        "runner.py": RUNNER,
        "options.py": OPTIONS.format(default=default),
        "language.py": SOLVER.format(workers=0),
        "speech.py": SOLVER.format(workers=6),
        # Of an option that two files declare it is not known which default is meant: the first import, as before.
        **{f"{name}.py": OPTIONS.format(default=value) for name, value in more.items()},
    }
    row = next(measure for measure in audited(files).entries[0].measures if measure.key == "workers")
    assert f"is {workers}" in row.detail
