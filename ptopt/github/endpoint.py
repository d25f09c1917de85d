"""Where GitHub is, and the parts that its paths are made of."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

GITHUB = "https://api.github.com"

_REPO = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}/[A-Za-z0-9._-]{1,100}", re.A)
_SHA = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?", re.A)
_LOGIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}(?:\[bot\])?", re.A)
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The addresses of one GitHub, all from one setting and never from a payload."""

    origin: str  # scheme://host[:port] of both APIs
    rest: str  # path before each REST path: "" or "/api/v3"
    graphql: str  # path of the GraphQL API
    web: str  # what an https clone URL begins with

    @staticmethod
    def of(base_url: str) -> Endpoint:
        """From the REST API's URL: `https://api.HOST`, or an enterprise server's `https://HOST/api/v3`.

        ValueError when it is neither. http:// is for loopback only: a token goes over the line.
        """
        url = urlsplit(base_url.rstrip("/"))
        try:
            port = url.port
        except ValueError:  # whose text quotes what stands there: half of a password, where an @ is missing
            raise ValueError("the port of GitHub's API URL is no number") from None
        if (
            url.username is not None
            or url.password is not None
            or url.query
            or url.fragment
            or not url.hostname
        ):
            raise ValueError("GitHub's API URL has a host and nothing but a path after it")
        if url.scheme != "https" and not (url.scheme == "http" and url.hostname in _LOOPBACK):
            raise ValueError("GitHub is spoken to over https:// only")
        host = f"[{url.hostname}]" if ":" in url.hostname else url.hostname
        origin = f"{url.scheme}://{host}" + (f":{port}" if port else "")
        if url.path.endswith("/api/v3"):
            above = url.path.removesuffix("/api/v3")
            return Endpoint(origin, url.path, f"{above}/api/graphql", origin + above)
        if url.path or not host.startswith("api."):
            raise ValueError(
                f"not GitHub's REST API: {base_url}; an enterprise server's is https://HOST/api/v3"
            )
        return Endpoint(origin, "", "/graphql", origin.replace("://api.", "://", 1))

    def path_of(self, url: str) -> str | None:
        """Path and query of an absolute `url` below our REST API; None for any other place."""
        try:
            parts = urlsplit(url)
            ours = urlsplit(self.origin)
            same = (parts.scheme, parts.hostname, _port(parts.port, parts.scheme)) == (
                ours.scheme,
                ours.hostname,
                _port(ours.port, ours.scheme),
            )
        except ValueError:
            return None
        segments = parts.path.replace("%2e", ".").replace("%2E", ".").split("/")
        if not same or parts.username is not None or ".." in segments or "." in segments:
            return None
        if not parts.path.startswith(self.rest + "/"):
            return None
        path = parts.path.removeprefix(self.rest)
        return f"{path}?{parts.query}" if parts.query else path


def _port(port: int | None, scheme: str) -> int:
    return port or (443 if scheme == "https" else 80)


def repo_path(repo: str) -> str:
    """`/repos/owner/name`. ValueError when `repo` is not a full name."""
    return f"/repos/{checked_repo(repo)}"


def checked_repo(repo: str) -> str:
    if not _REPO.fullmatch(repo) or repo.rpartition("/")[2] in (".", ".."):
        raise ValueError(f"not the full name of a repository: {repo!r}")
    return repo


def checked_sha(sha: str) -> str:
    if not _SHA.fullmatch(sha):
        raise ValueError(f"not a full commit or object id: {sha!r}")
    return sha


def checked_login(login: str) -> str:
    """Quoted for a path: a bot's login has brackets."""
    if not _LOGIN.fullmatch(login):
        raise ValueError(f"not a login: {login!r}")
    return quote(login, safe="")


def quoted(path: str) -> str:
    """A file's path or a branch in a URL path.

    ValueError for what git knows no such thing of: an HTTP library would resolve `..` into another endpoint.
    """
    if not path or any(segment in ("", ".", "..") for segment in path.split("/")):
        raise ValueError(f"not a path or branch in a repository: {path!r}")
    return quote(path, safe="/", errors="surrogateescape")
