"""The REST API: one module per concern, each route under GitHub's own path template."""

from fake_github.rest import apps, checks, comments, contents, gitdata, pulls, repos, reviews, users

__all__ = ["apps", "checks", "comments", "contents", "gitdata", "pulls", "repos", "reviews", "users"]
