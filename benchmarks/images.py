"""How long the images take to build, what of them a change of one line builds again, and how large they are.

    python -m benchmarks.images [--image bot] [--image worker] [--base IMAGE] [--engine WORDS] [--options WORDS]

Builds what is committed with Buildah: once from the start (the caches of pip, uv and apt stay as they are), then again with another
line in a file of code. Where the base cannot be pulled, `--base` names one that is there; `--engine "buildah --storage-driver vfs"`
and `--options "--isolation chroot"` need neither a daemon nor the rights of one.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

ROOT = Path(__file__).parents[1]
IMAGES = ("bot", "worker")  # those of the other Dockerfile take a base of NVIDIA's and ten gigabytes
CHANGED = "service/__init__.py"  # code that each image has


@dataclass(frozen=True, slots=True)
class Build:
    wall: float  # seconds
    cpu: float  # seconds of this process's children, over all cores
    layers: tuple[str, ...]  # digests, the base's first
    size: str


class Engine:
    """Buildah, with the options that go before its commands and those of a build."""

    def __init__(self, command: Sequence[str], options: Sequence[str]) -> None:
        self._command, self._options = list(command), list(options)

    def build(self, target: str, context: Path, *, afresh: bool) -> Build:
        """RuntimeError with the end of what the engine printed when the build fails."""
        tag = f"localhost/ptopt-measured-{target}"
        words = [
            "build",
            "--layers",
            "--format",
            "docker",
            *self._options,
            *(["--no-cache"] if afresh else []),
        ]
        words += [
            "--file",
            str(context / "docker" / "Dockerfile"),
            "--target",
            target,
            "--tag",
            tag,
            str(context),
        ]
        before, started = os.times(), time.monotonic()
        self._run(*words)
        wall, after = time.monotonic() - started, os.times()
        cpu = after.children_user + after.children_system - before.children_user - before.children_system
        layers = json.loads(self._run("inspect", "--type", "image", tag))["OCIv1"]["rootfs"]["diff_ids"]
        (image,) = json.loads(self._run("images", "--json", tag))
        return Build(wall, cpu, tuple(layers), image["size"])

    def _run(self, *words: str) -> str:
        done = subprocess.run([*self._command, *words], capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(words[:1])}: {(done.stdout + done.stderr)[-2000:]}")
        return done.stdout


def committed(folder: Path) -> Path:
    """The tree of HEAD, as a checkout in CI has it."""
    with subprocess.Popen(["git", "archive", "HEAD"], cwd=ROOT, stdout=subprocess.PIPE) as archive:
        subprocess.run(["tar", "--extract", "--directory", folder], stdin=archive.stdout, check=True)
    return folder


def row(target: str, cold: Build, cached: Build, again: Build) -> str:
    """A row of the table. Raises ValueError where a change of code rebuilt more than the last layer."""
    kept = sum(
        1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(cached.layers, again.layers, strict=False))
    )
    if kept < len(again.layers) - 1:
        raise ValueError(
            f"{target}: a change of code keeps {kept} of {len(again.layers)} layers, not all but the last"
        )
    return (
        f"| `{target}` | {cold.wall:.0f} s, {cold.cpu:.0f} s of CPU | {again.wall:.0f} s, {again.cpu:.0f} s of CPU "
        f"| {kept} of {len(again.layers)} | {again.size} |"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--image", action="append", choices=IMAGES, help="default: each")
    parser.add_argument("--base", help="instead of the base that the Dockerfile names")
    parser.add_argument("--engine", default="buildah", help="Buildah with global options, as a shell has it")
    parser.add_argument("--options", default="", help="of each build, as a shell has them")
    given = parser.parse_args(arguments)
    options = shlex.split(given.options) + (
        ["--build-arg", f"PYTHON_IMAGE={given.base}"] if given.base else []
    )
    engine = Engine(shlex.split(given.engine), options)
    print(
        "| image | from the start | after a change of one line | layers kept | size |\n| --- | --- | --- | --- | --- |"
    )
    for target in given.image or IMAGES:
        with tempfile.TemporaryDirectory(prefix="ptopt-image-") as folder:
            context = committed(Path(folder))
            cold = engine.build(target, context, afresh=True)
            # Of several builds of the same step, the engine takes one: what it takes now is what it may keep.
            cached = engine.build(target, context, afresh=False)
            with (context / CHANGED).open("a", encoding="utf-8") as file:
                file.write("CHANGED = True\n")
            print(row(target, cold, cached, engine.build(target, context, afresh=False)), flush=True)


if __name__ == "__main__":
    main()
