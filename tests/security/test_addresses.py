"""No text of others decides whom we speak to: a canary listens, and hears nothing."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from ptopt.github.endpoint import Endpoint
from tests.bot.conftest import sign
from tests.security.conftest import Service
from tests.security.judge import assert_inert
from tests.worker.pulls import FAST, SLOW


class Canary:
    """Listens, and remembers who came."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(1)
                self.heard.append(connection.recv(4096))

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def canary() -> Iterator[Canary]:
    canary = Canary()
    yield canary
    canary.close()
    assert canary.heard == []


def elsewhere(value: Any, url: str) -> Any:
    """The payload with every address, whatever its key, somewhere else."""
    if isinstance(value, dict):
        return {key: elsewhere(each, url) for key, each in value.items()} | {
            key: f"{url}/{key}" for key in value if key.endswith(("url", "href", "_links"))
        }
    if isinstance(value, list):
        return [elsewhere(each, url) for each in value]
    return f"{url}/x" if isinstance(value, str) and "://" in value else value


def test_addresses_of_payloads(service: Service, canary: Canary) -> None:
    pull = service.repo.pull("b", files={"train.py": SLOW})
    pull.comment("dev", "/ptopt status")
    service.github.drain()
    kept = [(delivery.headers, json.loads(delivery.body)) for delivery in service.github.deliveries]
    with service.resources.engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM jobs")
    for headers, payload in kept:
        payload = elsewhere(payload, canary.url) | {
            "enterprise": {"html_url": canary.url},
            "api_url": canary.url,
        }
        body = json.dumps(payload).encode()
        assert canary.url.encode() in body
        headers = {**headers, "X-GitHub-Delivery": str(uuid4())}
        headers |= {
            "X-Hub-Signature-256": sign(body, service.github.app.webhook_secret),
            "X-GitHub-Enterprise-Host": canary.url.removeprefix("http://"),
        }
        assert (
            service.served.client.post("/webhooks/github", content=body, headers=headers).status_code == 202
        )
    service.work()
    assert len(pull.reviews) == 1 and len(service.bodies(pull)) >= 2  # it did its work all the same


def test_what_git_would_fetch(service: Service, canary: Canary) -> None:
    """The rung of git, with everything in the pull request that makes git run or fetch something."""
    service.github.limits.files = 1
    service.repo.commit("main", {".ptopt.toml": b"budget = 50\n[pull-requests]\nmax-lines = 1000000\n"})
    files = {
        ".gitattributes": b"*.py filter=lfs diff=evil merge=evil -text ident export-subst\n* diff=evil filter=evil\n",
        ".lfsconfig": f"[lfs]\n\turl = {canary.url}/lfs\n".encode(),
        ".gitmodules": (
            f'[submodule "x"]\n\tpath = x\n\turl = {canary.url}/x.git\n\tupdate = !touch /tmp/evil\n'
            '[submodule "../../evil"]\n\tpath = -evil\n\turl = ext::sh -c "touch /tmp/evil"\n'
        ).encode(),
        ".gitconfig": b'[diff "evil"]\n\ttextconv = touch /tmp/evil\n\tcommand = touch /tmp/evil\n',
        "--upload-pack=touch evil.py": SLOW,
        "-O/etc/passwd.py": SLOW,
        "train.py": SLOW,
        "lfs.py": b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 9\n",
        "zeros.py": b"\0" * 20_000_000,
    }
    pull = service.repo.pull("--upload-pack=evil", files=files)
    service.work()
    assert any(request.path.endswith("git-upload-pack") for request in service.github.requests)
    (review,) = pull.reviews
    assert_inert(review.body, "review", "finding")
    assert {comment.path for comment in pull.review_comments} >= {"train.py", "-O/etc/passwd.py"}
    assert "zeros.py" in review.body  # told, not read


PATHS = {
    "a/../b.py",
    "../../etc/passwd.py",
    "/etc/passwd.py",
    ".git/config.py",
    "C:\\Windows\\x.py",
    "\\\\server\\share\\x.py",
    "a\nb.py",
    "a\rb.py",
    "a%2e%2e/%2fb.py",
    "a?ref=main&x=.py",
    "a#b.py",
    "-n.py",
    "~/.ssh/x.py",
    "con.py",
    "a" * 200 + "/" + "b" * 200 + ".py",
    "é\udc80.py",
}


def test_names_of_files(service: Service) -> None:
    """What git lets a file be called is reviewed under that name, and leads nowhere."""
    possible = {path for path in PATHS if ".." not in path.split("/") and not path.startswith(("/", ".git/"))}
    files = dict.fromkeys(sorted(path for path in possible if path.isprintable()), FAST)
    service.repo.commit("main", {".ptopt.toml": b"budget = 50\nskip = []\n"})
    pull = service.repo.pull("b", files={**files, "train.py": SLOW})
    pull.comment("dev", "/ptopt explain PTO101")
    service.work()
    assert pull.reviews
    for request in service.github.requests:
        assert "/../" not in request.path and "//" not in request.path


@pytest.mark.parametrize(
    "url",
    [
        "https://evil@api.github.com",
        "https://api.github.com@evil.example",
        "https://api.github.com:443@evil.example/api/v3",
        "https://api.github.com\\@evil.example/api/v3",
        "https://evil.example#.github.com/api/v3",
        "https://evil.example?x=/api/v3",
        "http://github.example.org/api/v3",
        "http://localhost.evil.example/api/v3",
        "http://127.0.0.1.evil.example/api/v3",
        "file:///etc/passwd/api/v3",
        "ftp://host/api/v3",
        "gopher://host/api/v3",
        "javascript:alert(1)/api/v3",
        "//host/api/v3",
        "https:///api/v3",
        "https://host:x/api/v3",
        "",
    ],
)
def test_addresses_of_a_server_that_is_none(url: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        Endpoint.of(url)
    assert "evil@" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "https://ghe.example/api/v3/../../login",
        "https://ghe.example/api/v3/%2e%2e/x",
        "https://ghe.example/api/v3x/y",
        "https://ghe.example:444/api/v3/x",
        "http://ghe.example/api/v3/x",
        "https://ghe.example@evil.example/api/v3/x",
        "https://a@ghe.example/api/v3/x",
        "https://ghe.example.evil.example/api/v3/x",
        "//evil.example/api/v3/x",
        "https://[::1/api/v3/x",
    ],
)
def test_addresses_of_answers_that_are_not_followed(url: str) -> None:
    assert Endpoint.of("https://ghe.example/api/v3").path_of(url) is None
