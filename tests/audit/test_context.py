"""Which lines of a repository are shown to who checks the table of a script."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from ptopt.audit import context as of_repository
from ptopt.audit.context import Context, Contexts
from ptopt.audit.scripts import training_scripts
from ptopt.audit.values import EntryPoint
from ptopt.audit.words import PATTERNS, TELLING, rows_of
from ptopt.model.audit_measures import MEANINGS
from ptopt.project.facts import read_facts

ROOT = Path(__file__).parents[2]
FILES = {
    "train.py": """\
        import argparse
        import torch
        from engine import fit

        def main():
            parser = argparse.ArgumentParser()
            parser.add_argument("--config")
            parser.add_argument("--amp", action="store_true")
            args = parser.parse_args()
            model = torch.nn.Linear(3, 3).cuda()
            fit(model, [], torch.optim.SGD(model.parameters(), 0.1), args)

        if __name__ == "__main__":
            main()
        """,
    "engine.py": """\
        import torch

        def fit(model, loader, optimizer, args):
            for x in loader:
                with torch.autocast("cuda", enabled=args.amp):
                    loss = model(x.cuda()).sum()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()

        def unused(model):
            value = 1
            return value
        """,
    "other.py": "import torch\nx = 1\ny = torch.compile\n",
    "tests/test_it.py": "import torch\ntorch.compile(None)\n",
    "scripts/run.sh": "#!/bin/sh\nFLAGS=1\npython train.py \\\n  --amp \\\n  --config conf/base.yaml\n",
    "conf/base.yaml": "batch_size: 3\nname: base\n",
    "conf/other.yaml": "batch_size: 4\nnum_workers: 2\nname: other\n",
    "README.md": "# Title\n\nWords.\n\n    pip install torch==1.13.1\n\nRun `train.py` on a V100.\n\nThe end.\n",
    "requirements.txt": "numpy\ntorch==1.13.1\n",
}


def _contexts(files: dict[str, str]) -> tuple[Contexts, dict[str, EntryPoint]]:
    data = {path: textwrap.dedent(text).encode() for path, text in files.items()}
    facts = read_facts(data)
    scripts = training_scripts(data, facts)
    return Contexts(data, facts), {entry.path: entry for entry in scripts.entries}


def _of(files: dict[str, str], script: str = "train.py") -> Context:
    contexts, entries = _contexts(files)
    return contexts.of(entries[script])


def _weights(context: Context) -> dict[tuple[str, int], float]:
    return {(line.path, line.number): line.weight for line in context.lines}


def test_the_rows_of_the_table_all_have_words() -> None:
    assert [key for key in PATTERNS if key != "loop"] == list(MEANINGS)
    assert set(TELLING) == set(MEANINGS)
    assert all(key in rows_of(word) for key, words in TELLING.items() for word in words[:1])


def test_the_fast_search_finds_what_the_patterns_find() -> None:
    lines = [
        line
        for name in (
            "ptopt/audit/words.py",
            "ptopt/audit/measures/loader.py",
            "tests/audit/test_measures.py",
            "docs/audit.md",
        )
        for line in (ROOT / name).read_text(encoding="utf-8").splitlines()
    ]
    for line in lines:
        assert rows_of(line) == tuple(key for key, pattern in PATTERNS.items() if pattern.search(line)), line


def test_the_command_tells_more_than_the_code_and_the_code_more_than_files_that_do_not_run() -> None:
    weights = _weights(_of(FILES))
    assert (
        min(weights["scripts/run.sh", n] for n in (3, 4, 5)) > weights["train.py", 8] > weights["other.py", 3]
    )
    assert weights["engine.py", 5] > weights["engine.py", 12]
    assert ("tests/test_it.py", 2) not in weights
    assert ("other.py", 2) not in weights  # no word of a row


def test_the_file_that_a_command_names_is_shown_whole_and_another_where_it_tells() -> None:
    weights = _weights(_of(FILES))
    assert ("conf/base.yaml", 2) in weights
    assert ("conf/other.yaml", 2) in weights and ("conf/other.yaml", 3) not in weights


def test_pins_and_what_a_page_says_of_the_script_are_lines_too() -> None:
    context = _of(FILES)
    texts = {(line.path, line.number): line.text for line in context.lines}
    assert texts["requirements.txt", 2] == "torch==1.13.1"
    assert texts["README.md", 7] == "Run `train.py` on a V100."
    assert texts["README.md", 5].strip() == "pip install torch==1.13.1"
    assert ("README.md", 1) not in texts


def test_the_lines_know_their_function_and_which_files_run() -> None:
    context = _of(FILES)
    heads = {(line.path, line.number): line.heads for line in context.lines}
    assert heads["engine.py", 5] == 3 and heads["engine.py", 3] == 0
    assert context.runs == {"train.py", "engine.py"}


def test_words_that_stand_nowhere_are_named() -> None:
    absent = _of(FILES).absent
    assert "GradScaler" in absent["precision"] and "autocast" not in absent["precision"]
    assert "channels_last" in absent["channels_last"]
    assert "torch.compile" not in absent["compile"]


def test_the_lines_around_the_evidence_are_shown_wherever_they_are() -> None:
    contexts, entries = _contexts(FILES)
    entry = entries["train.py"]
    row = entry.measures[0]
    moved = replace(row, evidence=(replace(row.evidence[0], path="other.py", line=2),))
    assert ("other.py", 2) in _weights(contexts.of(replace(entry, measures=(moved,))))


def test_a_script_that_cannot_be_followed_is_shown_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    contexts, entries = _contexts(FILES)
    monkeypatch.setattr(of_repository, "_WORK", 1)
    context = contexts.of(entries["train.py"])
    assert ("train.py", 9) in _weights(context) and context.runs == {"train.py"}


def test_each_row_keeps_its_first_lines_in_a_large_repository() -> None:
    many = "import torch\n" + "".join(f"x{n} = x.cuda()\n" for n in range(3_000))
    rare = "import torch\n\ndef setup():\n    torch.backends.cudnn.benchmark = True\n"
    weights = _weights(
        _of(
            {
                **FILES,
                "engine.py": FILES["engine.py"] + "import many, rare\n",
                "many.py": many,
                "rare.py": rare,
            }
        )
    )
    assert weights["rare.py", 4] > 1 > weights["many.py", 2_900]


def test_of_many_commands_the_options_are_summed_up() -> None:
    runs = {
        f"scripts/run_{n}.sh": f"python train.py --amp --lr {0.1 if n else 0.2} --out $D\n" for n in range(12)
    }
    context = _of({**FILES, **runs})
    assert context.options.startswith("13 commands train with it. They give its options: --amp: True (13); ")
    assert "--lr: 0.1 (11), 0.2 (1)" in context.options and "--out: a variable (12)" in context.options
    assert not _of(FILES).options
    shown = {line.path for line in context.lines if line.path.startswith(("scripts/", "README"))}
    assert len(shown) == 12
