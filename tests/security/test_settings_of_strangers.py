"""`.ptopt.toml` of a pull request, which is in force nowhere, and one on the base that is a trap."""

from __future__ import annotations

import time

import pytest

from ptopt.config import Config, ConfigError, load_config
from ptopt.rules import known_names
from tests.security.conftest import Service
from tests.security.judge import assert_inert
from tests.worker.pulls import FAST, SLOW

QUIET = b"""\
ignore = ["PTO101"]
exclude = ["**"]
budget = 0
[pull-requests]
enabled = false
skip-authors = ["dev", "mallory"]
"""


@pytest.mark.parametrize("head", ["b", "mallory:b"])
@pytest.mark.parametrize("name", [".ptopt.toml", "pyproject.toml"])
def test_the_settings_of_the_head_are_not_in_force(service: Service, head: str, name: str) -> None:
    text = (
        QUIET if name == ".ptopt.toml" else b"[tool.ptopt]\n" + QUIET.replace(b"[pull", b"[tool.ptopt.pull")
    )
    pull = service.repo.pull(head, files={"train.py": SLOW, name: text}, author="mallory")
    service.work()
    assert any("PTO101" in comment.body for comment in pull.review_comments)


def test_a_fork_has_no_settings(service: Service) -> None:
    """Nor has the `.github` repository of the fork's owner."""
    service.github.repository("mallory/.github", {".ptopt.toml": QUIET})
    pull = service.repo.pull("mallory:b", files={"train.py": SLOW}, author="mallory")
    service.work()
    assert pull.review_comments


TRAPS = {
    "deep list": b"select = " + b"[" * 30_000 + b"]" * 30_000,
    "deep table": b"x = " + b"{a=" * 9_000 + b"1" + b"}" * 9_000,
    "dotted key": b".".join([b"a"] * 30_000) + b" = 1",
    "dotted keys": b"\n".join(b".".join([b"a"] * 900 + [b"b%d" % n]) + b" = 1" for n in range(35)),
    "dotted table": b"[" + b".".join([b"a"] * 30_000) + b"]",
    "many tables": b"\n".join(b"[a%d]" % n for n in range(9000)),
    "many keys": b"\n".join(b"a%d = 1" % n for n in range(7000)),
    "huge number": b"budget = " + b"9" * 60_000,
    "huge float": b"min-confidence = 1e" + b"9" * 60_000,
    "stars": b'exclude = ["' + b"*" * 190 + b'x"]',
    "double stars": b'exclude = ["' + b"**/" * 60 + b'x"]',
    "questions": b'exclude = ["' + b"*?" * 95 + b'x"]',
    "classes": b'exclude = ["' + b"[a-z]*" * 30 + b'"]',
    "open class": b'exclude = ["' + b"[" * 190 + b'"]',
    "regex": b'exclude = ["(a+)+$", "(?R)", "\\\\1", "a{1,99999}"]',
    "many globs": b"exclude = [" + b'"a*b*c*d*e*f*g*",' * 3000 + b"]",
    "megabytes": b"# " + b"x" * 3_000_000,
    "no text": b"\xff\xfe\x00" * 100,
    "nul": b"x = \x00",
    "open string": b'x = """' + b'"' * 60_000,
    "date": b"x = 99999-99-99T99:99:99",
    "escapes": b'x = "' + b"\\U00110000" * 5000 + b'"',
}


@pytest.mark.parametrize("text", TRAPS.values(), ids=TRAPS)
def test_a_trap_is_read_or_refused_at_once(text: bytes) -> None:
    path = "/".join(["a" * 20] * 10) + "/" + "aab" * 60 + ".py"
    started = time.process_time()
    try:
        config = load_config({".ptopt.toml": text}, known_names())
    except ConfigError as error:
        assert len(str(error)) < 60_000
    else:
        assert isinstance(config, Config)
        for _ in range(10):
            config.why_skipped(path)
    assert time.process_time() - started < 2


def test_traps_end_to_end(service: Service) -> None:
    service.repo.commit("main", {".ptopt.toml": TRAPS["deep list"]})
    pull = service.repo.pull("b", files={"train.py": SLOW, ".ptopt.toml": TRAPS["many keys"]})
    service.work()
    (comment,) = pull.issue_comments
    assert "is not valid" in comment.body and len(comment.body) < 20_000
    assert_inert(comment.body, "config", marks=1)
    assert pull.review_comments  # by the defaults


def test_too_many_files(service: Service) -> None:
    """Left alone by default, before a file is listed."""
    pull = service.repo.pull("b", files={f"p/m{number}.py": FAST for number in range(320)}, deliver=False)
    pull.push({"train.py": SLOW})
    service.work()
    assert not pull.reviews
    assert not [request for request in service.github.requests if request.path.endswith("/files")]
    assert [job.state for job in service.jobs()] == ["superseded"]
