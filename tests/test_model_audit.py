"""A model as the second reader of an audit: which of its answers change the tables, and what follows from them."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping
from typing import Any

import pytest

from ptopt.audit.run import audit_of
from ptopt.audit.values import Audit, EntryPoint, Measure, State
from ptopt.config import Config
from ptopt.model.advisor import Advisor
from ptopt.model.calibration import Calibration
from ptopt.model.interface import ChatPrompt, ModelUnavailableError
from ptopt.model_audit import ModelReader
from ptopt.project.facts import read_facts
from tests.model.scripted import Scripted

TRAIN = """\
    import torch
    from torch.utils.data import DataLoader

    def train(model, data):
        loader = DataLoader(data, batch_size=8)
        optimizer = torch.optim.AdamW(model.parameters())
        total = 0.0
        for x in loader:
            loss = model(x.cuda()).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            torch.cuda.empty_cache()
            total += loss.item()
        return total

    if __name__ == "__main__":
        train(torch.nn.Conv2d(3, 8, 3).cuda(), data)
    """
WORKERS = {"state": "on", "because": 'It says "4" in `run.sh`.', "evidence": ["train.py:5", "run.sh:1"]}
FILES = {"train.py": TRAIN, "run.sh": "python train.py --workers 4\n"}
STANDS = {"because": "so", "verdict": "stands"}
CHECKED = {"because": "so", "verdict": "right", "probability": 80}


class Model(Scripted):
    """Agrees with each row but those in `changes`."""

    def __init__(
        self,
        changes: Mapping[str, Any],
        second: object = STANDS,
        finding: object = CHECKED,
        calls: int = 1_000,
    ) -> None:
        super().__init__(say=self._say, calls=calls)
        self.changes, self.second, self.finding = changes, second, finding

    def _say(self, prompt: ChatPrompt) -> str:
        assert prompt.schema is not None
        properties = prompt.schema["properties"]
        if "rows" not in properties:
            return json.dumps(self.finding if "probability" in properties else self.second)
        rows = []
        for key in properties["rows"]["items"]["properties"]["measure"]["enum"]:
            row = {
                "measure": key,
                "because": "",
                "evidence": [],
                "state": "on",
                "agrees": key not in self.changes,
            }
            rows.append({**row, **self.changes.get(key, {})})
        return json.dumps({"rows": rows})


def audited(model: Scripted | None, files: Mapping[str, str] = FILES, most: int = 8) -> Audit:
    data = {path: textwrap.dedent(text).encode() for path, text in files.items()}
    reader = None if model is None else ModelReader(Advisor(model, Calibration.off()), most)
    return audit_of("repository", data, Config(), read_facts(data), reader=reader)


def row(audit: Audit, key: str) -> Measure:
    return next(measure for measure in audit.entries[0].measures if measure.key == key)


def test_a_change_that_stands_is_the_row_and_what_follows_follows_it() -> None:
    before = audited(None)
    assert row(before, "workers").state is State.OFF and "workers" in [gap.key for gap in before.gaps]
    found = audited(Model({"workers": WORKERS}))
    changed = row(found, "workers")
    assert changed.state is State.ON and changed.by_model
    assert changed.detail == "\"It says '4' in `run.sh`.\" (scripted)"
    assert list(map(str, changed.evidence)) == ["train.py:5", "run.sh:1"]
    assert changed.checked is not None and changed.checked.before == row(before, "workers")
    assert "workers" not in [gap.key for gap in found.gaps]
    assert changed.detail in [detail for good in found.good for detail in good.details]
    assert found.model is not None
    assert (found.model.scripts, found.model.changed, found.model.agreed) == (
        1,
        1,
        len(before.entries[0].measures) - 1,
    )
    assert not found.model.invalid and not found.model.note


def test_its_words_name_no_version_in_the_advice() -> None:
    words = {
        "state": "off",
        "because": "`--fused` came with evil 99.9, and is off.",
        "evidence": ["train.py:6"],
    }
    plain, changed = audited(None), audited(Model({"fused_optimizer": words}))
    actions = [
        next(gap.action for gap in audit.gaps if gap.key == "fused_optimizer") for audit in (plain, changed)
    ]
    assert actions[0] == actions[1]


def test_rows_that_it_agrees_with_keep_their_words() -> None:
    found, before = audited(Model({})), audited(None)
    for after, row_before in zip(found.entries[0].measures, before.entries[0].measures, strict=True):
        assert after.checked is not None and after.checked.before is None
        assert (after.state, after.detail, after.evidence) == (
            row_before.state,
            row_before.detail,
            row_before.evidence,
        )
    assert (found.gaps, found.plan) == (before.gaps, before.plan)


@pytest.mark.parametrize(
    "change",
    [{"evidence": ["train.py:99"]}, {"evidence": ["nowhere.py:1"]}, {"evidence": []}, {"state": "yes"}],
)
def test_a_change_without_lines_that_were_shown_is_lost(change: dict[str, Any]) -> None:
    model = Model({"workers": {**WORKERS, **change}})
    found = audited(model)
    assert row(found, "workers") == row(audited(None), "workers")
    assert found.model is not None and (found.model.changed, found.model.invalid) == (0, 1)
    assert all("The measure:" not in chat.user for chat in model.chats)


@pytest.mark.parametrize(
    ("second", "refused", "invalid"),
    [
        ({"because": "no", "verdict": "wrong"}, 1, 0),
        ({"because": "?", "verdict": "unclear"}, 1, 0),
        ("hm", 0, 1),
    ],
)
def test_a_change_that_does_not_stand_is_dropped(second: object, refused: int, invalid: int) -> None:
    found = audited(Model({"workers": WORKERS}, second))
    assert row(found, "workers") == row(audited(None), "workers")
    assert found.model is not None
    assert (found.model.changed, found.model.refused, found.model.invalid) == (0, refused, invalid)


def test_the_second_look_sees_the_lines_of_both_sides() -> None:
    model = Model({"workers": WORKERS})
    audited(model)
    (look,) = [chat.user for chat in model.chats if "The measure: Loader workers" in chat.user]
    assert "   5|     loader = DataLoader(data, batch_size=8)\n" in look
    assert "   1| python train.py --workers 4\n" in look
    assert "The analysis: off: " in look and "The reviewer: on: It says" in look


def test_a_finding_that_it_calls_wrong_is_left_out() -> None:
    before = audited(None)
    names = [weighed.finding.name for weighed in before.findings]
    assert "cache-cleared-every-step" in names
    found = audited(Model({}, finding={**CHECKED, "verdict": "wrong"}))
    assert "cache-cleared-every-step" not in [weighed.finding.name for weighed in found.findings]
    assert found.model is not None and found.model.refuted == found.model.findings >= 1
    for verdict in ("right", "trivial"):
        kept = audited(Model({}, finding={**CHECKED, "verdict": verdict}))
        assert [weighed.finding.name for weighed in kept.findings] == names


def test_a_server_that_fails_leaves_the_static_audit_and_a_note() -> None:
    model = Model({"workers": WORKERS}, calls=0)
    found, before = audited(model), audited(None)
    assert found.entries == before.entries and found.findings == before.findings and found.gaps == before.gaps
    assert found.model is not None and found.model.note == "no answer within 20 s" and not found.model.scripts


def test_a_server_that_fails_at_the_second_look_changes_nothing() -> None:
    found = audited(Model({"workers": WORKERS}, calls=1))
    assert found.entries == audited(None).entries
    assert found.model is not None and found.model.note


def test_only_so_many_scripts_are_asked_about() -> None:
    files = {f"train_{n}.py": TRAIN for n in range(6)}
    model = Model({})
    found = audited(model, files, most=5)
    assert found.model is not None and found.model.scripts == 5
    assert found.model.note == "it read the tables of 5 of 6 scripts"
    assert sum(_is_read(entry) for entry in found.entries) == 5
    assert sum("Its table:" in chat.user for chat in model.chats) == 5


def test_what_was_read_before_a_failure_stays() -> None:
    files = {f"train_{n}.py": TRAIN for n in range(6)}
    found = audited(Model({}, calls=1), files)  # the first four are asked about together
    assert (
        found.model is not None and found.model.scripts == 4 and found.model.note == "no answer within 20 s"
    )
    assert sum(_is_read(entry) for entry in found.entries) == 4


def test_no_script_no_question() -> None:
    model = Model({})
    found = audited(model, {"lib.py": "import torch\n"})
    assert not model.chats and found.model is not None and not found.model.note


@pytest.mark.parametrize(
    ("words", "is_gap"),
    [
        ("`DataParallel` drives all GPUs from one process.", True),
        ("One process, no DistributedDataParallel.", False),
        ("Neither DataParallel nor DDP wraps the model.", False),
    ],
)
def test_a_row_of_one_process_is_a_gap_where_it_is_data_parallel(words: str, is_gap: bool) -> None:
    change = {"state": "off", "because": words, "evidence": ["train.py:5"]}
    found = audited(Model({"distributed": change}))
    assert ("distributed" in [gap.key for gap in found.gaps]) is is_gap


def test_a_finding_does_not_take_back_a_row_that_the_model_changed() -> None:
    change = {"state": "not applicable", "because": "Nothing is evaluated.", "evidence": ["train.py:4"]}
    assert row(audited(Model({"evaluation": change})), "evaluation").state is State.NOT_APPLICABLE


def test_an_unexpected_error_is_an_unavailable_model() -> None:
    def broken(prompt: ChatPrompt) -> str:
        raise RuntimeError("boom")

    found = audited(Scripted(say=broken))
    assert found.model is not None and "RuntimeError" in found.model.note
    with pytest.raises(ModelUnavailableError):
        Advisor(Scripted(say=broken), Calibration.off()).read([_any_sheet()])


def _is_read(entry: EntryPoint) -> bool:
    return any(measure.checked is not None for measure in entry.measures)


def _any_sheet() -> Any:
    from tests.model.test_audit_rows import SHEET

    return SHEET
