"""What is sent how often, where to, and what is made of the answer: over real sockets."""

from __future__ import annotations

import datetime as dt
import ipaddress
import logging
import ssl
from pathlib import Path
from typing import Any

import pytest

from ptopt.github.endpoint import Endpoint
from ptopt.github.errors import (
    AmbiguousError,
    ForbiddenError,
    GitHubError,
    NotFoundError,
    RateLimitedError,
    RejectedError,
    TooLargeError,
    UnavailableError,
)
from ptopt.github.transport import Transport
from tests.github.scripted import DROP, GARBAGE, RESET, SECRET, SILENCE, Say, Scripted, client, in_turn, same
from tests.naps import noted

LIMITED = {
    "message": "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."
}
ABUSE = {
    "message": "Validation Failed",
    "errors": [{"resource": "IssueComment", "code": "abuse", "field": "data"}],
}
TOO_FAST = {
    "message": "Validation Failed",
    "errors": [{"code": "unprocessable", "field": "data", "message": "was submitted too quickly"}],
}


@pytest.fixture(autouse=True)
def naps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Every time.sleep of the test, which then does not take its time."""
    return noted(monkeypatch)


BROKEN: list[tuple[Say | str, type[GitHubError]]] = [
    (Say(500), AmbiguousError),
    (Say(502, b"<html>502 Bad Gateway</html>"), AmbiguousError),
    (Say(503, {"message": "later"}, {"Retry-After": "1"}), AmbiguousError),
    (Say(504), AmbiguousError),
    (DROP, AmbiguousError),
    (RESET, AmbiguousError),
    (Say(201, {"id": 1, "body": "x" * 100}, cut=20), AmbiguousError),
    (Say(201, b"{never JSON"), AmbiguousError),
    (Say(201, []), AmbiguousError),
    (Say(418), RejectedError),
    (Say(429, LIMITED, {"Retry-After": "7"}), RateLimitedError),
    (Say(403, LIMITED, {"Retry-After": "7"}), RateLimitedError),
    (Say(403, LIMITED), RateLimitedError),
    (Say(422, ABUSE), RateLimitedError),
    (Say(422, TOO_FAST), RateLimitedError),
    (Say(301, {"message": "Moved Permanently"}, {"Location": "/api/v3/repositories/1"}), RejectedError),
    (Say(307, {"message": "Moved"}, {"Location": "/api/v3/repositories/1"}), RejectedError),
    (Say(401, {"message": "Bad credentials"}), ForbiddenError),
]


@pytest.mark.parametrize("verb", ["POST", "PATCH", "PUT", "DELETE"])
@pytest.mark.parametrize(("answer", "error"), BROKEN)
def test_a_write_is_sent_once(
    verb: str, answer: Say | str, error: type[GitHubError], naps: list[float]
) -> None:
    with Scripted(lambda _got: answer) as server:
        with pytest.raises(error) as caught:
            client(server).write(verb, "/x", {"body": "words"}, lambda data: data["id"])
        assert type(caught.value) is error
        assert len(server.got) == 1
    assert not [nap for nap in naps if nap > 0]


def test_a_write_is_sent_once_when_the_kept_connection_is_closed_on_it() -> None:
    with Scripted(in_turn(Say(201, {"id": 1}), DROP, Say(201, {"id": 2}))) as server:
        github = client(server)
        assert github.write("POST", "/x", {}, same) == {"id": 1}
        with pytest.raises(AmbiguousError):
            github.write("POST", "/x", {}, same)
        assert len(server.got) == 2
        assert github.write("POST", "/x", {}, same) == {"id": 2}


def test_a_write_is_sent_once_when_tls_breaks_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = tls(tmp_path, monkeypatch)
    with Scripted(lambda _got: GARBAGE, tls=context) as server:
        with pytest.raises(AmbiguousError):
            client(server).write("POST", "/x", {}, same)
        assert len(server.got) == 1
        with pytest.raises(UnavailableError):
            client(server).get("/x", same)
        assert len(server.got) > 2


def test_an_answer_that_does_not_come() -> None:
    with Scripted(lambda _got: SILENCE) as server:
        github = client(server, timeout=(5, 0.1))
        with pytest.raises(AmbiguousError, match="no answer"):
            github.write("POST", "/x", {}, same)
        assert len(server.got) == 1
        with pytest.raises(UnavailableError, match="no answer"):
            github.get("/x", same)


def test_a_write_that_was_surely_not_sent_is_not_ambiguous() -> None:
    with Scripted(in_turn()) as server:
        github = client(server)
    with pytest.raises(UnavailableError):
        github.write("POST", "/x", {}, same)


@pytest.mark.parametrize("bad", [Say(500), Say(502), Say(503, {}, {"Retry-After": "900"}), DROP, RESET])
def test_a_read_is_repeated_twice(bad: Say | str, naps: list[float]) -> None:
    with Scripted(in_turn(bad, bad, Say(200, {"a": 1}))) as server:
        assert client(server).get("/x", same) == {"a": 1}
        assert len(server.got) == 3
    with Scripted(lambda _got: bad) as server:
        with pytest.raises(UnavailableError):
            client(server).get("/x", same)
        assert len(server.got) == 3
    assert max(naps) < 1


@pytest.mark.parametrize(
    ("answer", "seconds"),
    [
        (Say(429, LIMITED, {"Retry-After": "7"}), 7),
        (Say(403, LIMITED, {"Retry-After": "7"}), 7),
        (Say(403, {"message": "whatever"}, {"Retry-After": "7"}), 7),
        (Say(403, LIMITED), 60),
        (Say(429, b"", {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}), 60),
        (Say(429, b"", {"Retry-After": "1e99"}), 3600),
        (Say(429, b"", {"Retry-After": "nan"}), 60),
        (Say(429, b"", {"Retry-After": "-5"}), 1),
        (
            Say(
                403,
                {"message": "API rate limit exceeded for installation ID 1."},
                {
                    "X-RateLimit-Remaining": "0",
                    "X-RateLimit-Reset": "1445412600",
                    "Date": "Wed, 21 Oct 2015 07:28:00 GMT",
                },
            ),
            121,
        ),
    ],
)
def test_a_limit_is_told_and_not_slept(answer: Say, seconds: float, naps: list[float]) -> None:
    with Scripted(lambda _got: answer) as server:
        with pytest.raises(RateLimitedError) as caught:
            client(server).get("/x", same)
        assert caught.value.retry_after == seconds
        assert len(server.got) == 1
    assert naps == []


@pytest.mark.parametrize(
    ("status", "data", "error"),
    [
        (400, {"message": "Problems parsing JSON"}, RejectedError),
        (403, {"message": "Resource not accessible by integration"}, ForbiddenError),
        (404, {"message": "Not Found"}, NotFoundError),
        (406, {"errors": [{"code": "too_large"}]}, TooLargeError),
        (403, {"errors": [{"resource": "Blob", "code": "too_large", "field": "data"}]}, TooLargeError),
        (409, {"message": "Conflict"}, RejectedError),
        (410, {}, NotFoundError),
        (
            422,
            {"message": "Unprocessable Entity", "errors": ["line must be part of the diff"]},
            RejectedError,
        ),
        (451, {"message": "Unavailable due to DMCA takedown"}, ForbiddenError),
        (418, ["not", "an", "object"], RejectedError),
        (304, {}, UnavailableError),
        (202, {}, UnavailableError),
        (200, [1], UnavailableError),
    ],
)
def test_answers_of_a_read(status: int, data: Any, error: type[GitHubError], naps: list[float]) -> None:
    with Scripted(lambda _got: Say(status, data)) as server:
        with pytest.raises(error) as caught:
            client(server).get("/x", lambda data: data["a"])
        assert type(caught.value) is error
        assert caught.value.status == status
        assert len(server.got) == 1
    assert naps == []


def test_reasons_of_a_refusal_are_kept_on_one_line() -> None:
    errors = [
        "first\nline",
        {"resource": "Review", "field": "line", "code": "invalid"},
        {"message": "x" * 900},
    ]
    answer = Say(422, {"message": "Validation\nFailed", "errors": errors})
    with Scripted(lambda _got: answer) as server, pytest.raises(RejectedError) as caught:
        client(server).write("POST", "/x", {}, same)
    assert caught.value.errors == ("first line", "Review.line: invalid", "x" * 300)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("POST /x: 422 Validation Failed; first line;")


def test_an_answer_above_the_limit_is_not_read_to_its_end() -> None:
    with Scripted(lambda _got: Say(200, b"x" * 500_000)) as server, pytest.raises(TooLargeError):
        client(server).get("/x", same, limit=1000)


def test_who_sends_and_what_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login somebody password else\n")
    monkeypatch.setenv("NETRC", str(netrc))
    with Scripted(lambda _got: Say(201, {})) as server:
        client(server).write("POST", "/x", {"a": "ü"}, same)
        headers = server.got[0].headers
    assert headers["authorization"] == f"token {SECRET}"
    assert headers["user-agent"].startswith("ptopt/")
    assert headers["x-github-api-version"] == "2022-11-28"
    assert headers["accept"] == "application/vnd.github+json"
    assert headers["content-type"] == "application/json"


def test_writes_pause_between_each_other_and_reads_do_not(naps: list[float]) -> None:
    with Scripted(lambda _got: Say(200, {})) as server:
        github = client(server, seconds_between_writes=5.0)
        for _ in range(2):
            github.get("/x", same)
            github.graphql({"query": "{ viewer { login } }"}, repeatable=True)
        assert naps == []
        github.write("POST", "/x", {}, same)
        assert naps == []
        github.write("PATCH", "/x", {}, same)
        assert len(naps) == 1 and 4 < naps[0] <= 5


def test_no_token_in_logs_errors_or_reprs(caplog: pytest.LogCaptureFixture) -> None:
    answers: list[Say | str] = [
        Say(200, {"token": SECRET}, {"Set-Cookie": SECRET}),
        Say(403, {"message": "no"}),
        DROP,
        Say(201, {"token": SECRET}, cut=5),
        Say(201, b"{" + SECRET.encode()),
        Say(201, {"id": SECRET}),
    ]
    texts = []
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, "httpx")
    with Scripted(in_turn(*answers)) as server:
        github = client(server)
        texts.append(repr(github))
        github.get("/x", same)
        for _ in answers[1:]:
            with pytest.raises(GitHubError) as caught:
                github.write("POST", "/x", {}, lambda data: data["id"]["deeper"])
            texts += [str(caught.value), repr(caught.value), str(caught.getrepr(chain=True, style="short"))]
    assert any(record.name == "httpx" for record in caplog.records)
    assert SECRET not in "".join(texts)
    assert SECRET not in caplog.text


def tls(folder: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """A server's context with a certificate that our side trusts."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = dt.datetime.now(dt.timezone.utc)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    both = folder / "both.pem"
    both.write_bytes(pem + private)
    trusted = folder / "trusted.pem"
    trusted.write_bytes(pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(both)
    return context


def test_authorities_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are a quarter of a megabyte, and a worker makes a client for each installation."""
    Transport(Endpoint.of("https://api.github.com"), None)
    monkeypatch.setattr(ssl, "create_default_context", None)
    Transport(Endpoint.of("https://api.github.com"), None)
