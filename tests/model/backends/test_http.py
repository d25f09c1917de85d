"""Requests to a model server: what may leave this process, and how long one may take."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator

import pytest

pytest.importorskip("httpx")
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
    http = Http(server.url, api_key="sk-secret\n", timeout=5.0, attempts=1, connections=1)
    with caplog.at_level(logging.DEBUG):
        http.text("GET", "/v1/models")
    http.close()
    assert server.authorization == {"Bearer sk-secret"}
    assert "sk-secret" not in caplog.text


@pytest.mark.parametrize("key", ["sk-se\ncret", "sk-s€cret"])
def test_a_key_that_is_none_is_one_line_without_the_key(key: str) -> None:
    with pytest.raises(ModelUnavailableError, match="no header can carry") as caught:
        Http("http://127.0.0.1:9", api_key=key, timeout=5.0, attempts=1, connections=1)
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
