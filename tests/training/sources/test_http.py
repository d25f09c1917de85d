from __future__ import annotations

import gzip
import sqlite3
from email.utils import formatdate
from pathlib import Path

import pytest
from starlette.responses import RedirectResponse, Response

from tests.training.sources.fakes import FakeClock, FakeFiles, FakeServer
from training.sources.base import QuotaError, SourceError, UnusableError
from training.sources.http import USER_AGENT, HttpClient
from training.sources.throttle import RequestPolicy

PAGE = {"/a": (b"hello", "text/plain"), "/b": (b"there", "text/plain")}


def test_it_names_itself_and_waits_between_requests(serving, client_for, clock):
    server = serving(FakeFiles(PAGE))
    client = client_for(server, interval=2.5)
    assert client.get(f"{server.url}/a").body == b"hello"
    assert client.get(f"{server.url}/b").body == b"there"
    assert clock.slept == [2.5]
    assert server.received[0].headers["user-agent"] == USER_AGENT


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_passing_failure_is_asked_again_later(serving, client_for, clock, status):
    server = serving(FakeFiles(PAGE))
    server.faults = [("/a", Response(status_code=status)), ("/a", Response(status_code=status))]
    assert client_for(server).get(f"{server.url}/a").body == b"hello"
    assert len(server.received) == 3
    assert sum(clock.slept) >= 2 + 4


def test_retry_after_as_seconds_and_as_a_date(serving, client_for, clock):
    server = serving(FakeFiles(PAGE))
    server.faults = [
        ("/a", Response(status_code=429, headers={"retry-after": "37"})),
        (
            "/a",
            Response(status_code=503, headers={"retry-after": formatdate(clock.now() + 137, usegmt=True)}),
        ),
    ]
    assert client_for(server).get(f"{server.url}/a").body == b"hello"
    assert 37 in clock.slept
    assert clock.now() >= 1_800_000_000 + 137


def test_who_asks_for_too_long_a_wait_ends_the_pull(serving, client_for, clock):
    server = serving(FakeFiles(PAGE))
    server.faults = [("/a", Response(status_code=429, headers={"retry-after": "86400"}))]
    with pytest.raises(QuotaError, match="wait 86400 s"):
        client_for(server).get(f"{server.url}/a")
    assert clock.slept == []


def test_the_reset_of_a_spent_rate_limit_is_waited_for(serving, client_for, clock):
    server = serving(FakeFiles(PAGE))
    reset = str(int(clock.now()) + 90)
    server.faults = [
        ("/a", Response(status_code=403, headers={"x-ratelimit-remaining": "0", "x-ratelimit-reset": reset}))
    ]
    assert client_for(server).get(f"{server.url}/a").body == b"hello"
    assert max(clock.slept) == 90


def test_it_gives_up_in_the_end(serving, client_for):
    server = serving(FakeFiles(PAGE))
    server.faults = [("/a", Response(status_code=500)) for _ in range(9)]
    with pytest.raises(SourceError, match="status 500, 3 times"):
        client_for(server, attempts=3).get(f"{server.url}/a")
    assert len(server.received) == 3


def test_no_server_at_all(client_for, clock):
    client = HttpClient(["127.0.0.1:1"], clock=clock)
    with client, pytest.raises(SourceError, match="no answer"):
        client.get("http://127.0.0.1:1/a")


def test_a_forbidden_or_missing_page_is_not_asked_again(serving, client_for):
    server = serving(FakeFiles(PAGE))
    with pytest.raises(UnusableError, match="status 404") as caught:
        client_for(server).get(f"{server.url}/none")
    assert caught.value.status == 404
    assert len(server.received) == 1


def test_refused_credentials_end_the_pull(serving, client_for):
    server = serving(FakeFiles(PAGE))
    server.faults = [("/a", Response(status_code=401))]
    with pytest.raises(SourceError, match="credentials"):
        client_for(server).get(f"{server.url}/a")


def test_a_redirect_stays_on_its_host(serving, client_for):
    server, other = serving(FakeFiles(PAGE)), serving(FakeFiles(PAGE))
    server.faults = [("/x", RedirectResponse("/a", 302))]
    client = client_for(server)
    assert client.get(f"{server.url}/x").body == b"hello"
    server.faults = [("/x", RedirectResponse(f"{other.url}/a", 302))]
    with pytest.raises(UnusableError, match="another host"):
        client.get(f"{server.url}/x")
    assert other.received == []


def test_a_redirect_without_end(serving, client_for):
    server = serving(FakeFiles(PAGE))
    server.faults = [("/x", RedirectResponse("/x", 302)) for _ in range(20)]
    with pytest.raises(UnusableError, match="redirects too often"):
        client_for(server).get(f"{server.url}/x")


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:9/a", "file:///etc/passwd", "http://user:pw@{host}/a", "ftp://{host}/a"]
)
def test_other_hosts_and_schemes_are_never_asked(serving, client_for, url):
    server = serving(FakeFiles(PAGE))
    with pytest.raises(UnusableError, match="not one of the hosts"):
        client_for(server).get(url.format(host=server.host))
    assert server.received == []


def test_a_body_announced_too_large_is_not_read(serving, client_for):
    server = serving(FakeFiles({"/big": (b"x" * 200_000, "text/plain")}))
    with pytest.raises(UnusableError, match="larger than"):
        client_for(server, max_bytes=100_000).get(f"{server.url}/big")


def test_a_compressed_bomb_stops_where_it_grows_too_large(serving, client_for):
    bomb = gzip.compress(b"\0" * 50_000_000)
    server = serving(FakeFiles(PAGE))
    server.faults = [("/a", Response(bomb, headers={"content-encoding": "gzip"}))]
    assert len(bomb) < 100_000
    with pytest.raises(UnusableError, match="larger than"):
        client_for(server, max_bytes=100_000).get(f"{server.url}/a")


def test_a_body_that_is_not_what_its_encoding_says(serving, client_for):
    server = serving(FakeFiles(PAGE))
    server.faults = [("/a", Response(b"not gzip", headers={"content-encoding": "gzip"}))]
    with pytest.raises(UnusableError, match="does not decode"):
        client_for(server).get(f"{server.url}/a")


@pytest.mark.parametrize("body", [b"<html>", b"{", b"", b"[" * 100_000, b"\xff\xfe"])
def test_json_that_is_none(serving, client_for, body):
    server = serving(FakeFiles({"/a": (body, "application/json")}))
    with pytest.raises(UnusableError, match="not JSON"):
        client_for(server).get(f"{server.url}/a").json()


def test_no_more_requests_than_allowed(serving, client_for):
    server = serving(FakeFiles(PAGE))
    client = client_for(server, max_requests=2)
    client.get(f"{server.url}/a")
    client.get(f"{server.url}/b")
    with pytest.raises(QuotaError, match="the limit of this pull"):
        client.get(f"{server.url}/a")


# --- robots.txt

ROBOTS = b"User-agent: *\nDisallow: /*.json$\nDisallow: /private\nCrawl-delay: 7\n"


def test_robots_txt_with_wildcards_is_obeyed(serving, client_for, clock):
    files = {"/robots.txt": (ROBOTS, "text/plain"), "/t/1.json": (b"{}", "text/plain"), **PAGE}
    server = serving(FakeFiles(files))
    client = client_for(server, robots=True)
    assert client.get(f"{server.url}/a").body == b"hello"
    for path in ("/t/1.json", "/private/x"):
        with pytest.raises(UnusableError, match=r"robots\.txt says no"):
            client.get(f"{server.url}{path}")
    assert server.paths() == ["/robots.txt", "/a"]
    client.get(f"{server.url}/b")
    assert 7 in clock.slept


def test_a_redirect_does_not_lead_around_robots_txt(serving, client_for):
    server = serving(FakeFiles({"/robots.txt": (ROBOTS, "text/plain"), **PAGE}))
    server.faults = [("/a", RedirectResponse("/private/a", 302))]
    with pytest.raises(UnusableError, match=r"robots\.txt says no"):
        client_for(server, robots=True).get(f"{server.url}/a")


def test_no_robots_txt_allows_all_and_one_that_fails_forbids_all(serving, client_for):
    server = serving(FakeFiles(PAGE))
    assert client_for(server, robots=True).get(f"{server.url}/a").body == b"hello"
    server.faults = [("/robots.txt", Response(status_code=503)) for _ in range(9)]
    with pytest.raises(SourceError, match=r"robots\.txt"):
        client_for(server, robots=True).get(f"{server.url}/a")
    assert server.paths().count("/a") == 1


# --- the cache


def test_what_did_not_change_is_not_sent_again_and_no_secret_is_stored(
    serving, tmp_path: Path, clock: FakeClock
):
    server = serving(FakeFiles(PAGE))
    cache = tmp_path / "cache.sqlite"
    for _ in range(2):  # two runs
        with HttpClient(
            [server.host],
            policy=RequestPolicy(interval=0),
            clock=clock,
            cache=cache,
            secrets={server.host: {"authorization": "Bearer s3cret-token"}},
        ) as client:
            assert client.get(f"{server.url}/a").body == b"hello"
    first, second = server.received
    assert "if-none-match" not in first.headers and "if-none-match" in second.headers
    assert first.headers["authorization"] == "Bearer s3cret-token"
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"hello" in stored and b"s3cret" not in stored
    assert sqlite3.connect(cache).execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_an_oversized_body_is_not_kept_in_the_cache(serving, tmp_path: Path, clock: FakeClock):
    server = serving(FakeFiles({"/big": (b"x" * 3_000_000, "text/plain")}))
    cache = tmp_path / "cache.sqlite"
    with HttpClient(
        [server.host], policy=RequestPolicy(max_bytes=100_000), clock=clock, cache=cache
    ) as client:
        for _ in range(2):
            with pytest.raises(UnusableError, match="larger than"):
                client.get(f"{server.url}/big")
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 1_000_000


def test_a_secret_goes_to_its_host_alone(serving, clock: FakeClock):
    server, other = serving(FakeFiles(PAGE)), serving(FakeFiles(PAGE))
    secrets = {server.host: {"authorization": "Bearer x"}}
    with HttpClient([server.host, other.host], clock=clock, secrets=secrets) as client:
        client.get(f"{server.url}/a")
        client.get(f"{other.url}/a")
    assert server.received[0].headers["authorization"] == "Bearer x"
    assert "authorization" not in other.received[0].headers


def test_post_sends_json(serving, client_for):
    server = serving(FakeServer())
    with pytest.raises(UnusableError, match="status 404"):
        client_for(server).post_json(f"{server.url}/x", {"a": [1]})
    assert server.received[0].body == b'{"a":[1]}'
