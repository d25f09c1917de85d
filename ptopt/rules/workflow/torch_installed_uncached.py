from __future__ import annotations

import re
from collections.abc import Iterator

from ptopt.configs.values import Mapping
from ptopt.rules.base import Invalid
from ptopt.rules.configs import ConfigFile, ConfigProblem, ConfigRule, Edit, Fix, Safety, Severity
from ptopt.rules.workflow._jobs import TorchInstall, runs_often, torch_installs

_CACHES = re.compile(
    r"actions/cache|setup-uv|setup-micromamba|setup-miniconda|cache-apt|runs-on/cache|setup-pixi|setup-poetry"
)


class TorchInstalledUncached(ConfigRule):
    """A workflow downloads PyTorch anew in each run.

    ## What it does
    Finds jobs on GitHub's runners that install torch with pip, where neither `actions/setup-python` (`cache: pip`), nor `actions/cache`,
    nor `setup-uv` keeps the wheels.

    ## Why it is slow
    The wheel of PyTorch and what it needs are hundreds of megabytes, with CUDA some gigabytes; each run of each job of the
    matrix downloads them.

    ## When this is wrong
    When the cache of the repository, 10 GB, is needed for something else.

    ## Fix safety
    Unsafe: `setup-python` takes the key of the cache from `requirements.txt` or `pyproject.toml`, so the repository must have one.

    ## Sources
    - [setup-python: caching packages](https://github.com/actions/setup-python#caching-packages-dependencies)
    """

    id = "PTO071"
    name = "torch-installed-uncached"
    family = "workflow"
    severity = Severity.LOW
    kinds = frozenset({"workflow"})
    prior = 0.5
    when_wrong = "the cache of the repository is needed for something else"

    VALID = (
        """
        on: push
        jobs:
          test:
            runs-on: ubuntu-latest
            steps:
              - uses: actions/setup-python@v5
                with: {python-version: "3.12", cache: pip}
              - run: pip install torch
        """,
        """
        on: push
        jobs:
          test:
            runs-on: [self-hosted, gpu]
            steps:
              - run: pip install torch
        """,
        """
        on: push
        jobs:
          test:
            runs-on: ubuntu-latest
            steps:
              - uses: astral-sh/setup-uv@v6
              - run: uv pip install --system torch
        """,
    )
    INVALID = (
        Invalid("""
            on: push
            jobs:
              test:
                runs-on: ubuntu-latest
                steps:
                  - uses: actions/setup-python@v5
                    with:
                      python-version: "3.12"
                      # + python-version: "3.12"
                      # + cache: pip
                  - run: pip install torch --index-url https://download.pytorch.org/whl/cu128  # !
        """),
        Invalid("""
            on: [push]
            jobs:
              test:
                runs-on: ${{ matrix.os }}
                strategy:
                  matrix:
                    os: [ubuntu-22.04, macos-latest]
                steps:
                  - run: |
                      python -m pip install --upgrade pip
                      pip install torch==2.5.0 torchvision  # !
        """),
        Invalid("""
            on: [push]
            jobs:
              test:
                runs-on: ubuntu-latest
                steps:
                  - uses: actions/setup-python@v5
                  - run: pip install torch  # !
        """),
    )

    def check_config(self, file: ConfigFile) -> Iterator[ConfigProblem]:
        for found in torch_installs(file):
            uses = [str(step.scalar("uses") or "") for step in found.steps]
            setups = [step for step, name in zip(found.steps, uses, strict=True) if "setup-python" in name]
            if any(map(_CACHES.search, uses)) or any(
                step.get("with", "cache") is not None for step in found.steps
            ):
                continue
            if (
                not found.named or found.install.tool == "uv" or any(name.startswith("./") for name in uses)
            ):  # what an own action does is not seen
                continue
            fix = _fix(file, setups[0]) if len(setups) == 1 else None
            yield ConfigProblem(
                found.start,
                found.end,
                "PyTorch is downloaded anew in each run of this job, hundreds of megabytes or more. Keep the wheels with "
                "`cache: pip` of `actions/setup-python`.",
                found.job,
                fix=fix,
                confidence=None if _is_large(found) and runs_often(file) else 0.35,
            )


def _is_large(found: TorchInstall) -> bool:
    """A build with CUDA on purpose. One without is downloaded as fast as a cache is restored; a default build is PTO072's."""
    return re.search(r"whl/(?:nightly/)?cu\d|\+cu\d|matrix\.cuda", found.install.text) is not None


def _fix(file: ConfigFile, setup: Mapping) -> Fix | None:
    """`cache: pip` below `python-version`, in the block form."""
    version = setup.entry("with", "python-version")
    options = setup.mapping("with")
    if version is None or options is None or options.flow or version.merged:
        return None
    column = file.document.column(version.key.start) - 1
    line_end = file.text.find("\n", version.value.end)
    at = file.document.byte(line_end if line_end >= 0 else len(file.text))
    edit = Edit(at, at, f"\n{' ' * column}cache: pip")
    return Fix(
        Safety.UNSAFE,
        (edit,),
        "the repository has a requirements.txt or pyproject.toml for the key of the cache",
    )
