"""What people set for one pull request: paused, ignored. It is kept in the markers of our own answers.

So the Action, which has no database, knows it too; and to delete an answer is to undo it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass

from ptopt.github import markers
from ptopt.github.client import GitHubClient
from ptopt.github.values import IssueComment, PostedComment

PAUSE = "pause"
RESUME = "resume"
_IGNORE = "ignore="


@dataclass(frozen=True, slots=True)
class PullState:
    """`ignored` holds rule ids and fingerprints of findings."""

    paused: bool = False
    ignored: frozenset[str] = frozenset()

    def after(self, effects: Iterable[str]) -> PullState:
        """The state once these effects are in force. Words that are none change nothing."""
        state = self
        for effect in effects:
            if effect in {PAUSE, RESUME}:
                state = dataclasses.replace(state, paused=effect == PAUSE)
            elif effect.startswith(_IGNORE):
                state = dataclasses.replace(state, ignored=state.ignored | {effect.removeprefix(_IGNORE)})
        return state


def ignore(what: str) -> str:
    """The effect that silences a rule (by its id) or a finding (by its fingerprint)."""
    return _IGNORE + what


def read_state(github: GitHubClient, repo: str, number: int) -> PullState:
    """The state of a pull request, from all our answers in it."""
    comments: list[IssueComment | PostedComment] = [
        *github.issue_comments(repo, number),
        *github.review_comments(repo, number),
    ]
    return fold(github.identity(), comments)


def fold(identity: str, comments: Iterable[IssueComment | PostedComment]) -> PullState:
    """The state that our answers among `comments` add up to, oldest first. What others wrote does not count."""
    ours = [comment for comment in comments if comment.author.login == identity]
    state = PullState()
    for comment in sorted(ours, key=lambda comment: (comment.created_at, comment.id)):
        answer = markers.first(comment.body, "answer")
        if answer is not None:
            state = state.after(answer.words[2:])
    return state
