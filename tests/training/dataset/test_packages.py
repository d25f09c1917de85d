from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from training.dataset.licences import gate
from training.dataset.packages import Package, PackageError, fetch, packages, sources

METADATA = "Metadata-Version: 2.4\nName: demo\nVersion: 1\nLicense-Expression: MIT\n"
CODE = "import torch\n"


def wheel(folder: Path, files: Mapping[str, str | bytes], metadata: str = METADATA) -> Path:
    place = folder / "demo-1-py3-none-any.whl"
    with zipfile.ZipFile(place, "w") as archive:
        archive.writestr("demo-1.dist-info/METADATA", metadata)
        for name, content in files.items():
            archive.writestr(name, content)
    return place


def package(place: Path, licence: str = "MIT") -> Package:
    return Package("demo", "1", place.name, hashlib.sha256(place.read_bytes()).hexdigest(), licence)


def names(place: Path) -> set[str]:
    return {path for path, _ in sources(package(place), place)}


def test_the_pins_are_whole() -> None:
    pins = packages()
    assert len(pins) >= 40
    assert len({p.name.lower() for p in pins}) == len(pins)
    assert sum(p.demo for p in pins) >= 5
    for pin in pins:
        assert gate(pin.licence).train
        assert len(pin.sha256) == 64
        assert pin.file.endswith("-none-any.whl")


def test_python_files_that_use_torch_are_read(tmp_path: Path) -> None:
    files = {"demo/a.py": CODE, "demo/b.py": "x = 1\n", "demo/c.txt": CODE, "demo/tests/test_a.py": CODE}
    assert names(wheel(tmp_path, files)) == {"demo/a.py"}


def test_members_that_leave_the_tree_are_not_read(tmp_path: Path) -> None:
    files = {
        "/etc/a.py": CODE,
        "../b.py": CODE,
        "demo/../../c.py": CODE,
        "demo\\d.py": CODE,
        "demo/e.py": CODE,
    }
    assert names(wheel(tmp_path, files)) <= {
        "demo/e.py",
        "demo/d.py",
    }  # zipfile itself mends backslashes on some systems


def test_links_are_not_read(tmp_path: Path) -> None:
    place = wheel(tmp_path, {})
    link = zipfile.ZipInfo("demo/link.py")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(place, "a") as archive:
        archive.writestr(link, "import torch")
    assert names(place) == set()


def test_a_file_that_says_it_is_under_another_licence_is_left_out(tmp_path: Path) -> None:
    files = {
        "demo/a.py": "# For non-commercial use only\n" + CODE,
        "demo/b.py": "# GNU General Public License\n" + CODE,
    }
    assert names(wheel(tmp_path, files)) == set()


def test_what_is_no_text_is_left_out(tmp_path: Path) -> None:
    assert names(wheel(tmp_path, {"demo/a.py": b"\xff\xfe torch", "demo/b.py": CODE})) == {"demo/b.py"}


def test_sizes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training.dataset.packages.MAX_FILE_BYTES", 100)
    monkeypatch.setattr("training.dataset.packages.MAX_TOTAL_BYTES", 150)
    place = wheel(tmp_path, {"demo/a.py": CODE + "#" * 200})
    assert names(place) == set()
    place = wheel(tmp_path, {f"demo/{n}.py": CODE + "#" * 70 for n in range(3)})
    with pytest.raises(PackageError, match="unpacks to more than 150"):
        names(place)


@pytest.mark.parametrize(
    ("metadata", "pinned", "message"),
    [
        (METADATA.replace("MIT", "GPL-3.0-only"), "MIT", "pinned as MIT, and its files name GPL-3.0-only"),
        ("Metadata-Version: 2.4\nName: demo\n", "MIT", "nothing that is understood"),
        (METADATA.replace("MIT", "GPL-3.0-only"), "GPL-3.0-only", "not on the list"),
    ],
)
def test_the_licence_must_be_the_pinned_one(tmp_path: Path, metadata: str, pinned: str, message: str) -> None:
    place = wheel(tmp_path, {"demo/a.py": CODE}, metadata)
    with pytest.raises(PackageError, match=message):
        list(sources(package(place, pinned), place))


def test_a_file_with_another_hash_is_refused(tmp_path: Path) -> None:
    place = wheel(tmp_path, {"demo/a.py": CODE})
    pin = package(place)
    assert fetch(pin, tmp_path) == place
    place.write_bytes(place.read_bytes() + b" ")
    with pytest.raises(PackageError, match="not the pinned file"):
        fetch(pin, tmp_path)
