"""A general model: what it is shown, and the file that lets it take part."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("urllib3")

from ptopt.model.backends.general import GeneralBackend
from ptopt.model.backends.open import open_model
from ptopt.model.backends.openai import OpenAIBackend
from ptopt.model.calibration import Calibration, CalibrationError, JudgeFit
from ptopt.model.general import Example, General, example, questions
from ptopt.model.interface import ChatPrompt, JudgePrompt, ModelUnavailableError
from ptopt.model.region import JUDGE_TOKENS
from tests.model.backends.fake_server import FakeServer, Reply, chat, serving, word

SLOW = Example("item-every-step", "total += loss.item()\n", True)
FINE = Example("cat-in-loop", "x = torch.cat(parts)\n", False)
PROMPT = JudgePrompt(
    ("Code:\n1 a\nyes or no.\nitem-every-step: it waits. Answer", "\ncat-in-loop: it copies. Answer")
)


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with serving() as fake:
        fake.replies["/v1/chat/completions"] = lambda body: word("Yes", (10, 1), Yes=-0.5, no=-2.0)
        yield fake


def test_each_question_shows_what_its_rule_calls_slow_and_judged_code_before_all() -> None:
    first, second = questions(PROMPT, [SLOW, FINE])
    assert first.system == second.system and first.max_tokens == 1  # a server reads it once
    assert (
        first.system.index("Answer: yes")
        < first.system.index("cat-in-loop")
        < first.system.index("Answer: no")
    )
    assert first.user.startswith("Code:\n1 a\n") and second.user.startswith("Code:\n1 a\n")
    assert "item-every-step is this:\n" in first.user and "and is not this:\n" in first.user
    assert "cat-in-loop is this:\n" in second.user and "item-every-step" not in second.user
    assert first.user.endswith("item-every-step: it waits.\nAnswer yes or no.")
    assert "# !" not in first.user


def test_code_of_others_is_made_harmless_in_an_example() -> None:
    made = example("cat-in-loop", "x = '<|im_end|>'", True)
    assert made is not None and "<|im_end|>" not in made.code
    assert example("cat-in-loop", "x" * 2_000, True) is None


@pytest.mark.parametrize(
    ("reply", "odds"),
    [
        (word("Yes", Yes=-0.5, no=-2.0), 1.5),
        (word("yes", **{"yes": -1.0, " Yes": -1.0, "no": -1.0}), 0.693),  # ways to write one word add up
        (word("No."), -2.0),  # without probabilities the word alone counts
        (word("Well"), 0.0),
    ],
)
def test_the_log_odds_of_a_word(server: FakeServer, reply: Reply, odds: float) -> None:
    server.replies["/v1/chat/completions"] = lambda _: reply
    backend = GeneralBackend(OpenAIBackend(server.url, "m", timeout=5.0), [SLOW])
    assert backend.score([PROMPT, PROMPT]) == [(pytest.approx(odds, abs=1e-3),) * 2] * 2
    backend.close()


def test_tokens_are_counted_as_the_server_says(server: FakeServer) -> None:
    one = OpenAIBackend(server.url, "m", timeout=5.0)
    backend = GeneralBackend(one, [])
    backend.score([PROMPT, PROMPT])
    assert one.usage.snapshot() == (4, 40, 4)
    server.replies["/v1/chat/completions"] = lambda _: chat("{}")
    backend.complete([ChatPrompt("s", "u", None, 50)])
    assert one.usage.snapshot() == (5, 40, 4) and one.usage.uncounted == 1
    backend.close()


def test_a_hosted_server_gets_no_field_of_vllm(server: FakeServer) -> None:
    models = {"data": [{"id": "m", "owned_by": "somebody"}]}
    server.replies["/v1/models"] = lambda _: Reply(body=models)
    backend = GeneralBackend(OpenAIBackend(server.url, "m", timeout=5.0), [])
    backend.score([PROMPT])
    backend.complete([ChatPrompt("s", "u", {"type": "object"}, 50)])
    backend.close()
    known = {"model", "messages", "max_tokens", "temperature", "logprobs", "top_logprobs", "response_format"}
    assert all(known.issuperset(body) for body in server.bodies("/v1/chat/completions"))
    assert not server.bodies("/tokenize")


def profile(**changes: Any) -> str:
    made = General("m", Calibration(JudgeFit(0.0, 0.0, 1.0, floor=0.5)), (SLOW, FINE), {"questions": 40})
    return json.dumps({**json.loads(made.to_json()), **changes})


def test_the_file_opens_the_model_with_its_calibration(server: FakeServer, tmp_path: Path) -> None:
    file = tmp_path / "m.json"
    file.write_text(profile())
    opened = open_model(str(file), server=server.url, timeout=5.0)
    assert opened.calibration == Calibration(JudgeFit(0.0, 0.0, 1.0, floor=0.5))
    assert opened.judge_tokens > JUDGE_TOKENS and opened.chunk is None
    assert opened.backend.score([PROMPT]) == [(1.5, 1.5)]
    assert "Answer: no" in server.bodies("/v1/chat/completions")[0]["messages"][0]["content"]
    assert opened.advisor().record.name == "m, served, without an adapter"
    opened.backend.close()
    with pytest.raises(ModelUnavailableError, match="name the server"):
        open_model(str(file))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "JSONDecodeError"), ("[]", "TypeError"), ("{}", "KeyError"), ("[" * 100_000, "RecursionError"),
        (profile(prompt_version="1"), "calibrate again"), (profile(schema_version="0"), "calibrate again"),
        (profile(calibration={"explain": 3}), "explain must be"), (profile(examples=[3]), "TypeError"),
    ],
    ids=range(8),
)  # fmt: skip
def test_a_file_that_is_none(text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(CalibrationError, match=says):
        General.from_json(text)
    file = tmp_path / "m.json"
    file.write_text(text)
    with pytest.raises(ModelUnavailableError, match=says):
        open_model(str(file), server="http://127.0.0.1:9")


def test_a_large_model_has_time_for_its_answer(
    server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One answer about a whole change takes longer than twenty seconds; the review's own limit holds all the same."""
    seen: list[Any] = []

    class Seen(OpenAIBackend):
        def __init__(self, *args: Any, **settings: Any) -> None:
            seen.append(settings.get("timeout"))
            super().__init__(*args, **settings)

    monkeypatch.setattr("ptopt.model.backends.openai.OpenAIBackend", Seen)
    file = tmp_path / "large.json"
    file.write_text(General("m", Calibration(change_threshold=0.5)).to_json())
    for settings in ({}, {"timeout": 3.0}):
        open_model(str(file), server=server.url, **settings).backend.close()
    assert seen == [120.0, 3.0]
