from __future__ import annotations

import hashlib
import io
import json
import tarfile

import pytest

from tests.training.sources.fakes import FakeFiles, sdist
from tests.training.texts import GPL, MIT
from training.sources.packageindex import PackageIndex

META = b"Metadata-Version: 2.4\nName: net\nVersion: 1.2\nLicense-Expression: MIT\n\nReadme\n"
CODE = b"import torch\n\n\ndef f(x):\n    return x\n"


class Index:
    """Files and the pages of an index that name them."""

    def __init__(self, serving, files_host=None) -> None:
        self.server = serving(FakeFiles({}))
        self.listed: dict[str, list[dict[str, object]]] = {}

    def add(self, project: str, name: str, data: bytes, *, url: str = "", **values: object) -> None:
        self.server.files[f"/files/{name}"] = (data, "application/octet-stream")
        entry = {
            "filename": name,
            "url": url or f"../../files/{name}",
            "hashes": {"sha256": hashlib.sha256(data).hexdigest()},
            "yanked": False,
            **values,
        }
        self.listed.setdefault(project, []).append(entry)
        body = json.dumps({"meta": {"api-version": "1.1"}, "name": project, "files": self.listed[project]})
        self.server.files[f"/simple/{project}/"] = (body.encode(), "application/vnd.pypi.simple.v1+json")


@pytest.fixture
def index(serving):
    return Index(serving)


@pytest.fixture
def source(client_for, index):
    def make(*packages: str, **options: object) -> PackageIndex:
        return PackageIndex(client_for(index.server), packages, index=f"{index.server.url}/simple", **options)

    return make


def documents(pages):
    return [d for page in pages for d in page.documents]


def test_the_python_files_of_the_newest_sdist(index, source):
    files = {
        "PKG-INFO": META,
        "src/net/a.py": CODE,
        "src/net/no.py": b"x = 1\n",
        "tests/test_a.py": CODE,
        "src/net/test_b.py": CODE,
    }
    index.add("net", "net-1.2.tar.gz", sdist("net-1.2", files))
    index.add("net", "net-1.10rc1.tar.gz", sdist("net-1.10rc1", files))
    index.add("net", "net-1.9.tar.gz", sdist("net-1.9", files), yanked="broken")
    index.add("net", "net-1.1.tar.gz", sdist("net-1.1", files))
    index.add("net", "net-2.0-py3-none-any.whl", b"")
    (document,) = documents(source("Net").pull(None, 10))
    assert (document.provenance, document.project, document.licence, document.train) == (
        "net==1.2:src/net/a.py",
        "net",
        "MIT",
        True,
    )
    assert document.blocks[0].code == CODE.decode() and document.blocks[0].role == "file"


def test_a_version_is_read_once(index, source):
    index.add("net", "net-1.2.tar.gz", sdist("net-1.2", {"PKG-INFO": META, "a.py": CODE}))
    (page,) = source("net").pull(None, 10)
    assert page.cursor == {"net": "1.2"}
    assert list(source("net").pull(page.cursor, 10)) == []
    index.add("net", "net-1.3.tar.gz", sdist("net-1.3", {"PKG-INFO": META, "a.py": CODE}))
    assert len(documents(source("net").pull(page.cursor, 10))) == 1


@pytest.mark.parametrize(
    ("files", "licence"),
    [
        ({"PKG-INFO": b"Name: net\n\n", "LICENSE": MIT.encode()}, "MIT"),
        (
            {"PKG-INFO": b"Name: net\nClassifier: License :: OSI Approved :: Apache Software License\n\n"},
            "Apache-2.0",
        ),
        ({"PKG-INFO": b"Name: net\nLicense-Expression: GPL-3.0-only\n\n", "LICENSE": MIT.encode()}, None),
        ({"PKG-INFO": b"Name: net\n\n", "LICENSE": GPL.encode()}, None),
        ({"PKG-INFO": b"Name: net\n\n", "LICENSE": MIT.encode(), "COPYING": GPL.encode()}, None),
        ({}, None),
    ],
)
def test_the_licence_gate(index, source, files, licence):
    index.add("net", "net-1.2.tar.gz", sdist("net-1.2", {**files, "a.py": CODE}))
    (page,) = source("net").pull(None, 10)
    assert [d.licence for d in page.documents] == ([licence] if licence else [])
    assert bool(page.notes) is (licence is None)
    assert page.cursor == ({"net": "1.2"} if licence else {})


def _link(name: str) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
    return member


def test_links_and_odd_paths_are_left_out(index, source):
    hostile = {"../../evil.py": CODE, "a.py": CODE, "b.py": CODE + b"\xff", "huge.py": CODE + b"#" * 600_000}
    data = sdist("net-1.2", {"PKG-INFO": META, **hostile}, [_link("net-1.2/link.py"), _link("/abs.py")])
    index.add("net", "net-1.2.tar.gz", data)
    assert [d.blocks[0].path for d in documents(source("net").pull(None, 10))] == ["a.py"]


def test_archives_that_are_bombs_or_broken_or_swapped(index, source):
    index.add("bomb", "bomb-1.tar.gz", sdist("bomb-1", {"PKG-INFO": META, "a.py": b"\0" * 5_000_000}))
    index.add(
        "cut", "cut-1.tar.gz", sdist("cut-1", {"PKG-INFO": META, "a.py": bytes(range(256)) * 200})[:300]
    )
    index.add("odd", "odd-1.tar.gz", b"not an archive")
    index.add("swapped", "swapped-1.tar.gz", sdist("swapped-1", {"a.py": CODE}), hashes={"sha256": "0" * 64})
    index.add("bare", "bare-1.tar.gz", sdist("bare-1", {"a.py": CODE}), hashes={})
    index.add("big", "big-1.tar.gz", sdist("big-1", {"PKG-INFO": META}) + bytes(3_000_000))
    names = ("bomb", "cut", "odd", "swapped", "bare", "big", "missing")
    pages = list(source(*names, max_unpacked=1_000_000, max_archive=1_000_000).pull(None, 10))
    notes = [note for page in pages for note in page.notes]
    assert documents(pages) == [] and len(notes) == len(names)
    for name, why in zip(
        names, ("inflates to", "unpack", "unpack", "SHA-256", "no source", "larger", "404"), strict=True
    ):
        assert any(note.startswith(name) and why in note for note in notes), (name, notes)


def test_a_file_on_another_host_is_not_fetched(index, source):
    index.add(
        "net", "net-1.2.tar.gz", sdist("net-1.2", {"a.py": CODE}), url="http://169.254.169.254/net-1.2.tar.gz"
    )
    (page,) = source("net").pull(None, 10)
    assert "not one of the hosts" in page.notes[0]


@pytest.mark.parametrize("body", [b"[]", b"{}", b'{"files": [null, {"filename": 3}]}', b"<html>"])
def test_an_index_that_answers_nonsense(index, source, body):
    index.server.files["/simple/net/"] = (body, "application/json")
    (page,) = source("net").pull(None, 10)
    assert page.documents == () and len(page.notes) == 1


def test_a_tar_with_a_lying_size(index, source):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        member = tarfile.TarInfo("net-1.2/a.py")
        member.size = 400_000
        archive.fileobj.write(member.tobuf())  # and nothing after it
    index.add("net", "net-1.2.tar.gz", out.getvalue())
    (page,) = source("net").pull(None, 10)
    assert page.documents == () and len(page.notes) == 1
