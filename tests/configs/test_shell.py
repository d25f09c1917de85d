"""Installations in the text of a script."""

import pytest

from ptopt.configs.shell import installs


@pytest.mark.parametrize(
    ("text", "tool", "packages", "requirements", "local"),
    [
        ("pip install torch==2.5 'numpy<2'", "pip", {"torch", "numpy"}, (), False),
        ("python3 -m pip install -q -U torch", "pip", {"torch"}, (), False),
        ("uv pip install --system torch", "uv", {"torch"}, (), False),
        ("pip install -r requirements.txt -c limits.txt", "pip", set(), ("requirements.txt",), False),
        ("pip install -e .[dev]", "pip", set(), (), True),
        ("pip install . && pip list", "pip", set(), (), True),
        ("conda install -y -c pytorch pytorch", "conda", {"pytorch"}, (), False),
        (
            "pip install torch \\\n  -f https://x.org/whl Pillow_SIMD",
            "pip",
            {"torch", "pillow-simd"},
            (),
            False,
        ),
        ("/opt/conda/bin/conda run pip install torch", "pip", {"torch"}, (), False),
    ],
)
def test_an_installation(
    text: str, tool: str, packages: set[str], requirements: tuple[str, ...], local: bool
) -> None:
    found = next(iter(installs(text)))
    assert (found.tool, found.packages, found.requirements, found.local) == (
        tool,
        packages,
        requirements,
        local,
    )
    assert text[found.start : found.end] == found.text


@pytest.mark.parametrize(
    "text", ["pip uninstall torch", "pip download torch", "echo pipinstall", "npm install torch"]
)
def test_what_is_none(text: str) -> None:
    assert list(installs(text)) == []


def test_the_end_of_a_command_is_before_a_continuation() -> None:
    text = "RUN pip install torch \\\n    && echo done"
    (found,) = installs(text)
    assert text[found.end :] == " \\\n    && echo done" and found.packages == {"torch"}


def test_several_commands_of_a_line() -> None:
    found = list(installs("apt-get update && pip install a; pip3 install b | tee log # pip install c"))
    assert [install.packages for install in found] == [{"a"}, {"b"}]
