"""The diff from git itself, where GitHub's API leaves parts of it out: two commits in a temporary bare repository.

Nothing of the pull request is checked out or run: no hook, filter, submodule or configuration of anybody. The token
goes to git in its environment, never on a command line, and for this one address only.
"""

from __future__ import annotations

import base64
import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Protocol
from urllib.parse import urlsplit

from ptopt.change import Change, ChangeError
from ptopt.github.errors import ForbiddenError, NotFoundError, RejectedError, SupersededError
from ptopt.github.values import PullRequest
from ptopt.inputs import DIFF, MAX_FILE, CheckoutError, change_of_commit
from ptopt.launch_scripts import SCRIPTS
from ptopt.pathkind import JSON_WORDS

MAX_DISK = 1_000_000_000  # bytes of the two commits, compressed
MAX_DIFF = 20_000_000
MAX_HEADS = 100_000_000  # bytes of all files under review together
SECONDS = 180.0  # for all of it

_GIT = ("git", "--no-pager")
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_KEPT_VARIABLES = frozenset(
    ("PATH", "LD_LIBRARY_PATH", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_SSL_CAINFO", "GIT_SSL_CAPATH")
    + ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
)
_REVIEWABLE = (
    *("*.py", "*.ipynb", "*.yaml", "*.yml", "*ockerfile*", "*ontainerfile*"),
    *(f"*{ending}" for ending in SCRIPTS),
    *(f":(icase)*{word}*.json" for word in JSON_WORDS),
)


class Source(Protocol):
    def merge_base(self, repo: str, base_sha: str, head_sha: str) -> str: ...
    def clone_url(self, repo: str) -> str: ...
    def token(self) -> str: ...


class FetchError(RuntimeError):
    """The change cannot be had from git. The text is a reason, to follow "and"; it holds no text of others."""


def fetch_change(github: Source, pull: PullRequest, *, why_not: Callable[[str], str | None]) -> Change:
    """The files to review of the change, as git sees them; heads only where `why_not` gives None.

    Raises FetchError, SupersededError when the head of the pull request is another one, and what the API raises.
    """
    try:
        base = github.merge_base(pull.repo, pull.base_sha, pull.head_sha)
    except (NotFoundError, RejectedError, ForbiddenError):
        raise FetchError("GitHub finds no common commit of the two branches") from None
    url = github.clone_url(pull.repo)
    with tempfile.TemporaryDirectory(prefix="ptopt-", ignore_cleanup_errors=True) as folder:
        git = Git(Path(folder), url, github.token())
        git.run("init", "--quiet", "--bare", "--template=", ".")
        git.run(
            *("fetch", "--quiet", "--depth=1", "--no-tags", "--no-recurse-submodules", "--no-auto-gc"),
            *("--no-write-fetch-head", url),
            *(f"+{base}:refs/ptopt/base", f"+refs/pull/{pull.number}/head:refs/ptopt/head"),
        )
        head = git.run("rev-parse", "--verify", "refs/ptopt/head").decode().strip()
        if head != pull.head_sha:
            raise SupersededError(f"the head of {pull.repo}#{pull.number} moved while it was fetched")
        diff = git.run(*DIFF, base, head, "--", *_REVIEWABLE)
        try:
            return change_of_commit(
                git.root, diff, head, why_not=why_not, most=MAX_HEADS, environment=git.environment
            )
        except (CheckoutError, ChangeError):
            raise FetchError("the output of git could not be read") from None


class Git:
    """Runs git in `root` until the time is up, watching the disk."""

    def __init__(self, root: Path, url: str, token: str) -> None:
        self.root = root
        self._deadline = time.monotonic() + SECONDS
        self.environment = _environment(root, url, token)

    def run(self, *arguments: str) -> bytes:
        """What git prints, at most MAX_DIFF bytes. Raises FetchError."""
        doing = f"git {arguments[0]}"
        with tempfile.TemporaryFile() as output:
            try:
                process = subprocess.Popen(
                    [*_GIT, *arguments],
                    cwd=self.root,
                    env=self.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,  # so that its helpers end with it
                )
            except OSError:
                raise FetchError("git cannot be run here") from None
            try:
                self._wait(process, doing, output)
            finally:
                if process.returncode is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
            if process.returncode:
                raise FetchError(f"{doing} failed")
            output.seek(0)
            return output.read()

    def _wait(self, process: subprocess.Popen[bytes], doing: str, output: IO[bytes]) -> None:
        ended, pause = False, 0.01
        while not ended:
            try:
                process.wait(pause)
                ended = True
            except subprocess.TimeoutExpired:
                pause = 0.2
            if os.fstat(output.fileno()).st_size > MAX_DIFF:
                raise FetchError(f"the diff is too large, the limit is {MAX_DIFF / 1e6:g} MB")
            if not ended and _size(self.root) > MAX_DISK:
                raise FetchError(f"the repository is too large, the limit is {MAX_DISK / 1e6:g} MB")
            if not ended and time.monotonic() > self._deadline:
                raise FetchError(f"{doing} took longer than {SECONDS:g} seconds")


def _size(folder: Path) -> int:
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):  # git renames its files when they are complete
                total += os.lstat(os.path.join(place, name)).st_size
    return total


def _environment(root: Path, url: str, token: str) -> dict[str, str]:
    """Nothing of the user's configuration, and only the variables that find git, proxies and certificates."""
    parts = urlsplit(url)
    if parts.scheme != "https" and (parts.scheme != "http" or parts.hostname not in _LOOPBACK):
        raise FetchError("the address of the repository is not https")
    header = base64.b64encode(f"x-access-token:{token}".encode()).decode()
    settings = {
        f"http.{url}.extraHeader": f"Authorization: Basic {header}",
        "http.followRedirects": "false",
        "core.bigFileThreshold": str(
            MAX_FILE
        ),  # larger ones count as binary: no bomb is unpacked into memory
        "core.hooksPath": os.devnull,
        "core.quotepath": "on",
        "credential.helper": "",
        "fetch.unpackLimit": "1",
    }
    environment = {name: value for name, value in os.environ.items() if name in _KEPT_VARIABLES}
    if "SSL_CERT_FILE" in os.environ:  # the client's own authorities count for git too
        environment.setdefault("GIT_SSL_CAINFO", os.environ["SSL_CERT_FILE"])
    environment |= {
        "HOME": str(root),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ALLOW_PROTOCOL": parts.scheme,
        "GIT_CONFIG_COUNT": str(len(settings)),
        "LC_ALL": "C",
    }
    for number, (key, value) in enumerate(settings.items()):
        environment |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return environment
