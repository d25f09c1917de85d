"""Source distributions of a package index: their Python files, read in memory from archives that are checked by hash.

The simple API (PEP 691) names the files, the archive's own PKG-INFO the licence. Nothing is unpacked to disk, built or imported.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from email.message import Message
from email.parser import BytesParser
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import urljoin

from packaging.utils import InvalidSdistFilename, canonicalize_name, parse_sdist_filename

from training.dataset import licences
from training.sources.base import Block, Cursor, Document, Page, UnusableError, clean
from training.sources.http import HttpClient
from training.sources.throttle import timestamp

INDEX = "https://pypi.org/simple"
FILES = "files.pythonhosted.org"
_JSON = {"accept": "application/vnd.pypi.simple.v1+json"}
_MOST_MEMBERS = 20_000
_MAX_FILE = 500_000
_LEFT_OUT = frozenset(
    {"test", "tests", "testing", "docs", "doc", "vendor", "_vendor", "third_party", "thirdparty", "extern"}
)


class PackageIndex:
    """One document per Python file of the newest sdist of each of `packages`; the cursor names the version read of each.

    `client` must know the hosts of the index and of its files. `must_mention`: files without this word are left out.
    """

    name = "packages"

    def __init__(
        self,
        client: HttpClient,
        packages: Sequence[str],
        *,
        index: str = INDEX,
        must_mention: str = "torch",
        max_archive: int = 30_000_000,
        max_unpacked: int = 200_000_000,
        opted_in: Collection[str] = (),
    ) -> None:
        self._client = client
        self._packages = [canonicalize_name(package) for package in packages]
        self._index = index.rstrip("/")
        self._must_mention = must_mention.encode()
        self._max_archive = max_archive
        self._max_unpacked = max_unpacked
        self._opted_in = opted_in

    def pull(self, cursor: Cursor | None, limit: int) -> Iterator[Page]:
        done: dict[str, str] = dict(cursor or {})
        number = 0
        for package in self._packages:
            if number >= limit:
                return
            notes: tuple[str, ...] = ()
            documents: tuple[Document, ...] = ()
            try:
                version, url, sha256 = self._newest(package)
                if done.get(package) == version:
                    continue
                documents = tuple(self._documents(package, version, url, sha256))
                done[package] = version
            except UnusableError as error:
                notes = (f"{package}: {error}",)
            number += len(documents)
            yield Page(documents, dict(done), notes)

    def _newest(self, package: str) -> tuple[str, str, str]:
        """Version, address and SHA-256 of the newest sdist that is no pre-release and was not withdrawn."""
        listed = self._client.get(f"{self._index}/{package}/", headers=_JSON)
        found = listed.json()
        best = None
        for file in found.get("files", []) if isinstance(found, dict) else []:
            if not isinstance(file, dict) or file.get("yanked"):
                continue
            name, hashes = str(file.get("filename", "")), file.get("hashes")
            try:
                project, version = parse_sdist_filename(name)
            except (InvalidSdistFilename, ValueError):
                continue
            sha256 = hashes.get("sha256") if isinstance(hashes, dict) else None
            if project != package or version.is_prerelease or not name.endswith(".tar.gz") or not sha256:
                continue
            if best is None or version > best[0]:
                best = (version, urljoin(listed.url, str(file.get("url", ""))), str(sha256))
        if best is None:
            raise UnusableError("no source distribution (.tar.gz) with a hash")
        return str(best[0]), best[1], best[2]

    def _documents(self, package: str, version: str, url: str, sha256: str) -> Iterator[Document]:
        data = self._client.get(url, max_bytes=self._max_archive).body
        if hashlib.sha256(data).hexdigest() != sha256:
            raise UnusableError(f"{url}: not the file that the index names (SHA-256)")
        files = self._unpacked(data, url)
        licence = _licence(files)
        verdict = licences.gate(licence, self._opted_in)
        if not verdict.store:
            raise UnusableError(verdict.reason)
        for path, content in sorted(files.items()):
            inside = path.partition("/")[2]
            if not _wanted(inside) or self._must_mention not in content:
                continue
            try:
                text = content.decode("utf-8")
            except UnicodeDecodeError:
                continue
            yield Document(
                source=self.name,
                id=f"{package}=={version}:{inside}",
                url=url,
                project=package,
                text="",
                blocks=(Block(clean(text), "file", path=inside),),
                licence=licence,
                train=verdict.train,
                fetched_at=timestamp(self._client.clock),
                provenance=f"{package}=={version}:{inside}",
                raw={"sha256": sha256},
            )

    def _unpacked(self, data: bytes, url: str) -> dict[str, bytes]:
        """Python and licence files of the archive by path, without links, devices, or anything too large."""
        files: dict[str, bytes] = {}
        inflater = zlib.decompressobj(wbits=31)
        try:
            inflated = inflater.decompress(data, self._max_unpacked)
            if inflater.unconsumed_tail:
                raise UnusableError(f"{url}: inflates to more than {self._max_unpacked / 1e6:g} MB")
            with tarfile.open(fileobj=io.BytesIO(inflated), mode="r:") as archive:
                for count, member in enumerate(archive):
                    if count >= _MOST_MEMBERS:
                        raise UnusableError(f"{url}: more than {_MOST_MEMBERS:,} files")
                    path = PurePosixPath(member.name)
                    if (
                        not member.isreg()
                        or member.size > _MAX_FILE
                        or path.is_absolute()
                        or ".." in path.parts
                    ):
                        continue
                    if path.suffix == ".py" or len(path.parts) <= 2:
                        content = archive.extractfile(member)
                        files[str(path)] = content.read() if content else b""
        except (tarfile.TarError, EOFError, OSError, ValueError, zlib.error) as error:
            raise UnusableError(f"{url}: an archive that does not unpack ({error})") from None
        return files


def _wanted(path: str) -> bool:
    parts = PurePosixPath(path).parts
    return (
        path.endswith(".py")
        and not _LEFT_OUT.intersection(parts)
        and not parts[-1].startswith(("test_", "conftest"))
    )


def _licence(files: Mapping[str, bytes]) -> str:
    """The licence in PKG-INFO; without one, that of the licence files at the top."""
    at_top = {path.partition("/")[2]: content for path, content in files.items() if path.count("/") == 1}
    metadata: Message = BytesParser().parsebytes(at_top.get("PKG-INFO", b""), headersonly=True)
    expression, named = _text(metadata["License-Expression"]), _text(metadata["License"])
    classifiers = [_text(value) or "" for value in metadata.get_all("Classifier", [])]
    declared = licences.of_metadata(expression, named, classifiers)
    texts = [
        licences.of_text(content.decode("utf-8", "replace"))
        for name, content in at_top.items()
        if name.lower().startswith(("license", "licence", "copying"))
    ]
    if declared is None and texts and None not in texts:
        return licences.together(text for text in texts if text)
    return declared or licences.UNKNOWN


def _text(value: Any) -> str | None:
    return None if value is None else clean(str(value), 20_000)
