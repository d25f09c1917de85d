from __future__ import annotations

import dataclasses
from datetime import datetime, timezone

import pytest

from ptopt.change import Change
from ptopt.findings import Finding, NotReviewed, Span
from ptopt.github import markers
from ptopt.github.threads import gone, to_resolve
from ptopt.github.values import Actor, PostedComment, Thread
from tests.github.reviews import SOURCE, change_of, changed, finding, reviewed

BOT = Actor(1, "ptopt[bot]", True)
PERSON = Actor(2, "ada", False)
ITEM = finding(SOURCE, "total += loss.item()", "total += loss.detach()")
OTHER = finding(SOURCE, "print(loss.item())", "pass")
AT_TEN = dataclasses.replace(ITEM.as_place(), span=Span(10, 10))


def posted(
    body: str = str(markers.finding("PTO101", ITEM.fingerprint)), number: int = 1, author: Actor = BOT
) -> PostedComment:
    return PostedComment(
        id=number,
        author=author,
        body=body,
        path="train.py",
        line=10,
        original_line=10,
        original_commit_id="a" * 40,
        review_id=5,
        in_reply_to=None if number == 1 else 1,
        created_at=datetime(2026, 11, 20, tzinfo=timezone.utc),
    )


def thread(*replies: PostedComment, resolved: bool = False) -> Thread:
    comments = tuple((c.id, c.author) for c in (posted(), *replies))
    return Thread("T1", resolved, None, comments)


SEEN = change_of(changed(SOURCE))


def test_a_finding_that_is_gone() -> None:
    assert gone([posted()], SEEN, reviewed(OTHER)) == [posted()]


@pytest.mark.parametrize(
    "there",
    [
        reviewed(ITEM),
        reviewed(over_limit=(ITEM,)),
        reviewed(dataclasses.replace(OTHER, also=(AT_TEN,))),  # reported at another place
        reviewed(dataclasses.replace(OTHER, rule="PTO104", also=(AT_TEN,))),  # of the comment of another rule
        reviewed(
            dataclasses.replace(OTHER, path="a.yml", also=(dataclasses.replace(AT_TEN, path="train.py"),))
        ),  # in another file
    ],
)
def test_a_finding_that_is_still_there(there: object) -> None:
    assert gone([posted()], SEEN, there) == []  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "also",
    [
        dataclasses.replace(OTHER, also=(dataclasses.replace(AT_TEN, rule="PTO104"),)),
        dataclasses.replace(OTHER, path="other.py", also=(AT_TEN,)),
        dataclasses.replace(OTHER, also=(dataclasses.replace(AT_TEN, span=Span(9, 9)),)),
    ],
)
def test_other_findings_do_not_keep_it(also: Finding) -> None:
    assert gone([posted()], SEEN, reviewed(also)) == [posted()]


def test_a_finding_suppressed_in_the_code_is_gone() -> None:
    assert gone([posted()], SEEN, reviewed(suppressed=(ITEM,))) == [posted()]


def test_a_file_that_was_not_looked_at() -> None:
    skipped = (NotReviewed("train.py", "does not parse"),)
    assert gone([posted()], SEEN, reviewed(not_reviewed=skipped)) == []
    assert gone([posted()], Change((), skipped), reviewed()) == []
    assert gone([posted()], Change((), ()), reviewed()) == []
    lost = dataclasses.replace(changed(SOURCE), head=None)
    assert gone([posted()], change_of(lost), reviewed()) == []


OURS = posted(str(markers.Marker("answer", ("7",))), number=2)
SPOKE = posted("not so", number=3, author=PERSON)
LINTER = posted("lint", number=4, author=Actor(3, "linter[bot]", True))


@pytest.mark.parametrize(
    ("replies", "resolves"),
    [([], True), ([OURS], True), ([LINTER], True), ([SPOKE], False), ([OURS, SPOKE], False)],
)
def test_threads_in_which_a_person_spoke_stay_open(replies: list[PostedComment], resolves: bool) -> None:
    known = {c.id: c for c in (posted(), *replies)}
    found = to_resolve([thread(*replies)], [posted()], known, BOT.login)
    assert bool(found) == resolves


def test_a_reply_that_came_a_moment_ago_counts_as_a_persons() -> None:
    assert to_resolve([thread(OURS)], [posted()], {1: posted()}, BOT.login) == []


def test_a_person_whose_token_we_use_is_told_from_us_by_the_markers() -> None:
    mine = [dataclasses.replace(OURS, author=PERSON), SPOKE]
    known = {c.id: c for c in mine}
    assert to_resolve([thread(mine[0])], [posted()], known, PERSON.login)
    assert not to_resolve([thread(*mine)], [posted()], known, PERSON.login)


def test_other_threads_are_left_alone() -> None:
    known = {1: posted()}
    assert to_resolve([thread(resolved=True)], [posted()], known, BOT.login) == []
    assert to_resolve([thread()], [], known, BOT.login) == []
    assert to_resolve([Thread("T2", False, None, ())], [posted()], known, BOT.login) == []
