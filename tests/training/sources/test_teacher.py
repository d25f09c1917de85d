from __future__ import annotations

import json
from pathlib import Path

import pytest
from starlette.responses import JSONResponse, Response

from ptopt.rules import find_rule
from tests.training.sources.fakes import FAST, SLOW, FakeTeacher
from training.sources.base import QuotaError
from training.sources.store import Store, pull
from training.sources.teacher import Price, Teacher, reports

LOOK_ALIKE = """\
def evaluate(model, loader):
    model.eval()
    correct = torch.zeros(())
    with torch.inference_mode():
        for x, y in loader:
            correct += (model(x).argmax(1) == y).sum()
    return correct.item() / len(loader)
"""
GOOD = {"slow": SLOW, "fast": FAST, "look_alike": LOOK_ALIKE}


@pytest.fixture
def source(client_for):
    def make(server, **options):
        values = {"only": ["item-every-step"], "per_rule": 3, "model": "big/model-1", **options}
        return Teacher(client_for(server, interval=0), base_url=f"{server.url}/v1", **values)

    return make


def answers(*values: object) -> FakeTeacher:
    return FakeTeacher([v if isinstance(v, str) else json.dumps(v) for v in values])


def test_what_the_rule_agrees_with_is_kept(serving, source):
    server = serving(answers(GOOD))
    pages = list(source(server, per_rule=1).pull(None, 10))
    (document,) = [d for page in pages for d in page.documents]
    assert [(b.role, b.pair, b.rules) for b in document.blocks] == [
        ("slow", 1, ("item-every-step",)),
        ("fast", 1, ()),
        ("tuned", 0, ("item-every-step",)),
    ]
    assert (document.licence, document.train) == ("LicenseRef-output-of-big-model-1", False)
    request = json.loads(server.received[0].body)
    schema = request["response_format"]["json_schema"]
    assert schema["strict"] is True and set(schema["schema"]["required"]) == {"slow", "fast", "look_alike"}
    assert schema["schema"]["additionalProperties"] is False
    rule = find_rule("item-every-step")
    assert rule is not None and rule.summary() in request["messages"][1]["content"]


def test_its_licence_is_the_operator_s_to_tell(serving, source):
    for options in ({"licence": "Apache-2.0"}, {"opted_in": ["LicenseRef-output-of-big-model-1"]}):
        server = serving(answers(GOOD))
        (page,) = source(server, per_rule=1, **options).pull(None, 10)
        assert page.documents[0].train


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ({**GOOD, "slow": FAST + "\n", "fast": FAST}, "same"),
        ({**GOOD, "slow": LOOK_ALIKE}, "silent on `slow`"),
        ({**GOOD, "fast": SLOW + "\n\nx = 1"}, "speaks on `fast`"),
        ({**GOOD, "look_alike": SLOW + "\n\nx = 1"}, "speaks on `look_alike`"),
        ({**GOOD, "slow": SLOW + "\n    def (("}, "does not parse"),
        ({**GOOD, "extra": 1}, "form"),
        ({"slow": SLOW}, "form"),
        ("```json\n{}\n```", "form"),
        ("", "form"),
        ("[" * 50_000, "form"),
        ({**GOOD, "slow": "x" * 9_000}, "form"),
    ],
)
def test_what_fails_is_dropped_with_the_reason(serving, source, content, why):
    server = serving(answers(content, GOOD))
    first, second, *_ = source(server).pull(None, 1)
    assert first.documents == () and why in first.notes[0]
    assert len(second.documents) == 1


@pytest.mark.parametrize(
    "reply",
    [
        {"choices": []},
        {"choices": [{"message": None}]},
        [],
        {"choices": [{"message": {"content": json.dumps(GOOD)}, "finish_reason": "length"}]},
        {"choices": [{"message": {"content": None}}]},
    ],
)
def test_replies_that_are_none(serving, source, reply):
    server = serving(answers(GOOD))
    server.faults = [("/v1", JSONResponse(reply))]
    first = next(iter(source(server).pull(None, 1)))
    assert first.documents == () and first.notes


def test_the_cost_cap_holds_over_all_pulls(serving, source, tmp_path: Path):
    price = Price(prompt=2.0, completion=10.0, most=0.06)  # an answer costs 0.007, at worst about 0.04
    server = serving(FakeTeacher([json.dumps(GOOD)], tokens=(1000, 500)))
    with Store(tmp_path / "s.sqlite") as store:
        for _ in range(3):
            stopped = pull(source(server, price=price, per_rule=50), store, 100).stopped
            assert "are spent" in stopped
        assert len(server.received) == 3
        cursor = store.cursor("teacher")
        assert cursor is not None and cursor["cost"] == pytest.approx(0.021)


def test_an_answer_that_does_not_tell_its_price_costs_the_most(serving, source):
    server = serving(answers(GOOD))
    server.faults = [("/v1", JSONResponse({"choices": []}))]
    page = next(iter(source(server, price=Price(0.0, 10.0, 1.0)).pull(None, 1)))
    assert page.cursor["cost"] == pytest.approx(4_000 * 10 / 1e6)


def test_a_cap_of_nothing_asks_nothing(serving, source):
    server = serving(answers(GOOD))
    with pytest.raises(QuotaError, match=r"0\.0000 of 0"):
        list(source(server, price=Price(completion=1.0)).pull(None, 1))
    assert server.received == []


def test_each_prompt_is_asked_once(serving, source, tmp_path: Path):
    server = serving(answers(*[{**GOOD, "slow": SLOW + f"\n\nx = {n}\n"} for n in range(9)]))
    server.faults = []
    with Store(tmp_path / "s.sqlite") as store:
        assert pull(source(server), store, 2).documents == 2
        assert pull(source(server), store, 9).documents == 1
        assert pull(source(server), store, 9).documents == 0
    seeds = [json.loads(r.body)["seed"] for r in server.received]
    assert seeds == [0, 1, 2] and len({r.body for r in server.received}) == 3


def test_a_server_that_is_busy_is_asked_again(serving, source, clock):
    server = serving(answers(GOOD))
    server.faults = [("/v1", Response(status_code=429, headers={"retry-after": "12"}))]
    assert len(next(iter(source(server).pull(None, 1))).documents) == 1
    assert 12 in clock.slept


def test_says():
    rule = find_rule("item-every-step")
    assert rule is not None
    assert reports(rule(), SLOW) and not reports(rule(), FAST)
