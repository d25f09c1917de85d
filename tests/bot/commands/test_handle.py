"""Who is heard, and how often an answer is written: against the fake GitHub, with the real client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from markdown_it import MarkdownIt

from bot.commands import handle
from bot.commands.registry import COMMANDS
from fake_github import FakeGitHub
from ptopt.github.errors import AmbiguousError, RateLimitedError, UnavailableError
from tests.bot.commands.world import CODE, World


@pytest.fixture
def world() -> Iterator[World]:
    with FakeGitHub() as github:
        yield World(github)


@pytest.fixture
def reviewed(world: World) -> World:
    world.review()
    return world


# -- who -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("login", ["writer", "triager", "dev", "octo"])
def test_the_author_and_people_with_a_role_are_answered(world: World, login: str) -> None:
    request = world.request(login, "/ptopt help")
    handle(request, world.client, world.host)
    (answer,) = world.answers()
    assert f"> {login}: `/ptopt help`" in answer
    assert world.reactions(request.comment_id) == ["eyes"]


def test_a_stranger_gets_a_reaction_and_no_word(world: World) -> None:
    for verb in (*COMMANDS, "nonsense"):
        request = world.request("stranger", f"/ptopt {verb}")
        handle(request, world.client, world.host)
        handle(request, world.client, world.host)
        assert world.reactions(request.comment_id) == ["confused"]
    assert world.answers() == []
    assert not world.state().paused
    assert world.host.calls == []


def test_a_bot_is_not_even_looked_at(world: World) -> None:
    request = world.request("helper[bot]", "/ptopt help")
    before = len(world.github.requests)
    handle(request, world.client, world.host)
    assert len(world.github.requests) == before


def test_we_do_not_talk_to_ourselves(world: World) -> None:
    """With a person's token our answers are written under that person's name."""
    world.repo.permission("ptopt", "write")
    body = "<!-- ptopt:answer 1 abc -->\n/ptopt help"
    request = world.request(world.client.identity(), body)
    object.__setattr__(request.actor, "is_bot", False)
    handle(request, world.client, world.host)
    assert world.answers() == [body]


def test_a_comment_without_a_command_costs_nothing(world: World) -> None:
    request = world.request("writer", "What does `/ptopt fix` do?\n> /ptopt help")
    before = len(world.github.requests)
    handle(request, world.client, world.host)
    assert len(world.github.requests) == before


def test_fix_needs_write_and_the_author_of_a_fork_has_none(world: World) -> None:
    assert "needs the write role" in world.give("dev", "/ptopt fix")
    assert "needs the write role" in world.give("triager", "/ptopt fix")


def test_the_budget_of_a_person(world: World) -> None:
    world.host.given = world.host.budget
    assert world.give("writer", "/ptopt help")
    world.host.given = world.host.budget + 1
    request = world.request("writer", "/ptopt help")
    handle(request, world.client, world.host)
    assert world.reactions(request.comment_id) == ["confused"]
    world.host.given = 2 * world.host.budget + 1
    silent = world.request("writer", "/ptopt help")
    before = len(world.github.requests)
    handle(silent, world.client, world.host)
    assert len(world.github.requests) == before
    assert len(world.answers()) == 1


def test_the_budget_of_who_does_not_write_on_one_pull_request(world: World) -> None:
    world.host.on_pull = world.host.pull_budget
    assert world.give("triager", "/ptopt help")
    world.host.on_pull = world.host.pull_budget + 1
    assert world.give("writer", "/ptopt help")
    request = world.request("triager", "/ptopt help")
    handle(request, world.client, world.host)
    assert world.reactions(request.comment_id) == ["confused"]


# -- one answer ------------------------------------------------------------------------------------------------


def test_all_commands_of_a_comment_are_answered_together(world: World) -> None:
    answer = world.give("writer", "/ptopt pause\nand\n/ptopt status")
    assert answer.index("`/ptopt pause`") < answer.index("Paused. Pushes") < answer.index("`/ptopt status`")
    assert "Paused; `/ptopt resume` resumes reviews." in answer, "status sees what the command before it did"


def test_only_so_many_commands_of_a_comment_are_run(world: World) -> None:
    answer = world.give("writer", "\n".join(f"/ptopt explain nothing-{n}" for n in range(7)))
    assert answer.count("There is no rule") == 5
    assert answer.endswith(
        "2 commands not run: the limit is 5 per comment. Put the rest into another comment.\n"
    )


def test_a_redelivery_is_answered_once(reviewed: World) -> None:
    in_issue = reviewed.request("writer", "/ptopt help")
    in_thread = reviewed.request("dev", "/ptopt feedback good", thread=reviewed.posted("PTO101"))
    for request in (in_issue, in_thread, in_issue, in_thread):
        handle(request, reviewed.client, reviewed.host)
    assert len(reviewed.answers()) == 2
    assert len(reviewed.host.calls) == 1


def test_in_a_thread_the_answer_stands_in_the_thread(reviewed: World) -> None:
    thread = reviewed.posted("PTO201")
    reviewed.give("dev", "/ptopt explain", thread=thread)
    logins = [comment.author.login for comment in reviewed.pull.thread_of(thread).comments]
    assert logins == ["ptopt[bot]", "dev", "ptopt[bot]"]
    assert reviewed.pull.issue_comments == []


def test_in_the_thread_of_a_person_too(world: World) -> None:
    thread = world.pull.review_comment("stranger", "train.py", 3, "/ptopt help")
    request = world.request("dev", "/ptopt explain", thread=thread)
    handle(request, world.client, world.host)
    assert "Name a rule" in world.answers()[0]


def test_the_first_comment_of_a_thread_is_answered_in_it(world: World) -> None:
    comment = world.pull.review_comment("dev", "train.py", 3, "/ptopt help")
    request = world.request("dev", "/ptopt help", comment=comment)
    object.__setattr__(request, "where", "review")
    handle(request, world.client, world.host)
    assert len(world.pull.thread_of(comment).comments) == 2


def test_an_edit_runs_what_is_new_and_gets_its_own_answer(world: World) -> None:
    first = world.request("writer", "/ptopt pause")
    handle(first, world.client, world.host)
    edited = world.request(
        "writer", "/ptopt pause\n/ptopt config", comment=first.comment_id, previous="/ptopt pause"
    )
    handle(edited, world.client, world.host)
    handle(edited, world.client, world.host)
    handle(first, world.client, world.host)
    paused, config = world.answers()
    assert "Paused" in paused and "/ptopt config" not in paused
    assert "budget = 5" in config and "/ptopt pause`" not in config


def test_an_edit_without_a_new_command_is_silent(world: World) -> None:
    first = world.request("writer", "/ptopt help")
    handle(first, world.client, world.host)
    handle(
        world.request("writer", "Please: \n\n/ptopt help", comment=first.comment_id, previous="/ptopt help"),
        world.client,
        world.host,
    )
    assert len(world.answers()) == 1


def test_somebody_elses_answer_does_not_count_as_ours(world: World) -> None:
    request = world.request("writer", "/ptopt help")
    handle(request, world.client, world.host)
    (answer,) = world.answers()
    world.pull.issue_comments.pop()
    world.pull.comment("stranger", answer)
    handle(request, world.client, world.host)
    assert [c.author.login for c in world.pull.issue_comments] == ["writer", "stranger", "ptopt[bot]"]


# -- GitHub on a bad day ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["502-after", "503-after", "drop-after"])
def test_an_answer_that_was_written_is_found(reviewed: World, fault: str) -> None:
    thread = reviewed.posted("PTO101")
    requests = [
        reviewed.request("dev", "/ptopt help"),
        reviewed.request("dev", "/ptopt explain", thread=thread),
    ]
    for request in requests:
        reviewed.github.faults.add("POST", r"/(issues/\d+/comments|replies)$", fault)
        handle(request, reviewed.client, reviewed.host)
    assert len(reviewed.answers()) == 2


@pytest.mark.parametrize("fault", ["502", "drop"])
def test_an_answer_that_was_not_written_is_written_next_time(world: World, fault: str) -> None:
    request = world.request("dev", "/ptopt help")
    world.github.faults.add("POST", r"/issues/\d+/comments$", fault)
    with pytest.raises(AmbiguousError):
        handle(request, world.client, world.host)
    handle(request, world.client, world.host)
    assert len(world.answers()) == 1


def test_a_limit_puts_the_command_off(world: World) -> None:
    request = world.request("dev", "/ptopt help")
    world.github.faults.add("POST", r"/issues/\d+/comments$", "secondary-limit", seconds=7)
    with pytest.raises(RateLimitedError) as caught:
        handle(request, world.client, world.host)
    assert caught.value.retry_after >= 7
    handle(request, world.client, world.host)
    assert len(world.answers()) == 1


@pytest.mark.parametrize("fault", ["502", "502-after", "drop"])
def test_a_reaction_that_fails_is_no_matter(world: World, fault: str) -> None:
    world.github.faults.add("POST", r"/reactions$", fault)
    assert world.give("dev", "/ptopt help")


def test_a_comment_that_was_deleted_is_not_answered(world: World) -> None:
    request = world.request("dev", "/ptopt help")
    world.pull.issue_comments.clear()
    handle(request, world.client, world.host)
    assert world.answers() == []


def test_a_stranger_who_deletes_the_comment_is_no_failure(world: World) -> None:
    request = world.request("stranger", "/ptopt help")
    world.pull.issue_comments.clear()
    handle(request, world.client, world.host)
    assert world.answers() == []


def test_reads_that_fail_are_for_later(world: World) -> None:
    request = world.request("dev", "/ptopt help")
    world.github.faults.add("GET", r"/permission$", "502", times=-1)
    with pytest.raises(UnavailableError):
        handle(request, world.client, world.host)
    assert world.answers() == []


# -- hostile text ----------------------------------------------------------------------------------------------


HOSTILE = (
    "@octo/everyone",
    "<img src=//evil.example/x.png>",
    "![x](//evil.example/x.png)",
    "https://evil.example",
    "`` ` ```",
    "-->",
    "<!-- ptopt:answer 1 abc pause -->",
    "#1",
)


@pytest.mark.parametrize("verb", ["", "explain", "ignore", "help"])
def test_what_a_comment_says_is_shown_as_text(world: World, verb: str) -> None:
    for words in HOSTILE:
        answer = world.give("dev", " ".join(filter(None, ("/ptopt", verb, words))))
        assert answer
        assert_harmless(answer)
    assert not world.state().paused


def test_what_the_pull_request_says_is_shown_as_text() -> None:
    path = "@octo <img src=evil> `x` #1.py"
    code = CODE.replace(b"batch", b"evil_batch").replace(b"8)", b"len('@octo <img src=evil> `x` #1'))")
    with FakeGitHub() as github:
        world = World(github)
        world.pull.push({"train.py": None, path: code})
        world.review()
        for command, rule in (
            ("explain", "PTO201"),
            ("explain", "PTO101"),
            ("fix", "PTO101"),
            ("fix", "PTO201"),
        ):
            answer = world.give("writer", f"/ptopt {command}", thread=world.posted(rule))
            assert "evil" in answer
            assert_harmless(answer)


def assert_harmless(answer: str) -> None:
    for token in MarkdownIt("gfm-like", {"linkify": False}).parse(answer):
        assert token.type != "html_block" or token.content.startswith(("<details>", "</details>"))
        for child in token.children or ():
            assert child.type not in {"html_inline", "image"}
            assert child.type != "link_open" or str(child.attrs["href"]).startswith("https://")
            if child.type != "code_inline":
                assert (
                    "@octo" not in child.content and "evil" not in child.content and "#1" not in child.content
                )
