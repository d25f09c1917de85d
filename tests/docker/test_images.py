"""The Dockerfiles: what hadolint says, what they copy, and what keeps their layers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ptopt
from ptopt.address import REPOSITORY

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
FILES = [ROOT / "docker/Dockerfile", ROOT / "docker/gpu.Dockerfile"]
TARGETS = {"bot", "worker", "worker-gpu", "training"}


def hadolint(path: Path) -> subprocess.CompletedProcess[str]:
    command = [Path(sys.executable).with_name("hadolint"), path]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def stages(path: Path) -> dict[str, str]:
    """The text of each stage, by name."""
    parts = re.split(r"^FROM (\S+) AS (\S+)$", path.read_text(encoding="utf-8"), flags=re.M)
    return dict(zip(parts[2::3], parts[3::3], strict=True))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_hadolint(path: Path) -> None:
    done = hadolint(path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_planted_fault_is_found(tmp_path: Path) -> None:
    broken = tmp_path / "Dockerfile"
    broken.write_text(FILES[0].read_text() + "USER root\nRUN sudo cd /app\n")
    assert hadolint(broken).returncode != 0


def test_the_targets() -> None:
    assert {name for path in FILES for name in stages(path)} >= TARGETS


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_bases_are_arguments_and_nothing_is_latest(path: Path) -> None:
    text = path.read_text()
    own = stages(path)
    for base in re.findall(r"^FROM (\S+)", text, re.M):
        assert base in own or re.fullmatch(r"\$\{(?:PYTHON|CUDA)_IMAGE\}", base), base
    for image in re.findall(r"^ARG \w+_IMAGE=(\S+)$", text, re.M):
        assert re.fullmatch(r"[\w./-]+:[\w.-]*\d[\w.-]*(?:@sha256:[0-9a-f]{64})?", image), image
    versions = {re.findall(r"^ARG UV_VERSION=(\S+)$", file.read_text(), re.M)[0] for file in FILES}
    assert len(versions) == 1


@pytest.mark.parametrize(("path", "target"), [(p, t) for p in FILES for t in stages(p) if t in TARGETS])
def test_a_final_image(path: Path, target: str) -> None:
    text = stages(path)[target]
    assert text.count("USER 10001:10001") == 1
    assert "HEALTHCHECK" in text
    assert f'org.opencontainers.image.source="https://github.com/{REPOSITORY}"' in text
    assert f"ARG VERSION={ptopt.__version__}\n" in text
    # Packages change seldom, code with each commit.
    copied = re.findall(r"^COPY --from=(\S+)", text, re.M)
    assert len(copied) == 2 and copied[0].endswith("-packages") and copied[1] == "code"
    assert "RUN" not in text


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_change_of_code_leaves_the_packages(path: Path) -> None:
    """No stage before the last copies code; requirements are mounted, each into the stage that installs them."""
    for name, text in stages(path).items():
        if name.endswith("-packages"):
            (file,) = re.findall(r"source=(\S+?),", text)
            assert (ROOT / file).is_file()
            assert "COPY" not in text and "--mount=type=cache" in text and "--require-hashes" in text


def test_the_context_holds_what_the_images_need_and_nothing_else() -> None:
    """As .dockerignore leaves it: what is new is left out until it is named."""
    lines = [line for line in (ROOT / ".dockerignore").read_text().split("\n") if line and line[0] != "#"]
    assert lines[0] == "*"
    kept = {line[1:] for line in lines if line[0] == "!"}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert set(project["tool"]["importlinter"]["root_packages"]) <= kept
    assert all(list(ROOT.glob(pattern)) for pattern in kept)


@pytest.mark.slow
def test_the_code_of_an_image_runs_from_its_folder(tmp_path: Path) -> None:
    """The code alone, as an image has it: no file of the repository besides is missed."""
    lines = (ROOT / ".dockerignore").read_text().split("\n")
    for name in (line[1:] for line in lines if line.startswith("!") and (ROOT / line[1:]).is_dir()):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        os.symlink(ROOT / name, tmp_path / name)
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path), "HOME": str(tmp_path)}
    for module in ("bot", "embedded", "worker.scheduler", "service"):
        done = subprocess.run(
            [sys.executable, "-m", module, "--help"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("file", "extras"), [("gpu", {"service", "gpu"}), ("training", {"service", "training"})]
)
def test_the_packages_of_the_gpu_images_are_pinned(file: str, extras: set[str]) -> None:
    """`make image-requirements` writes them."""
    text = (ROOT / f"docker/{file}-requirements.txt").read_text()
    names = re.findall(r"^([\w.-]+)(?:\[[\w,-]+\])?==\S+ .*\\\n\s+--hash=sha256:[0-9a-f]{64}", text, re.M)
    assert len(names) == len(re.findall(r"^[^\s#]", text, re.M))
    wanted = {"torch", "transformers", "celery"} | ({"vllm"} if "gpu" in extras else {"trl"})
    assert wanted <= set(names)
