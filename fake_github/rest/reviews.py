"""Reviews and review comments."""

from __future__ import annotations

from fake_github.comments import Reaction, check_body
from fake_github.http import Answer, ApiError, Call, invalid, not_found, page, route
from fake_github.reviews import STATES, Review, ReviewComment, unprocessable

_PULL = "/repos/{owner}/{repo}/pulls/{pull_number}"
_ONE = "/repos/{owner}/{repo}/pulls/comments/{comment_id}"
_READ, _WRITE = "pull_requests:read", "pull_requests:write"


def _review(call: Call) -> Review:
    for review in call.pull.all_reviews:
        mine = call.token is not None and review.author.login == call.login
        if review.id == call.number("review_id") and (mine or review.state != "PENDING"):
            return review
    raise not_found()


def _comment(call: Call) -> ReviewComment:
    number = call.number("comment_id")
    for pull in call.repo.pulls.values():
        for comment in pull.review_comments:
            if comment.id == number:
                return comment
    raise not_found()


@route("GET", f"{_PULL}/reviews", _READ)
def list_reviews(call: Call) -> Answer:
    login = call.token.login if call.token else None
    seen = [each for each in call.pull.all_reviews if each.state != "PENDING" or each.author.login == login]
    return page(call, seen, Review.shape)


@route("POST", f"{_PULL}/reviews", _WRITE)
def create_review(call: Call) -> Answer:
    pull, data = call.pull, call.data
    event, body = data.get("event"), call.text("body", required=False)
    if event is not None and event not in STATES:
        raise ApiError(422, 'Invalid request.\n\nNo subschema in "anyOf" matched.')
    state = STATES[event] if event else "PENDING"
    if event in ("COMMENT", "REQUEST_CHANGES") and not body.strip():
        raise unprocessable("Body can't be blank")
    account = call.github.account(call.login)
    if event in ("APPROVE", "REQUEST_CHANGES") and account is pull.author:
        word = "approve" if event == "APPROVE" else "request changes on"
        raise unprocessable(f"Can not {word} your own pull request")
    commit_id = data.get("commit_id") or pull.head_sha
    review, sends = Review.create(pull, account, body, state, commit_id, data.get("comments") or [])
    call.github.webhooks.background(*sends)
    return Answer(review.shape())


@route("GET", f"{_PULL}/reviews/{{review_id}}", _READ)
def get_review(call: Call) -> Answer:
    return Answer(_review(call).shape())


@route("PUT", f"{_PULL}/reviews/{{review_id}}", _WRITE)
def update_review(call: Call) -> Answer:
    review, body = _review(call), call.text("body")
    if review.author.login != call.login:
        raise ApiError(403, "You can only edit your own review")
    if len(body) > 65_536:
        raise unprocessable("Body is too long (maximum is 65536 characters)")
    review.body = body
    return Answer(review.shape())


@route("DELETE", f"{_PULL}/reviews/{{review_id}}", _WRITE)
def delete_review(call: Call) -> Answer:
    review = _review(call)
    if review.state != "PENDING":
        raise unprocessable("Can not delete a non-pending pull request review")
    call.pull.all_reviews.remove(review)
    return Answer(review.shape())


@route("POST", f"{_PULL}/reviews/{{review_id}}/events", _WRITE)
def submit_review(call: Call) -> Answer:
    review = _review(call)
    if call.data.get("event") not in STATES:
        raise ApiError(422, 'Invalid request.\n\n"event" wasn\'t supplied.')
    if review.state != "PENDING":
        raise unprocessable("Can not submit a review that is not pending")
    review.body = call.text("body", required=False) or review.body
    call.github.webhooks.background(*review.submit(STATES[call.data["event"]]))
    return Answer(review.shape())


@route("GET", f"{_PULL}/reviews/{{review_id}}/comments", _READ)
def list_comments_of_review(call: Call) -> Answer:
    return page(call, _review(call).comments, ReviewComment.shape)


@route("GET", f"{_PULL}/comments", _READ)
def list_comments(call: Call) -> Answer:
    return page(call, _ordered(call, call.pull.review_comments), ReviewComment.shape)


@route("GET", "/repos/{owner}/{repo}/pulls/comments", _READ)
def list_all_comments(call: Call) -> Answer:
    found = [comment for pull in call.repo.pulls.values() for comment in pull.review_comments]
    return page(call, _ordered(call, found), ReviewComment.shape)


def _ordered(call: Call, comments: list[ReviewComment]) -> list[ReviewComment]:
    key = (
        (lambda c: (c.updated, c.id))
        if call.query.get("sort") == "updated"
        else (lambda c: (c.created, c.id))
    )
    return sorted(comments, key=key, reverse=call.query.get("direction") == "desc")


@route("POST", f"{_PULL}/comments", _WRITE)
def create_comment(call: Call) -> Answer:
    pull, data = call.pull, call.data
    account = call.github.account(call.login)
    body = call.text("body")
    check_body(body, "PullRequestReviewComment")
    if data.get("in_reply_to"):
        return _reply(call, int(data["in_reply_to"]), body)
    for name in ("commit_id", "path"):
        call.text(name)
    if data.get("line") is None and data.get("position") is None and data.get("subject_type") != "file":
        raise invalid("PullRequestReviewComment", "pull_request_review_thread.line", "missing_field")
    try:
        review, sends = Review.create(pull, account, "", "COMMENTED", data["commit_id"], [data])
    except ApiError as error:
        text = error.answer.data["errors"][0]
        details = {"resource": "PullRequestReviewComment", "code": "custom", "message": text}
        raise ApiError(
            422, "Validation Failed", [{**details, "field": "pull_request_review_thread.line"}]
        ) from None
    call.github.webhooks.background(*sends)
    return _created(review.comments[0])


def _created(comment: ReviewComment) -> Answer:
    data = comment.shape()
    return Answer(data, 201, {"Location": data["url"]})


@route("POST", f"{_PULL}/comments/{{comment_id}}/replies", _WRITE)
def create_reply(call: Call) -> Answer:
    return _reply(call, call.number("comment_id"), call.text("body"))


def _reply(call: Call, comment_id: int, body: str) -> Answer:
    parent = next((each for each in call.pull.review_comments if each.id == comment_id), None)
    if parent is None:
        raise ApiError(404, "Parent comment not found")
    if parent.in_reply_to:
        text = "Replies to replies are not supported"
        raise invalid("PullRequestReviewComment", "in_reply_to", "custom", text)
    comment, sends = parent.thread.reply(call.github.account(call.login), body)
    call.github.webhooks.background(*sends)
    return _created(comment)


@route("GET", _ONE, _READ)
def get_comment(call: Call) -> Answer:
    return Answer(_comment(call).shape())


@route("PATCH", _ONE, _WRITE)
def update_comment(call: Call) -> Answer:
    comment = _comment(call)
    call.github.webhooks.background(comment.edit(call.login, call.text("body")))
    return Answer(comment.shape())


@route("DELETE", _ONE, _WRITE)
def delete_comment(call: Call) -> Answer:
    call.github.webhooks.background(_comment(call).delete(call.login))
    return Answer(None, 204)


@route("GET", f"{_ONE}/reactions", _READ)
def list_reactions(call: Call) -> Answer:
    wanted = call.query.get("content")
    found = [each for each in _comment(call).reactions if not wanted or each.content == wanted]
    return page(call, found, lambda reaction: Reaction.shape(reaction, call.github))


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
