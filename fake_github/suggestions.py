"""Accepting a suggestion, as GitHub's button does."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from markdown_it import MarkdownIt
from markdown_it.token import Token

if TYPE_CHECKING:
    from fake_github.pulls import Pull


class SuggestionRefusedError(Exception):
    """GitHub's page does not let this suggestion be applied; the text says why."""


def suggestion_of(body: str) -> str | None:
    """The lines of the first suggestion fence, each with its newline; None without a fence."""
    return next((each.content for each in MarkdownIt("commonmark").parse(body) if is_suggestion(each)), None)


def is_suggestion(token: Token) -> bool:
    return token.type == "fence" and token.info.split()[:1] == ["suggestion"]


def apply_suggestion(pull: Pull, comment_id: int, login: str) -> str:
    """Replaces exactly the commented lines by the content of the fence, in one commit by web-flow.

    Lines get the line ending of those that they replace. The thread is resolved, as on GitHub.
    """
    with pull.github.lock:
        comment = pull.comment_of(comment_id)
        text = suggestion_of(comment.body)
        if text is None:
            raise SuggestionRefusedError("The comment holds no suggestion.")
        if not pull.open:
            raise SuggestionRefusedError("Suggestions cannot be applied while the pull request is closed.")
        if comment.anchor.side == "LEFT" or comment.anchor.start_side == "LEFT":
            raise SuggestionRefusedError("Applying suggestions on deleted lines is not supported.")
        start, line, _ = comment.place
        if line is None:
            raise SuggestionRefusedError("This suggestion is outdated.")
        if comment.anchor.start_line is not None and start is None:
            raise SuggestionRefusedError("This suggestion is outdated.")
        data = pull.repo.file(comment.path, pull.head_sha)
        assert data is not None, comment.path
        lines = re.findall(rb"[^\n]*\n|[^\n]+\Z", data)
        first = (start or line) - 1
        old = lines[first:line]
        ending = b"\r\n" if old[0].endswith(b"\r\n") else b"\n"
        new = [part + ending for part in text.encode().split(b"\n")[:-1]]
        if line == len(lines) and new and not data.endswith(b"\n"):
            new[-1] = new[-1].removesuffix(ending)
        if new == old:
            raise SuggestionRefusedError(
                "This suggestion is invalid because no changes were made to the code."
            )
        lines[first:line] = new
        author = pull.repo.person(comment.author.login)
        message = f"Update {comment.path}\n\nCo-authored-by: {author.name} <{author.email}>"
        thread = comment.thread
        assert pull.head_repo, "the fork is gone"
    changed = {comment.path: b"".join(lines)}
    sha = pull.head_repo.commit(pull.head_ref, changed, message, login=login, committer="web-flow")
    pull.resolve(login, thread)
    return sha
