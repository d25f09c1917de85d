"""Traces that somebody made to break the reader: an error of one line, or a profile, and never anything else."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

from benchmarks.profiles.gpu import simulated
from ptopt.profiles.analysis import analysed
from ptopt.profiles.profile import Profile
from ptopt.profiles.reading import profile_of
from ptopt.profiles.trace import MOST_NAMES, Names, ProfileError
from ptopt.profiles.verdict import verdict
from ptopt.report import profile_json, profile_markdown, profile_terminal
from tests.profiles.traces import event, profile, read

ODD = [
    "-1",
    "1e400",
    "NaN",
    '"x"',
    "null",
    "[]",
    "{}",
    "true",
    "99999999999999999999",
    '"\\u0000\\u202e"',
    "1e16",
    "",
]


def test_changed_traces_are_read_or_refused(tmp_path: Path) -> None:
    chosen = random.Random(7)
    bases = [
        json.dumps(simulated("host", 1, steps=2, layers=2)).encode(),
        gzip.decompress((Path(__file__).parent / "data" / "host.json.gz").read_bytes())[:60_000] + b"]}",
    ]
    read_well = 0
    for number in range(140):
        data = bytearray(bases[number % 2])
        for _ in range(chosen.randint(1, 5)):
            at = chosen.randrange(len(data))
            colon = data.find(b": ", at)
            if chosen.random() < 0.7 and colon > 0:
                end = min(p for p in (data.find(b",", colon), data.find(b"}", colon), len(data)) if p > 0)
                data[colon + 2 : end] = chosen.choice(ODD).encode()
            else:
                data[at : at + chosen.randint(0, 20)] = bytes(
                    chosen.randrange(256) for _ in range(chosen.randint(0, 5))
                )
        path = tmp_path / "t.json"
        path.write_bytes(data)
        try:
            found = profile_of(path, ["train.py"])
        except ProfileError as error:
            assert str(error) and "\n" not in str(error)
            continue
        assert isinstance(found, Profile)
        verdict(found)
        assert profile_json.render([(found, ())]) and profile_markdown.render([(found, ())])
        assert number % 7 or profile_terminal.render([(found, ())])
        read_well += 1
    assert read_well > 80


def test_names_in_great_numbers_share_one() -> None:
    names = Names()
    numbers = {names(f"op {i}") for i in range(MOST_NAMES + 50)}
    assert len(numbers) == MOST_NAMES + 1 and names.texts[-1] == "(further names)"
    names = Names()
    assert names("x at 0x7f0000000000>") == names("x at 0x7f1111111111>")
    assert names.texts == ["x>"]
    assert len(names.texts[names("y" * 10_000)]) == 400


def test_deep_stacks_and_kernels_that_all_overlap_take_no_quadratic_time() -> None:
    deep = [event("python_function", f"a.py({i}): f{i}", i, 20_000 - 2 * i) for i in range(9_000)]
    wide = [event("kernel", "gemm", i, 50_000, tid=7, correlation=i, device=0) for i in range(20_000)]
    nested = [event("cpu_op", "aten::mm", i / 2, 30_000 - i) for i in range(20_000)]
    alike = [event("cpu_op", "aten::add", 15_000, i + 1) for i in range(20_000)]
    found = profile(event("user_annotation", "ProfilerStep#1", 0, 30_000), *deep, *wide, *nested, *alike)
    assert found.shares["forward"] > 0.99


def test_text_of_a_trace_is_shown_as_text() -> None:
    bad = "evil`|\x1b[31m<b>@team</b>\u202e\n[x](http://e.example)"
    step = event("user_annotation", "ProfilerStep#1", 0, 100)
    found = profile(
        step, event("python_function", f"{bad}.py(3): {bad}", 0, 90), event("cpu_op", f"aten::{bad}", 10, 50)
    )
    terminal = profile_terminal.render([(found, ())], width=200)
    markdown = profile_markdown.render([(found, ())])
    for text in (terminal, markdown):
        assert "\x1b" not in text and "\u202e" not in text and "\\x1b" in text
    for line in markdown.split("\n"):
        assert "@team" not in line or line.startswith("| ")
        if "@team" in line:  # only inside code, which is longer than any run of backticks in it
            cells = line.strip("| ").replace("\\|", "").split(" | ")
            assert all(cell.startswith("``") for cell in cells if "@team" in cell)
    assert json.loads(profile_json.render([(found, ())]))["traces"][0]["kind"] == "trace"


def test_paths_of_a_trace_are_never_opened(tmp_path: Path) -> None:
    secret = tmp_path / "secret.py"
    secret.write_text("def f():\n    password.read()\n")
    text = json.dumps(
        {
            "traceEvents": [
                event("python_function", f"{secret}(1): f", 0, 9),
                event("cpu_op", "aten::mm", 1, 2),
            ]
        }
    )
    found = analysed(read(text.encode()), "t.json")
    assert "password" not in profile_terminal.render([(found, ())])
