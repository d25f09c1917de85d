"""What each command says and does: against the fake GitHub, with the real client."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from bot.commands.explain import Topic, _confidence
from bot.commands.explain import run as explain
from bot.commands.parse import MOST_COMMANDS
from fake_github import FakeGitHub
from fake_github.http import Request, Response
from ptopt.change import whole_file
from ptopt.config import Config
from ptopt.github.pipeline import review_pull
from ptopt.project.facts import NO_FACTS
from ptopt.review import review_files
from ptopt.rules import all_rules
from tests.bot.commands.world import CODE, REPO, World

LIMIT = 65_536  # characters that GitHub takes in a comment


@pytest.fixture
def world() -> Iterator[World]:
    with FakeGitHub() as github:
        found = World(github)
        found.review()
        yield found


# -- help, and what is not understood --------------------------------------------------------------------------


def test_help_lists_all(world: World) -> None:
    answer = world.give("dev", "/ptopt help")
    for name in ("review", "explain", "fix", "ignore", "pause", "resume", "status", "feedback", "config"):
        assert f"| `/ptopt {name}" in answer
    assert world.give("dev", "/ptopt").partition("\n")[2] == answer.partition("\n")[2]


def test_help_tells_about_one(world: World) -> None:
    answer = world.give("dev", "/ptopt help IGNORE")
    assert "`/ptopt ignore RULE|here`: ignore a rule" in answer
    assert "- `/ptopt ignore here`: dismiss this finding" in answer


def test_what_is_not_understood_is_answered_with_the_nearest(world: World) -> None:
    for command, expected in {
        "reveiw": "There is no command `reveiw`. Did you mean `review`? `/ptopt help` lists them.",
        "xyzzy": "There is no command `xyzzy`. `/ptopt help` lists them.",
        "help explian": "There is no command `explian`. Did you mean `explain`? Usage: `/ptopt help [COMMAND]`",
        "review --ful": "`--ful` is not an option. Did you mean `--full`? Usage: `/ptopt review [--full]`",
        "pause budget=50": "It takes no arguments, but got `budget=50`. Usage: `/ptopt pause`",
        "ignore PTO999": "There is no rule `PTO999`. Usage: `/ptopt ignore RULE|here`",
        "explain itm-every-step": "There is no rule `itm-every-step`. Did you mean `item-every-step`? "
        "Usage: `/ptopt explain [RULE|COMMENT]`",
        "feedback god": "Use `good` or `bad`, not `god`. Did you mean `good`? "
        "Usage: `/ptopt feedback good|bad [REASON]`",
    }.items():
        assert world.give("writer", f"/ptopt {command}") == f"> writer: `/ptopt {command}`\n\n{expected}\n"


# -- review, pause, resume, status, config ---------------------------------------------------------------------


def test_review_asks_the_host(world: World) -> None:
    assert "A review is on its way." in world.give("dev", "/ptopt review")
    world.give("dev", "/ptopt review --FULL")
    assert world.host.calls == [("review", False), ("review", True)]


def test_a_closed_pull_request_is_not_reviewed(world: World) -> None:
    world.pull.close()
    assert "is closed" in world.give("dev", "/ptopt review")
    assert world.host.calls == []


def test_pause_and_resume(world: World) -> None:
    assert "Paused. Pushes to this pull request are not reviewed" in world.give("dev", "/ptopt pause")
    assert world.state().paused
    world.pull.push({"new.py": CODE})
    outcome = review_pull(world.client, REPO, world.pull.number, before_write=lambda: None)
    assert outcome.status == "paused"
    assert "already paused" in world.give("dev", "/ptopt pause", thread=world.posted("PTO101"))
    assert "Resumed" in world.give("triager", "/ptopt resume")
    assert not world.state().paused
    assert "not paused" in world.give("triager", "/ptopt resume")
    outcome = review_pull(world.client, REPO, world.pull.number, before_write=lambda: None)
    assert outcome.status == "posted"


def test_to_delete_the_answer_is_to_undo_it(world: World) -> None:
    world.give("dev", "/ptopt pause")
    world.pull.issue_comments.pop()
    assert not world.state().paused


def test_status(world: World) -> None:
    head = world.pull.head_sha[:7]
    assert world.give("dev", "/ptopt status") == (
        "> dev: `/ptopt status`\n\n"
        f"- Review: the head `{head}` was reviewed.\n"
        "- Findings: 2 open, 0 resolved.\n"
        "- Configuration: the defaults.\n"
        "- Queue: nothing waits.\n"
    )
    world.pull.push({"other.txt": b"x"})
    world.pull.resolve("dev", world.posted("PTO101"))
    world.give("dev", "/ptopt ignore PTO702\n/ptopt pause")
    answer = world.give("dev", "/ptopt status")
    new = world.pull.head_sha[:7]
    assert f"- Review: the last one with findings was of `{head}`; the head is `{new}`.\n" in answer
    assert "- Findings: 1 open, 1 resolved.\n" in answer
    assert "- Paused; `/ptopt resume` resumes reviews.\n" in answer
    assert "- Ignored here: PTO702.\n" in answer


def test_status_of_what_is_not_reviewed() -> None:
    with FakeGitHub() as github:
        world = World(github, files={".ptopt.toml": b"[pull-requests]\nskip-authors = ['dev']\n"})
        answer = world.give("dev", "/ptopt status")
        assert "- Review: none posted; the head is " in answer
        assert "- Configuration: `.ptopt.toml`.\n" in answer
        assert "- Pushes are not reviewed: its author is listed in `pull-requests.skip-authors`.\n" in answer


def test_config_shows_the_base_branch() -> None:
    with FakeGitHub() as github:
        toml = (
            b'budget = 3\nselect = ["full-precision-training"]\n[per-path-ignores]\n"scripts/" = ["sync"]\n'
        )
        world = World(github, files={".ptopt.toml": toml})
        world.pull.push({".ptopt.toml": b"budget = 50\n"})
        answer = world.give("dev", "/ptopt config")
        assert "From `.ptopt.toml` of `main`, the base branch." in answer
        assert "\nbudget = 3\n" in answer
        assert "\nmin-confidence = 0.6  # default\n" in answer
        assert '\n[per-path-ignores]\n"scripts/" = ["sync"]\n' in answer


def test_config_tells_what_is_wrong() -> None:
    with FakeGitHub() as github:
        world = World(github, files={".ptopt.toml": b'budgte = 3\n"@octo/all" = 1\n'})
        answer = world.give("dev", "/ptopt config")
        assert "has errors:\n\n- .ptopt.toml: unknown key 'budgte', did you mean 'budget'?" in answer
        assert "@octo" not in answer
        assert "The defaults apply." in answer
        assert "the defaults, because the one on the base branch has errors:\n  - " in world.give(
            "dev", "/ptopt status"
        )


# -- explain ---------------------------------------------------------------------------------------------------


def test_explain_a_rule(world: World) -> None:
    answer = world.give("dev", "/ptopt explain Item-Every-Step")
    assert "**PTO101 item-every-step**: A tensor is read back" in answer
    assert "**What the fix is worth.**" in answer
    assert answer.index("**When this is wrong.**") < answer.index("<details>") < answer.index("```python")
    assert "every queued kernel has finished" in answer, "paragraphs stand on one line"


def test_explain_the_finding_of_the_thread(world: World) -> None:
    answer = world.give("dev", "/ptopt explain", thread=world.posted("PTO101"))
    assert world.give("dev", "/ptopt explain here", thread=world.posted("PTO101")) == answer
    head = world.pull.head_sha[:7]
    assert answer.startswith(f"**In this code:** `train.py:10` at `{head}`. `loss.item()` makes Python wait")
    assert "- line 8: the training step: `loss.backward()`\n" in answer
    assert "**PTO101 item-every-step**" in answer


def test_what_counted_is_said_in_words() -> None:
    """A name of a feature that has none is left out."""
    files = [whole_file("train.py", CODE)]
    config = Config().model_copy(update={"min_confidence": 0.0})
    finding = review_files(files, config=config, facts=NO_FACTS, limit_to_change=False).findings[0]
    reasons = (
        ("stated confidence", 2.0),
        ("evidence", 1.0),
        ("evaluation-records-graph:evaluated", 0.9),
        ("often:step", -0.8),
        ("path:train", 0.7),
    )
    said = _confidence(replace(finding, reasons=reasons))
    assert said.endswith(
        ". What counted most: how many lines prove it (for it), that it runs on every step (against it), "
        "what its path says of the file (for it)"
    )
    assert "What counted" not in _confidence(replace(finding, reasons=reasons[2:3]))


def test_explain_a_comment_by_its_link(world: World) -> None:
    number = world.posted("PTO201")
    page = world.pull.html_url.replace("http:", "https:")
    for link in (f"{page}#discussion_r{number}", f"#discussion_r{number}", f"r{number}", f"{number}"):
        assert "**In this code:** `train.py:6`" in world.give("dev", f"/ptopt explain {link}")


def test_explain_looks_at_the_head_as_it_is(world: World) -> None:
    thread = world.posted("PTO101")
    world.pull.push({"train.py": b"\n\n" + CODE})
    assert "`train.py:12`" in world.give("dev", "/ptopt explain", thread=thread)
    world.pull.push({"train.py": CODE.replace(b".item()", b".detach()")})
    assert "no longer found in `train.py`" in world.give("dev", "/ptopt explain", thread=thread)
    world.pull.push({"train.py": None})
    assert "no longer found in `train.py`" in world.give("dev", "/ptopt explain", thread=thread)


def test_a_comment_of_somebody_else_is_not_explained(world: World) -> None:
    comment = world.pull.review_comment("stranger", "train.py", 3, "<!-- ptopt:finding PTO101 abc -->\nhello")
    assert "is not a ptopt comment" in world.give("dev", f"/ptopt explain {comment}")


def test_the_longest_rules_together_fit_into_a_comment() -> None:
    nobody: Any = None
    pages = sorted(len(explain(nobody, Topic(rule=rule)).text) for rule in all_rules())
    assert sum(pages[-MOST_COMMANDS:]) < LIMIT // 2


# -- ignore, feedback ------------------------------------------------------------------------------------------


def test_ignore_a_rule(world: World) -> None:
    answer = world.give("dev", "/ptopt ignore pto101")
    assert "PTO101 item-every-step is ignored in this pull request, and its threads are resolved." in answer
    assert '`ignore = ["item-every-step"]` in `.ptopt.toml`' in answer
    assert "`# ptopt: ignore[PTO101] reason`" in answer
    assert world.state().ignored == {"PTO101"}
    assert [thread.resolved for thread in world.pull.threads] == [False, True]
    assert world.host.calls == [("ignored", (world.posted("PTO101"),), "rule", "dev")]
    world.pull.push({"more.py": CODE})
    review_pull(world.client, REPO, world.pull.number, before_write=lambda: None)
    assert [c.body.split()[2] for c in world.pull.review_comments if c.path == "more.py"] == ["PTO201"]


def test_ignore_when_a_thread_goes_meanwhile(world: World) -> None:
    def delete(request: Request, _response: Response) -> None:
        if request.path.endswith("/graphql"):
            world.pull.threads.clear()

    world.github.checks.append(delete)
    assert "is ignored in this pull request." in world.give("dev", "/ptopt ignore pto101")
    assert world.state().ignored == {"PTO101"}


def test_ignore_here(world: World) -> None:
    thread = world.posted("PTO201")
    assert "This finding is ignored" in world.give("triager", "/ptopt ignore HERE", thread=thread)
    (fingerprint,) = world.state().ignored
    assert fingerprint in world.pull.comment_of(thread).body
    assert world.pull.thread_of(thread).resolved
    assert world.host.calls == [("ignored", (thread,), "here", "triager")]


def test_here_is_a_thread_of_ours(world: World) -> None:
    assert "works only in the thread" in world.give("dev", "/ptopt ignore here")
    other = world.pull.review_comment("stranger", "train.py", 3, "hello")
    assert "works only in the thread" in world.give("dev", "/ptopt ignore here", thread=other)
    assert world.state().ignored == frozenset()


def test_feedback(world: World) -> None:
    thread = world.posted("PTO201")
    assert "Noted as good" in world.give("dev", "/ptopt feedback Good", thread=thread)
    assert "Noted as bad" in world.give("dev", "/ptopt feedback bad", thread=thread)
    answer = world.give("dev", "/ptopt feedback bad runs  once", thread=thread)
    assert "Noted as bad, with your reason. Thank you." in answer and "`/ptopt ignore here`" in answer
    world.give("dev", "/ptopt ignore here", thread=thread)
    assert "ignore here" not in world.give("dev", "/ptopt feedback bad", thread=thread)
    assert [call[1:] for call in world.host.calls[:3]] == [
        (thread, True, "", "dev"),
        (thread, False, "", "dev"),
        (thread, False, "runs once", "dev"),
    ]


def test_feedback_outside_of_a_thread(world: World) -> None:
    assert "reply in the thread" in world.give("dev", "/ptopt feedback good")
    assert world.host.calls == []


# -- fix -------------------------------------------------------------------------------------------------------

FIXED = CODE.replace(b"torch.zeros(8).to(batch.device)", b"torch.zeros(8, device=batch.device)")


def test_fix_commits_what_is_safe(world: World) -> None:
    before = world.pull.head_sha
    answer = world.give("writer", "/ptopt fix")
    commit = world.pull.head_sha
    assert commit != before
    assert world.repo.file("train.py", "change") == FIXED
    assert answer == (
        "> writer: `/ptopt fix`\n\n"
        f"Fixed in {commit}:\n\n"
        "- `train.py:6` PTO201 factory-then-move\n\n"
        "Not fixed:\n\n"
        "- `train.py` PTO101 item-every-step: its fix assumes that `total` becomes a tensor: read it with `.item()` "
        "where it is reported\n\n"
        "Where an assumption holds: `Commit suggestion`, if the comment has one, or `ptopt fix --unsafe FILE` on the command "
        "line, which applies all fixes of the file.\n"
    )
    assert world.repo.git.read_commit(commit).message.rstrip() == (
        "Apply the safe fixes of ptopt\n\n- PTO201 factory-then-move\n\nRequested by writer with /ptopt fix."
    )


def test_fix_in_a_thread_is_for_that_finding(world: World) -> None:
    answer = world.give("writer", "/ptopt fix", thread=world.posted("PTO101"))
    assert answer.startswith("Nothing was committed.\n\nNot fixed:\n\n- `train.py` PTO101")
    assert world.repo.file("train.py", "change") == CODE
    assert "Fixed in" in world.give("writer", "/ptopt fix", thread=world.posted("PTO201"))


@pytest.mark.parametrize("how", ["/ptopt ignore PTO201", "resolve"])
def test_fix_leaves_alone_what_is_settled(world: World, how: str) -> None:
    if how == "resolve":
        world.pull.resolve("dev", world.posted("PTO201"))
    else:
        world.give("dev", how)
    answer = world.give("writer", "/ptopt fix")
    assert "Nothing was committed" in answer
    assert "PTO201" not in answer
    assert world.repo.file("train.py", "change") == CODE


def test_fix_twice(world: World) -> None:
    world.give("writer", "/ptopt fix")
    answer = world.give("writer", "/ptopt fix")
    assert "Nothing was committed" in answer
    assert "PTO201 factory-then-move: it is no longer found" in answer


def test_fix_when_the_branch_moves(world: World) -> None:
    """Somebody pushes after the pull request was read."""

    def push(request: Request, response: Response) -> None:
        if request.path.endswith("/files"):
            world.github.checks.remove(push)
            world.pull.push({"other.txt": b"x"})

    world.github.checks.append(push)
    answer = world.give("writer", "/ptopt fix")
    assert "GitHub refused the commit: the branch moved, or is protected." in answer
    assert world.repo.file("train.py", "change") == CODE


def test_fix_of_a_closed_pull_request(world: World) -> None:
    world.pull.close()
    assert "is closed" in world.give("writer", "/ptopt fix")


def test_fix_of_a_fork_tells_how() -> None:
    with FakeGitHub() as github:
        world = World(github, head="mallory:change")
        world.review()
        assert "in a fork, which ptopt cannot write to. Use *Commit suggestion*" in world.give(
            "writer", "/ptopt fix"
        )


def test_fix_without_the_permission_tells_so() -> None:
    with FakeGitHub() as github:
        world = World(github)
        assert world.repo.installation is not None
        world.repo.installation.permissions["contents"] = "read"
        world.review()
        assert "ptopt has no write access to this repository (`contents: write`)" in world.give(
            "writer", "/ptopt fix"
        )


def test_fix_that_is_repeated_after_a_failure(world: World) -> None:
    """The commit was made and the answer was not: the second run commits nothing again."""
    from bot.commands import handle
    from ptopt.github.errors import AmbiguousError

    request = world.request("writer", "/ptopt fix")
    world.github.faults.add("POST", r"/issues/\d+/comments$", "502")
    with pytest.raises(AmbiguousError):
        handle(request, world.client, world.host)
    commit = world.pull.head_sha
    handle(request, world.client, world.host)
    assert world.pull.head_sha == commit
    assert len(world.answers()) == 1


def test_nothing_to_fix() -> None:
    with FakeGitHub() as github:
        world = World(github)
        assert "no open findings" in world.give("writer", "/ptopt fix")
