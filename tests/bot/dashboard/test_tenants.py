"""Nobody sees, or retries, anything of a repository that GitHub does not show to them: by generated tenants and requests."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

import httpx
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from fake_github import Repo
from service.database import reading
from service.models import Job
from tests.bot.dashboard.world import World, form

_numbers = count(1)
ROLES = st.sampled_from(["none", "none", "read", "triage", "write", "admin"])
LISTS = (
    "reviews",
    "jobs",
    "rules",
    "models",
    "health",
    "api/reviews",
    "api/jobs",
    "api/models",
    "api/repositories",
)
OF_ONE = (
    "reviews?repository={repository}",
    "rules?repository={repository}",
    "jobs?repository={repository}&state=dead",
    "reviews/{review}",
    "jobs/{job}",
    "api/reviews?repository={repository}",
    "api/repositories/{repository}/rules",
    "api/jobs?repository={repository}",
    "api/reviews/{review}",
    "api/jobs/{job}",
)


@dataclass
class Tenant:
    """A repository whose rows all hold its mark."""

    repo: Repo
    mark: str
    review: int
    job: int


def tenant(world: World, roles: dict[str, str]) -> Tenant:
    mark = f"mark{next(_numbers)}end"
    repo = world.repository(f"owner-{mark}/models", **roles)
    review = world.review(repo, head_sha=mark, adapter=mark, model=mark, model_note=mark)
    comment = world.comment(repo, review, rule=mark[:16], fingerprint=mark)
    world.signal(comment, "verdict", "bad", note=mark)
    return Tenant(repo, mark, review, world.job(repo, error=mark, head_sha=mark))


def state(world: World, job: int) -> str | None:
    with reading(world.engine) as session:
        return session.scalar(select(Job.state).where(Job.id == job))


@settings(
    max_examples=10, phases=[Phase.generate]
)  # each example makes repositories: smaller ones take too long
@given(data=st.data())
def test_two_tenants_never_meet(world: World, data: st.DataObject) -> None:
    people = [f"person{next(_numbers)}" for _ in range(data.draw(st.integers(2, 3)))]
    tenants = [
        tenant(world, {login: data.draw(ROLES) for login in people})
        for _ in range(data.draw(st.integers(1, 3)))
    ]
    browsers = {login: world.person(login) for login in people}
    requests = st.tuples(st.sampled_from(people), st.sampled_from(tenants), st.sampled_from(LISTS + OF_ONE))
    for login, of, path in data.draw(st.lists(requests, min_size=5, max_size=25)):
        address = path.format(repository=of.repo.id, review=of.review, job=of.job)
        answer = browsers[login].get(f"/dashboard/{address}")
        shown = {
            each.mark for each in tenants if each.mark in answer.text or each.repo.full_name in answer.text
        }
        allowed = {each.mark for each in tenants if each.repo.collaborators[login] != "none"}
        assert shown <= allowed, (login, address)
        if path in OF_ONE:
            assert answer.status_code == (200 if of.mark in allowed else 404), address
            assert (of.mark in shown) == (of.mark in allowed), address
    for login, of in data.draw(st.lists(st.tuples(st.sampled_from(people), st.sampled_from(tenants)))):
        retried(world, browsers[login], login, of)


def retried(world: World, browser: httpx.Client, login: str, of: Tenant) -> None:
    """Posts the form of a retry with a token that is good."""
    before = state(world, of.job)
    fields = form(browser.get("/dashboard/health"), "/sign-out")
    answer = browser.post(f"/dashboard/jobs/{of.job}/retry", data=fields)
    role = of.repo.collaborators[login]
    if role == "none":
        assert answer.status_code == 404
    elif role in ("read", "triage"):
        assert answer.status_code == 403
    else:
        assert answer.status_code == (303 if before == "dead" else 409)
        before = "queued"
    assert state(world, of.job) == before
