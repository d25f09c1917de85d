"""Suggestions that were taken, by whatever means, and those that were not."""

from __future__ import annotations

import pytest

from fake_github import FakeGitHub, Pull
from fake_github.repos import Repo
from tests.worker.pulls import FAST, SLOW
from tests.worker.service import Service

APPLIED, MERGED = ("applied", "exact"), ("merged", "exact")
# Three suggestions, two of them for lines side by side; one of those is to delete a line.
THREE = SLOW.replace(
    b"        loss = ", b"        mask = torch.zeros(labels.shape).to(device)\n        loss = "
).replace(b"        total +=", b"        torch.cuda.empty_cache()\n        total +=")


# A suggestion inside of the lines of another: one for the lines above and below it.
NESTED = SLOW.replace(
    b"    return total\n",
    b"        torch.cuda.empty_cache()\n    return total\n",
)


def opened(service: Service, repo: Repo, text: bytes = SLOW, path: str = "train.py") -> Pull:
    pull = repo.pull(files={path: text}, author="dev")
    service.catch_up()
    assert pull.review_comments
    assert service.signal_values() == []
    return pull


def test_the_button(service: Service, repo: Repo) -> None:
    """The file is then what it is on the base branch, and no longer in the diff at all."""
    pull = opened(service, repo)
    head = pull.accept(pull.review_comments[0].id, "dev")
    assert repo.file("train.py", head) == FAST and not pull.files
    service.catch_up()
    assert service.signal_values() == [("applied", "exact"), ("thread", "resolved")]
    signal = service.signals()[0]
    assert (signal.actor, signal.actor_writes, signal.source) == ("", None, head)


def test_the_button_and_the_file_stays_in_the_diff(service: Service, github: FakeGitHub, repo: Repo) -> None:
    pull = opened(service, repo, SLOW + b"\n\nMORE = 1\n")
    before = len(github.requests)
    pull.accept(pull.review_comments[0].id, "dev")
    service.catch_up()
    assert service.signal_values("applied") == [APPLIED]
    # It was read for the review; nothing is read once more.
    assert not [
        r for r in github.requests[before:] if r.route and "/contents/{path}" in r.route and "train" in r.path
    ]


def test_a_push_that_nothing_is_waited_for_costs_nothing(
    service: Service, github: FakeGitHub, repo: Repo
) -> None:
    pull = repo.pull(files={"other.py": FAST}, author="dev")
    service.catch_up()
    pull.push({"other.py": FAST + b"\n"})
    before = len(github.requests)
    service.catch_up()
    listed = [r for r in github.requests[before:] if r.route and r.route.endswith("/files")]
    assert len(listed) == 1 and not pull.reviews


def test_by_hand(service: Service, repo: Repo) -> None:
    pull = opened(service, repo)
    pull.push({"train.py": FAST.replace(b"total += loss.detach()", b"total  +=  loss.detach( )")})
    service.catch_up()
    assert service.signal_values() == [("applied", "similar")]


def test_the_line_is_changed_otherwise(service: Service, repo: Repo) -> None:
    pull = opened(service, repo)
    pull.push({"train.py": SLOW.replace(b"total += loss.item()", b"total += float(loss)")})
    service.catch_up()
    pull.push({"train.py": SLOW.replace(b"        total += loss.item()\n", b"")})
    service.catch_up()
    pull.push({"train.py": None})
    service.catch_up()
    pull.close(merged=True)
    service.catch_up()
    assert service.signal_values() == []


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_one_after_the_other(service: Service, repo: Repo, order: tuple[int, ...]) -> None:
    pull = opened(service, repo, THREE)
    assert len(pull.review_comments) == 3
    ids = [comment.id for comment in pull.review_comments]
    for which in order:
        pull.accept(ids[which], "dev")
        service.catch_up()
    assert service.signal_values("applied") == [APPLIED] * 3
    assert [s.comment_id for s in service.signals() if s.kind == "applied"] == [
        service.comments()[which].id for which in order
    ]


def test_of_suggestions_for_the_same_lines_one_is_offered(service: Service, repo: Repo) -> None:
    """Each one that is offered can be accepted, whatever was accepted before."""
    pull = opened(service, repo, NESTED)
    item, empty = sorted(pull.review_comments, key=lambda comment: "PTO801" in comment.body)
    offered = [comment for comment in (item, empty) if "```suggestion" in comment.body]
    assert len(offered) == 1 and len(pull.review_comments) == 2
    assert [bool(comment.suggestion) for comment in service.comments()] == [
        comment in offered for comment in pull.review_comments
    ]
    while offered:  # what is left over is offered, or said, again
        pull.accept(offered[0].id, "dev")
        service.catch_up()
        offered = [
            comment
            for comment in pull.review_comments
            if comment.place[1] is not None and "```suggestion" in comment.body
        ]
    assert service.signal_values("applied") == [APPLIED]


def test_several_at_once(service: Service, repo: Repo) -> None:
    """GitHub's batch, or pushes that come while nobody works: only the last head is looked at."""
    pull = opened(service, repo, THREE)
    for comment in pull.review_comments:
        pull.accept(comment.id, "dev")
    service.catch_up()
    assert service.signal_values("applied") == [APPLIED] * 3


def test_merged(service: Service, repo: Repo) -> None:
    pull = opened(service, repo)
    pull.accept(pull.review_comments[0].id, "dev")
    service.catch_up()
    pull.close(merged=True)
    service.catch_up()
    assert service.signal_values("applied", "merged") == [APPLIED, MERGED]


def test_merged_before_the_last_push_was_looked_at(service: Service, repo: Repo) -> None:
    pull = opened(service, repo)
    pull.accept(pull.review_comments[0].id, "dev")
    pull.close(merged=True)
    service.catch_up()
    assert service.signal_values("applied", "merged") == [APPLIED, MERGED]


def test_taken_and_taken_back(service: Service, repo: Repo) -> None:
    pull = opened(service, repo)
    pull.accept(pull.review_comments[0].id, "dev")
    service.catch_up()
    pull.push({"train.py": SLOW})
    service.catch_up()
    pull.close(merged=True)
    service.catch_up()
    assert service.signal_values("applied", "merged", "withdrawn") == [APPLIED, ("withdrawn", "exact")]
    applied, taken = (s for s in service.signals() if s.kind in ("applied", "withdrawn"))
    assert (applied.source, applied.actor) == (taken.source, taken.actor)


def test_taken_back_and_taken_once_more(service: Service, repo: Repo) -> None:
    """The file is not in the diff while it is taken: that it was undone is noticed as it comes back."""
    pull = opened(service, repo)
    for text in (FAST, SLOW, FAST + b"\n\nMORE = 1\n"):
        pull.push({"train.py": text})
        service.catch_up()
    pull.close(merged=True)
    service.catch_up()
    assert service.signal_values("applied", "merged", "withdrawn") == [
        APPLIED, ("withdrawn", "exact"), APPLIED, MERGED,
    ]  # fmt: skip


def test_taken_back_and_closed(service: Service, repo: Repo) -> None:
    pull = opened(service, repo)
    pull.accept(pull.review_comments[0].id, "dev")
    service.catch_up()
    pull.push({"train.py": SLOW})
    pull.close()
    service.catch_up()
    assert service.signal_values("applied", "withdrawn") == [APPLIED, ("withdrawn", "exact")]


def test_with_other_statements_between(service: Service, repo: Repo) -> None:
    pull = opened(service, repo)
    new = b"        total += (  # no wait\n            loss.detach()\n        )\n"
    pull.push({"train.py": FAST.replace(b"        total += loss.detach()\n", new)})
    service.catch_up()
    assert service.signal_values("applied", "changed") == []  # other words for it: nobody knows
    pull.push({"train.py": FAST.replace(b"loss.detach()", b"loss.detach()  # no wait")})
    service.catch_up()
    assert service.signal_values("applied", "changed") == [("applied", "similar")]


def test_all_that_is_delivered_twice_counts_once(service: Service, repo: Repo) -> None:
    pull = opened(service, repo, THREE)
    for comment in pull.review_comments:
        pull.accept(comment.id, "dev")
        service.catch_up()
    pull.reply("dev", pull.review_comments[0].id, "Done")
    pull.close(merged=True)
    service.catch_up()
    before = service.signal_values()
    assert len(before) == 3 + 3 + 3 + 1 and ("reply", "agreement") in before
    service.twice()
    assert service.signal_values() == before


def test_a_fork(service: Service, repo: Repo) -> None:
    repo.fork("mallory").commit("faster", {"train.py": SLOW})
    pull = repo.pull(head="mallory:faster", author="mallory")
    service.catch_up()
    pull.accept(pull.review_comments[0].id, "mallory")
    service.catch_up()
    assert service.signal_values("applied") == [APPLIED]
    pull.close(merged=True)
    service.catch_up()
    assert service.signal_values("merged") == [MERGED]


@pytest.mark.parametrize("reviewed", [True, False])
def test_the_file_is_renamed(service: Service, repo: Repo, reviewed: bool) -> None:
    pull = opened(service, repo, SLOW + b"\n\nMORE = 1\n")
    pull.push({"train.py": None, "fit.py": FAST + b"\n\nMORE = 1\n"})
    if not reviewed:
        pull.close(merged=True)
    service.catch_up()
    assert service.signal_values("applied") == [APPLIED]


def test_a_notebook_has_no_suggestion_to_take(service: Service, repo: Repo) -> None:
    cell = '{"cell_type": "code", "execution_count": null, "metadata": {}, "outputs": [], "source": [%s]}'
    lines = ", ".join(f'"{line}\\n"' for line in SLOW.decode().splitlines())
    book = f'{{"cells": [\n{cell % lines}\n], "metadata": {{}}, "nbformat": 4, "nbformat_minor": 5}}\n'
    pull = repo.pull(files={"train.ipynb": book.encode()}, author="dev")
    service.catch_up()
    assert len(pull.reviews) == 1
    pull.push({"train.ipynb": book.replace("loss.item()", "loss.detach()").encode()})
    service.catch_up()
    pull.close(merged=True)
    service.catch_up()
    assert all(comment.suggestion == {} for comment in service.comments())
    assert service.signal_values() == []


def test_more_files_than_a_page_lists(service: Service, github: FakeGitHub, repo: Repo) -> None:
    many = {f"a{n:03}.py": b"X = 1\n" for n in range(120)}
    pull = repo.pull(files={**many, "train.py": SLOW}, author="dev")
    service.catch_up()
    pull.accept(pull.review_comments[0].id, "dev")
    pull.close(merged=True)
    before = len(github.requests)
    service.catch_up()
    assert service.signal_values("applied", "merged") == [APPLIED, MERGED]
    routes = [r.route or "" for r in github.requests[before:]]
    assert sum(r.path.endswith("/contents/train.py") for r in github.requests[before:]) == 1
    assert not any(route.endswith("/files") for route in routes)
