"""What the ranker left out is counted as what is shown is counted, and each condition that hides a finding is named."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from ptopt.findings import Condition, LeftOut
from ptopt.ranker.model import ENVIRONMENT, comment_conditions, default_ranker
from ptopt.report.text import left_out_lines
from tests.cli.command import run, unwrapped

# Places of one rule that are one comment, rules that share lines, and a comment that silences one.
CODE = """\
import torch
from torch import nn
from torch.utils.data import DataLoader


def train(model, dataset, optimizer):
    model.cuda()
    loader = DataLoader(dataset, batch_size=64, shuffle=True)
    total = 0.0
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
        print(loss.item())
        best = loss.item()  # ptopt: ignore[item-every-step] wanted
    return total


def silu(x):
    return x * torch.sigmoid(x)
"""
_HINT = re.compile(r"(--min-confidence 0(?: --budget \d+)?) shows all: (\d+ findings?(?: at \d+ places)?)")
UNSURE = "What rules are unsure of was not looked for; --min-confidence 0 shows it, too."
# Its rule states 0.85, and the ranker finds it true but trivial.
UNLIKELY = """\
import torch


def train(model, loader, optimizer):
    for x, y in loader:
        loss = model(x.cuda(), y.cuda())
        loss.backward()
        optimizer.step()
        total += loss.item()
"""


@pytest.fixture
def code(tmp_path: Path, learned_ranker: None) -> Path:
    (tmp_path / "train.py").write_text(CODE)
    (tmp_path / "again.py").write_text(CODE)
    return tmp_path


@pytest.mark.parametrize(
    "extra", [("--min-confidence", "0.3"), ("--min-confidence", "0.3", "--budget", "1")], ids=str
)
def test_the_hint_shows_what_it_promises(code: Path, extra: tuple[str, ...]) -> None:
    hint = _HINT.search(unwrapped(run("check", code, *extra)))
    assert hint is not None
    shown = unwrapped(run("check", code, *extra, *hint[1].split()))
    noun = hint[2].replace("finding", "performance finding", 1)
    assert f"{noun} in " in shown
    assert "not shown (comment limit reached)" not in shown and "left out" not in shown


def test_the_places_are_those_that_the_hint_adds(code: Path) -> None:
    before, after = (
        json.loads(run("check", code, "--format", "json", "--min-confidence", least).stdout)
        for least in ("0.3", "0")
    )
    left = before["left_out"]
    assert (len(after["findings"]), _places(after)) == (left["all_findings"], left["all_places"])
    assert before["below_threshold"] == sum(left["places"].values()) == _places(after) - _places(before) > 0
    assert after["left_out"] is None and after["below_threshold"] == 0


def _places(report: dict[str, Any]) -> int:
    return len(
        {
            (finding["path"], place["start_line"], place["end_line"])
            for finding in report["findings"]
            for place in (finding, *finding["also"])
        }
    )


@pytest.fixture
def strict(code: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Weights that ask for more than rules ever state."""
    weights = json.loads(Path(__file__).with_name("stated_confidence.json").read_text())
    file = code / "weights.json"
    file.write_text(json.dumps(weights | {"least_stated": 0.95, "threshold": 0.5}))
    monkeypatch.setenv(ENVIRONMENT, str(file))
    default_ranker.cache_clear()
    return code


def test_a_finding_above_the_threshold_says_what_hid_it(strict: Path) -> None:
    by_default = unwrapped(run("check", strict / "train.py"))
    assert UNSURE in by_default
    asked = unwrapped(run("check", strict / "train.py", "-v"))
    assert "What rules are unsure of (estimate below 0.95) was not looked for;" in asked
    shown = run("check", strict / "train.py", "--min-confidence", "0", "--select", "item-every-step")
    assert "Not shown by default: the rule's own estimate 0." in unwrapped(shown)
    document = json.loads(
        run(
            "check", strict, "--min-confidence", "0", "--select", "item-every-step", "--format", "json"
        ).stdout
    )
    assert {tuple(f["missed"]) for f in document["findings"]} == {("stated",)}
    assert all(0 < f["stated"] < 0.95 for f in document["findings"])


def test_a_low_confidence_is_explained_only_when_asked(code: Path) -> None:
    arguments = ("check", code / "train.py", "--min-confidence", "0")
    assert "Not shown by default: confidence" not in unwrapped(run(*arguments))
    assert "Not shown by default: confidence 0." in unwrapped(run(*arguments, "--explain"))


def test_the_settings_name_all_conditions(code: Path) -> None:
    shown = " ".join(run("config", "show", code).stdout.replace("\n# ", " ").split())
    assert (
        "true with a probability of at least 0.85, and the own estimate of its rule must be at least 0.65"
        in shown
    )
    (code / ".ptopt.toml").write_text("min-confidence = 0.0\n")
    assert "true with a probability" not in run("config", "show", code).stdout


def test_each_condition_has_its_words() -> None:
    least = {Condition.CONFIDENCE: 0.43, Condition.RIGHT: 0.85, Condition.STATED: 0.45}
    one = LeftOut({Condition.RIGHT: 1}, least, 3, 4)
    assert left_out_lines(one) == (
        "1 place left out: perhaps not true (probability below 0.85)",
        "--min-confidence 0 shows it, and what rules are unsure of (estimate below 0.45)",
    )
    several = LeftOut({Condition.CONFIDENCE: 2, Condition.RIGHT: 1}, least, 6, 6, limit=5)
    assert left_out_lines(several) == (
        "3 places left out: 2 seldom worth a change (confidence below 0.43), 1 perhaps not true (probability below 0.85)",
        "--min-confidence 0 --budget 50 shows them, and what rules are unsure of (estimate below 0.45)",
    )
    lifted = LeftOut({Condition.CONFIDENCE: 3}, {Condition.CONFIDENCE: 0.305}, 6, 6, limit=5, doubted=2)
    assert left_out_lines(lifted) == (
        "3 places left out: seldom worth a change (confidence below 0.305); rules doubt 2 of them",
        "--min-confidence 0 --budget 6 shows all: 6 findings",
    )


def test_places_that_miss_several_conditions_are_said() -> None:
    """`--explain` names each of them, so that the count must not read as if there were one."""
    least = {Condition.CONFIDENCE: 0.43, Condition.RIGHT: 0.85, Condition.STATED: 0.45}
    some = LeftOut({Condition.CONFIDENCE: 8}, least, 5, 8, also={Condition.RIGHT: 8, Condition.STATED: 3})
    assert left_out_lines(some)[0] == (
        "8 places left out: seldom worth a change (confidence below 0.43) (some miss other conditions, too)"
    )


def test_several_conditions_are_counted(code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code / "train.py").write_text(UNLIKELY)
    weights = json.loads((files("ptopt.ranker") / "weights.json").read_text())
    (code / "weights.json").write_text(json.dumps(weights | {"least_right": 0.999}))
    monkeypatch.setenv(ENVIRONMENT, str(code / "weights.json"))
    default_ranker.cache_clear()
    said = unwrapped(run("check", code / "train.py", "-v"))
    assert (
        "1 place left out: seldom worth a change (confidence below 0.55) (it misses other conditions, too)"
        in said
    )


def test_what_rules_are_not_sure_of_is_not_looked_for(code: Path) -> None:
    (code / "train.py").write_text(UNLIKELY)
    short = unwrapped(run("check", code / "train.py"))
    assert (
        "No performance findings in 1 file. 1 place left out: seldom worth a change (confidence below 0.55). "
        "PTO101 item-every-step --min-confidence 0 shows it, and what rules are unsure of"
    ) in short
    shown = unwrapped(run("check", code / "train.py", "-v"))
    assert "1 place left out: seldom worth a change (confidence below 0.55)." in shown
    assert "--min-confidence 0 shows it, and what rules are unsure of (estimate below 0.65)" in shown
    (code / "train.py").write_text(UNLIKELY.replace("loss.item()", "1"))
    assert UNSURE in unwrapped(run("check", code / "train.py"))
    asked = ("--select", "PTO753")
    assert "PTO753 full-precision-training" in unwrapped(run("check", code / "train.py", *asked))
    assert "not looked for" not in unwrapped(run("check", code / "train.py", "--min-confidence", "0.5"))


def test_the_conditions_add_up_to_the_places() -> None:
    least = {Condition.CONFIDENCE: 0.43, Condition.RIGHT: 0.85, Condition.STATED: 0.45}
    some = LeftOut({Condition.CONFIDENCE: 48, Condition.STATED: 1}, least, 9, 49, also={Condition.STATED: 46})
    total, *parts = map(int, re.findall(r"(?<![.\d])\d+(?![.\d])", left_out_lines(some)[0]))
    assert total == sum(parts) == 49


DEBUGGED = """\
import torch


def train(model, loader, optimizer):
    for x, y in loader:
        loss = model(x, y)
        print(loss)
        loss.backward()
        optimizer.step()
"""


def test_conditions_that_the_settings_lift_are_not_named(
    tmp_path: Path, learned_ranker: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a `min-confidence` below the threshold nothing but the confidence is asked of a comment."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(DEBUGGED)
    usual = unwrapped(run("check", "--min-confidence", "0", "--explain"))
    assert "confidence 0.24, needs 0.55" in usual and "the rule's own estimate 0.35, needs 0.65" in usual
    (tmp_path / ".ptopt.toml").write_text("min-confidence = 0.3\n")
    assert "1 place left out: seldom worth a change (confidence below 0.30)." in unwrapped(run("check", "-v"))
    for asked in (("--min-confidence", "0"), ("--select", "PTO104")):
        shown = unwrapped(run("check", *asked, "--explain"))
        assert "Not shown by default: confidence 0.24, needs 0.30 1 performance" in shown
    (tmp_path / ".ptopt.toml").write_text("min-confidence = 0.1\n")
    assert "Not shown" not in unwrapped(run("check", "--select", "PTO104"))
    stricter = unwrapped(run("check", "--min-confidence", "0.9"))
    assert UNSURE in stricter


def test_what_is_printed_as_a_confidence_is_shown_with_that_confidence(code: Path) -> None:
    """Rounded up, 0.296 would be printed as 0.30 and hidden by `--min-confidence 0.3`."""
    everything = json.loads(run("check", code, "--min-confidence", "0", "--format", "json").stdout)
    below = comment_conditions()[Condition.CONFIDENCE]  # from there on the other conditions count, too
    printed = {finding["confidence"] for finding in everything["findings"] if finding["confidence"] < below}
    assert len(printed) > 1
    for confidence in printed:
        least = f"{confidence:.2f}"
        shown = json.loads(run("check", code, "--min-confidence", least, "--format", "json").stdout)
        assert confidence in {finding["confidence"] for finding in shown["findings"]}, least


_COUNT = re.compile(
    r"(\d+) seldom worth a change \(confidence below 0\.55\), (\d+) doubted by the rule itself"
)


def test_the_count_by_default_is_one_that_a_lower_confidence_confirms(code: Path) -> None:
    """What is counted by default, and what is not looked for then, stand apart below everything."""
    by_default = json.loads(run("check", code, "--format", "json").stdout)
    left = by_default["below_threshold"]
    everything = run("check", code, "--min-confidence", "0")
    said = _COUNT.search(unwrapped(everything))
    assert said is not None and int(said[1]) == left > 0 and int(said[2]) > 0
    total = _places(json.loads(run("check", code, "--min-confidence", "0", "--format", "json").stdout))
    assert int(said[1]) + int(said[2]) == total - _places(by_default)
    between = unwrapped(run("check", code, "--min-confidence", "0.3"))
    out = re.search(
        r"(\d+) places left out: seldom worth a change \(confidence below 0\.30\); rules doubt (\d+) of",
        between,
    )
    assert out is not None
    shown = re.search(r"By default (\d+) of these places are not shown", between)
    assert shown is not None and int(out[1]) + int(shown[1]) == total - _places(by_default)


@pytest.mark.parametrize("extra", [(), ("--statistics",)], ids=["findings", "statistics"])
def test_what_was_not_looked_for_is_said_below_findings_too(
    tmp_path: Path, learned_ranker: None, extra: tuple[str, ...]
) -> None:
    (tmp_path / "train.py").write_text(PILED)
    text = unwrapped(run("check", tmp_path, *extra))
    assert "1 performance finding in 1 file." in text and UNSURE in text


PILED = """\
import torch


def validate(model, loader, criterion):
    losses = []
    model.eval()
    for x, y in loader:
        losses.append(criterion(model(x.cuda()), y.cuda()))
    return torch.stack(losses).mean().item()
"""
