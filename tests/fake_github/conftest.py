"""What the tests of the fake GitHub start from: a repository, a pull request, and somebody who asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import httpx
import pytest

from fake_github import FakeGitHub, Pull, Repo
from fake_github.conformance import check
from fake_github.http import Json

LINES = b"".join(b"line %d\n" % number for number in range(1, 61))
Ask = Callable[..., httpx.Response]


@pytest.fixture
def github() -> Iterator[FakeGitHub]:
    with FakeGitHub(checks=[check]) as fake:
        yield fake


@pytest.fixture
def repo(github: FakeGitHub) -> Repo:
    return github.repository("octo/models", {"train.py": LINES, "sub/x.py": b"a = 1\n"})


@pytest.fixture
def pull(repo: Repo) -> Pull:
    """Lines 10 and 40 changed: two hunks, 7 to 13 and 37 to 43."""
    return repo.pull(
        files={"train.py": LINES.replace(b"line 10\n", b"ten\n").replace(b"line 40\n", b"forty\n")}
    )


@pytest.fixture
def ask(github: FakeGitHub, repo: Repo) -> Iterator[Ask]:
    """Asks as the App, unless `token` (None: nobody): `ask("GET", "/repos/octo/models")`."""
    default = github.installation_token(repo.installation) if repo.installation else None
    with httpx.Client(trust_env=False, timeout=20) as client:

        def request(
            method: str, path: str, json: object = None, token: str | None = default, **headers: str
        ) -> httpx.Response:
            given = {"User-Agent": "tests", **({"Authorization": f"Bearer {token}"} if token else {})}
            given |= {name.replace("_", "-"): value for name, value in headers.items()}
            url = path if path.startswith("http") else github.url + path
            return client.request(method, url, json=json, headers=given)

        yield request


@pytest.fixture
def graphql(github: FakeGitHub, ask: Ask) -> Callable[..., Json]:
    def query(text: str, **more: object) -> Json:
        token = {"token": more.pop("token")} if "token" in more else {}
        answer = ask("POST", f"{github.html}/api/graphql", {"query": text, "variables": more}, **token)
        assert answer.status_code == 200, answer.text
        data: Json = answer.json()
        return data

    return query
