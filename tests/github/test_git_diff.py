"""What `git fetch` may do and may not: no configuration of anybody, no redirect, no token where it can be seen."""

from __future__ import annotations

import base64
import http.server
import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fake_github import FakeGitHub
from ptopt.github import git_diff
from ptopt.github.auth import for_token
from ptopt.github.client import GitHubClient
from ptopt.github.git_diff import FetchError, fetch_change
from ptopt.github.values import PullRequest
from tests.github.test_filters import PULL

TOKEN = "ghs_" + "s3cret" * 6


class Source:
    """An address that need not be GitHub's."""

    def __init__(self, url: str) -> None:
        self.url = url

    def merge_base(self, repo: str, base_sha: str, head_sha: str) -> str:
        return "1" * 40

    def clone_url(self, repo: str) -> str:
        return self.url

    def token(self) -> str:
        return TOKEN


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Whatever happens, nothing is left behind."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    monkeypatch.undo()
    left = [path for path in folder.rglob("*") if "ptopt-" in path.name]
    assert not left


@contextmanager
def server(status: int, headers: dict[str, str]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """An HTTP server that always answers so, its address, and (path, authorization) of each request."""
    seen: list[tuple[str, str]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append((self.path, self.headers.get("Authorization", "")))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as httpd:
        thread = threading.Thread(target=httpd.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{httpd.server_port}", seen
        finally:
            httpd.shutdown()
            thread.join()


@pytest.fixture
def pull(temporary: Path) -> Iterator[tuple[GitHubClient, PullRequest]]:
    with FakeGitHub() as github:
        repo = github.repository("octo/models", {"train.py": b"x = 1\n"}, private=True)
        made = repo.pull(files={"train.py": b"x = 2\n", ".gitattributes": b"*.py filter=evil diff=evil\n"})
        api = for_token(github.token(repo), github.url)
        yield api, api.pull("octo/models", made.number)


def everything(path: str) -> None:
    return None


def test_the_change_of_a_private_repository(pull: tuple[GitHubClient, PullRequest]) -> None:
    change = fetch_change(*pull, why_not=everything)
    (file,) = change.files
    assert (file.path, file.head, file.added) == ("train.py", b"x = 2\n", {1})


def test_the_token_is_on_no_command_line(
    pull: tuple[GitHubClient, PullRequest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """git is the real one, behind a script that writes down how it was called."""
    git, log = shutil.which("git"), tmp_path / "log"
    folder = tmp_path / "bin"
    folder.mkdir()
    script = folder / "git"
    script.write_text(f'#!/bin/sh\necho "$0 $@" >> {log}\nexec {git} "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    assert fetch_change(*pull, why_not=everything).files
    called = log.read_text()
    token = pull[0].token()
    assert "fetch" in called and "cat-file" in called
    assert token not in called
    assert base64.b64encode(f"x-access-token:{token}".encode()).decode() not in called


def test_no_configuration_of_anybody_counts(
    pull: tuple[GitHubClient, PullRequest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evil = tmp_path / "evil.sh"
    evil.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    evil.chmod(0o755)
    home = tmp_path / "home"
    (home / "hooks").mkdir(parents=True)
    shutil.copy(evil, home / "hooks" / "reference-transaction")
    (home / ".gitconfig").write_text(
        f'[core]\n\thooksPath = {home}/hooks\n\tfsmonitor = {evil}\n[credential]\n\thelper = "!{evil}"\n'
        f'[diff "evil"]\n\tcommand = {evil}\n\ttextconv = {evil}\n[filter "evil"]\n\tsmudge = {evil}\n'
        f'[url "http://127.0.0.1:9/"]\n\tinsteadOf = http://\n[init]\n\ttemplateDir = {home}\n'
    )
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(home / ".gitconfig"))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", str(evil))
    monkeypatch.setenv("GIT_ASKPASS", str(evil))
    (file,) = fetch_change(*pull, why_not=everything).files
    assert file.head == b"x = 2\n"
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "elsewhere").exists()


def test_no_redirect_is_followed() -> None:
    with (
        server(404, {}) as (there, seen_there),
        server(302, {"Location": f"{there}/octo/models.git/info/refs"}) as (here, seen),
        pytest.raises(FetchError, match=r"^git fetch failed$"),
    ):
        fetch_change(Source(f"{here}/octo/models.git"), PULL, why_not=everything)
    assert seen and seen[0][1].startswith("Basic ")
    assert not seen_there


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org/octo/models.git",
        "http://127.0.0.1.example.org/x.git",
        "file:///tmp",
        "ext::touch {folder}/ran",
        "ssh://127.0.0.1/x.git",
        "git://127.0.0.1/x.git",
        "--upload-pack=touch {folder}/ran",
        "/tmp",
    ],
)
def test_only_https_or_loopback(url: str, tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="not https"):
        fetch_change(Source(url.format(folder=tmp_path)), PULL, why_not=everything)
    assert not (tmp_path / "ran").exists()


def test_no_error_tells_the_token_or_the_words_of_the_server() -> None:
    with server(401, {"WWW-Authenticate": "Basic realm=x"}) as (here, _), pytest.raises(FetchError) as caught:
        fetch_change(Source(f"{here}/octo/models.git"), PULL, why_not=everything)
    assert str(caught.value) == "git fetch failed"
    assert caught.value.__cause__ is None and caught.value.__context__ is None


def test_a_server_that_never_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git_diff, "SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/octo/models.git"
        with pytest.raises(FetchError, match=r"took longer than 0\.3 seconds"):
            fetch_change(Source(url), PULL, why_not=everything)


def test_a_repository_that_fills_the_disk(
    pull: tuple[GitHubClient, PullRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(git_diff, "MAX_DISK", 0)
    with pytest.raises(FetchError, match="too large"):
        fetch_change(*pull, why_not=everything)


def test_without_git(
    pull: tuple[GitHubClient, PullRequest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FetchError, match="git cannot be run here"):
        fetch_change(*pull, why_not=everything)


def test_branches_without_a_common_commit() -> None:
    with FakeGitHub() as github:
        repo = github.repository("octo/models", {"train.py": b"x = 1\n"})
        made = repo.pull(files={"train.py": b"x = 2\n"})
        person = repo.person("dev")
        tree = repo.git.add_tree(None, [("100644", "train.py", repo.git.add_blob(b"y = 1\n"))])
        made.move_head(repo.git.add_commit(tree, [], "alone", person, person))
        api = for_token(github.token(repo), github.url)
        with pytest.raises(FetchError, match="no common commit"):
            fetch_change(api, api.pull("octo/models", made.number), why_not=everything)
