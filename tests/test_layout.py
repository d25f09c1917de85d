"""What a fix writes into code that `ruff format` has formatted, it leaves as it is."""

from __future__ import annotations

import random
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from ptopt.findings import Edit, Fix, Safety
from ptopt.project.facts import ProjectFacts
from ptopt.source.file import SourceFile
from ptopt.verify import apply_edits
from ptopt.wrap import wrapped

_LIMIT = 88
_CASES = 300


def _name(choose: random.Random, most: int = 14) -> str:
    return "".join(choose.choice("abcdexyz") for _ in range(choose.randint(1, most)))


def _value(choose: random.Random, depth: int) -> str:
    kinds: list[Callable[[], str]] = [
        lambda: _name(choose),
        lambda: f"{_name(choose)}.{_name(choose)}",
        lambda: str(choose.randint(0, 10**6)),
        lambda: f'"{_name(choose, 20)}"',
        lambda: f"{_name(choose)}[{_name(choose)}]",
        lambda: f"lambda {_name(choose, 4)}, q: {_name(choose)}",
    ]
    if depth < 3:
        kinds += [
            lambda: _call(choose, depth + 1),
            lambda: _call(choose, depth + 1),
            lambda: f"[{', '.join(_value(choose, depth + 1) for _ in range(choose.randint(1, 8)))}]",
            lambda: f"[{_name(choose)} for a, b in {_call(choose, depth + 1)}]",
        ]
    return choose.choice(kinds)()


def _call(choose: random.Random, depth: int = 0) -> str:
    parts = [_value(choose, depth) for _ in range(choose.randint(0, 3))]
    parts += [f"{_name(choose)}{i}={_value(choose, depth)}" for i in range(choose.randint(0, 3))]
    comma = "," if parts and choose.random() < 0.2 else ""
    return f"{_name(choose)}.{_name(choose)}({', '.join(parts)}{comma})"


def _statement(choose: random.Random, number: int) -> str:
    """A statement with one call `Loader`, formatted later, at some depth of blocks."""
    parts = [_value(choose, 1) for _ in range(choose.randint(1, 4))]
    parts += [f"{_name(choose)}{i}={_value(choose, 2)}" for i in range(choose.randint(0, 3))]
    comma = "," if choose.random() < 0.2 else ""
    call = f"Loader({', '.join(parts)}{comma})"
    whole = choose.choice(
        [call, f"{_name(choose)} = {call}", f"return {call}", f"{_name(choose)}({call}, {_name(choose)})"]
    )
    indent = "    " * choose.randint(1, 4)
    heads = "".join(f"{'    ' * n}if {_name(choose)}:\n" for n in range(1, len(indent) // 4))
    return f"def f{number}():\n{heads}{indent}{whole}\n"


def _format(folder: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "ruff",
        "format",
        "--isolated",
        "--no-cache",
        f"--line-length={_LIMIT}",
        str(folder),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def _fixed(text: str, *edits: Edit) -> str:
    file = SourceFile.parse("a.py", text.encode(), ProjectFacts(line_length=_LIMIT))
    return apply_edits(text, wrapped(file, Fix(Safety.SAFE, edits)).edits)


def _with_argument(text: str) -> str:
    """The text with the fix that gives `Loader` one more argument, behind the others."""
    depth, at = 0, text.index("Loader(") + len("Loader")
    while True:
        depth += (text[at] in "([{") - (text[at] in ")]}")
        if not depth:
            break
        at += 1
    last = len(text[:at].rstrip())
    last -= text[last - 1] == ","
    return _fixed(text, Edit(last, last, ", num_workers=4"))


def _with_longer_name(text: str) -> str:
    """The text with another function in the place of `Loader`."""
    start = text.index("Loader(")
    return _fixed(text, Edit(start, start + len("Loader"), "torch.utils.data.distributed.Loader"))


@pytest.mark.parametrize("fixed", [_with_argument, _with_longer_name])
def test_the_formatter_keeps_what_a_fix_writes(tmp_path: Path, fixed: Callable[[str], str]) -> None:
    choose = random.Random(20261123)
    files = [tmp_path / f"{number}.py" for number in range(_CASES)]
    for number, file in enumerate(files):
        file.write_text(_statement(choose, number))
    _format(tmp_path)
    before = [file.read_text() for file in files]
    for file, text in zip(files, before, strict=True):
        file.write_text(fixed(text))
    written = [file.read_text() for file in files]
    assert all(map(str.__ne__, before, written))
    assert sum(new.count("\n") > old.count("\n") for old, new in zip(before, written, strict=True)) > 20
    _format(tmp_path)
    reformatted = [(text, file.read_text()) for text, file in zip(written, files, strict=True)]
    assert [pair for pair in reformatted if pair[0] != pair[1]] == []


@pytest.mark.parametrize(
    ("before", "changes", "after"),
    [
        pytest.param(
            """
            def decode(tokens):
                tokens = torch.tensor(
                    [
                        *tokenizer.sot_sequence,
                        tokenizer.eot,
                    ]
                ).to(model.device)
            """,
            {"]": "], device=model.device", ".to(model.device)": ""},
            """
            def decode(tokens):
                tokens = torch.tensor(
                    [
                        *tokenizer.sot_sequence,
                        tokenizer.eot,
                    ],
                    device=model.device,
                )
            """,
            id="behind an argument of several lines",
        ),
        pytest.param(
            """
            loader = DataLoader(dataset, batch_size=4, shuffle=True, pin_memory=True,
                                collate_fn=collate)
            """,
            {"collate_fn=collate": "collate_fn=collate, num_workers=4"},
            """
            loader = DataLoader(dataset, batch_size=4, shuffle=True, pin_memory=True,
                                collate_fn=collate, num_workers=4)
            """,
            id="of another style, which stays",
        ),
        pytest.param(
            """
            loader = DataLoader(
                # the order matters
                dataset, args.batch_size, shuffle=True, collate_fn=collate, drop_last=True
            )
            """,
            {"drop_last=True": "drop_last=True, num_workers=4"},
            """
            loader = DataLoader(
                # the order matters
                dataset, args.batch_size, shuffle=True, collate_fn=collate, drop_last=True, num_workers=4
            )
            """,
            id="with a comment, which stays where it is",
        ),
    ],
)
def test_layouts(before: str, changes: dict[str, str], after: str) -> None:
    text = textwrap.dedent(before).lstrip("\n")
    edits = [Edit(text.index(old), text.index(old) + len(old), new) for old, new in changes.items()]
    assert _fixed(text, *edits) == textwrap.dedent(after).lstrip("\n")
