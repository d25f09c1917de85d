"""Gaps, plan, what is good, and how findings weigh."""

from __future__ import annotations

import ast
import gc
import weakref
from pathlib import Path
from typing import Any

import pytest

from ptopt.audit.advice import ADVICE
from ptopt.audit.measures import ALL, TOO_MUCH_WORK
from ptopt.audit.nearest import NearestFacts
from ptopt.audit.published import worth
from ptopt.audit.scripts import entry_points
from ptopt.audit.values import Level, State
from ptopt.impact import of_rule
from ptopt.project.facts import NO_FACTS
from ptopt.report.audit.text import outcome
from tests.audit.conftest import Auditor
from tests.audit.test_measures import LOADER, script
from tests.hostile import PROGRAMS

PLAIN = script(
    before="    model = nn.Conv2d(3, 4, 5).cuda()\n"
    + LOADER.format("")
    + "\n    optimizer = torch.optim.Adam(model.parameters())",
    step="        loss = model(x.cuda()).sum()",
)


def test_gaps_come_by_weight(audited: Auditor) -> None:
    gaps = audited({"train.py": PLAIN}).gaps
    assert {"precision", "workers"} <= {gap.key for gap in gaps if gap.level is Level.MODERATE}
    assert Level.LOW in {gap.level for gap in gaps}
    assert [gap.level for gap in gaps] == sorted((gap.level for gap in gaps), key=list(Level).index)
    assert all(gap.evidence for gap in gaps)


def test_tf32_is_no_gap_beside_mixed_precision(audited: Auditor) -> None:
    step = (
        '        with torch.autocast("cuda", dtype=torch.bfloat16):\n            loss = model(x.cuda()).sum()'
    )
    multiplies = PLAIN.replace("nn.Conv2d(3, 4, 5)", "nn.Linear(3, 4)")
    assert "tf32" in {gap.key for gap in audited({"train.py": multiplies}).gaps}
    mixed = {gap.key for gap in audited({"train.py": script(step=step)}).gaps}
    assert mixed.isdisjoint({"tf32", "precision"})


def test_what_the_table_says_is_not_said_again_as_a_finding(audited: Auditor) -> None:
    audit = audited({"train.py": PLAIN})
    assert {w.finding.name for w in audit.findings}.isdisjoint(
        {"full-precision-training", "optimizer-not-fused"}
    )


def test_what_a_finding_says_with_line_and_edit_is_no_gap_beside_it(audited: Auditor) -> None:
    example = Path(__file__).parents[2] / "examples/pull-request/head"
    audit = audited({path.name: path.read_text() for path in example.iterdir()})
    rows = {measure.key: measure.state for measure in audit.entries[0].measures}
    assert rows["evaluation"] is rows["attention"] is State.OFF
    said = {w.finding.name for w in audit.findings}
    assert {"evaluation-records-graph", "attention-by-hand"} <= said
    assert {gap.key for gap in audit.gaps}.isdisjoint({"evaluation", "attention"})
    titles = [step.title for phase in audit.plan for step in phase.steps]
    assert sum("no_grad" in title for title in titles) == 1


def test_the_plan_has_quick_wins_first_and_multiplies_nothing(audited: Auditor) -> None:
    audit = audited({"train.py": PLAIN})
    assert [phase.title for phase in audit.plan] == ["Quick wins", "Next"]
    assert any("not multiplied" in note for note in audit.notes)
    assert {step.effort for step in audit.plan[0].steps} <= {
        "a flag",
        "one line",
        "one line a copy",
        "an hour",
        "a suggested edit",
    }


@pytest.mark.parametrize("key", sorted(ADVICE))
def test_each_figure_names_source_and_conditions(key: str) -> None:
    for impact in worth(key):
        assert impact.conditions
        assert impact.source.startswith("https://")
        assert impact.provenance in ("published", "measured")
        assert 0 < impact.low <= impact.high


def test_the_rules_whose_figures_are_borrowed_exist() -> None:
    from ptopt.audit.published import _RULES
    from ptopt.audit.weigh import _IN_THE_TABLE
    from ptopt.rules import find_rule

    names = {name for names in _RULES.values() for name in names} | _IN_THE_TABLE.keys()
    assert [name for name in sorted(names) if find_rule(name) is None] == []


def test_an_empty_repository(audited: Auditor) -> None:
    audit = audited({"setup.py": "from setuptools import setup\nsetup()\n"})
    assert (audit.entries, audit.gaps, audit.plan) == ((), (), ())


def test_an_audit_is_the_same_every_time(audited: Auditor) -> None:
    files = {"train.py": PLAIN, "b.py": PLAIN, "c/d.py": PLAIN}
    assert audited(files) == audited(dict(reversed(files.items())))


def test_the_folder_of_this_project() -> None:
    """Code that is no training script, a lot of it: nothing is invented, nothing fails."""
    root = Path(__file__).resolve().parents[2] / "ptopt" / "cli"
    files = {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*.py")}
    assert entry_points(files, {}, {}, NearestFacts(NO_FACTS, {}), frozenset()) == ((), [])


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_hostile_programs_end(name: str) -> None:
    """What took minutes before reviews were bounded; the limits of work end each script."""
    main = "\n\nif __name__ == '__main__':\n    train(model, loader, opt, metric)\n"
    notebook = PROGRAMS[name].startswith("{")
    data = (PROGRAMS[name] + main * (not notebook)).encode()
    entries, lost = entry_points(
        {"a.ipynb" if notebook else "a.py": data}, {}, {}, NearestFacts(NO_FACTS, {}), frozenset()
    )
    assert {m.state for entry in entries for m in entry.measures} <= set(State)
    assert all(note.startswith("a.") for note in lost)


def test_a_script_that_trains_is_reviewed_wherever_it_lies(audited: Auditor) -> None:
    script = PLAIN.replace(
        "loss = model(x.cuda()).sum()", "loss = model(x.cuda()).sum()\n        torch.cuda.empty_cache()"
    )
    found = audited({"examples/train.py": script, "examples/other.py": "import torch\n"})
    assert "cache-cleared-every-step" in {w.finding.name for w in found.findings}
    assert [item.path for item in found.not_reviewed] == ["examples/other.py"]


def test_the_same_statement_about_several_files_is_made_once(audited: Auditor) -> None:
    workflow = """\
        on: push
        jobs:
          test:
            runs-on: ubuntu-latest
            steps:
              - uses: actions/checkout@v4
              - run: pip install torch
              - run: pytest
        """
    found = audited({f".github/workflows/{name}.yml": workflow for name in ("a", "b", "c")})
    (first,) = (w for w in found.findings if w.finding.name == "cuda-build-on-cpu-runner")
    assert first.finding.path == ".github/workflows/a.yml"
    assert [str(place) for place in first.also] == [".github/workflows/b.yml:7", ".github/workflows/c.yml:7"]


def test_rows_for_which_no_work_is_left_are_unknown_and_say_so(
    audited: Auditor, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = audited({"train.py": PLAIN}).entries[0]
    for limit in range(50, 2_000, 50):  # the first that is enough to find the training, and not to judge it
        monkeypatch.setattr("ptopt.audit.scripts.ENTRY_WORK", limit)
        audit = audited({"train.py": PLAIN})
        if audit.entries:
            break
    else:
        pytest.fail("no limit leaves the script and takes rows from it")
    (entry,) = audit.entries
    lost = [m for m in entry.measures if m.detail == TOO_MUCH_WORK]
    assert lost
    assert {m.state for m in lost} == {State.UNKNOWN}
    assert [(m.key, m.title) for m in entry.measures] == [(m.key, m.title) for m in whole.measures]
    assert any(TOO_MUCH_WORK in limit for limit in entry.limits)
    assert any(TOO_MUCH_WORK in line for line in audit.not_judged)


def test_a_script_that_is_not_even_followed_is_named(
    audited: Auditor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ptopt.audit.scripts.ENTRY_WORK", 1)
    audit = audited({"train.py": PLAIN})
    assert not audit.entries
    assert f"train.py: {TOO_MUCH_WORK}" in audit.not_judged


def test_scripts_after_the_limit_of_the_audit_are_counted(
    audited: Auditor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ptopt.audit.scripts.AUDIT_WORK", 1)
    audit = audited({"train.py": PLAIN, "train_more.py": PLAIN, "train_most.py": PLAIN})
    assert "2 more scripts: the analysis limit of one audit was reached" in audit.not_judged


def test_the_rows_of_the_table_have_the_names_that_their_measures_give(audited: Auditor) -> None:
    (entry,) = audited({"train.py": PLAIN}).entries
    assert [(m.key, m.title) for m in entry.measures] == [(key, title) for key, title, _ in ALL]


def test_no_tree_outlives_an_audit(audited: Auditor, monkeypatch: pytest.MonkeyPatch) -> None:
    looped = PLAIN.replace(
        "loss = model(x.cuda()).sum()", "loss = sum(model(x[i : i + 1]) for i in range(8))"
    )
    trees: list[weakref.ref[ast.AST]] = []
    parse = ast.parse

    def noted(*arguments: Any, **options: Any) -> ast.AST:
        tree = parse(*arguments, **options)
        trees.append(weakref.ref(tree))
        return tree

    monkeypatch.setattr(ast, "parse", noted)
    gc.disable()  # an audit runs without the collector: what is in a circle stays
    try:
        audited({"train.py": PLAIN, "more.py": looped})
        left = sum(tree() is not None for tree in trees)
    finally:
        gc.enable()
    assert len(trees) >= 2 and left == 0


def test_the_same_statement_in_several_files_is_made_once_though_the_lines_differ(audited: Auditor) -> None:
    code = """\
        {more}import torch
        from accelerate import Accelerator

        class Trainer:
            def __init__(self, model, optimizer, loader):
                self.accelerator = Accelerator()
                self.model, self.optimizer = self.accelerator.prepare(model, optimizer)
                self.loader = loader

            def train(self, every):
                for i, x in enumerate(self.loader):
                    loss = self.model(x).sum()
                    self.accelerator.backward(loss / every)
                    if (i + 1) % every == 0:
                        self.optimizer.step()
                        self.optimizer.zero_grad()
        """
    files = {
        f"{name}.py": code.replace("{more}", "import math\n        " * i) for i, name in enumerate("abc")
    }
    found = audited(files)
    (only,) = (w for w in found.findings if w.finding.name == "accumulation-syncs-every-micro-batch")
    assert [place.path for place in only.also] == ["b.py", "c.py"]
    assert "`with self.accelerator.no_sync(self.model)`" in only.finding.message
    assert "A file counts that trains when it is started" in outcome(found)  # three libraries, no script


@pytest.mark.parametrize(
    ("pinned", "rule"), [("True", "blocking-copy-from-pinned-loader"), ("False", "batch-copy-waits")]
)
def test_the_figure_of_copies_is_that_of_the_rule_for_the_loader(
    audited: Auditor, pinned: str, rule: str
) -> None:
    code = f"""\
        import torch
        from torch.utils.data import DataLoader

        model = torch.nn.Linear(64, 64).cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        loader = DataLoader(Images("train"), num_workers=4, pin_memory={pinned})
        for x in loader:
            x = x.cuda()
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
        """
    (gap,) = (gap for gap in audited({"train.py": code}).gaps if gap.key == "non_blocking")
    assert {impact.high for impact in gap.impact} == {i.high for i in of_rule(rule) if i.device == "cuda"}
