"""Requests to a model server: what may leave this process, and how long one may take."""

from __future__ import annotations

import gzip
import logging
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("urllib3")
pytest.importorskip("tenacity")

from ptopt.model.backends.http import Http
from ptopt.model.interface import ModelUnavailableError
from tests.model.backends.fake_server import FakeServer, Reply, serving


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with serving() as server:
        yield server


def test_a_key_from_a_file_loses_its_line_end_and_is_not_logged(
    server: FakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.replies["/v1/models"] = lambda _: Reply(200, b"{}")
    http = Http(server.url, api_key="sk-secret\n", timeout=5.0, attempts=1, connections=3)
    with caplog.at_level(logging.DEBUG):
        http.text("GET", "/v1/models")
    http.close()
    assert server.authorization == {"Bearer sk-secret"}
    assert "sk-secret" not in caplog.text


@pytest.mark.parametrize("key", ["sk-se\ncret", "sk-s€cret"])
def test_a_key_that_is_none_is_one_line_without_the_key(key: str) -> None:
    with pytest.raises(ModelUnavailableError, match="no header can carry") as caught:
        Http("http://127.0.0.1:9", api_key=key, timeout=5.0, attempts=1, connections=3)
    assert "sk-" not in str(caught.value)


def test_no_attempt_begins_after_the_time_of_one(server: FakeServer) -> None:
    def slow(_: object) -> Reply:
        time.sleep(0.5)
        return Reply(200, b"{}")

    server.replies["/v1/models"] = slow
    http = Http(server.url, api_key=None, timeout=0.2, attempts=5, connections=1)
    with pytest.raises(ModelUnavailableError, match="longer than"):
        http.text("GET", "/v1/models")
    http.close()
    assert len(server.requests) == 1


def test_connections_are_used_again(server: FakeServer) -> None:
    server.replies["/v1/models"] = lambda _: Reply(200, b"{}", after=0.1)
    http = Http(server.url, api_key=None, timeout=5.0, attempts=1, connections=3)
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda _: http.text("GET", "/v1/models"), range(9)))
    http.close()
    assert len(server.connections) == 3


@pytest.mark.parametrize(
    ("bypass", "paths"), [("", ["http://model.example/v1/models"]), ("model.example", [])]
)
def test_the_proxy_of_the_environment_is_used(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch, bypass: str, paths: list[str]
) -> None:
    server.replies["http://model.example/v1/models"] = lambda _: Reply(200, b"{}")
    monkeypatch.setenv("http_proxy", server.url)
    monkeypatch.setenv("no_proxy", bypass)
    http = Http("http://model.example", api_key=None, timeout=2.0, attempts=1, connections=1)
    if paths:
        assert http.text("GET", "/v1/models") == "{}"
    else:
        with pytest.raises(ModelUnavailableError, match=r"cannot be reached|longer than"):
            http.text("GET", "/v1/models")
    http.close()
    assert [path for path, _ in server.requests] == paths


def test_an_answer_in_an_encoding_that_was_not_offered_is_no_answer(server: FakeServer) -> None:
    bomb = gzip.compress(b" " * 50_000_000)
    server.replies["/v1/models"] = lambda _: Reply(200, bomb, headers={"Content-Encoding": "gzip"})
    http = Http(server.url, api_key=None, timeout=5.0, attempts=1, connections=1)
    with pytest.raises(ModelUnavailableError, match="JSON"):
        http.json("GET", "/v1/models")
    http.close()
