"""The measurement of the images, with a program in the place of Buildah."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from benchmarks import images

ENGINE = """\
import json, sys
from pathlib import Path

words, log = sys.argv[2:], Path(sys.argv[1])
if words[0] == "build":
    context = Path(words[-1])
    log.write_text(log.read_text() + json.dumps(words) + "\\n")
    if "broken" in words:
        sys.exit("no such base")
    log.with_name("code").write_text((context / "service" / "__init__.py").read_text())
elif words[0] == "inspect":
    code = log.with_name("code").read_text()
    packages = "changed" if "CHANGED" in code and "--all" in log.read_text() else "packages"
    print(json.dumps({"OCIv1": {"rootfs": {"type": "layers", "diff_ids": ["base", packages, code]}}}))
else:
    print(json.dumps([{"size": "514 MB"}]))
"""


@pytest.fixture
def engine(tmp_path: Path) -> str:
    (tmp_path / "engine.py").write_text(ENGINE)
    (tmp_path / "log").write_text("")
    return shlex.join([sys.executable, str(tmp_path / "engine.py"), str(tmp_path / "log")])


def test_a_build_from_the_start_and_one_after_a_change(
    engine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    images.main(["--image", "bot", "--engine", engine, "--options", "--isolation chroot", "--base", "mine:1"])
    printed = capsys.readouterr().out.splitlines()
    assert printed[-1].startswith("| `bot` | ") and printed[-1].endswith("| 2 of 3 | 514 MB |")
    first, *cached = (tmp_path / "log").read_text().splitlines()
    assert "--no-cache" in first and len(cached) == 2 and "--no-cache" not in "".join(cached)
    for given in (first, *cached):
        assert '"--isolation", "chroot"' in given and '"--build-arg", "PYTHON_IMAGE=mine:1"' in given


def test_packages_that_are_built_again_are_an_error(engine: str) -> None:
    with pytest.raises(ValueError, match="keeps 1 of 3 layers"):
        images.main(["--image", "worker", "--engine", engine, "--options=--all"])


def test_what_the_engine_says_is_shown(engine: str) -> None:
    with pytest.raises(RuntimeError, match="no such base"):
        images.main(["--image", "bot", "--engine", engine, "--options", "broken"])
