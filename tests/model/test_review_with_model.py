"""A review with a model: what it keeps, drops, lifts and adds, and what is left when it goes away."""

from __future__ import annotations

import dataclasses
import json
import re
from importlib import resources
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner
from markdown_it import MarkdownIt

from ptopt.change import whole_file
from ptopt.cli import main
from ptopt.config import Config
from ptopt.findings import Review, Safety
from ptopt.github import comment, summary
from ptopt.github.pipeline import review_without
from ptopt.model.advisor import Advisor
from ptopt.model.calibration import Calibration, JudgeFit
from ptopt.model.interface import ChatPrompt
from ptopt.project.facts import NO_FACTS
from ptopt.report import FORMATS, render
from ptopt.report.text import MODEL_AWAY
from ptopt.review import review_files
from tests.model.scripted import MODEL_ALONE, Scripted, change_of, review

TRAIN = """\
import torch

torch.set_float32_matmul_precision("high")


def train(model, loader, optimizer, criterion):
    total = 0.0
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item()
        torch.cuda.empty_cache()
    return total
"""
OTHER = """\
import torch


class Net(torch.nn.Module):
    def forward(self, x):
        position = torch.arange(x.size(1)).to(x.device)
        return x + self.embedding(position)


@torch.no_grad()
def predict(model, loader, device):
    out = torch.empty(0, device=device)
    for x in loader:
        out = torch.cat([out, model(x)])
    return out
"""
HEADS = {"other.py": OTHER, "train.py": TRAIN}
JUDGE = Calibration(MODEL_ALONE, measured_on="a test")


def _rules(review: Review) -> list[str]:
    return [f.name for f in review.findings]


def _no_to(*words: str) -> Scripted:
    """Answers no to questions with one of the words."""
    return Scripted(verdict=lambda q: -4.0 if any(w in q.rpartition("\n")[2] for w in words) else 4.0)


RULES = review(HEADS, None)
assert set(_rules(RULES)) == {
    "item-every-step",
    "cache-cleared-every-step",
    "factory-then-move",
    "cat-in-loop",
}


def test_a_yes_to_all_keeps_all_and_their_words() -> None:
    found = review(HEADS, _no_to(), JUDGE)
    assert sorted(_rules(found)) == sorted(_rules(RULES))
    assert {f.confidence for f in found.findings} == {0.98}
    assert {f.message for f in found.findings} == {f.message for f in RULES.findings}
    assert {f.fingerprint for f in found.findings} == {f.fingerprint for f in RULES.findings}
    assert found.model is not None and (found.model.judged, found.model.note) == (4, "")


def test_a_no_drops_the_finding_and_is_told() -> None:
    found = review(HEADS, _no_to("cat-in-loop", "item-every-step"), JUDGE)
    assert set(_rules(found)) == {"cache-cleared-every-step", "factory-then-move"}
    assert [(f.path, f.name, f.confidence) for f in found.dropped] == [
        ("other.py", "cat-in-loop", 0.01), ("train.py", "item-every-step", 0.01),
    ]  # fmt: skip
    data = json.loads(render("json", found))
    assert [d["name"] for d in data["model"]["dropped"]] == ["cat-in-loop", "item-every-step"]


def test_what_the_rule_is_not_sure_of_can_be_lifted() -> None:
    strict = Config.model_validate({"min-confidence": 0.95})
    assert review(HEADS, None, config=strict).findings == ()
    found = review(HEADS, _no_to("cat-in-loop"), JUDGE, config=strict)
    assert len(found.findings) == 3 and found.dropped == ()
    floor = Calibration(JudgeFit(0.0, 0.0, 1.0, floor=0.99))
    assert review(HEADS, _no_to(), floor, config=strict).findings == ()


def test_only_rules_that_it_was_fitted_on_are_asked_about() -> None:
    backend = _no_to("cat-in-loop", "item-every-step")
    some = Calibration(JudgeFit(0.0, 0.0, 1.0, rules=("cat-in-loop",)))
    found = review(HEADS, backend, some)
    assert set(_rules(found)) == set(_rules(RULES)) - {"cat-in-loop"}
    assert found.model is not None and found.model.judged == 1
    assert all("cat-in-loop" in p.pieces[-1].rpartition("\n")[2] for p in backend.judged)


def test_all_files_are_asked_about_at_once() -> None:
    backend = Scripted(verdict=lambda q: 4.0, calls=1)
    found = review({f"m{i}.py": OTHER for i in range(25)}, backend, JUDGE, config=Config(budget=50))
    assert found.model is not None and (found.model.note, found.model.judged) == ("", 50)
    assert len(backend.judged) == 50 == len(found.findings)


def test_a_calibration_that_is_off_changes_nothing_and_asks_nothing() -> None:
    found = review(HEADS, Scripted(calls=0), Calibration.off())
    assert found == RULES  # no record of a model, either: none was asked


# -- away ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("calls", range(4))
def test_a_model_that_goes_away_leaves_the_review_of_the_rules(calls: int) -> None:
    """It judges, advises, judges its own finding, explains; it goes away before each of them, or during none."""
    backend = Scripted(
        verdict=lambda q: -4.0 if "cat-in" in q.rpartition("\n")[2] else 4.0, say=_advice, calls=calls
    )
    found = review(HEADS, backend)
    assert found.model is not None and found.model.note == "no answer within 20 s"
    assert found.model.judged == 0
    _same_but_for_the_record(found, RULES)


def test_a_model_that_goes_away_leaves_what_the_rules_say_of_a_file_that_does_not_parse() -> None:
    heads = HEADS | {"broken.py": "import math\n\n\ndef f(:\n"}
    rules = review(heads, None)
    assert [note.path for note in rules.not_reviewed] == ["broken.py"]
    _same_but_for_the_record(review(heads, Scripted(calls=0)), rules)


def test_with_all_its_calls_it_is_heard() -> None:
    found = review(HEADS, Scripted(verdict=lambda q: 4.0, say=_advice, calls=4))
    assert found.model is not None and found.model.note == ""
    assert [f.origin for f in found.findings].count("model") == 1


def _same_but_for_the_record(found: Review, rules: Review) -> None:
    assert dataclasses.replace(found, model=None) == rules


def test_reports_say_that_the_model_was_away() -> None:
    found = review(HEADS, Scripted(calls=0))
    for name in set(FORMATS) - {"json", "rdjson", "gitlab", "concise", "statistics"}:
        assert MODEL_AWAY in render(name, found), name
        assert MODEL_AWAY not in render(name, RULES), name
    assert MODEL_AWAY in summary.summary(found, (), ())
    assert json.loads(render("json", found))["model"]["note"] == "no answer within 20 s"


def test_without_a_model_the_reports_are_as_they_were() -> None:
    data = json.loads(render("json", RULES))
    assert "model" not in data and all("explanation" not in f for f in data["findings"])
    _valid(RULES)


# -- advise and explain --------------------------------------------------------------------------------------------

GATHER = "import torch\n\n\ndef gather(parts, size, device):\n    out = torch.ones(size)\n    out = out.to(device)\n    return torch.stack([out, *parts])\n"
FASTER = "    out = torch.ones(size, device=device)"


def _advice(prompt: ChatPrompt) -> str:
    """Advises on GATHER (and on `out = ...` of OTHER); two sentences for what is to be explained."""
    if prompt.schema is None:
        return "It waits for @octocat.\nSee [this](https://evil.example) <img src=x>."
    line = re.search(r"^(\d+)\+? +out = torch.ones\(size\)$", prompt.user, re.M)
    if line is None:
        return '{"findings": []}'
    start = int(line[1])
    one = {
        "rule": "factory-then-move",
        "start_line": start,
        "end_line": start + 1,
        "replacement": FASTER,
        "reason": "made on @host",
    }
    return json.dumps({"findings": [one]})


HEADS["gather.py"] = GATHER
RULES = review(HEADS, None)


def test_a_finding_of_its_own_says_so_and_is_never_safe() -> None:
    found = review({"gather.py": GATHER}, Scripted(verdict=lambda q: 2.0, say=_advice))
    (own,) = found.findings
    assert (own.origin, own.name, own.confidence, own.impact) == ("model", "factory-then-move", 0.88, ())
    assert own.explanation == "made on @host"
    assert own.fix is not None and own.fix.safety is Safety.UNSAFE and "a model wrote" in own.fix.assumption
    for name in set(FORMATS) - {"statistics"}:  # which counts, and shows no finding
        assert "Found by a model" in render(name, found), name
        assert "scripted" in render(name, found), name
    _valid(found)


def test_a_finding_of_its_own_below_its_threshold_is_not_shown() -> None:
    high = Calibration(advise_threshold=0.9)
    assert review({"gather.py": GATHER}, Scripted(verdict=lambda q: 2.0, say=_advice), high).findings == ()
    assert review({"gather.py": GATHER}, Scripted(verdict=lambda q: 3.0, say=_advice), high).findings != ()
    assert review({"gather.py": GATHER}, Scripted(verdict=lambda q: 3.0, say=_advice), JUDGE).findings == ()


@pytest.mark.parametrize(
    "config",
    [
        Config(ignore=("factory-then-move",)),
        Config(ignore=("transfer",)),
        Config.model_validate({"min-confidence": 0.9}),
    ],
)
def test_the_settings_hold_for_findings_of_its_own(config: Config) -> None:
    backend = Scripted(verdict=lambda q: 2.0, say=_advice)
    assert review({"gather.py": GATHER}, backend, config=config).findings == ()


def test_a_comment_silences_findings_of_its_own() -> None:
    quiet = GATHER.replace("(device)\n", "(device)  # ptopt: ignore[factory-then-move]\n")
    found = review({"gather.py": quiet}, Scripted(verdict=lambda q: 2.0, say=_advice))
    assert found.findings == () and [f.origin for f in found.suppressed] == ["model"]
    assert found.unused_suppressions == ()


def test_where_a_rule_speaks_or_nothing_changed_it_adds_nothing() -> None:
    one = {
        "rule": "constant-rebuilt-every-step",
        "start_line": 2,
        "end_line": 2,
        "replacement": "    position = x",
        "reason": "",
    }
    say = Scripted(
        verdict=lambda q: 2.0, say=lambda p: json.dumps({"findings": [one]}) if "position" in p.user else ""
    )
    found = review({"other.py": OTHER}, say)
    assert set(_rules(found)) == {"factory-then-move", "cat-in-loop"}
    assert found.model is not None and found.model.invalid == 1  # "" about the other function
    found = review({"other.py": OTHER}, say, config=Config(ignore=("factory-then-move",)))
    assert "constant-rebuilt-every-step" in _rules(found)
    after = GATHER.replace("import torch\n", "import math\nimport torch\n")
    found = review(
        {"gather.py": after}, Scripted(verdict=lambda q: 2.0, say=_advice), bases={"gather.py": GATHER}
    )
    assert found.findings == ()


def test_a_fix_of_its_own_that_leaves_its_hunk_is_for_reading() -> None:
    base = GATHER.replace("torch.ones(size)", "torch.ones(1)")
    change = change_of({"gather.py": GATHER}, {"gather.py": base})
    found = review(
        {"gather.py": GATHER}, Scripted(verdict=lambda q: 2.0, say=_advice), bases={"gather.py": base}
    )
    assert found.findings[0].fix is not None and found.findings[0].fix.safety is Safety.UNSAFE
    assert comment.suggestion(found, change.files[0], found.findings[0]) is not None


def test_what_is_shown_is_explained_and_the_model_is_quoted() -> None:
    found = review(HEADS, Scripted(verdict=lambda q: 4.0, say=_advice), Calibration(MODEL_ALONE, None, True))
    assert {f.explanation for f in found.findings} == {
        "It waits for @octocat. See [this](https://evil.example) <img src=x>."
    }
    change = change_of(HEADS)
    for finding in found.findings:
        draft = comment.draft(found, change, finding)
        assert draft is not None
        tokens = MarkdownIt("commonmark").parse(draft.body.partition("\n\n")[2])
        (quote,) = (t for t in tokens if t.level == 2 and t.content.startswith("The model says"))
        shown = "".join(child.content for child in quote.children or [] if child.type == "text")
        assert {child.type for child in quote.children or []} == {"text"}
        assert shown.endswith("waits for @\u200boctocat. See [this](https:\u200b//evil.example) <img src=x>.")
    assert "> The model says: It waits" in render("markdown", found)
    assert (
        "`It waits for @octocat. See [this]"
        in json.loads(render("rdjson", found))["diagnostics"][0]["message"]
    )
    _valid(found)


def _valid(found: Review) -> None:
    schema = json.loads((resources.files("ptopt.report") / "review.schema.json").read_text("utf-8"))
    jsonschema.validate(json.loads(render("json", found)), schema)


# -- through the pipeline and the command --------------------------------------------------------------------------


def test_what_the_model_dropped_does_not_come_back_as_found_elsewhere() -> None:
    change = change_of(HEADS)
    advisor = Advisor(_no_to("item-every-step"), JUDGE)
    found, elsewhere = review_without(change, Config(), NO_FACTS, (), full=True, advisor=advisor)
    assert "item-every-step" not in _rules(found)
    assert "item-every-step" not in [f.name for f in elsewhere]


def test_whole_files_are_reviewed_with_a_model_too() -> None:
    advisor = Advisor(_no_to("cat-in-loop"), JUDGE)
    files = [whole_file(path, text.encode()) for path, text in HEADS.items()]
    found = review_files(files, config=Config(), facts=NO_FACTS, limit_to_change=False, advisor=advisor)
    assert "cat-in-loop" not in _rules(found) and "item-every-step" in _rules(found)


def test_a_model_that_cannot_be_opened_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    result = CliRunner().invoke(main, ["check", str(tmp_path), "--model", str(tmp_path / "no such model")])
    assert result.exit_code == 2
    assert result.stderr.startswith("ptopt: error: ") and result.stderr.count("\n") == 1


def test_a_model_without_a_calibration_is_told_to_have_no_say(tmp_path: Path) -> None:
    pytest.importorskip("httpx")
    pytest.importorskip("tenacity")
    (tmp_path / "train.py").write_text(TRAIN)
    plain = CliRunner().invoke(main, ["check", str(tmp_path)])
    options = ["--model", "tiny", "--model-server", "http://127.0.0.1:9"]
    result = CliRunner().invoke(main, ["check", str(tmp_path), *options])
    assert (result.exit_code, result.stdout) == (0, plain.stdout)
    assert "has no calibration" in result.stderr and result.stderr.count("\n") == 1


def test_a_server_needs_the_name_of_a_model(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["check", str(tmp_path), "--model-server", "http://127.0.0.1:9"])
    assert result.exit_code == 2 and "--model-server needs --model" in result.stderr


def test_the_repository_cannot_choose_a_model() -> None:
    assert not any("model" in name for name in Config.model_fields)
