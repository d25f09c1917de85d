"""The client of model servers, against a server on a real socket that does everything wrong in turn."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("urllib3")
pytest.importorskip("tenacity")

from ptopt.model.backends.bounded import Bounded
from ptopt.model.backends.openai import API_KEY, OpenAIBackend
from ptopt.model.interface import TEMPERATURE, ChatPrompt, JudgePrompt, ModelUnavailableError
from tests.model.backends.fake_server import (
    LLAMA_MODELS,
    FakeServer,
    Reply,
    chat,
    completion,
    in_turn,
    serving,
)
from tests.naps import noted

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
JUDGE = JudgePrompt(("code\nQ1 Answer", "\nQ2 Answer"))
CHAT = ChatPrompt("system", "user", SCHEMA, 50)
Open = Callable[..., OpenAIBackend]


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with serving() as fake:
        fake.replies["/v1/completions"] = lambda _: completion(yes=-0.5, no=-2.0)
        fake.replies["/v1/chat/completions"] = lambda _: chat('{"a": 1}')
        yield fake


@pytest.fixture
def backend() -> Iterator[Callable[..., OpenAIBackend]]:
    """`backend(server)`; all are closed in the end."""
    opened: list[OpenAIBackend] = []

    def make(server: FakeServer | str, model: str = "m", **settings: Any) -> OpenAIBackend:
        url = server if isinstance(server, str) else server.url
        opened.append(OpenAIBackend(url, model, **{"timeout": 5.0, **settings}))
        return opened[-1]

    yield make
    for one in opened:
        one.close()


def test_the_marks_of_a_prompt_are_one_request_each_with_all_text_before_it(
    backend: Open, server: FakeServer
) -> None:
    server.replies["/v1/completions"] = lambda body: completion(yes=-1.0, no=-float(len(body["prompt"])))
    assert backend(server).score([JUDGE, JUDGE]) == [(14 - 1, 24 - 1)] * 2
    bodies = server.bodies("/v1/completions")
    assert [body["prompt"] for body in bodies] == [["code\nQ1 Answer", "code\nQ1 Answer\nQ2 Answer"]] * 2
    assert {(b["max_tokens"], b["temperature"], b["logprobs"], b["model"]) for b in bodies} == {
        (1, 0, 20, "m")
    }
    assert all(body["logprob_token_ids"] == [7, 8] for body in bodies)


def test_an_answer_with_a_seed_is_drawn(backend: Open, server: FakeServer) -> None:
    server.replies["/v1/chat/completions"] = lambda _: chat("{}")
    backend(server).complete([CHAT, dataclasses.replace(CHAT, seed=3)])
    bodies = server.bodies("/v1/chat/completions")
    assert sorted((body["temperature"], body.get("seed")) for body in bodies) == [(0, None), (TEMPERATURE, 3)]


def test_answers_to_several_marks_are_told_apart_by_their_number(backend: Open, server: FakeServer) -> None:
    choices = [
        {"index": at, "logprobs": {"top_logprobs": [{" yes": -1.0, " no": -float(at + 2)}]}} for at in (1, 0)
    ]
    single = server.several

    def mixed(make: Any, body: dict[str, Any]) -> Reply:
        several = isinstance(body.get("prompt"), list)
        return Reply(body={"choices": choices}) if several else single(make, body)

    server.several = mixed  # type: ignore[method-assign]
    assert backend(server).score([JUDGE]) == [(1.0, 2.0)]
    del choices[1]
    with pytest.raises(ModelUnavailableError, match="without a choice"):
        backend(server).score([JUDGE])


def test_a_server_that_refuses_several_texts_gets_one_at_a_time(backend: Open, server: FakeServer) -> None:
    single = server.several

    def refuse(make: Any, body: dict[str, Any]) -> Reply:
        return (
            Reply(400, b"one prompt, please") if isinstance(body.get("prompt"), list) else single(make, body)
        )

    server.several = refuse  # type: ignore[method-assign]
    one = backend(server)
    assert one.score([JUDGE]) == [(1.5, 1.5)]
    assert one.score([JUDGE, JUDGE]) == [(1.5, 1.5)] * 2
    assert [isinstance(b["prompt"], list) for b in server.bodies("/v1/completions")] == [True] + [False] * 6


def test_the_marks_of_a_llama_cpp_server_are_requests_of_their_own(backend: Open, server: FakeServer) -> None:
    server.replies["/v1/models"] = lambda _: Reply(body=LLAMA_MODELS)
    assert backend(server).score([JUDGE, JUDGE]) == [(1.5, 1.5)] * 2
    assert [type(body["prompt"]) for body in server.bodies("/v1/completions")] == [str] * 4


@pytest.mark.parametrize(
    ("top", "odds"),
    [
        ({"yes": -0.1, "other": -3.0}, 2.9),  # no is at most as likely as the last that was told
        ({"no": -0.25, "other": -4.25}, -4.0),
        ({"other": -0.1, "another": -9.0}, 0.0),
        ({"yes": -1.0, "no": -1.0}, 0.0),
    ],
)
def test_an_answer_that_is_not_told_is_bounded(
    backend: Open, server: FakeServer, top: dict[str, float], odds: float
) -> None:
    server.replies["/v1/completions"] = lambda _: completion(**top)
    assert backend(server).score([JudgePrompt(("Q Answer",))]) == [(pytest.approx(odds),)]


def test_logprobs_in_the_form_of_llama_server(backend: Open, server: FakeServer) -> None:
    content = [
        {"token": " yes", "top_logprobs": [{"token": " yes", "logprob": -1}, {"token": " no", "logprob": -3}]}
    ]
    server.replies["/v1/models"] = lambda _: Reply(body=LLAMA_MODELS)
    server.replies["/v1/completions"] = lambda _: Reply(
        body={"choices": [{"logprobs": {"content": content}}]}
    )
    assert backend(server).score([JudgePrompt(("Q Answer",))]) == [(2.0,)]
    assert "logprob_token_ids" not in server.bodies("/v1/completions")[0]


def test_a_server_without_tokenize_is_asked_for_the_most_likely(backend: Open, server: FakeServer) -> None:
    del server.replies["/tokenize"]
    assert backend(server).score([JudgePrompt(("Q Answer",))]) == [(1.5,)]
    assert "logprob_token_ids" not in server.bodies("/v1/completions")[0]


def test_answers_come_in_the_order_of_the_prompts_and_not_too_many_at_once(
    backend: Open, server: FakeServer
) -> None:
    def echo(body: dict[str, Any]) -> Reply:
        user = body["messages"][1]["content"]
        reply = chat(user)
        reply.after = 0.05 if int(user) % 3 else 0.1
        return reply

    server.replies["/v1/chat/completions"] = echo
    prompts = [ChatPrompt("", str(n), None, 5) for n in range(12)]
    assert backend(server, concurrency=3).complete(prompts) == [str(n) for n in range(12)]
    assert server.busiest == 3


def test_a_review_keeps_a_server_busy_with_all_marks_at_once(backend: Open, server: FakeServer) -> None:
    def slow(body: dict[str, Any]) -> Reply:
        reply = completion(yes=-1.0, no=-float(body["prompt"].count("Answer")) - 1)
        reply.after = 1.0  # so long that all are on their way also on a busy machine
        return reply

    server.replies["/v1/completions"] = slow
    prompts = [JudgePrompt((f"code {n}\nQ1 Answer", *("\nQ Answer",) * (n % 3))) for n in range(64)]
    scores = Bounded(backend(server), 30, chunk=None).score(prompts)
    assert scores == [tuple(float(mark + 1) for mark in range(n % 3 + 1)) for n in range(64)]
    assert server.busiest == 64  # all prompts, with 127 marks


def test_a_schema_is_asked_for_in_the_dialect_of_the_server(backend: Open, server: FakeServer) -> None:
    assert backend(server).complete([CHAT]) == ['{"a": 1}']
    vllm = server.bodies("/v1/chat/completions")[-1]
    assert vllm["response_format"]["json_schema"]["schema"] == SCHEMA
    assert vllm["response_format"]["type"] == "json_schema"
    assert vllm["chat_template_kwargs"] == {"enable_thinking": False, "date_string": "26 Jul 2024"}
    assert (vllm["max_tokens"], [m["role"] for m in vllm["messages"]]) == (50, ["system", "user"])
    server.replies["/v1/models"] = lambda _: Reply(body=LLAMA_MODELS)
    backend(server).complete([CHAT])
    llama = server.bodies("/v1/chat/completions")[-1]
    assert llama["response_format"] == {"type": "json_object", "schema": SCHEMA}
    assert "chat_template_kwargs" not in llama


def test_line_breaks_in_strings_are_repaired_and_nothing_else(backend: Open, server: FakeServer) -> None:
    broken = ('{"a": "one\ntwo\t"}', '{"a": "cut', "[" * 400)
    server.replies["/v1/chat/completions"] = in_turn(*map(chat, broken))
    texts = [backend(server).complete([CHAT])[0] for _ in broken]
    assert texts == ['{"a": "one\\ntwo\\t"}', *broken[1:]]


def test_a_model_that_is_not_served_is_not_asked(backend: Open, server: FakeServer) -> None:
    server.replies["/v1/models"] = lambda _: Reply(body=LLAMA_MODELS)  # llama.cpp would answer for any name
    with pytest.raises(ModelUnavailableError, match="does not serve 'other'"):
        backend(server, "other").complete([CHAT])
    assert not server.bodies("/v1/chat/completions")


@pytest.mark.parametrize(
    "first",
    [
        Reply(500, {"error": {"message": "oops"}}),
        Reply(503, b""),
        Reply(429, b"", headers={"Retry-After": "0"}),
        Reply(429, b"", headers={"Retry-After": "nonsense"}),
    ],
)
def test_what_may_pass_is_tried_again(backend: Open, server: FakeServer, first: Reply) -> None:
    server.replies["/v1/chat/completions"] = in_turn(first, chat('{"a": 2}'))
    assert backend(server).complete([CHAT]) == ['{"a": 2}']
    assert len(server.bodies("/v1/chat/completions")) == 2


def test_the_server_names_how_long_to_wait(
    backend: Open, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept = noted(monkeypatch)
    busy = [Reply(429, b"", headers={"Retry-After": seconds}) for seconds in ("3", "86400")]
    server.replies["/v1/chat/completions"] = in_turn(*busy, chat("{}"))
    backend(server).complete([CHAT])
    assert slept == [3.0, 10.0]


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (Reply(500, b""), "failed"),
        (
            Reply(400, {"error": {"message": "too\nlong\x1b[31m " + "x" * 500}}),
            r"refused \(400\): too long \[31m x+$",
        ),
        (Reply(400, {"message": "flat"}), "flat"),
        (Reply(404, b"\xff\xfe not json"), "refused"),
        (Reply(200, b"<html>"), "JSON"),
        (Reply(200, b"[" * 100_000), "JSON"),
        (Reply(200, [1]), "object"),
        (Reply(200, {}), "choice"),
        (Reply(200, {"choices": [7]}), "choice"),
        (Reply(200, {"choices": [{"message": {"content": None}}]}), "without a text"),
        (Reply(200, {"choices": [{"message": {"content": "x" * 10_000}}]}), "more than was requested"),
        (Reply(200, b" " * 100_000_000), "too large"),
        (Reply(307, b"", headers={"Location": "http://169.254.169.254/"}), "refused"),
    ],
    ids=range(13),
)
def test_every_bad_answer_to_a_chat_is_one_line(
    backend: Open, server: FakeServer, reply: Reply, says: str
) -> None:
    server.replies["/v1/chat/completions"] = lambda _: reply
    with pytest.raises(ModelUnavailableError, match=says) as caught:
        backend(server, attempts=2).complete([CHAT])
    assert (
        "\n" not in str(caught.value) and len(str(caught.value)) < 300 and server.url not in str(caught.value)
    )


@pytest.mark.parametrize(
    "logprobs",
    [
        None,
        {},
        {"top_logprobs": []},
        {"top_logprobs": [None]},
        {"top_logprobs": [{}]},
        {"top_logprobs": [{" yes": "1"}]},
        {"content": [{"top_logprobs": [{"token": 3, "logprob": -1}]}]},
        {"content": 5},
    ],
)
def test_log_probabilities_that_are_none(backend: Open, server: FakeServer, logprobs: Any) -> None:
    server.replies["/v1/completions"] = lambda _: Reply(body={"choices": [{"logprobs": logprobs}]})
    with pytest.raises(ModelUnavailableError, match="log-probabilities"):
        backend(server).score([JUDGE])


def test_numbers_that_are_not_finite_are_no_answer(backend: Open, server: FakeServer) -> None:
    text = b'{"choices": [{"logprobs": {"top_logprobs": [{" yes": NaN, " no": -Infinity, "x": -2}]}}]}'
    server.replies["/v1/completions"] = lambda _: Reply(200, text)
    assert backend(server).score([JudgePrompt(("Q Answer",))]) == [(0.0,)]


def test_a_server_that_hangs_or_is_not_there(backend: Open, server: FakeServer) -> None:
    server.replies["/v1/chat/completions"] = lambda _: Reply(after=60)
    with pytest.raises(ModelUnavailableError, match=r"took longer than 0\.2 s"):
        backend(server, timeout=0.2, attempts=1).complete([CHAT])
    with pytest.raises(ModelUnavailableError, match="cannot be reached"):
        backend("http://127.0.0.1:9", attempts=2).complete([CHAT])
    with pytest.raises(ModelUnavailableError, match="http"):
        backend("file:///etc/passwd")


def test_one_failure_ends_the_call_and_the_next_call_works(backend: Open, server: FakeServer) -> None:
    one = backend(server, concurrency=1, attempts=1)
    server.replies["/v1/chat/completions"] = in_turn(Reply(500, b""), chat("ok"))
    with pytest.raises(ModelUnavailableError):
        one.complete([CHAT] * 50)
    assert len(server.bodies("/v1/chat/completions")) < 50
    assert one.complete([CHAT]) == ["ok"]
    one.close()
    with pytest.raises(ModelUnavailableError, match="closed"):
        one.complete([CHAT])


def test_the_key_is_sent_and_never_logged(
    backend: Open, server: FakeServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(API_KEY, "sk-secret")
    server.replies["/v1/chat/completions"] = lambda _: Reply(500, b"")
    with caplog.at_level(logging.DEBUG), pytest.raises(ModelUnavailableError) as caught:
        backend(server, attempts=2).complete([CHAT])
    assert server.authorization == {"Bearer sk-secret"}
    assert "sk-secret" not in caplog.text + str(caught.value)


def test_adapters_are_loaded_once_and_unloaded(backend: Open, server: FakeServer) -> None:
    one = backend(server)
    server.replies["/v1/load_lora_adapter"] = lambda _: Reply(200, b"Success")
    server.replies["/v1/unload_lora_adapter"] = lambda _: Reply(200, b"Success")
    one.load_adapter("m", "/folder")
    assert server.bodies("/v1/load_lora_adapter") == [{"lora_name": "m", "lora_path": "/folder"}]
    one.unload_adapter("m")
    duplicate = Reply(400, {"error": {"message": "has already been loaded"}})
    server.replies["/v1/load_lora_adapter"] = lambda _: duplicate
    one.load_adapter("m", "/folder")
    with pytest.raises(ModelUnavailableError, match="cannot load the adapter other"):
        one.load_adapter("other", "/folder")
    server.replies["/v1/unload_lora_adapter"] = lambda _: Reply(404, {"error": {"message": "not found"}})
    one.unload_adapter("other")
    with pytest.raises(ModelUnavailableError, match="cannot unload"):
        one.unload_adapter("m")
