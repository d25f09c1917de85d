"""Comments in the conversation of a pull request, and their reactions."""

from __future__ import annotations

from datetime import datetime

from fake_github.comments import IssueComment, issue_shape
from fake_github.http import Answer, ApiError, Call, not_found, page, route

_LIST = "/repos/{owner}/{repo}/issues/{issue_number}/comments"
_ONE = "/repos/{owner}/{repo}/issues/comments/{comment_id}"
_READ = "issues:read|pull_requests:read"
_WRITE = "issues:write|pull_requests:write"


def _comment(call: Call) -> IssueComment:
    number = call.number("comment_id")
    for pull in call.repo.pulls.values():
        for comment in pull.issue_comments:
            if comment.id == number:
                return comment
    raise not_found()


@route("GET", "/repos/{owner}/{repo}/issues/{issue_number}", _READ)
def get_issue(call: Call) -> Answer:
    return Answer({**issue_shape(call.pull), "closed_by": None})


@route("GET", _LIST, _READ)
def list_comments(call: Call) -> Answer:
    since = call.query.get("since")
    after = datetime.fromisoformat(since.replace("Z", "+00:00")).timestamp() if since else 0
    found = [comment for comment in call.pull.issue_comments if comment.updated >= after]
    return page(call, found, IssueComment.shape)


@route("POST", _LIST, _WRITE)
def create_comment(call: Call) -> Answer:
    body = call.text("body")
    comment, send = IssueComment.create(call.pull, call.github.account(call.login), body)
    call.github.webhooks.background(send)
    data = comment.shape()
    return Answer(data, 201, {"Location": data["url"]})


@route("GET", _ONE, _READ)
def get_comment(call: Call) -> Answer:
    return Answer(_comment(call).shape())


@route("PATCH", _ONE, _WRITE)
def update_comment(call: Call) -> Answer:
    comment, body = _comment(call), call.text("body")
    if call.token and call.token.kind == "user" and comment.author.login != call.login:
        raise ApiError(403, "You do not have permission to edit this comment.")
    call.github.webhooks.background(comment.edit(call.login, body))
    return Answer(comment.shape())


@route("DELETE", _ONE, _WRITE)
def delete_comment(call: Call) -> Answer:
    call.github.webhooks.background(_comment(call).delete(call.login))
    return Answer(None, 204)


@route("GET", f"{_ONE}/reactions", _READ)
def list_reactions(call: Call) -> Answer:
    wanted = call.query.get("content")
    found = [each for each in _comment(call).reactions if not wanted or each.content == wanted]
    return page(call, found, lambda reaction: reaction.shape(call.github))


@route("POST", f"{_ONE}/reactions", _WRITE)
def create_reaction(call: Call) -> Answer:
    account = call.github.account(call.login)
    reaction, new = _comment(call).reactions.add(account, call.text("content"))
    return Answer(reaction.shape(call.github), 201 if new else 200)


@route("DELETE", f"{_ONE}/reactions/{{reaction_id}}", _WRITE)
def delete_reaction(call: Call) -> Answer:
    reactions = _comment(call).reactions
    for reaction in reactions:
        if reaction.id == call.number("reaction_id"):
            reactions.remove(reaction)
            return Answer(None, 204)
    raise not_found()
