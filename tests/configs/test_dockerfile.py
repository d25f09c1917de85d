"""Dockerfiles as instructions with places."""

from ptopt.configs.dockerfile import read_dockerfile

TEXT = """\
# syntax=docker/dockerfile:1
ARG BASE=python:3.12
FROM ${BASE} AS build
RUN --mount=type=cache,target=/root/.cache/pip --network=host \\
    # a comment between
    pip install \\

    torch
run echo lower

FROM build
COPY --from=build --chown=me . /app
RUN <<EOF
pip install vllm
EOF
CMD ["python", "-m", "serve"]
"""


def test_instructions_have_text_flags_and_places() -> None:
    read = read_dockerfile(TEXT)
    assert read is not None
    build, last = read.stages
    assert (build.image, build.name, build.bases) == ("python:3.12", "build", ("python:3.12",))
    assert last.bases == ("build", "python:3.12")
    install, echo = build.instructions
    assert install.text == "pip install torch" and "type=cache" in install.flags
    assert TEXT[install.start : install.end].startswith("RUN --mount") and TEXT[: install.end].endswith(
        "torch"
    )
    assert echo.name == "RUN" and echo.text == "echo lower"
    copy, heredoc, command = last.instructions
    assert copy.text == ". /app" and "--from=build" in copy.flags
    assert heredoc.text.split("\n")[1:] == ["pip install vllm"]
    assert command.words == ["python", "-m", "serve"]
    assert next(run.text for _, run in read.runs()) == "pip install torch"


def test_what_is_none() -> None:
    assert read_dockerfile("RUN echo\n") is None
    assert read_dockerfile("") is None
    assert read_dockerfile("FROM a\n" + "RUN b\n" * 3000) is None


def test_odd_ends() -> None:
    for text in (
        "FROM",
        "FROM a\nRUN b \\",
        "FROM a\nRUN <<EOF\nnever ends",
        "FROM a\nCMD [broken",
        "FROM a AS",
    ):
        read = read_dockerfile(text)
        assert read is not None
        for _, run in read.runs():
            assert 0 <= run.start <= run.end <= len(text)
        assert all(isinstance(i.words, list) for stage in read.stages for i in stage.instructions)
