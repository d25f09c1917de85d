"""Redirects, pages, and what is known already: over real sockets."""

from __future__ import annotations

from typing import Any

import pytest

from ptopt.github import transport as module
from ptopt.github.errors import (
    RejectedError,
    TooLargeError,
    UnavailableError,
)
from tests.github.scripted import Say, Scripted, client, same


def test_a_read_follows_a_rename_on_its_host_with_its_query() -> None:
    def answer(got: Any) -> Say:
        if got.target.startswith("/api/v3/repos/old"):
            return Say(301, {}, {"Location": server.origin + "/api/v3/repositories/1?a=b%20c&page=2"})
        return Say(200, {"found": True})

    with Scripted(answer) as server:
        assert client(server).get("/repos/old/name", same) == {"found": True}
        assert server.targets() == ["/repos/old/name", "/repositories/1?a=b%20c&page=2"]


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


def test_a_page_that_was_full_and_the_last_is_asked_for_anew() -> None:
    items = list(range(100))

    def answer(got: Any) -> Say:
        first = "page=2" not in got.target
        if first and "if-none-match" in got.headers:
            return Say(304)  # the page is as it was, and the link to the next one is not told
        more = first and len(items) > 100
        link = {"Link": f'<{server.url}/list?page=2&per_page=100>; rel="next"'} if more else {}
        return Say(200, items[:100] if first else items[100:], {"ETag": '"e"', **link})

    with Scripted(answer) as server:
        github = client(server)
        assert list(github.pages("/list", same)) == [items]
        items.append(100)
        for _ in range(2):
            assert list(github.pages("/list", same)) == [items[:100], [100]]
        assert [("if-none-match" in got.headers) for got in server.got] == [False] * 3 + [True] * 2


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
