from __future__ import annotations

import pytest

from ptopt.model import prompt
from ptopt.model.region import Candidate, Region, estimate, fit, regions_of, render, render_around
from ptopt.model.surroundings import MAX_WIDTH
from ptopt.source.file import SourceFile
from ptopt.source.repository import Repository
from tests.model.hostile import SPECIAL

CODE = """\
import torch
from torch.utils.data import DataLoader


class Net(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.words = torch.nn.Embedding(n, 8)
        self.unused = 1
        self.register_buffer("table", torch.arange(n))

    def forward(self, x):
        y = self.words(x) + self.table
        return self.scaled(y.sum().item())

    def scaled(self, y):
        return y * 2


def train(data, net):
    loader = DataLoader(data, num_workers=2)
    for x in loader:
        net.scaled(x)
"""
ITEM = CODE.split("\n").index("        return self.scaled(y.sum().item())") + 1


def region(code: str = CODE, line: int = ITEM, around: dict[str, bytes] | None = None) -> Region:
    source = SourceFile.parse("net.py", code.encode(), repository=Repository(around or {}))
    return next(r for r in regions_of(source, None, [Candidate("item-every-step", (line,))]) if r.candidates)


def test_what_stands_around_a_method_reads_as_a_page() -> None:
    assert (
        render_around(region().around)
        == """\
Set up in this file:
  loader = DataLoader(data, num_workers=2)
Net.__init__ sets:
  self.words = torch.nn.Embedding(n, 8)
  self.register_buffer('table', torch.arange(n))
It calls Net.scaled:
  return y * 2
"""
    )


def test_callers_are_shown_with_their_loops() -> None:
    line = CODE.split("\n").index("        return y * 2") + 1
    shown = render_around(region(line=line).around)
    assert "Called in Net.forward:\n  return self.scaled(y.sum().item())\n" in shown
    assert "Called in train:\n  for x in loader:\n  net.scaled(x)\n" in shown


def test_callers_of_other_files_are_shown() -> None:
    code = "import torch\n\n\ndef penalised(x):\n    return x.sum().item()\n"
    other = b"from net import penalised\n\n\ndef fit(loader):\n    for x in loader:\n        print(penalised(x))\n"
    shown = render_around(region(code, 5, {"fit.py": other}).around)
    assert shown == "Called in fit:\n  for x in loader:\n  print(penalised(x))\n"


def test_the_task_and_the_file_come_before_the_code() -> None:
    """So that a server reads them once for all functions of the file."""
    source = SourceFile.parse("net.py", CODE.encode())
    lines = [ITEM, CODE.split("\n").index("        return y * 2") + 1]
    asked = [Candidate("item-every-step", (line,)) for line in lines]
    first, second = (
        "".join(prompt.judge(r)[0].pieces) for r in regions_of(source, None, asked) if r.candidates
    )
    head = first[: first.index("Net.__init__ sets:")]
    assert "DataLoader(data, num_workers=2)" in head
    assert second.startswith(head)


def test_what_stands_around_takes_half_of_the_room_and_init_goes_last() -> None:
    whole = region()
    for limit in range(0, 200, 5):
        small = fit(whole, limit)
        assert estimate(render_around(small.around)) <= limit // 2
        titles = {p.title for p in small.around}
        assert not titles or "Net.__init__ sets:" in titles
    assert fit(whole, 200).around == whole.around


def test_a_change_is_marked_with_what_it_removed() -> None:
    source = SourceFile.parse("net.py", CODE.encode())
    removed = [(ITEM, "        return self.scaled(y.sum())"), (ITEM, ""), (1, "import os")]
    (found,) = regions_of(source, {ITEM}, [Candidate("item-every-step", (ITEM,))], removed)
    assert (
        render(found)
        == """\
1 def forward(self, x):
2     y = self.words(x) + self.table
-     return self.scaled(y.sum())
3+     return self.scaled(y.sum().item())
"""
    )


def test_a_new_function_has_no_marks() -> None:
    source = SourceFile.parse("net.py", CODE.encode())
    asked = [Candidate("item-every-step", (ITEM,))]
    new = next(r for r in regions_of(source, set(range(1, 99)), asked) if r.candidates)
    assert render(new) == render(region())


@pytest.mark.parametrize("token", SPECIAL)
def test_hostile_text_around_reaches_no_prompt(token: str) -> None:
    code = CODE.replace("torch.arange(n)", repr(token)).replace("num_workers=2", f"num_workers={token!r}")
    source = SourceFile.parse("net.py", code.encode())
    removed = [(ITEM, f"# {token}")]
    (found, *_) = (
        r
        for r in regions_of(source, {ITEM}, [Candidate("item-every-step", (ITEM,))], removed)
        if r.candidates
    )
    for said in ("".join(prompt.judge(found)[0].pieces), prompt.advise(found).user):
        assert token not in said
        assert "num_workers=" in said and "- # " in said


def test_long_lines_are_cut_and_stay_one_line() -> None:
    code = CODE.replace("torch.nn.Embedding(n, 8)", "'''a\\nb'''" + " + 'x'" * 200)
    found = region(code)
    assert all(len(line) <= MAX_WIDTH and "\n" not in line for p in found.around for line in p.lines)
