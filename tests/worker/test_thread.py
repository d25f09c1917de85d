"""Threads of our comments that people resolve."""

from __future__ import annotations

from fake_github.repos import Repo
from tests.worker.pulls import SLOW
from tests.worker.service import Service


def test_resolved_unresolved_and_resolved_again(service: Service, repo: Repo) -> None:
    pull = repo.pull(files={"train.py": SLOW}, author="mallory")
    service.catch_up()
    (thread,) = pull.threads
    for resolved in (True, False, True):
        pull.resolve("dev", thread, resolved)
        # What else GitHub tells has changed: deliveries that are alike to the last byte are one.
        pull.reply("robot[bot]", pull.review_comments[0].id, "Beep")
        service.catch_up()
    expected = [("thread", "resolved"), ("thread", "unresolved"), ("thread", "resolved")]
    assert service.signal_values() == expected
    pull.resolve("mallory", thread, False)
    service.catch_up()
    service.twice()
    assert service.signal_values() == [*expected, ("thread", "unresolved")]
    assert [signal.actor_writes for signal in service.signals()] == [True, True, True, False]
    assert len({signal.actor for signal in service.signals()}) == 2


def test_what_we_resolve_is_nobodys_opinion(service: Service, repo: Repo) -> None:
    pull = repo.pull(files={"train.py": SLOW}, author="dev")
    service.catch_up()
    pull.push({"train.py": SLOW.replace(b"total += loss.item()", b"pass")})
    service.catch_up()
    assert pull.threads[0].resolved
    assert service.signal_values() == []


def test_threads_of_others_are_none_of_our_business(service: Service, repo: Repo) -> None:
    pull = repo.pull(files={"train.py": SLOW}, author="dev")
    service.catch_up()
    other = pull.review_comment("mallory", "train.py", 11, "Why?")
    pull.reply("dev", other, "Because")
    pull.resolve("dev", other)
    service.catch_up()
    assert service.signal_values() == []
