"""The pipeline from a change to a review, on small repositories written here."""

from __future__ import annotations

import difflib
import textwrap

import pytest

from ptopt.change import parse_diff, whole_file
from ptopt.config import Config, load_config
from ptopt.findings import Review, Safety, Span
from ptopt.parse_check import MOST_BYTES
from ptopt.project.facts import NO_FACTS, read_facts
from ptopt.proposals import MOST_PLACES
from ptopt.review import review_change, review_files
from ptopt.rules import known_names
from ptopt.verify import apply_edits

BASE = textwrap.dedent(
    """\
    import torch
    from torch import nn


    def train(model, loader, optimizer, criterion, device):
        total = 0.0
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(model(x.to(device)), y.to(device))
            loss.backward()
            optimizer.step()
        return total
    """
)
HEAD = BASE.replace(
    "        optimizer.step()\n",
    "        optimizer.step()\n        total += loss.item()\n        log(loss.item())\n",
)


def _review(
    base: str, head: str, path: str = "train.py", config: str = "", facts: dict[str, bytes] | None = None
) -> Review:
    diff = "".join(
        difflib.unified_diff(base.splitlines(True), head.splitlines(True), f"a/{path}", f"b/{path}")
    )
    change = parse_diff(diff.encode(), {path: head.encode()}.get)
    settings = load_config({".ptopt.toml": config.encode()} if config else {}, known_names())
    return review_change(change, config=settings, facts=read_facts(facts) if facts else NO_FACTS)


def test_one_comment_per_cause_lists_the_other_lines() -> None:
    review = _review(BASE, HEAD)
    (finding,) = review.findings
    assert (finding.rule, finding.span.start, [p.span.start for p in finding.also]) == ("PTO101", 12, [13])
    assert finding.symbol == "train"
    assert finding.fix is None  # `log(loss.item())` waits all the same
    assert review.sources == {"train.py": HEAD}


def test_all_places_of_a_comment_are_fixed_together() -> None:
    head = HEAD.replace("log(loss.item())", "other += loss.item()")
    (finding,) = _review(BASE, head).findings
    assert (finding.span.start, [p.span.start for p in finding.also]) == (12, [13])
    assert finding.fix is not None and finding.fix.safety is Safety.UNSAFE
    fixed = apply_edits(head, finding.fix.edits)
    assert (fixed.count("loss.detach()"), fixed.count("float(total)")) == (2, 1)


@pytest.mark.parametrize(
    "line", ["other = loss.item() * 2", "print(total)", "bar.set_postfix(loss=total)", 'log(f"{total}")']
)
def test_no_fix_is_offered_whose_value_the_same_iteration_reads_anyway(line: str) -> None:
    (finding,) = _review(BASE, HEAD.replace("log(loss.item())", line)).findings
    assert finding.span.start == 12 and finding.fix is None


def test_a_value_that_is_read_now_and_then_keeps_its_fix() -> None:
    head = HEAD.replace("log(loss.item())", "if step % 100 == 0:\n            print(total)")
    (finding,) = _review(BASE, head).findings
    assert finding.fix is not None


def test_a_fix_waits_for_old_places_with_the_same_cause() -> None:
    before = HEAD.replace("        total += loss.item()\n", "").replace(
        "log(loss.item())", "other += loss.item()"
    )
    after = before.replace("        other +=", "        total += loss.item()\n        other +=")
    (finding,) = _review(before, after).findings
    assert (finding.span.start, finding.also) == (12, ())
    assert finding.fix is not None
    assert apply_edits(after, finding.fix.edits).count("loss.detach()") == 2


def test_what_the_change_did_not_touch_is_not_reported() -> None:
    after = HEAD.replace("import torch\n", "import math\nimport torch\n")
    assert _review(HEAD, after).findings == ()


def test_old_lines_are_not_reported_though_the_change_wrote_what_proves_them() -> None:
    before = HEAD.replace("            loss.backward()\n", "            pass\n").replace(
        "        loss.backward()\n", "        pass\n"
    )
    assert _review(before, HEAD).findings == ()


def test_a_comment_moves_to_the_place_that_the_change_added() -> None:
    before = """\
import torch

def validate(model, loader):
    model.eval()
    for x, y in loader:
        print(model(x).argmax(1) == y)
"""
    head = before + "        print(model(x.flip(3)).argmax(1) == y)\n"
    (finding,) = _review(before, head, config='select = ["evaluation-records-graph"]').findings
    assert finding.span.start == 7
    assert "`model(x.flip(3))`" in finding.message


@pytest.mark.parametrize(("outermost", "expected"), [("with torch.no_grad():", 0), ("if True:", 1)])
def test_evaluation_under_no_grad_three_callers_up(outermost: str, expected: int) -> None:
    head = f"""\
import torch

def evaluate(model, loader):
    model.eval()
    correct = 0
    for x, y in loader:
        correct += (model(x.cuda()).argmax(1) == y.cuda()).sum()
    return correct

def all_splits(model, loaders):
    return [evaluate(model, loader) for loader in loaders]

def report(model, loaders):
    print(all_splits(model, loaders))

def main(model, loaders):
    {outermost}
        report(model, loaders)
"""
    found = _review("", head, config='select = ["evaluation-records-graph"]\nmin-confidence = 0.0').findings
    assert len(found) == expected


def test_the_budget_withholds_and_says_so() -> None:
    review = _review(BASE, HEAD, config="budget = 0")
    assert review.findings == ()
    assert [f.rule for f in review.over_limit] == ["PTO101"]


def test_confidence_below_the_threshold_is_not_said() -> None:
    assert _review(BASE, HEAD, config="min-confidence = 0.95").findings == ()


def test_rules_families_and_paths_can_be_switched_off() -> None:
    for config in (
        'ignore = ["PTO101"]',
        'ignore = ["sync"]',
        '[per-path-ignores]\n"*.py" = ["item-every-step"]',
    ):
        assert _review(BASE, HEAD, config=config).findings == ()


def test_tests_are_skipped_and_the_review_says_so() -> None:
    review = _review(BASE, HEAD, path="tests/train.py")
    assert review.findings == () and review.files_reviewed == 0
    (skipped,) = review.not_reviewed
    assert skipped.path == "tests/train.py" and "tests" in skipped.reason
    assert _review(BASE, HEAD, path="tests/train.py", config="skip = []").findings


def test_a_comment_in_the_code_suppresses_one_line_of_a_group() -> None:
    head = HEAD.replace("total += loss.item()", "total += loss.item()  # ptopt: ignore[PTO101] wanted")
    review = _review(BASE, head)
    assert [(f.span.start, f.also) for f in review.findings] == [(13, ())]
    assert [f.span.start for f in review.suppressed] == [12]
    assert review.unused_suppressions == ()


def test_unused_suppressions_are_reported() -> None:
    head = BASE.replace("total = 0.0", "total = 0.0  # ptopt: ignore[PTO101]")
    review = _review(BASE, head)
    assert [(u.path, u.line, u.codes) for u in review.unused_suppressions] == [("train.py", 6, ("PTO101",))]


def test_a_broken_file_is_not_looked_at_and_the_others_are() -> None:
    base, head, broken = BASE, HEAD, "import torch\ntorch.stack(\n"
    diff = "".join(
        line
        for path, old, new in (("a.py", "x = 1\n", broken), ("train.py", base, head))
        for line in difflib.unified_diff(old.splitlines(True), new.splitlines(True), f"a/{path}", f"b/{path}")
    )
    change = parse_diff(diff.encode(), {"a.py": broken.encode(), "train.py": head.encode()}.get)
    review = review_change(change, config=Config(), facts=NO_FACTS)
    assert [f.path for f in review.findings] == ["train.py"]
    (skipped,) = review.not_reviewed
    assert skipped.path == "a.py" and "does not parse" in skipped.reason and review.files_reviewed == 1


def test_a_broken_file_without_torch_is_not_called_clean() -> None:
    files = [whole_file(path, text.encode()) for path, text in (("a.py", "x = (\n"), ("b.py", "x = 1\n"))]
    review = review_files(files, config=Config(), facts=NO_FACTS, limit_to_change=False)
    (skipped,) = review.not_reviewed
    assert (skipped.path, review.reviewed) == ("a.py", ("b.py",)) and "does not parse" in skipped.reason
    # In a large tree, parsing what no rule asks about would take the time of the whole check.
    padding = whole_file("0.py", (b"# " + b"a" * 97 + b"\n") * (MOST_BYTES // 100))
    review = review_files([padding, *files], config=Config(), facts=NO_FACTS, limit_to_change=False)
    assert review.not_reviewed == ()


def test_fingerprints_survive_line_shifts_and_tell_twins_apart() -> None:
    shifted = "# one more line\n\n" + HEAD
    whole = [
        review_files(
            parse_diff(_new_file(text), {"train.py": text.encode()}.get).files,
            config=Config(),
            facts=NO_FACTS,
            limit_to_change=True,
        )
        for text in (HEAD, shifted)
    ]
    assert [f.fingerprint for f in whole[0].findings] == [f.fingerprint for f in whole[1].findings]
    twins = HEAD.replace("        log(loss.item())\n", "        total += loss.item()\n")
    review = _review(BASE, twins)
    assert len(review.findings) == 1 and len(review.findings[0].also) == 1


def _new_file(text: str) -> bytes:
    lines = text.splitlines(True)
    body = "".join("+" + line for line in lines)
    return f"--- /dev/null\n+++ b/train.py\n@@ -0,0 +1,{len(lines)} @@\n{body}".encode()


def test_a_fix_outside_the_hunk_is_shown_as_text() -> None:
    head = textwrap.dedent(
        """\
        import torch


        def validate(model, val_loader, device):
            model.eval()
            seen = 0
            first = None
            last = None
            total = 0.0
            for x, y in val_loader:
                seen += len(x)
                total += (model(x.to(device)).argmax(1) == y.to(device)).sum()
            return total / seen
        """
    )
    base = "".join(line for line in head.splitlines(True) if "argmax" not in line)
    (near,) = _review("", head).findings
    (far,) = _review(base, head).findings
    assert near.rule == far.rule == "PTO501" and near.fix is not None and far.fix is not None
    assert near.fix.safety is far.fix.safety is Safety.UNSAFE
    assert near.fix.postable  # the whole file is one hunk
    assert not far.fix.postable  # the decorator would stand above the hunk
    assert near.fix.edits == far.fix.edits


def test_same_input_gives_the_same_bytes() -> None:
    assert repr(_review(BASE, HEAD)) == repr(_review(BASE, HEAD))


def test_a_suppression_of_a_rule_that_is_off_is_not_reported() -> None:
    head = BASE.replace("total = 0.0", "total = 0.0  # ptopt: ignore[PTO101, nosuchrule]")
    for config in ('ignore = ["PTO101"]', '[per-path-ignores]\n"train.py" = ["sync"]'):
        review = _review(BASE, head, config=config)
        assert [u.codes for u in review.unused_suppressions] == [("nosuchrule",)]
    by_default_off = BASE.replace("total = 0.0", "total = 0.0  # ptopt: ignore[deterministic-left-on]")
    assert _review(BASE, by_default_off).unused_suppressions == ()


def test_a_change_answers_for_its_own_suppressions_only() -> None:
    before = BASE.replace("total = 0.0", "total = 0.0  # ptopt: ignore[PTO101]")
    assert (
        _review(before, before.replace("import torch\n", "import math\nimport torch\n")).unused_suppressions
        == ()
    )


def test_a_suppression_that_is_written_above_code_that_stays_is_in_use() -> None:
    line = "        total += loss.item()\n"
    for config in ("", "min-confidence = 0.99"):
        after = HEAD.replace(line, f"        # ptopt: ignore[PTO101] wanted\n{line}")
        assert _review(HEAD, after, config=config).unused_suppressions == ()


LOADER = """\
import torch
from torch.utils.data import DataLoader
from torchvision import datasets, transforms


def main(model, optimizer, criterion):
    data = datasets.ImageFolder("images", transform=transforms.ToTensor())
    loader = DataLoader(data, batch_size=32, shuffle=True)
    model.cuda()
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x.cuda()), y.cuda())
        loss.backward()
        optimizer.step()
"""
LOADERS = 'select = ["loader-without-workers", "loader-without-pinning"]\nmin-confidence = 0.0'


def test_two_rules_on_one_line_are_one_comment_that_names_both() -> None:
    (finding,) = _review("", LOADER, config=LOADERS).findings
    (other,) = finding.also
    assert (finding.rule, finding.span, other.rule, other.span) == (
        "PTO301",
        Span(8, 8),
        "PTO302",
        Span(8, 8),
    )
    assert finding.message.startswith("For each item") and other.message.startswith("`x.cuda()` at line 12")
    assert finding.fix is not None and finding.fix.edits[0].replacement == ", num_workers=4"


@pytest.mark.parametrize(("silenced", "left"), [("PTO301", "PTO302"), ("PTO302", "PTO301")])
def test_of_two_rules_on_one_line_the_other_is_left_when_one_is_silenced(silenced: str, left: str) -> None:
    head = LOADER.replace("shuffle=True)", f"shuffle=True)  # ptopt: ignore[{silenced}] small images")
    review = _review("", head, config=LOADERS)
    assert [(f.rule, f.also) for f in review.findings] == [(left, ())]
    assert [f.rule for f in review.suppressed] == [silenced]


def test_a_fix_of_several_places_says_once_what_it_assumes() -> None:
    head = """\
import torch

def cost(points, others, n):
    left = points.unsqueeze(1).repeat(1, n, 1) - others
    return left * others.unsqueeze(1).repeat(1, n, 1)
"""
    config = 'select = ["repeat-for-broadcast"]\nmin-confidence = 0.0'
    (finding,) = _review("", head, config=config).findings
    assert finding.fix is not None and len(finding.fix.edits) == 2
    clauses = finding.fix.assumption.split("; ")
    assert clauses[0] == "`points.unsqueeze(1)` has 3 dimensions (the same for `others.unsqueeze(1)`)"
    assert len(clauses) == 2 and clauses[1].startswith("no `.view` needs")


def test_of_a_rule_that_a_file_repeats_without_end_the_first_places_are_reviewed() -> None:
    reads = "".join(f"        a{n} = loss.item()\n" for n in range(MOST_PLACES + 50))
    head = (
        "import torch\n\ndef train(model, loader, opt):\n    for x in loader:\n        loss = model(x.cuda()).sum()\n"
        f"        loss.backward()\n        opt.step()\n{reads}"
    )
    review = _review("", head, config='select = ["item-every-step"]\nmin-confidence = 0.0')
    (finding,) = review.findings
    assert len(finding.also) == MOST_PLACES - 1
    assert finding.span.start == 8, "the first ones"
    (note,) = review.not_reviewed
    assert (note.path, "250 places" in note.reason, f"first {MOST_PLACES}" in note.reason) == (
        "train.py",
        True,
        True,
    )
