"""Descriptions come from a registry as they were pinned, or not at all."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from fake_github import descriptions
from fake_github.descriptions import PACKAGES, Package, get

OPENAPI = {
    "paths": {
        "/a": {"get": {"summary": "prose", "responses": {"200": {"description": "prose", "x-more": 1}}}}
    },
    "components": {"schemas": {"s": {"properties": {"description": {"type": "string", "example": "prose"}}}}},
}
BARE = {
    "paths": {"/a": {"get": {"responses": {"200": {}}}}},
    "components": {"schemas": {"s": {"properties": {"description": {"type": "string"}}}}},
}


def tarball(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a registry on loopback."""

    class Quiet(SimpleHTTPRequestHandler):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments, directory=str(tmp_path / "registry"))

        def log_message(self, *_: Any) -> None:
            pass

    folder = tmp_path / "registry" / "@octokit" / "openapi" / "-"
    folder.mkdir(parents=True)
    monkeypatch.setattr(descriptions, "_ATTEMPTS", 1)
    with ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        monkeypatch.setenv("npm_config_registry", f"http://127.0.0.1:{server.server_port}/")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield folder
        server.shutdown()


def pin(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    digest = base64.b64encode(hashlib.sha512(content).digest()).decode()
    package = Package(
        "openapi", "1.0.0", digest, {"package/generated/api.github.com.json": "api.github.com.json"}
    )
    monkeypatch.setitem(PACKAGES, "openapi", package)


def test_only_what_is_wanted_is_kept(registry: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"package/generated/api.github.com.json": json.dumps(OPENAPI).encode(), "../../outside": b"x"}
    content = tarball(files)
    (registry / "openapi-1.0.0.tgz").write_bytes(content)
    pin(monkeypatch, content)
    to = tmp_path / "to"
    get(to, ["openapi"])
    (registry / "openapi-1.0.0.tgz").unlink()
    get(to, ["openapi"])  # it is there: nothing is asked for
    assert [str(path.relative_to(to)) for path in to.rglob("*.*")] == [
        "openapi-1.0.0",
        "openapi-1.0.0/api.github.com.json",
    ]
    monkeypatch.setenv("PTOPT_DESCRIPTIONS", str(to))
    assert descriptions.openapi() == BARE


@pytest.mark.parametrize(
    ("served", "pinned", "message"),
    [
        (b"something else", b"something", "is not what was pinned: its sha512 is "),
        (None, b"something", "cannot get http://127.0.0.1:"),
        (tarball({"package/a": b""}), tarball({"package/a": b""}), "has no api.github.com.json"),
    ],
    ids=["not what was pinned", "not there", "without the file"],
)
def test_what_is_wrong_leaves_nothing(
    registry: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    served: bytes | None,
    pinned: bytes,
    message: str,
) -> None:
    if served is not None:
        (registry / "openapi-1.0.0.tgz").write_bytes(served)
    pin(monkeypatch, pinned)
    with pytest.raises((OSError, ValueError), match=message):
        get(tmp_path / "to", ["openapi"])
    assert list(tmp_path.glob("to/*")) == []


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTOPT_DESCRIPTIONS", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"run `python -m fake_github\.descriptions`"):
        descriptions.openapi()
