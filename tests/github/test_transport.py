"""What is sent how often, where to, and what is made of the answer: over real sockets."""

from __future__ import annotations

import datetime as dt
import ipaddress
import logging
import ssl
import time
from pathlib import Path
from typing import Any

import pytest
from github.Auth import Token

from ptopt.github import transport as module
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
from tests.github.scripted import DROP, GARBAGE, RESET, SILENCE, Say, Script, Scripted

SECRET = "ghs_a-secret-of-ours"
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


def client(server: Scripted, **more: Any) -> Transport:
    more = {"seconds_between_writes": 0, **more}
    return Transport(Endpoint.of(server.url), Token(SECRET), **more)


def in_turn(*answers: Say | str) -> Script:
    left = list(answers)
    return lambda _got: left.pop(0)


def same(data: Any) -> Any:
    return data


@pytest.fixture(autouse=True)
def naps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Every time.sleep in the process, which then does not take its time."""
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    return slept


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
        assert len(server.got) > 2  # so the garbage is what urllib3 repeats any method after


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


def test_a_read_follows_a_rename_on_its_host_with_its_query() -> None:
    def answer(got: Any) -> Say:
        if got.target.startswith("/api/v3/repos/old"):
            return Say(301, {}, {"Location": server.origin + "/api/v3/repositories/1?a=b%20c&page=2"})
        return Say(200, {"found": True})

    with Scripted(answer) as server:
        assert client(server).get("/repos/old/name", same) == {"found": True}
        assert server.targets() == ["/repos/old/name", "/repositories/1?a=b+c&page=2"]


@pytest.mark.parametrize(
    "location",
    [
        "{other}/api/v3/x",
        "//{host}/api/v3/x",
        "{other}",
        "http://[broken/",
        "{here}/elsewhere",
        "{here}/api/v3/../../elsewhere",
        "{here}/api/v3/%2e%2E/elsewhere",
        "https://127.0.0.1/api/v3/x",
        "http://user:pw@127.0.0.1:{port}/api/v3/x",
        "ftp://127.0.0.1/api/v3/x",
        "file:///etc/passwd",
        "",
    ],
)
@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_nothing_is_sent_to_where_a_redirect_leaves_the_api(location: str, status: int) -> None:
    with (
        Scripted(lambda _got: Say()) as other,
        Scripted(lambda _got: Say(status, {}, {"Location": url})) as server,
    ):
        host = other.origin.removeprefix("http://")
        url = location.format(other=other.origin, host=host, here=server.origin, port=server.port)
        with pytest.raises(RejectedError):
            client(server).get("/x", same)
        assert len(server.got) == 1
        assert other.got == []


def test_a_redirect_is_held_to_the_limit_too() -> None:
    answer = Say(301, b"x" * 500_000, {"Location": "/api/v3/x"})
    with Scripted(lambda _got: answer) as server, pytest.raises(TooLargeError):
        client(server).get("/x", same, limit=1000)


def test_redirects_in_a_circle_end() -> None:
    with Scripted(lambda _got: Say(301, {}, {"Location": "/api/v3/x"})) as server:
        with pytest.raises(UnavailableError, match="redirects"):
            client(server).get("/x", same)
        assert len(server.got) == 4


def test_pages_are_followed_by_their_links() -> None:
    def answer(got: Any) -> Say:
        page = int(got.target.rpartition("=")[2])
        links = f'<{server.url}/list?cursor={page + 1}>; rel="next"' if page < 3 else ""
        return Say(200, [page], {"Link": f'<{server.url}/list?cursor=1>; rel="first", {links}'})

    with Scripted(answer) as server:
        assert list(client(server).pages("/list", same, {"zoom": 0})) == [[0], [1], [2], [3]]
        assert server.targets()[:2] == ["/list?per_page=100&zoom=0", "/list?cursor=1"]


@pytest.mark.parametrize(
    "place", ["https://elsewhere.example/api/v3/list", "{other}/api/v3/list", "/api/v3/list"]
)
def test_a_next_page_elsewhere_is_not_asked_for(place: str) -> None:
    with Scripted(lambda _got: Say(200, [])) as other:
        link = {"Link": f'<{place.format(other=other.origin)}>; rel="next"'}
        with Scripted(lambda _got: Say(200, [1], link)) as server:
            with pytest.raises(UnavailableError, match="next page"):
                list(client(server).pages("/list", same))
            assert len(server.got) == 1
        assert other.got == []


def test_pages_without_end_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PAGES", 3)

    def answer(_got: Any) -> Say:
        return Say(200, [1], {"Link": f'<{server.url}/list?page=2>; rel="next"'})

    with Scripted(answer) as server:
        with pytest.raises(TooLargeError):
            list(client(server).pages("/list", same))
        assert len(server.got) == 3


def test_what_is_known_is_asked_for_with_its_etag() -> None:
    etags = iter(['W/"1"', 'W/"1"', 'W/"2"', 'W/"2"'])

    def answer(got: Any) -> Say:
        etag = next(etags)
        if got.headers.get("if-none-match") == etag:
            return Say(304, b"", {"ETag": etag})
        return Say(200, {"etag": etag}, {"ETag": etag})

    with Scripted(answer) as server:
        github = client(server)
        assert [github.get("/x", same)["etag"][3] for _ in range(4)] == ["1", "1", "2", "2"]
        asked = [got.headers.get("if-none-match") for got in server.got]
        assert asked == [None, 'W/"1"', 'W/"1"', 'W/"2"']


def test_the_pages_of_a_list_that_did_not_change_are_known() -> None:
    def answer(got: Any) -> Say:
        more = "page=2" not in got.target
        link = {"Link": f'<{server.url}/list?page=2&per_page=100>; rel="next"'} if more else {}
        if "if-none-match" in got.headers:
            return Say(304)
        return Say(200, [1 if more else 2], {"ETag": '"e"', **link})

    with Scripted(answer) as server:
        github = client(server)
        assert list(github.pages("/list", same)) == [[1], [2]]
        assert list(github.pages("/list", same)) == [[1], [2]]
        assert [("if-none-match" in got.headers) for got in server.got] == [False, False, True, True]


def test_the_cache_keeps_within_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module._Cache, "SIZE", 250)
    monkeypatch.setattr(module._Cache, "LONGEST", 150)

    def answer(got: Any) -> Say:
        if "if-none-match" in got.headers:
            return Say(304)
        return Say(200, "x" * (200 if "long" in got.target else 98), {"ETag": '"e"'})

    with Scripted(answer) as server:
        github = client(server)
        for path in ("/a", "/b", "/long", "/a", "/c", "/a", "/b", "/long"):
            github.get(path, same)
        known = ["if-none-match" in got.headers for got in server.got]
    # /c pushed out /b, which was used before /a; /long is never kept
    assert known == [False, False, False, True, False, True, False, False]


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
    caplog.set_level(logging.DEBUG, "github.Requester")
    with Scripted(in_turn(*answers)) as server:
        github = client(server)
        texts.append(repr(github))
        github.get("/x", same)
        for _ in answers[1:]:
            with pytest.raises(GitHubError) as caught:
                github.write("POST", "/x", {}, lambda data: data["id"]["deeper"])
            texts += [str(caught.value), repr(caught.value), str(caught.getrepr(chain=True, style="short"))]
    assert any(record.name == "github.Requester" for record in caplog.records)
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
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(trusted))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(both)
    return context
