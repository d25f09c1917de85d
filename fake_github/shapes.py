"""GitHub's REST objects for accounts, the App, repositories and commits, with every required key."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from fake_github.accounts import ROLES

if TYPE_CHECKING:
    from fake_github.accounts import Account, App, Installation
    from fake_github.fake import FakeGitHub
    from fake_github.repos import Repo

Json = dict[str, Any]
REACTIONS = ("+1", "-1", "laugh", "hooray", "confused", "heart", "rocket", "eyes")
_USER_URLS = {
    "followers_url": "/followers",
    "following_url": "/following{/other_user}",
    "gists_url": "/gists{/gist_id}",
    "starred_url": "/starred{/owner}{/repo}",
    "subscriptions_url": "/subscriptions",
    "organizations_url": "/orgs",
    "repos_url": "/repos",
    "events_url": "/events{/privacy}",
    "received_events_url": "/received_events",
}
_REPO_URLS = {
    "archive_url": "/{archive_format}{/ref}",
    "assignees_url": "/assignees{/user}",
    "blobs_url": "/git/blobs{/sha}",
    "branches_url": "/branches{/branch}",
    "collaborators_url": "/collaborators{/collaborator}",
    "comments_url": "/comments{/number}",
    "commits_url": "/commits{/sha}",
    "compare_url": "/compare/{base}...{head}",
    "contents_url": "/contents/{+path}",
    "contributors_url": "/contributors",
    "deployments_url": "/deployments",
    "downloads_url": "/downloads",
    "events_url": "/events",
    "forks_url": "/forks",
    "git_commits_url": "/git/commits{/sha}",
    "git_refs_url": "/git/refs{/sha}",
    "git_tags_url": "/git/tags{/sha}",
    "hooks_url": "/hooks",
    "issue_comment_url": "/issues/comments{/number}",
    "issue_events_url": "/issues/events{/number}",
    "issues_url": "/issues{/number}",
    "keys_url": "/keys{/key_id}",
    "labels_url": "/labels{/name}",
    "languages_url": "/languages",
    "merges_url": "/merges",
    "milestones_url": "/milestones{/number}",
    "notifications_url": "/notifications{?since,all,participating}",
    "pulls_url": "/pulls{/number}",
    "releases_url": "/releases{/id}",
    "stargazers_url": "/stargazers",
    "statuses_url": "/statuses/{sha}",
    "subscribers_url": "/subscribers",
    "subscription_url": "/subscription",
    "tags_url": "/tags",
    "teams_url": "/teams",
    "trees_url": "/git/trees{/sha}",
}


def stamp(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def user(github: FakeGitHub, account: Account) -> Json:
    login = account.login
    url = f"{github.url}/users/{login.replace('[', '%5B').replace(']', '%5D')}"
    html = f"{github.html}/apps/{login[:-5]}" if account.type == "Bot" else f"{github.html}/{login}"
    return {
        "login": login,
        "id": account.id,
        "node_id": f"U_{account.id:x}",
        "avatar_url": f"{github.html}/avatars/u/{account.id}?v=4",
        "gravatar_id": "",
        "url": url,
        "html_url": html,
        **{key: url + path for key, path in _USER_URLS.items()},
        "type": account.type,
        "user_view_type": "public",
        "site_admin": False,
    }


def public_user(github: FakeGitHub, account: Account) -> Json:
    return {
        **user(github, account),
        "name": None,
        "company": None,
        "blog": "",
        "location": None,
        "email": None,
        "hireable": None,
        "bio": None,
        "public_repos": 0,
        "public_gists": 0,
        "followers": 0,
        "following": 0,
        "created_at": "2020-01-01T00:00:00Z",
        "updated_at": "2020-01-01T00:00:00Z",
    }


def repository(repo: Repo) -> Json:
    github = repo.github
    url, html = f"{github.url}/repos/{repo.full_name}", f"{github.html}/{repo.full_name}"
    pulls = sum(pull.open for pull in repo.pulls.values())
    return {
        "id": repo.id,
        "node_id": f"R_{repo.id:x}",
        "name": repo.name,
        "full_name": repo.full_name,
        "private": repo.private,
        "owner": user(github, repo.owner),
        "html_url": html,
        "description": None,
        "fork": repo.parent is not None,
        "url": url,
        **{key: url + path for key, path in _REPO_URLS.items()},
        "git_url": f"git://{html.split('://', 1)[1]}.git",
        "ssh_url": f"git@127.0.0.1:{repo.full_name}.git",
        "clone_url": f"{html}.git",
        "svn_url": html,
        "homepage": None,
        "mirror_url": None,
        "language": "Python",
        "size": 1,
        "license": None,
        "forks": len(repo.forks),
        "forks_count": len(repo.forks),
        "stargazers_count": 0,
        "watchers": 0,
        "watchers_count": 0,
        "open_issues": pulls,
        "open_issues_count": pulls,
        "default_branch": repo.default_branch,
        "has_issues": True,
        "has_projects": True,
        "has_downloads": True,
        "has_wiki": False,
        "has_pages": False,
        "has_discussions": False,
        "is_template": False,
        "allow_forking": True,
        "web_commit_signoff_required": False,
        "archived": False,
        "disabled": False,
        "topics": [],
        "visibility": "private" if repo.private else "public",
        "created_at": stamp(repo.created),
        "updated_at": stamp(repo.created),
        "pushed_at": stamp(repo.created),
    }


def permissions(repo: Repo, login: str) -> Json:
    """What a person may do in a repository."""
    role = ROLES.index(repo.role(login))
    levels = {"admin": "admin", "maintain": "maintain", "push": "write", "triage": "triage", "pull": "read"}
    return {name: role >= ROLES.index(level) for name, level in levels.items()}


def full_repository(repo: Repo) -> Json:
    parents = {}
    if repo.parent:
        parents = {"parent": repository(repo.parent), "source": repository(repo.root)}
    return {**repository(repo), **parents, "subscribers_count": 0, "network_count": len(repo.forks)}


def app(github: FakeGitHub, app: App) -> Json:
    return {
        "id": app.id,
        "slug": app.slug,
        "node_id": f"A_{app.id:x}",
        "client_id": app.client_id,
        "owner": user(github, app.owner),
        "name": app.name,
        "description": None,
        "external_url": "https://ptopt.example/",
        "html_url": f"{github.html}/apps/{app.slug}",
        "created_at": "2026-01-01T00:00:00Z",
        "updated_at": "2026-01-01T00:00:00Z",
        "permissions": dict(app.permissions),
        "events": list(app.events),
        "installations_count": sum(i.app is app for i in github.installations.values()),
    }


def installation(github: FakeGitHub, found: Installation) -> Json:
    url = f"{github.url}/app/installations/{found.id}"
    return {
        "id": found.id,
        "account": user(github, found.account),
        "repository_selection": "selected",
        "access_tokens_url": f"{url}/access_tokens",
        "repositories_url": f"{github.url}/installation/repositories",
        "html_url": f"{github.html}/settings/installations/{found.id}",
        "app_id": found.app.id,
        "app_slug": found.app.slug,
        "client_id": found.app.client_id,
        "target_id": found.account.id,
        "target_type": found.account.type,
        "permissions": dict(found.permissions),
        "events": list(found.app.events),
        "created_at": stamp(found.created),
        "updated_at": stamp(found.created),
        "single_file_name": None,
        "has_multiple_single_files": False,
        "single_file_paths": [],
        "suspended_by": user(github, found.account) if found.suspended else None,
        "suspended_at": stamp(found.created) if found.suspended else None,
    }


def git_commit(repo: Repo, sha: str) -> Json:
    """A commit of the git data API."""
    commit = repo.git.read_commit(sha)
    url, html = f"{repo.github.url}/repos/{repo.full_name}", f"{repo.github.html}/{repo.full_name}"
    return {
        "sha": sha,
        "node_id": f"C_{sha}",
        "url": f"{url}/git/commits/{sha}",
        "html_url": f"{html}/commit/{sha}",
        "author": _person(commit.author),
        "committer": _person(commit.committer),
        "message": commit.message,
        "tree": {"sha": commit.tree, "url": f"{url}/git/trees/{commit.tree}"},
        "parents": [
            {"sha": parent, "url": f"{url}/git/commits/{parent}", "html_url": f"{html}/commit/{parent}"}
            for parent in commit.parents
        ],
        "verification": _unverified(),
    }


def commit(repo: Repo, sha: str) -> Json:
    """A commit of the commits and compare APIs."""
    data = git_commit(repo, sha)
    url = f"{repo.github.url}/repos/{repo.full_name}/commits/{sha}"
    found = repo.git.read_commit(sha)
    people = {}
    for role, person in (("author", found.author), ("committer", found.committer)):
        account = repo.github.account_of_email(person.email)
        people[role] = user(repo.github, account) if account else None
    return {
        "sha": sha,
        "node_id": data["node_id"],
        "commit": {
            **{key: data[key] for key in ("author", "committer", "message", "tree", "url", "verification")},
            "comment_count": 0,
        },
        "url": url,
        "html_url": data["html_url"],
        "comments_url": f"{url}/comments",
        **people,
        "parents": [
            {**parent, "url": parent["url"].replace("/git/commits/", "/commits/")}
            for parent in data["parents"]
        ],
    }


def _person(person: Any) -> Json:
    return {"name": person.name, "email": person.email, "date": stamp(person.date)}


def _unverified() -> Json:
    return {
        "verified": False,
        "reason": "unsigned",
        "signature": None,
        "payload": None,
        "verified_at": None,
    }


def reactions(url: str, contents: list[str]) -> Json:
    """The rollup that comments carry."""
    return {
        "url": f"{url}/reactions",
        "total_count": len(contents),
        **{content: contents.count(content) for content in REACTIONS},
    }


def label(repo: Repo, name: str) -> Json:
    return {
        "id": repo.labels[name],
        "node_id": f"LA_{repo.labels[name]:x}",
        "url": f"{repo.github.url}/repos/{repo.full_name}/labels/{name}",
        "name": name,
        "description": "",
        "color": "ededed",
        "default": False,
    }
