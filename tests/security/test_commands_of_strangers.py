"""Slash commands by those who may not give them, in places where none counts, and far too many of them."""

from __future__ import annotations

import time

import pytest

from bot.commands.parse import MOST_COMMANDS, commands
from fake_github import Pull
from service.database import reading
from service.models import Job
from tests.security.conftest import Service
from tests.worker.pulls import FAST, SLOW


@pytest.fixture
def pull(service: Service) -> Pull:
    pull = service.repo.pull("b", files={"train.py": SLOW}, author="dev")
    service.work()
    return pull


def answers(service: Service, pull: Pull) -> list[str]:
    return [body for body in service.bodies(pull) if body.startswith("<!-- ptopt:answer ")]


def commits(service: Service) -> list[str]:
    return [path for path, _ in service.written() if path.endswith("/git/commits")]


EVERY = "\n\n".join(
    f"/ptopt {verb}" for verb in ("fix", "pause", "ignore PTO101", "review --full", "feedback bad no")
)


@pytest.mark.parametrize(
    "login", ["stranger", "dependabot[bot]", "ptopt[bot]", "github-actions[bot]", "ghost"]
)
def test_nobody_of_these_is_obeyed(service: Service, pull: Pull, login: str) -> None:
    pull.comment(login, EVERY)
    service.work()
    assert answers(service, pull) == []
    assert not commits(service)
    pull.push({"train.py": SLOW + b"# more\n"})
    service.work()
    assert [job.state for job in service.jobs("review")] == ["done", "done"]  # neither paused nor one more


def test_the_author_of_a_fork_writes_nothing(service: Service) -> None:
    pull = service.repo.pull("mallory:fix", files={"train.py": SLOW}, author="mallory")
    service.work()
    pull.comment("mallory", "/ptopt fix")
    service.work()
    (answer,) = answers(service, pull)
    assert "needs the write role" in answer
    # And a maintainer under whose hand it is done commits nothing to a branch of the same name here.
    service.repo.commit("fix", {"x.py": b""})
    pull.comment("dev", "/ptopt fix")
    service.work()
    assert "in a fork" in answers(service, pull)[-1]
    assert not commits(service)


def test_a_permission_that_is_lost_counts_at_once(service: Service, pull: Pull) -> None:
    service.repo.permission("dev2", "write")
    pull.comment("dev2", "/ptopt pause")
    service.work()
    assert len(answers(service, pull)) == 1
    pull.comment("dev2", "/ptopt resume")  # it was given while the permission was there
    service.repo.permission("dev2", "none")
    service.work()
    assert len(answers(service, pull)) == 1


def test_who_triages_does_not_write(service: Service, pull: Pull) -> None:
    pull.comment("triager", "/ptopt fix")
    service.work()
    assert "needs the write role" in answers(service, pull)[-1]
    assert not commits(service)


HIDDEN = {
    "quote": "> /ptopt pause",
    "nested quote": ">>> > /ptopt pause",
    "lazy quote": "> somebody wrote\n/ptopt pause",
    "list in a quote": "> - a\n>   /ptopt pause",
    "fence": "```\n/ptopt pause\n```",
    "tilde fence": "~~~~ md\n/ptopt pause\n~~~\n/ptopt pause\n~~~~",
    "open fence": "````\n```\n/ptopt pause",
    "fence in a list": "- x\n  ```\n  /ptopt pause\n  ```",
    "indented": "text\n\n    /ptopt pause",
    "tab": "\t/ptopt pause",
    "comment": "<!--\n/ptopt pause\n-->",
    "open comment": "<!-- a\n\n/ptopt pause",
    "inline comment": "a <!--\n/ptopt pause\n--> b",
    "pre": "<pre>\n/ptopt pause\n\n/ptopt pause\n</pre>",
    "script": "<script>\n\n/ptopt pause\n</script>",
    "attribute": '<a title="\n/ptopt pause\n">b</a>',
    "span": "`a\n/ptopt pause\nb`",
    "in a line": "please do not /ptopt pause",
    "link definition": "[a]: x\n  '\n/ptopt pause\n'",
    "email": "On Monday, somebody wrote:\n> /ptopt pause\n>\n> -- \n> /ptopt pause",
    "another word": "/ptoptimise pause",
    "bidi": "\u202e/ptopt pause",
    "zero width": "/pto\u200bpt pause",
}


@pytest.mark.parametrize("text", HIDDEN.values(), ids=HIDDEN)
def test_where_no_command_counts(text: str) -> None:
    assert commands(text) == ()


def test_hidden_commands_end_to_end(service: Service, pull: Pull) -> None:
    for text in HIDDEN.values():
        pull.comment("dev", text)
    service.work()
    assert answers(service, pull) == []


def test_an_edit_of_somebody_elses_comment_gives_no_command(service: Service, pull: Pull) -> None:
    comment = pull.comment("stranger", "/ptopt pause")
    service.work()
    # A maintainer mends the spelling around it: that is not giving the command.
    pull.edit_comment("dev", comment, "Please!\n\n/ptopt pause")
    service.work()
    assert answers(service, pull) == []
    # What a stranger adds to the words of a maintainer is the stranger's.
    mine = pull.comment("dev", "Thanks")
    pull.edit_comment("stranger", mine, "Thanks\n\n/ptopt pause")
    service.work()
    assert answers(service, pull) == []


@pytest.mark.parametrize(
    "hidden",
    [
        "x" * 17_000 + "\n\n/ptopt pause",
        "```\n/ptopt pause\n```",
        "> /ptopt pause",
        "please do not /ptopt pause",
    ],
    ids=["behind filler", "in a fence", "in a quote", "in a line"],
)
def test_who_shortens_a_comment_gives_no_command(service: Service, pull: Pull, hidden: str) -> None:
    """A stranger hides a command, and a maintainer takes away what hid it."""
    comment = pull.comment("stranger", hidden)
    service.work()
    pull.edit_comment("dev", comment, "/ptopt pause")
    service.work()
    assert answers(service, pull) == []
    # Nor may anybody speak in the name of the author, who has the last word on the same comment.
    mine = pull.comment("dev", "Thanks")
    pull.edit_comment("triager", mine, "Thanks\n\n/ptopt pause")
    service.work()
    assert answers(service, pull) == []
    pull.edit_comment("dev", mine, "Thanks!\n\n/ptopt status")
    service.work()
    (answer,) = answers(service, pull)
    assert "/ptopt status" in answer


def test_ten_thousand_commands(service: Service, pull: Pull) -> None:
    started = time.process_time()
    pull.comment("dev", "\n\n".join(f"/ptopt x{number}" for number in range(5000))[:65_000])
    service.work()
    (answer,) = answers(service, pull)
    assert answer.count("There is no command") == MOST_COMMANDS
    assert len(answer) < 4000
    assert time.process_time() - started < 10


LARGE = {
    "quotes": ">" * 65_000 + "/ptopt help",
    "quotes in lines": "".join(">" * n + " /ptopt help\n" for n in range(350)),
    "lists": "".join(" " * (2 * n) + "- /ptopt\n" for n in range(180)),
    "brackets": "/ptopt " + "[" * 65_000,
    "brackets both": "/ptopt " + "[" * 8000 + "]" * 8000,
    "links": "/ptopt " + "[a](" * 16_000,
    "backticks": "/ptopt " + "".join("`" * n + " " for n in range(1, 360)),
    "asterisks": "/ptopt " + "*a_" * 21_000,
    "comments": "/ptopt " + "<!-- " * 13_000,
    "tags": "/ptopt " + "<a " * 21_000,
    "declarations": "/ptopt " + "<!A" * 21_000,
    "instructions": "/ptopt " + "<?" * 32_000,
    "cdata": "/ptopt " + "<![CDATA[" * 7000,
    "entities": "/ptopt " + "&amp" * 16_000,
    "spaces": "/ptopt" + " " * 65_000 + "x",
    "lines of spaces": (" " * 300 + "\n") * 210 + "/ptopt",
    "definitions": "".join(f"[{n}]: /ptopt\n" for n in range(4500)),
    "tables": "/ptopt|a|\n-|-|\n" * 4000,
    "rule": "/ptopt explain " + "https://" * 7000 + "#",
    "near names": "/ptopt " + "e" * 65_000,
    "escapes": "/ptopt " + "\\" * 65_000,
    "surrogates": "/ptopt explain \ud800\udfff\x00",
}


@pytest.mark.parametrize("text", LARGE.values(), ids=LARGE)
def test_no_comment_takes_long(text: str) -> None:
    started = time.process_time()
    commands(text)
    assert time.process_time() - started < 2


def test_a_budget_for_each_person(service: Service, pull: Pull) -> None:
    service.resources.settings = service.resources.settings.model_copy(update={"commands_per_hour": 2})
    for number in range(6):
        pull.comment("triager", f"/ptopt help x{number}")
        service.work()
    assert len(answers(service, pull)) == 2
    reactions = [[r.content for r in comment.reactions] for comment in pull.issue_comments]
    assert [found for found in reactions if found] == [["eyes"]] * 2 + [
        ["confused"]
    ] * 2  # then not even that
    pull.comment("dev", "/ptopt help")  # others are not held up
    service.work()
    assert len(answers(service, pull)) == 3


def test_the_service_forgets_no_limit_by_another_spelling(service: Service, pull: Pull) -> None:
    """Logins are the same whatever their case: GitHub writes them in one way, the payload says which."""
    pull.comment("triager", "/ptopt help")
    service.work()
    with reading(service.resources.engine) as session:
        assert {job.actor for job in session.query(Job).filter(Job.kind == "command")} == {"triager"}


def test_a_command_cannot_set_anything(service: Service, pull: Pull) -> None:
    """Paths, settings, tokens: no argument is more than a rule or a word."""
    for text in (
        "/ptopt review --config=/etc/passwd",
        "/ptopt review --head=main",
        "/ptopt explain ../../../etc/passwd",
        "/ptopt explain $(id)",
        "/ptopt config budget=50",
        "/ptopt fix ../x.py",
        "/ptopt help --docs=/etc/passwd",
    ):
        pull.comment("dev", text)
    service.work()
    assert len(answers(service, pull)) == 7
    assert all("Usage" in answer or "takes no arguments" in answer for answer in answers(service, pull))
    assert not commits(service)
    assert pull.repo.file(".ptopt.toml", "main") is None
    assert pull.repo.file("train.py", "main") == FAST
