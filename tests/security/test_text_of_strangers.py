"""Text of a pull request, in everything that we write about it."""

from __future__ import annotations

import re

import pytest

from ptopt.github import markers
from tests.security.conftest import Service
from tests.security.judge import HOSTILE, assert_inert
from tests.worker.pulls import FAST, SLOW

PATH = (
    "a/@evil #1 ``` `` ~~~ [e](http:evil) $x$ ##[add-mask]evil ::warning:: :+1: www.evil.example/"
    "<!-- ptopt:finding PTO101 e --> <img src=evil> | \u202e\u200b\u3164 GH-1.py"
)
STRING = "`@evil` ``` ~~~ <!-- ptopt:review 1 --> https://evil.example #1 :+1: $x$ \u3164"
CODE = SLOW.replace(b"total += loss.item()", f"total['{STRING}'] = loss.item()  # {HOSTILE[:700]}".encode())
CODE = CODE.replace(b"\x1b", b"").replace(b"\x07", b"")
CODE += f"x = 1  # ptopt: ignore[{HOSTILE[:200]}] {HOSTILE[:300]}\n".encode()
MENDABLE = SLOW.replace(
    b"optimizer.zero_grad()",
    b"a = torch.zeros(8).to(device)  # closes #1 @evil\n        optimizer.zero_grad()",
)
BASE_CONFIG = b"""\
exclude = ["skipped/*", "www.evil.example/**"]
min-confidence = 0
[pull-requests]
check-run = true
sarif = true
skip-labels = ["@evil `"]
"""


# Short ones, so that an error quotes them to their end.
PIECES = [
    "$x^2$ $`x`$ $$y$$ :+1: :tada:",
    "_www.evil.example www.evil.example https://evil.example",
    "GH-1 _GH-1 #1 evil/repo#3 @evil evil@evil.example",
    "deadbeefdeadbeefdeadbeefdeadbeefdeadbeef",
    "<img src=//evil.example> ![e](//evil) [e](//evil) <!-- -->",
    "``` ~~~ [^1] [x] \u202e\u3164 |a|b|",
]
GLOB = "``` ~~~ `@evil` <img src=evil> $x$ #1 _www.evil.example ~~~~ <!-- ptopt:config -->"


def toml(text: str) -> str:
    return '"' + "".join(f"\\U{ord(c):08x}" if not c.isalnum() else c for c in text) + '"'


def test_a_review(service: Service) -> None:
    service.repo.commit("main", {".ptopt.toml": BASE_CONFIG})
    head_config = f"{toml(HOSTILE[:200])} = 1\nignore = [{', '.join(map(toml, [HOSTILE, *PIECES]))}]\n"
    head_config += (
        f"[per-path-ignores]\n{toml('[@evil')} = [1]\n{toml('<img src=evil>')} = [{toml('`@evil`')}]\n"
    )
    files = {
        PATH: CODE,
        f"skipped/{PATH}": CODE,
        "train.py": CODE,
        ".ptopt.toml": head_config.encode(),
    }
    pull = service.repo.pull(
        "evil-$x$-#1-`@evil`", title=HOSTILE, files=files, labels=["<b>@evil"], body=HOSTILE
    )
    service.work()
    assert pull.reviews and pull.review_comments and pull.check_runs and pull.issue_comments
    for body in service.bodies(pull):
        assert_inert(body, "finding", "review", "config")
    for comment in pull.review_comments:
        assert len(markers.read(comment.body)) == 1
        # The code in a suggestion is that of the file, and its fence is not broken out of.
        assert comment.body.count("suggestion\n") <= 1
    (run,) = pull.check_runs
    assert_inert(run.summary, marks=0)
    for note in run.annotations:
        assert (note["title"] + note["message"]).replace("\n", "").isprintable()
    assert any("www" in comment.body for comment in pull.issue_comments)  # it was quoted at all
    # Pushed again, now with settings on the base that cannot be read.
    service.repo.commit("main", {".ptopt.toml": f"x = {toml(HOSTILE)}\n".encode()})
    pull.push({"train.py": CODE + b"# more\n", PATH: FAST})
    service.work()
    for body in service.bodies(pull):
        assert_inert(body, "finding", "review", "config")


@pytest.mark.parametrize(
    "command",
    [
        f"/ptopt {HOSTILE}",
        f"/ptopt review {HOSTILE}",
        f"/ptopt explain {HOSTILE[:60]}",
        f"/ptopt explain {HOSTILE.split()[6]}",
        "/ptopt explain _www.evil.example",
        f"/ptopt ignore {HOSTILE.replace(' ', '_')}",
        f"/ptopt help {HOSTILE}",
        f"/ptopt feedback {HOSTILE}",
        f"/ptopt status {HOSTILE}",
        "/ptopt ```@evil```",
        "/ptopt explain \\`@evil \\[e](//evil)",
    ],
)
def test_an_answer(service: Service, command: str) -> None:
    pull = service.repo.pull("b", title=HOSTILE, files={"train.py": FAST})
    pull.comment("dev", command.replace("\n", " "))
    service.work()
    for body in service.bodies(pull):
        assert_inert(body, "answer", marks=1, markup=frozenset({"blockquote_open"}))
        answer = markers.first(body, "answer")
        assert answer is not None and len(answer.words) == 2  # and nothing is in force by it


def test_config_and_status(service: Service) -> None:
    service.repo.commit("main", {".ptopt.toml": f"exclude = [{toml(GLOB)}]\n".encode()})
    pull = service.repo.pull("`@evil`-$x$", files={"train.py": SLOW})
    pull.comment("dev", "/ptopt config\n\n/ptopt status")
    service.repo.commit("main", {".ptopt.toml": f"{toml(HOSTILE)} = {toml(HOSTILE)}\n".encode()})
    other = service.repo.pull("other", files={"train.py": SLOW})
    other.comment("dev", "/ptopt config\n\n/ptopt status")
    service.work()
    for body in (*service.bodies(pull), *service.bodies(other)):
        assert_inert(body, "answer", "finding", "review", "config", markup=frozenset({"blockquote_open"}))


def test_a_commit_message(service: Service) -> None:
    pull = service.repo.pull("fixes-#1", title="closes #1 @evil", files={"train.py": CODE, PATH: MENDABLE})
    service.work()
    pull.comment("dev", "/ptopt fix")
    service.work()
    messages = [str(sent["message"]) for path, sent in service.written() if path.endswith("/git/commits")]
    assert len(messages) == 1, service.bodies(pull)
    assert not re.search(r"#\d|@|evil|://|\[skip ci\]", messages[0]), messages
    for body in service.bodies(pull):
        # Our own link to the commit that we made is the one that may stand there.
        body = re.sub(r"^Fixed in [0-9a-f]{40}:$", "", body, flags=re.M)
        assert_inert(body, "answer", "finding", "review", markup=frozenset({"blockquote_open"}))


def test_markers_of_others_are_no_markers(service: Service) -> None:
    """What silences us counts only in our own words."""
    pull = service.repo.pull("b", files={"train.py": SLOW}, deliver=False)
    for login in ("stranger", "dev", "ptopt", "mallory"):
        pull.comment(login, f"<!-- ptopt:answer 1 {'0' * 16} pause ignore=PTO101 -->\nforged")
        pull.comment(login, f"<!-- ptopt:review {pull.head_sha} -->\nforged")
        pull.comment(login, "<!-- ptopt:config -->\nforged")
        pull.review_comment(login, "train.py", 13, f"<!-- ptopt:finding PTO101 {'0' * 32} -->\nforged")
    pull.push({"train.py": SLOW + b"# again\n"})
    service.work()
    assert [review.author.login for review in pull.reviews if "ptopt:review" in review.body] == ["ptopt[bot]"]
    assert any("PTO101" in body for body in service.bodies(pull))


def test_our_words_quoted_back_are_no_markers(service: Service) -> None:
    """A command that quotes a marker gets an answer that is not led by it."""
    pull = service.repo.pull("b", files={"train.py": FAST})
    forged = "<!-- ptopt:answer 9 0 pause -->"
    for text in (f"/ptopt {forged}", f"/ptopt explain {forged}", f"/ptopt help {forged}"):
        pull.comment("dev", text)
    service.work()
    for body in service.bodies(pull):
        found = markers.read(body)
        assert len(found) == 1 and found[0].words[0] != "9" and "pause" not in found[0].words
    pull.push({"train.py": SLOW})
    service.work()
    assert pull.reviews  # not paused
