"""What a project says of its versions, from the files in which real projects say it."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptopt.project.facts import FACT_FILES, NO_FACTS, PACKAGES, ProjectFacts, read_facts


def facts(**files: str) -> ProjectFacts:
    """`facts(requirements__txt="...")`: a name with its dots doubled as underscores."""
    return read_facts({name.replace("__", "."): text.encode() for name, text in files.items()})


def one(path: str, text: str, package: str = "torch") -> str:
    return read_facts({path: text.encode()}).describe(package)


REQUIREMENTS = """\
# torch==1.0
torch[opt]>=2.1, <3  # a comment
pytorch_lightning~=2.2; python_version >= "3.8"
transformers==4.40.0 \\
    --hash=sha256:aaaa \\
    --hash=sha256:bbbb
numpy<2; sys_platform == "darwin"
datasets
torch-geometric==1.0
--extra-index-url https://download.pytorch.org/whl/cu118
accelerate @ https://example.org/accelerate-0.30.1-py3-none-any.whl
https://download.pytorch.org/whl/cu118/torchvision-0.16.0%2Bcu118-cp310-cp310-linux_x86_64.whl
peft @ git+https://github.com/huggingface/peft
"""


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_requirements(end: str, encoding: str) -> None:
    found = read_facts({"requirements.txt": REQUIREMENTS.replace("\n", end).encode(encoding)})
    assert found.unread == ()
    assert {name: found.describe(name) for name in sorted(found.pins)} == {
        "accelerate": "accelerate==0.30.1 (requirements.txt:11)",
        "datasets": "",
        "pytorch-lightning": "pytorch-lightning~=2.2 (requirements.txt:3)",
        "torch": "torch<3,>=2.1 (requirements.txt:2)",
        "torchvision": "torchvision==0.16.0+cu118 (requirements.txt:12)",
        "transformers": "transformers==4.40.0 (requirements.txt:4)",
    }
    assert not found.known("datasets")
    assert not found.known("peft")


def test_includes_are_followed_once_and_only_among_the_given_files() -> None:
    found = read_facts(
        {
            "requirements.txt": b"-r deps/all.txt\n-r /etc/passwd\n--requirement=gone.txt\n",
            "deps/all.txt": b"-c ../requirements.txt\n-r gpu.txt\n",
            "deps/gpu.txt": b"torch==2.2.1\n",
            "deps/unused.txt": b"torch==1.0\n",
        }
    )
    assert found.describe("torch") == "torch==2.2.1 (deps/gpu.txt:1)"
    assert len(found.pins["torch"]) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[project]\ndependencies = [\n  "numpy",\n  "torch>=2.1",\n]\n', "torch>=2.1 (pyproject.toml:4)"),
        ("[project.optional-dependencies]\ngpu = ['torch~=2.3.0']\n", "torch~=2.3.0 (pyproject.toml:2)"),
        (
            '[dependency-groups]\ndev = [{include-group = "a"}, "torch==2.5.*"]\n',
            "torch==2.5.* (pyproject.toml:2)",
        ),
        ('[tool.poetry.dependencies]\npython = "^3.9"\ntorch = "^2.1"\n', "torch<3,>=2.1 (pyproject.toml:3)"),
        (
            '[tool.poetry.group.x.dependencies]\ntorch = {version = "~2.1.3", source = "a"}\n',
            "torch<2.2,>=2.1.3 (pyproject.toml:2)",
        ),
        ('[tool.poetry.dependencies]\ntorch = "2.1.0"\n', "torch==2.1.0 (pyproject.toml:2)"),
        ('[tool.poetry.dependencies]\ntorch = "*"\n', ""),
        (
            '[tool.poetry.dependencies]\ntorch = [{version="^1.13"}, {version=">=2.0"}]\n',
            "torch<2,>=1.13 (pyproject.toml:2)",
        ),
        (
            '[tool.poetry.dependencies]\ntorch = {url = "https://h/torch-2.0.1%2Bcpu-cp310-x-y.whl"}\n',
            "torch==2.0.1+cpu (pyproject.toml:2)",
        ),
        ('[tool.uv]\nconstraint-dependencies = ["torch<2.6"]\n', "torch<2.6 (pyproject.toml:2)"),
        ('[tool.hatch.envs.train]\ndependencies = ["torch>=2.2"]\n', "torch>=2.2 (pyproject.toml:2)"),
        ('[build-system]\nrequires = ["torch==1.0"]\n', ""),
        ("[project]\ndependencies = 3\n[tool]\npoetry = []\nuv = {dev-dependencies = {a = 1}}\n", ""),
    ],
)
def test_pyproject(text: str, expected: str) -> None:
    assert one("pyproject.toml", text) == expected


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("uv.lock", 'version = 1\n\n[[package]]\nname = "torch"\nversion = "2.4.1+cu121"\nsource = {}\n', "torch==2.4.1+cu121 (uv.lock:5)"),
        ("poetry.lock", '[[package]]\r\nname = "torch"\r\nversion = "2.0.1"\r\n', "torch==2.0.1 (poetry.lock:3)"),
        ("pylock.toml", '[[packages]]\nname = "torch"\nversion = "2.6.0"\n', "torch==2.6.0 (pylock.toml:3)"),
        ("Pipfile.lock", '{\n "default": {\n  "torch": {"version": "==2.1.0"}\n }\n}', "torch==2.1.0 (Pipfile.lock:3)"),
        ("Pipfile", '[packages]\ntorch = {version = ">=2.0", index = "x"}\nnumpy = "*"\n', "torch>=2.0 (Pipfile:2)"),
        ("setup.cfg", "[options]\ninstall_requires =\n    numpy\n    torch>=1.13\n", "torch>=1.13 (setup.cfg:4)"),
        ("setup.cfg", "[options.extras_require]\nall =\n    torch==2.0; python_version > '3'\n", "torch==2.0 (setup.cfg:3)"),
        ("setup.py", "from setuptools import setup\nsetup(install_requires=[\n'torch>=2.0',\n])\n", "torch>=2.0 (setup.py:3)"),
        ("setup.py", "deps = ['numpy']\ndeps += []\nextras = {}\nextras['a'] = ['torch>=1.9']\nsetup(extras_require=extras)\n", "torch>=1.9 (setup.py:4)"),
        ("setup.py", "a = b\nb = a\nsetup(install_requires=a)\nother = ['torch==1.0']\n", ""),
        ("Dockerfile", "FROM pytorch/pytorch:2.1.0-cuda12.1-cudnn8-runtime AS base\n", "torch==2.1.0 (Dockerfile:1)"),
        ("Dockerfile", "from --platform=linux/amd64 docker.io/pytorch/pytorch:2.6.0-cuda\n", "torch==2.6.0 (Dockerfile:1)"),
        ("Dockerfile", "FROM pytorch/pytorch:latest\nFROM nvcr.io/nvidia/pytorch:24.01-py3\n", ""),
        ("Dockerfile", "FROM x\nRUN apt update && \\\n  # why\n  pip3 install --no-cache-dir 'torch==2.3.0+cu121' numpy\n", "torch==2.3.0+cu121 (Dockerfile:2)"),
        ("Dockerfile", "FROM pytorch/pytorch:2.1.0-a\n# RUN pip install torch==1.0\nRUN uv pip install torch==2.2.0; echo torch==1.0\n", "torch==2.2.0 (Dockerfile:3)"),
        ("Dockerfile", "FROM pytorch/pytorch:2.1.0-a\nRUN pip install torch>=1.8\n", "torch==2.1.0 (Dockerfile:1)"),
        ("docker/Dockerfile", "RUN conda install -y pytorch=2.0.1 -c pytorch\n", "torch==2.0.1 (docker/Dockerfile:1)"),
    ],
)  # fmt: skip
def test_other_files(path: str, text: str, expected: str) -> None:
    assert one(path, text) == expected


ENVIRONMENT = """\
name: train
channels:
  - pytorch=9.9
dependencies:
  - python=3.10
  - pytorch::pytorch={version}  # the trainer
  - pytorch::pytorch-cuda=12.1
  - "numpy 1.26.*"
  - pip
  - pip:
    - transformers==4.41.2
    - trl>=0.8
  - torchvision=0.17.0=py310_cu121
variables:
  - torch=1.0
"""


@pytest.mark.parametrize(
    ("version", "specifier"),
    [
        ("2.1", "==2.1.*"),
        ("2.1.*", "==2.1.*"),
        ("2.1.0", "==2.1.0"),
        ("=2.1", "==2.1"),
        ("2.1.0=py3_cuda", "==2.1.0"),
    ],
)
def test_conda_environment(version: str, specifier: str) -> None:
    found = read_facts(
        {"environment.yml": ENVIRONMENT.format(version=version).replace("\n", "\r\n").encode()}
    )
    assert {pin.package: (pin.specifier, pin.line) for pins in found.pins.values() for pin in pins} == {
        "torch": (specifier, 6),
        "numpy": ("==1.26.*", 8),
        "transformers": ("==4.41.2", 11),
        "trl": (">=0.8", 12),
        "torchvision": ("==0.17.0", 13),
    }
    assert found.pins["torch"][0].exact == (".*" not in specifier)


def test_conda_range() -> None:
    assert one("conda.yaml", "dependencies:\n- pytorch>=2.0,<3\n") == "torch<3,>=2.0 (conda.yaml:2)"
    assert one("environment.yaml", "dependencies:\n- pytorch >=2.0\n") == "torch>=2.0 (environment.yaml:2)"


@pytest.mark.parametrize(
    ("specifier", "version", "expected"),
    [
        (">=2.1", "2.1", True),
        (">=2.1", "2.0.1", True),
        (">=2.1", "2.2", False),
        (">=2.1,<2.4", "2.4", False),
        ("~=2.1", "2.1", True),
        ("==2.1.*", "2.1", True),
        ("==2.1.*", "2.2", False),
        ("==2.3.0+cu121", "2.3.0", True),
        ("==2.4.0rc1", "2.4", True),
        (">2.1", "2.1", True),
        ("<2.0", "2.0", False),
        ("<2.6", "2.4", None),
        ("", "1.0", None),
        ("!=2.0", "1.0", None),
        ("===weird", "1.0", None),
        (">=10.0", "9.0", True),
    ],
)
def test_at_least(specifier: str, version: str, expected: bool | None) -> None:
    found = facts(requirements__txt=f"torch{specifier}\n")
    assert found.at_least("torch", version) is expected
    assert found.allows("torch", below=version) is (expected is not True)


def test_the_lowest_range_decides_and_an_exact_pin_wins_over_ranges() -> None:
    ranges = {
        "pyproject.toml": b'[project]\ndependencies = ["torch>=1.13"]\n',
        "requirements.txt": b"torch>=2.3\ntorch\n",
    }
    found = read_facts(ranges)
    assert found.at_least("torch", "2.0") is False
    assert found.describe("torch") == "torch>=1.13 (pyproject.toml:2)"
    locked = read_facts({**ranges, "poetry.lock": b'[[package]]\nname = "torch"\nversion = "2.4.1"\n'})
    assert locked.at_least("torch", "2.4") is True
    assert locked.describe("torch") == "torch==2.4.1 (poetry.lock:3)"
    two = read_facts(
        {**ranges, "Dockerfile": b"FROM pytorch/pytorch:2.1.0-a\n", "requirements-dev.txt": b"torch==2.5.0\n"}
    )
    assert two.at_least("torch", "2.4") is False
    assert two.describe("torch") == "torch==2.1.0 (Dockerfile:1)"


@pytest.mark.parametrize(
    "files",
    [
        {
            "pyproject.toml": b'[project]\ndependencies=["torch>=1.9"]\noptional-dependencies={test=["torch==2.4"]}\n'
        },
        {"requirements.txt": b"torch>=1.9\n", "requirements-dev.txt": b"torch==2.4\n"},
        {
            "requirements.txt": b"torch>=1.9\n",
            "dev-requirements.txt": b"-r requirements.txt\n-r x\n",
            "x": b"torch==2.4",
        },
        {"setup.py": b"setup(install_requires=['torch>=1.9'], extras_require={'a': ['torch==2.4']})"},
        {"setup.cfg": b"[options]\ninstall_requires=torch>=1.9\n[options.extras_require]\na=torch==2.4\n"},
        {"Pipfile": b'[packages]\ntorch=">=1.9"\n[dev-packages]\ntorch="==2.4"\n'},
    ],
)
def test_an_extra_or_a_test_requirement_does_not_speak_for_the_project(files: dict[str, bytes]) -> None:
    found = read_facts(files)
    assert found.unread == ()
    assert found.describe("torch").startswith("torch>=1.9 (")
    alone = {
        path: data.replace(b"torch>=1.9", b"torch").replace(b'">=1.9"', b'"*"')
        for path, data in files.items()
    }
    assert read_facts(alone).describe("torch").startswith("torch==2.4 (")


def test_no_facts() -> None:
    assert read_facts({}) == NO_FACTS
    assert NO_FACTS.at_least("torch", "2.0") is None
    assert NO_FACTS.allows("torch", below="2.0")
    assert not NO_FACTS.known("torch")
    assert NO_FACTS.describe("torch") == ""


@pytest.mark.parametrize(
    ("path", "data", "told"),
    [
        ("pyproject.toml", b"[project]\nname = \n", "pyproject.toml: not valid TOML at line 2"),
        ("pyproject.toml", b"a = " + b"[" * 5000, "pyproject.toml: nested too deeply"),
        ("Pipfile.lock", b"{", "Pipfile.lock: Expecting property name"),
        ("uv.lock", b"<<<<<<< HEAD\n", "uv.lock: no locked packages found"),
        ("setup.py", b"print 'a'\n", "setup.py: not Python 3"),
        ("setup.py", b"a\0", "setup.py: "),
        ("setup.cfg", b"a = 1\n", "setup.cfg: File contains no section headers."),
        ("requirements.txt", b"\xff\n", "requirements.txt: not UTF-8"),
        ("requirements.txt", b"numpy\ntorch==${TORCH}\n", "requirements.txt: not a requirement (line 2)"),
        ("requirements.txt", b"torch==" + b"9" * 10_000, "requirements.txt: "),
        ("environment.yml", b"dependencies: [pytorch=2.1]\n", "environment.yml: no list of dependencies found"),
        ("environment.yml", b"dependencies:\n- pytorch=2.1|2.2\n", "environment.yml: the version of torch is not understood (line 2)"),
        ("requirements.txt", b"#" * 6_000_000, "requirements.txt: larger than 500 kB"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_told_and_the_rest_is_kept(path: str, data: bytes, told: str) -> None:
    found = read_facts({path: data, "Dockerfile": b"FROM pytorch/pytorch:2.1.0-a\n"})
    assert found.unread[0].startswith(told)
    assert found.unread[0].isprintable()
    assert found.known("torch")


def test_an_unreadable_line_loses_only_itself() -> None:
    found = facts(requirements__txt="torch==${TORCH}\nnumpy>=1.26\n")
    assert found.describe("numpy") == "numpy>=1.26 (requirements.txt:2)"


def test_the_host_does_not_decide_markers() -> None:
    text = 'torch==1.13; python_version < "3.8"\ntorch==2.2; sys_platform == "win32"\ntorch==2.3; platform_system == "Linux"\n'
    assert one("requirements.txt", text) == "torch==2.3 (requirements.txt:3)"


def test_importing_it_loads_no_parser_of_other_formats() -> None:
    code = (
        "import sys, ptopt.project.facts;"
        "print([m for m in ('packaging', 'tomllib', 'tomli', 'json', 'configparser', 'urllib') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


PIECES = st.sampled_from(
    ["torch", "pytorch", "numpy", "==", ">=", "=", "^", "~", "2.1", "2.1.*", "1" * 5000, ",", ";", " ", "\n", "\\\n", "- ", "  "]
    + ["pip:", "dependencies:", "[", "]", "{", "}", '"', "'", "@ https://h/torch-", "-x.whl", "extra == 'a'", "python_version", "("]
    + ["[project]\ndependencies = ['", "[tool.poetry.dependencies]\n", "FROM pytorch/pytorch:", "RUN pip install ", "-r ", "#"]
    + ['[[package]]\nname = "torch"\nversion = "', "setup(install_requires=[", "[options]\ninstall_requires=\n ", "\0", "é", "\r"]
)  # fmt: skip


def check(found: ProjectFacts) -> None:
    assert all(text.isprintable() for text in found.unread)
    for package in PACKAGES:
        if found.known(package):
            assert found.describe(package).startswith(package)
        else:
            assert found.at_least(package, "2.0") is None
        assert found.allows(package, "2.0") is (found.at_least(package, "2.0") is not True)
    assert set(found.pins) <= PACKAGES


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(FACT_FILES), st.binary(max_size=60), max_size=4))
def test_any_bytes_raise_nothing(files: dict[str, bytes]) -> None:
    check(read_facts(files))


@settings(deadline=None)
@given(st.lists(PIECES, max_size=15).map("".join))
def test_any_mix_in_any_file_raises_nothing_and_is_read_the_same_twice(text: str) -> None:
    files = dict.fromkeys(FACT_FILES, text.encode())
    found = read_facts(files)
    check(found)
    assert read_facts(dict(reversed(files.items()))) == found


@pytest.mark.parametrize(
    ("specifier", "expected"),
    [
        ("<2.0", True),
        (">=1.0,<1.8", True),
        ("==1.13.1", True),
        (">=1.13", False),
        ("==2.1", False),
        ("<2.3", False),
    ],
)
def test_excludes(specifier: str, expected: bool) -> None:
    assert facts(requirements__txt=f"torch{specifier}\n").excludes("torch", "2.0") is expected


def test_nothing_is_excluded_where_nothing_is_pinned() -> None:
    assert not facts().excludes("torch", "2.0")


def test_a_readme_speaks_where_nothing_else_does() -> None:
    readme = {"README.md": b"## Requirements\n- PyTorch == 1.2.0\n"}
    assert read_facts(readme).excludes("torch", "1.10")
    assert not read_facts({**readme, "requirements.txt": b"torch>=2.0\n"}).excludes("torch", "1.10")
    assert not read_facts({"README.md": b"Tested with PyTorch 1.2 or later.\n"}).excludes("torch", "1.10")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- [PyTorch](https://github.com/pytorch/pytorch) (0.4.0), [torchvision](https://x.org)", "==0.4.0"),
        ("* [PyTorch](https://pytorch.org/), version 1.0.1", "==1.0.1"),
        ("- torch == 1.8.0", "==1.8.0"),
        ("PyTorch 0.4.0", "==0.4.0"),
        ("Requirements: python 3.6, pytorch 0.4.0", "==0.4.0"),
        ("The net relies on Python 3.5 and PyTorch 0.4.1 (sparse tensors).", "==0.4.1"),
        ("The required packages are as follows, tested under Linux:\n* torch == 1.6.0", "==1.6.0"),
        ("* [PyTorch](http://pytorch.org/) (version >= 0.4.1)", ">=0.4.1"),
        ("* [PyTorch](http://pytorch.org/) (ver. 0.4+ required)", ">=0.4"),
        ("Use python 3.10+, torch 2.5+.\n- torch 1.13.1 for older models", ">=2.5"),
        ("### Tested environments\n* Ubuntu 22 with torch 1.12 on a V100", ">=1.12"),
        (
            "## Installation & requirements\nIt has been tested with `Python 3.10.4` on Fedora\nwith these versions:\n* `pytorch 1.11.0`",
            ">=1.11.0",
        ),
        ("- Migrated to PyTorch 1.0.0", ">=1.0.0"),
        ("- 16/04/2024: fixed for torch 2.0", None),
        ("- Support PyTorch 2.0", None),
        ("- if you look for pytorch 0.3, see the tag v0.3", None),
        ("The decoder of others, which relies on PyTorch 2.5, is slower.", None),
        ("Tested up to torch==2.7.", None),
        ("- our torch-scatter 2.0.5", None),
    ],
)
def test_what_a_line_of_a_readme_says_of_torch(text: str, said: str | None) -> None:
    pins = read_facts({"README.md": f"# A net\n\n{text}\n".encode()}).pins.get("torch", ())
    assert [pin.specifier for pin in pins] == ([] if said is None else [said])
