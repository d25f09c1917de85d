"""Bodies over a raw socket, to the real server: what an HTTP client would not send."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator

import pytest
from starlette.requests import Request
from starlette.types import Message

from bot.body import LIMIT, BodyError, BodyReader
from bot.peers import Peers
from tests.bot.conftest import Served, pull_request, sign

HEAD = (
    b"POST /webhooks/github HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nX-GitHub-Event: pull_request\r\n"
    b"X-GitHub-Delivery: 72d3162e-cc78-11e3-81ab-4c9367dc0958\r\n"
)
BODY = json.dumps(pull_request()).encode()


def talk(served: Served, *parts: bytes, then_close: bool = False) -> bytes:
    """What the server answers until it closes the connection, or until the first whole answer."""
    with socket.create_connection(("127.0.0.1", served.port), timeout=20) as connection:
        for part in parts:
            try:
                connection.sendall(part)
            except OSError:  # it does not want more
                break
        if then_close:
            connection.shutdown(socket.SHUT_WR)
        answer = b""
        while not answer.endswith(b"}"):
            try:
                more = connection.recv(65536)
            except ConnectionResetError:
                break
            if not more:
                break
            answer += more
        return answer


def test_a_body_in_small_chunks(served: Served) -> None:
    chunks = (BODY[at : at + 50] for at in range(0, len(BODY), 50))
    sent = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
    head = HEAD + b"X-Hub-Signature-256: " + sign(BODY).encode() + b"\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert talk(served, head + sent).startswith(b"HTTP/1.1 202 ")


def test_a_length_above_the_limit_is_refused_before_the_body(served: Served) -> None:
    answer = talk(served, HEAD + b"Content-Length: %d\r\n\r\n" % (LIMIT + 1))
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"application/problem+json" in answer
    assert b"connection: close" in answer.lower()


@pytest.mark.parametrize("length", [b"-1", b"1e9", b"9" * 400, b"25, 25", b"+5", b"\xb2"])
def test_lengths_that_are_none(served: Served, length: bytes) -> None:
    answer = talk(served, HEAD + b"Content-Length: " + length + b"\r\n\r\n", b"x" * 10)
    assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 413 "))


def test_chunks_above_the_limit(served: Served) -> None:
    counter = 'ptopt_deliveries_rejected_total{reason="too_large"}'
    before = served.metric(counter)
    chunk = b"100000\r\n" + b"x" * 0x100000 + b"\r\n"
    answer = talk(served, HEAD + b"Transfer-Encoding: chunked\r\n\r\n", *[chunk] * 40)
    assert answer.startswith(b"HTTP/1.1 413 ") or answer == b""  # lost where the sender did not stop in time
    assert served.deliveries() == 0
    assert served.metric(counter) == before + 1


def test_a_length_that_is_too_short(served: Served) -> None:
    # What comes after it is another request to HTTP, and a bad one.
    signature = b"X-Hub-Signature-256: " + sign(BODY).encode() + b"\r\n"
    answer = talk(served, HEAD + signature + b"Content-Length: 10\r\n\r\n" + BODY)
    assert answer.startswith(b"HTTP/1.1 4")
    assert served.deliveries() == 0


def test_a_length_that_is_too_long(served: Served) -> None:
    signature = b"X-Hub-Signature-256: " + sign(BODY).encode() + b"\r\n"
    head = HEAD + signature + b"Content-Length: %d\r\n\r\n" % (len(BODY) + 1)
    answer = talk(served, head + BODY, then_close=True)
    assert not answer.startswith(b"HTTP/1.1 2")
    assert served.deliveries() == 0


def test_a_delivery_of_almost_the_limit(served: Served) -> None:
    body = json.dumps(pull_request() | {"filler": "x" * (LIMIT - 5000)}).encode()
    assert served.deliver("pull_request", body).json() == {"outcome": "accepted"}


def request(*chunks: bytes, length: str = "", forever: bool = False) -> Request:
    """A request whose body arrives in these chunks, and then perhaps never ends."""

    def messages() -> Iterator[Message]:
        for chunk in chunks:
            yield {"type": "http.request", "body": chunk, "more_body": True}

    coming = messages()

    async def receive() -> Message:
        for message in coming:
            return message
        if forever:
            await asyncio.Event().wait()
        return {"type": "http.request", "body": b"", "more_body": False}

    headers = [(b"content-length", length.encode())] if length else []
    return Request({"type": "http", "headers": headers}, receive)


def test_chunks_are_put_together() -> None:
    read = asyncio.run(BodyReader(limit=6).read(request(b"", b"ab", b"", b"cd", b"ef")))
    assert read == b"abcdef"
    with pytest.raises(BodyError) as error:
        asyncio.run(BodyReader(limit=5).read(request(b"ab", b"cd", b"ef")))
    assert error.value.status == 413


def test_a_slow_body_is_given_up() -> None:
    with pytest.raises(BodyError) as error:
        asyncio.run(BodyReader(seconds=0.05).read(request(b"ab", forever=True)))
    assert error.value.status == 408


def test_who_is_cancelled_is_not_answered() -> None:
    async def main() -> None:
        task = asyncio.create_task(BodyReader().read(request(forever=True)))
        await asyncio.sleep(0.01)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())


def test_large_bodies_share_a_budget_and_the_slowest_goes() -> None:
    async def main() -> None:
        reader = BodyReader(limit=100, budget=24, small=4, seconds=5.0)
        stopped = asyncio.create_task(reader.read(request(b"x" * 20, forever=True)))
        await asyncio.sleep(0.01)
        assert await reader.read(request(b"x" * 4)) == b"x" * 4  # needs none of it
        assert not stopped.done()
        assert await reader.read(request(b"x" * 8)) == b"x" * 8
        with pytest.raises(BodyError) as error:
            await stopped
        assert error.value.status == 503
        with pytest.raises(BodyError) as error:
            await reader.read(request(b"x" * 25))  # alone it is too much, too
        assert error.value.status == 503
        assert await reader.read(request(b"x" * 24)) == b"x" * 24  # what was held is given back

    asyncio.run(main())


def test_one_peer_has_few_large_bodies_and_a_proxy_many() -> None:
    async def main(proxies: str) -> int:
        reader = BodyReader(limit=100, small=4, per_peer=2, seconds=0.1, peers=Peers(proxies))
        bodies = [request(b"x" * 8, forever=True) for _ in range(5)]
        for body in bodies:
            body.scope["client"] = ("192.0.2.7", 1)
        errors = await asyncio.gather(*map(reader.read, bodies), return_exceptions=True)
        return [error.status for error in errors if isinstance(error, BodyError)].count(503)

    assert asyncio.run(main("")) == 3
    assert asyncio.run(main("198.51.100.1, 192.0.2.0/24")) == 0


@pytest.mark.parametrize(
    ("client", "peer"),
    [
        (None, None),
        (("127.0.0.1", 1), None),
        (("::ffff:127.0.0.1", 1), None),
        (("192.0.2.7", 1), "192.0.2.7"),
        (("::ffff:192.0.2.7", 1), "192.0.2.7"),
        (("2001:db8::1", 1), "2001:db8::/64"),
        (("2001:db8::2", 1), "2001:db8::/64"),
        (("testclient", 1), "testclient"),
    ],
)
def test_whom_limits_count(client: tuple[str, int] | None, peer: str | None) -> None:
    assert Peers("127.0.0.1,::1").of(client) == peer
