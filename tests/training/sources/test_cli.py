from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.training.sources.fakes import FAST, FakeFiles, inventory, post
from training.sources.cli import sources_commands
from training.sources.registry import SOURCES, SourceContext, make


def run(*arguments: str, **environment: str | None):
    return CliRunner().invoke(sources_commands(), arguments, env=environment)


def test_list_names_every_source_and_option():
    output = run("list").output
    for name, entry in SOURCES.items():
        assert name in output
        assert all(option in output for option in entry.options.model_fields)


def test_pull_and_show(serving, tmp_path: Path):
    page = f"<article>{post(FAST)}</article>".encode()
    files = {"/s/objects.inv": (inventory(["data", "amp"]), "x/y"), "/s/data.html": (page, "text/html")}
    server = serving(FakeFiles(files))
    store = str(tmp_path / "s.sqlite")
    arguments = ("docs", "--store", store, "--option", f"sites={server.url}/s", "--contact", "me@example.com")
    done = run("pull", *arguments, "--cache", str(tmp_path / "cache.sqlite"))
    assert done.exit_code == 0, done.output
    assert "docs: 1 documents" in done.output and "amp.html: status 404" in done.stderr
    assert server.received[0].headers["user-agent"].endswith("(me@example.com)")
    shown = run("show", "--store", store).output
    assert "docs: 1 documents, 1 of them for training" in shown and "BSD-3-Clause" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nothing",), "'nothing' is no source"),
        (("docs", "--option", "x"), "write NAME=VALUE"),
        (("docs", "--option", "x=1"), "option 'x'"),
        (("docs", "--option", "sites=nowhere"), "not web addresses"),
        (("commits",), "option 'clones'"),
        (("commits", "--option", "clones=/none"), "no such folder"),
        (("github",), "GITHUB_TOKEN is not set"),
        (("feedback",), "PTOPT_DATABASE_URL is not set"),
        (("teacher", "--option", "model=m"), "option 'base_url'"),
    ],
)
def test_what_is_wrong_is_told(tmp_path: Path, arguments, message):
    done = run(
        "pull", *arguments, "--store", str(tmp_path / "s.sqlite"), GITHUB_TOKEN=None, PTOPT_DATABASE_URL=None
    )
    assert done.exit_code == 1 and message in done.stderr


def test_every_source_can_be_made():
    options = {
        "commits": {"clones": ["a=/x", "/y=z"]},
        "packages": {"packages": ["net"]},
        "teacher": {"base_url": "http://127.0.0.1:1/v1", "model": "m", "most": "3.5"},
    }
    environment = {"GITHUB_TOKEN": "t", "PTOPT_DATABASE_URL": "sqlite://", "TEACHER_API_KEY": "k"}
    context = SourceContext(environment=environment)
    with context.clients:
        for name in SOURCES:
            assert make(name, options.get(name, {}), context).name == name


def test_show_without_a_store(tmp_path: Path):
    done = run("show", "--store", str(tmp_path / "none"))
    assert done.exit_code == 1 and "pull first" in done.stderr and not (tmp_path / "none").exists()
