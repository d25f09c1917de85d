"""Repositories, people, labels, compare."""

from __future__ import annotations

import time

from fake_github import shapes
from fake_github.http import Answer, ApiError, Call, forbidden, invalid, not_found, page, route
from fake_github.rest.pulls import file_shape, wanted_type

# What `permission` says for a role; `role_name` is exact.
_COARSE = {"maintain": "write", "triage": "read"}


@route("GET", "/repos/{owner}/{repo}", "metadata:read")
def get_repo(call: Call) -> Answer:
    return Answer(shapes.full_repository(call.repo))


@route("GET", "/repos/{owner}/{repo}/collaborators/{username}/permission", "metadata:read")
def get_permission(call: Call) -> Answer:
    account = call.github.accounts.get(call.params["username"].lower())
    if account is None:
        raise not_found()
    if call.token is None:
        raise ApiError(401, "Requires authentication")
    role = call.repo.role(account.login)
    person = {
        **shapes.user(call.github, account),
        "permissions": shapes.permissions(call.repo, account.login),
        "role_name": role,
    }
    return Answer({"permission": _COARSE.get(role, role), "role_name": role, "user": person})


@route("GET", "/repos/{owner}/{repo}/branches/{branch}", "contents:read")
def get_branch(call: Call) -> Answer:
    sha = call.repo.git.refs.get(f"refs/heads/{call.params['branch']}")
    if sha is None:
        raise ApiError(404, "Branch not found")
    url = f"{call.github.url}{call.request.path}"
    return Answer(
        {
            "name": call.params["branch"],
            "commit": shapes.commit(call.repo, sha),
            "_links": {"html": f"{call.github.html}/{call.repo.full_name}/tree/{sha}", "self": url},
            "protected": False,
            "protection": {"enabled": False},
            "protection_url": f"{url}/protection",
        }
    )


@route("GET", "/repos/{owner}/{repo}/compare/{basehead}", "contents:read")
def compare(call: Call) -> Answer:
    repo, git = call.repo, call.repo.git
    ends = call.params["basehead"].split("...")
    shas = [_commit_of(call, end) for end in ends] if len(ends) == 2 else []
    if len(shas) != 2 or None in shas:
        raise not_found()
    base, head = str(shas[0]), str(shas[1])
    merge_base = git.merge_base(base, head)
    if merge_base is None:
        raise ApiError(404, f"No common ancestor between {ends[0]} and {ends[1]}.")
    ahead, behind = git.log(merge_base, head), git.log(merge_base, base)
    files = git.diff(merge_base, head)
    if wanted_type(call) == "diff":
        return Answer(git.raw_diff(merge_base, head), media_type="application/vnd.github.diff; charset=utf-8")
    status = "diverged" if ahead and behind else "ahead" if ahead else "behind" if behind else "identical"
    html = f"{call.github.html}/{repo.full_name}/compare/{call.params['basehead']}"
    return Answer(
        {
            "url": f"{call.github.url}{call.request.path}",
            "html_url": html,
            "permalink_url": html,
            "diff_url": f"{html}.diff",
            "patch_url": f"{html}.patch",
            "base_commit": shapes.commit(repo, base),
            "merge_base_commit": shapes.commit(repo, merge_base),
            "status": status,
            "ahead_by": len(ahead),
            "behind_by": len(behind),
            "total_commits": len(ahead),
            "commits": [shapes.commit(repo, sha) for sha in ahead[-250:]],
            "files": [file_shape(call, head, file) for file in files[: call.github.limits.diff_files]],
        }
    )


def _commit_of(call: Call, name: str) -> str | None:
    """A commit by branch, SHA, or `login:branch` of a fork."""
    login, _, branch = name.rpartition(":")
    repo = call.repo
    if login:
        network = [repo.root, *repo.root.forks]
        repo = next((each for each in network if each.owner.login == login), repo)
    return repo.git.resolve(branch)


@route("GET", "/repos/{owner}/{repo}/issues/{issue_number}/labels", "issues:read|pull_requests:read")
def list_labels(call: Call) -> Answer:
    return page(call, call.pull.labels, lambda name: shapes.label(call.repo, name))


@route("POST", "/repos/{owner}/{repo}/issues/{issue_number}/labels", "issues:write|pull_requests:write")
def add_labels(call: Call) -> Answer:
    data = call.request.json
    names = data.get("labels") if isinstance(data, dict) else data
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise invalid("Label", "name")
    for name in names:
        call.repo.label(name)
        if name not in call.pull.labels:
            call.pull.labels.append(name)
    return Answer([shapes.label(call.repo, name) for name in call.pull.labels])


@route(
    "DELETE", "/repos/{owner}/{repo}/issues/{issue_number}/labels/{name}", "issues:write|pull_requests:write"
)
def remove_label(call: Call) -> Answer:
    if call.params["name"] not in call.pull.labels:
        raise ApiError(404, "Label does not exist")
    call.pull.labels.remove(call.params["name"])
    return Answer([shapes.label(call.repo, name) for name in call.pull.labels])


@route("GET", "/user", "token")
def get_user(call: Call) -> Answer:
    if call.token is None or call.token.kind != "user":
        raise forbidden()
    return Answer(shapes.public_user(call.github, call.github.account(call.login)))


@route("GET", "/users/{username}", "any")
def get_user_of(call: Call) -> Answer:
    account = call.github.accounts.get(call.params["username"].lower())
    if account is None:
        raise not_found()
    return Answer(shapes.public_user(call.github, account))


@route("GET", "/rate_limit", "any")
def rate_limit(call: Call) -> Answer:
    limit = call.github.limits.requests
    used = min(limit, len(call.github.requests))
    rate = {"limit": limit, "remaining": limit - used, "used": used, "reset": int(time.time()) + 3600}
    return Answer({"resources": {"core": rate, "search": rate, "graphql": rate}, "rate": rate})


@route("GET", "/meta", "any")
def meta(call: Call) -> Answer:
    return Answer({"verifiable_password_authentication": False, "installed_version": "3.17.0"})
