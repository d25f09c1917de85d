"""Hostile and broken input: no crash, no comment outside a hunk, fixes always parse."""

from __future__ import annotations

import difflib
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ptopt.change import ChangeError, parse_diff, whole_file
from ptopt.config import Config
from ptopt.findings import Review
from ptopt.project.facts import NO_FACTS
from ptopt.review import review_change, review_files
from ptopt.rules import rules
from ptopt.rules.examples import as_file
from ptopt.source.decode import parse_python
from ptopt.verify import apply_edits

pytestmark = pytest.mark.model  # for the sake of torch's own sources
TORCH = pytest.importorskip("torch", reason="its sources are what is mutated here")
CONFIG = Config().model_copy(update={"skip": (), "min_confidence": 0.0, "budget": 50})


def _torch_files() -> list[str]:
    """Real sources: parts of the installed torch that train, load data and define modules."""
    root = Path(TORCH.__file__).parent
    wanted = (
        "nn/modules",
        "optim",
        "utils/data",
        "nn/functional.py",
        "optim/swa_utils.py",
        "utils/checkpoint.py",
    )
    found: list[Path] = []
    for part in wanted:
        path = root / part
        found += [path] if path.is_file() else sorted(path.rglob("*.py"))
    return [f.read_text(encoding="utf-8") for f in found if f.stat().st_size < 60_000]


EXAMPLES = [as_file(case.code) for rule in rules() for case in rule.INVALID]
SOURCES = EXAMPLES + random.Random(0).sample(_torch_files(), 60)
SLOW = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def _mutate(text: str, data: st.DataObject) -> str:
    """Cut, drop, double or swap lines, or put something strange into one."""
    lines = text.splitlines(True)
    for _ in range(data.draw(st.integers(1, 6))):
        if not lines:
            break
        at = data.draw(st.integers(0, len(lines) - 1))
        kind = data.draw(st.sampled_from(["drop", "double", "indent", "cut", "strange", "truncate"]))
        if kind == "drop":
            del lines[at]
        elif kind == "double":
            lines.insert(at, lines[at])
        elif kind == "indent":
            lines[at] = "    " + lines[at]
        elif kind == "cut":
            lines[at] = lines[at][: len(lines[at]) // 2] + "\n"
        elif kind == "strange":
            lines.insert(at, data.draw(st.text(max_size=30)).replace("\n", "") + "\n")
        else:
            lines = lines[: at + 1]
    return "".join(lines)


def _no_rule_failed(review: Review) -> None:
    assert [n for n in review.not_reviewed if "please report" in n.reason] == []


def _fixes_parse(review: Review, head: str) -> None:
    for finding in (*review.findings, *review.over_limit):
        if finding.fix is not None:
            parse_python("f.py", apply_edits(head, finding.fix.edits).encode("utf-8", "surrogatepass"))


@SLOW
@given(st.data())
def test_truncated_and_mutated_sources_never_crash(data: st.DataObject) -> None:
    text = _mutate(data.draw(st.sampled_from(SOURCES)), data)
    raw = text.encode("utf-8", "surrogatepass")
    if data.draw(st.booleans()):
        raw = raw[: data.draw(st.integers(0, len(raw)))]
    review = review_files([whole_file("f.py", raw)], config=CONFIG, facts=NO_FACTS, limit_to_change=False)
    _no_rule_failed(review)
    if review.findings:
        _fixes_parse(review, raw.decode())
        assert all(f.span.end <= raw.count(b"\n") + 1 for f in review.findings)


@SLOW
@given(st.data())
def test_comments_stand_inside_hunks(data: st.DataObject) -> None:
    head = data.draw(st.sampled_from(SOURCES))
    base = _mutate(head, data)
    if "\r" in base or "\x0c" in base:
        return
    diff = "".join(difflib.unified_diff(_lines(base), _lines(head), "a/f.py", "b/f.py"))
    if not diff:
        return
    try:
        change = parse_diff(diff.encode("utf-8", "surrogatepass"), {"f.py": head.encode()}.get)
    except ChangeError:
        return
    review = review_change(change, config=CONFIG, facts=NO_FACTS)
    _no_rule_failed(review)
    for finding in review.findings:
        (file,) = change.files
        anchor = file.anchor(finding.span.start, finding.span.end)
        if anchor is not None:
            assert any(anchor.start >= h.start and anchor.end < h.start + h.count for h in file.hunks)
        else:  # the change touched the evidence alone
            assert any(file.anchor(e.line, e.line) for e in finding.evidence)
    _fixes_parse(review, head)


def _lines(text: str) -> list[str]:
    lines = [line + "\n" for line in text.split("\n")]
    return lines[:-1] if text.endswith("\n") else lines


@SLOW
@given(st.data())
def test_mutated_diffs_never_crash(data: st.DataObject) -> None:
    head = data.draw(st.sampled_from(EXAMPLES))
    diff = "".join(difflib.unified_diff([], head.splitlines(True), "/dev/null", "b/f.py"))
    broken = _mutate(diff, data)
    try:
        change = parse_diff(broken.encode("utf-8", "surrogatepass"), {"f.py": head.encode()}.get)
    except ChangeError as error:
        assert str(error)
        return
    _no_rule_failed(review_change(change, config=CONFIG, facts=NO_FACTS))


DEEP = {
    "a long sum": "total = " + " + ".join(["loss.item()"] * 3000),
    "a long chain of methods": "x = torch.zeros(3)" + ".float()" * 3000,
    "a long chain of names": "x0 = torch.zeros(3)\n" + "\n".join(f"x{i + 1} = x{i} + 1" for i in range(3000)),
    "many branches": "if x == 0:\n    pass\n"
    + "".join(f"elif x == {i}:\n    y = x.item()\n" for i in range(1, 900)),
    "nested calls": "x = " + "f(" * 80 + "loss.item()" + ")" * 80,
    "a long matrix product": "x = " + " @ ".join(["a"] * 2000) + "\ny = x.softmax(-1)",
    "nested functions": "".join("    " * i + f"def f{i}(x):\n" for i in range(18))
    + "    " * 18
    + "return x.item()\n",
}


@pytest.mark.parametrize("code", DEEP.values(), ids=DEEP)
def test_deep_code_is_no_trouble(code: str) -> None:
    loop = "import torch\nfor x in loader:\n    loss.backward()\n    optimizer.step()  # cuda\n"
    text = loop + "".join(f"    {line}\n" for line in code.split("\n"))
    review = review_files(
        [whole_file("f.py", text.encode())], config=CONFIG, facts=NO_FACTS, limit_to_change=False
    )
    _no_rule_failed(review)
    # Nested too deeply, or (hundreds of branches) more work than one file may take.
    assert all("deeply" in n.reason or "in part" in n.reason for n in review.not_reviewed)
