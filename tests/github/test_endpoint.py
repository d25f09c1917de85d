from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptopt.github.endpoint import Endpoint, checked_login, checked_sha, quoted, repo_path


@pytest.mark.parametrize(
    ("url", "endpoint"),
    [
        ("https://api.github.com", Endpoint("https://api.github.com", "", "/graphql", "https://github.com")),
        ("https://api.github.com/", Endpoint("https://api.github.com", "", "/graphql", "https://github.com")),
        (
            "https://api.octo.ghe.com",
            Endpoint("https://api.octo.ghe.com", "", "/graphql", "https://octo.ghe.com"),
        ),
        (
            "https://git.example.com/api/v3",
            Endpoint("https://git.example.com", "/api/v3", "/api/graphql", "https://git.example.com"),
        ),
        (
            "https://git.example.com:8443/api/v3/",
            Endpoint(
                "https://git.example.com:8443", "/api/v3", "/api/graphql", "https://git.example.com:8443"
            ),
        ),
        (
            "http://127.0.0.1:5000/api/v3",
            Endpoint("http://127.0.0.1:5000", "/api/v3", "/api/graphql", "http://127.0.0.1:5000"),
        ),
        (
            "http://[::1]:5000/api/v3",
            Endpoint("http://[::1]:5000", "/api/v3", "/api/graphql", "http://[::1]:5000"),
        ),
    ],
)
def test_one_url_gives_all_addresses(url: str, endpoint: Endpoint) -> None:
    assert Endpoint.of(url) == endpoint


@pytest.mark.parametrize(
    "url",
    [
        "",
        "github.com",
        "https://github.com",
        "https://git.example.com",
        "https://git.example.com/api/v4",
        "http://git.example.com/api/v3",
        "http://127.0.0.1.example.com/api/v3",
        "ftp://git.example.com/api/v3",
        "file:///api/v3",
        "https:///api/v3",
        "https://user:secret@git.example.com/api/v3",
        "https://user@git.example.com/api/v3",
        "https://git.example.com/api/v3?x=/api/v3",
        "https://git.example.com:port/api/v3",
        "https://git.example.com#/api/v3",
    ],
)
def test_other_urls_are_refused_and_quoted_without_credentials(url: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        Endpoint.of(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "repo",
    [
        "", "octo", "octo/", "/models", "octo/models/issues", "octo/..", "octo/.", "../models", "octo/a b",
        "octo/models?x", "octo/models#", "octo/%2e%2e", "octo/modéls", "octo\n/models", "octo/models\n",
        "-octo/models", "octo/" + "a" * 101,
    ],
)  # fmt: skip
def test_no_repository(repo: str) -> None:
    with pytest.raises(ValueError, match="full name"):
        repo_path(repo)


@pytest.mark.parametrize("repo", ["octo/models", "o/.github", "Octo-Corp/a.b_c-d", "monalisa_octo/x", "1/2"])
def test_repositories(repo: str) -> None:
    assert repo_path(repo) == f"/repos/{repo}"


@pytest.mark.parametrize("sha", ["", "main", "a" * 39, "A" * 40, "g" * 40, "a" * 40 + "\n", "../../user"])
def test_no_sha(sha: str) -> None:
    with pytest.raises(ValueError, match="full commit"):
        checked_sha(sha)


def test_shas() -> None:
    assert checked_sha("0a" * 20) == "0a" * 20
    assert checked_sha("0a" * 32) == "0a" * 32


@pytest.mark.parametrize("login", ["", "..", "a/b", "a b", "a[bot", "a[bot]/x", "[bot]", "a?b"])
def test_no_login(login: str) -> None:
    with pytest.raises(ValueError, match="login"):
        checked_login(login)


def test_logins() -> None:
    assert checked_login("octo-cat_corp") == "octo-cat_corp"
    assert checked_login("dependabot[bot]") == "dependabot%5Bbot%5D"


@pytest.mark.parametrize("path", ["", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/.", "./a"])
def test_no_path(path: str) -> None:
    with pytest.raises(ValueError, match="path or branch"):
        quoted(path)


@given(st.text(st.characters(codec="utf-8"), max_size=40))
def test_a_quoted_path_stays_below_its_place(path: str) -> None:
    try:
        url = quoted(path)
    except ValueError:
        return
    assert re.fullmatch(r"[A-Za-z0-9._~/%-]+", url)
    assert not {".", "..", ""} & set(url.split("/"))


def test_undecodable_paths_keep_their_bytes() -> None:
    assert quoted("a\udcff") == "a%FF"
