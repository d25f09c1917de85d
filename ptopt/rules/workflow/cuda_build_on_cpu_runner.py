from __future__ import annotations

import re
from collections.abc import Iterator

from ptopt.rules.base import Invalid
from ptopt.rules.configs import ConfigFile, ConfigProblem, ConfigRule, Edit, Fix, Safety
from ptopt.rules.workflow._jobs import TorchInstall, runs_often, torch_installs

_CHOSEN = re.compile(
    r"index|find-links|\s-f\b|\s-i\b|torch-backend|\+cpu|\+cu|TORCH|\$\{\{|\$\{?[A-Z_]+|--pre\b|\.whl|torch[=~<>!]*=?=?\s*[\"']?[01]\."
)
_CPU = "https://download.pytorch.org/whl/cpu"


class CudaBuildOnCpuRunner(ConfigRule):
    """A workflow installs the CUDA build of PyTorch on a runner without a GPU.

    ## What it does
    Finds `pip install torch` without an index or build in jobs on GitHub's Linux runners, and the installation of the project or of
    a file of requirements that names torch.

    ## Why it is slow
    The default wheel of torch for Linux brings CUDA libraries: gigabytes to download, unpack and import in each run, for
    a runner without a GPU. The CPU build has some 200 MB.

    ## Fix safety
    Unsafe: pip then prefers the CPU build, whose version carries `+cpu`; a lock file with hashes would refuse it.

    ## Sources
    - [PyTorch: install](https://pytorch.org/get-started/locally/)
    - [uv: using PyTorch](https://docs.astral.sh/uv/guides/integration/pytorch/)
    """

    id = "PTO072"
    name = "cuda-build-on-cpu-runner"
    family = "workflow"
    kinds = frozenset({"workflow"})
    prior = 0.85
    when_wrong = "the job needs the CUDA libraries, for example to compile an extension"

    VALID = (
        """
        on: push
        jobs:
          test:
            runs-on: ubuntu-latest
            steps:
              - run: pip install torch --index-url https://download.pytorch.org/whl/cpu
        """,
        """
        on: push
        jobs:
          test:
            runs-on: macos-latest
            steps:
              - run: pip install torch
        """,
        """
        on: push
        jobs:
          test:
            runs-on: linux-4-gpu
            steps:
              - run: pip install torch
        """,
    )
    INVALID = (
        Invalid("""
            on: push
            jobs:
              test:
                runs-on: ubuntu-latest
                steps:
                  - run: pip install torch  # !
                  # + - run: pip install torch --extra-index-url https://download.pytorch.org/whl/cpu
        """),
        Invalid("""
            on: push
            jobs:
              test:
                runs-on: ubuntu-22.04
                steps:
                  - run: |
                      pip install --upgrade pip
                      python -m pip install torch==2.5.0 torchvision  # !
                      # + python -m pip install torch==2.5.0 torchvision --extra-index-url https://download.pytorch.org/whl/cpu
                      pip install -r requirements.txt
        """),
        Invalid("""
            on: push
            jobs:
              test:
                runs-on: ubuntu-latest
                steps:
                  - run: uv pip install --system torch  # !
                  # + - run: uv pip install --system torch --torch-backend=cpu
        """),
    )

    def check_config(self, file: ConfigFile) -> Iterator[ConfigProblem]:
        if re.search(r"(?:PIP_(?:EXTRA_)?INDEX_URL|UV_TORCH_BACKEND|UV_INDEX)", file.text):
            return
        often = runs_often(file)
        for found in torch_installs(file):
            if _CHOSEN.search(found.install.text) or (found.named and "torch" not in found.install.packages):
                continue
            what = (
                "The default wheel of torch for Linux brings"
                if found.named
                else "This installs torch, too, whose default wheel for Linux brings"
            )
            yield ConfigProblem(
                found.start,
                found.end,
                f"{what} gigabytes of CUDA libraries, and this runner has no GPU. The build "
                f"from `{_CPU}` has some 200 MB.",
                found.job,
                fix=_fix(file, found),
                confidence=None if often else 0.4,
            )


def _fix(file: ConfigFile, found: TorchInstall) -> Fix:
    option = "--torch-backend=cpu" if found.install.tool == "uv" else f"--extra-index-url {_CPU}"
    at = file.document.byte(found.end)
    assumption = "the job needs no CUDA library, and no hashes are checked"
    return Fix(Safety.UNSAFE, (Edit(at, at, f" {option}"),), assumption)
