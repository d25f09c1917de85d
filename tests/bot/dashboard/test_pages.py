"""What the pages show, to whom, and with which headers."""

from __future__ import annotations

import re

import httpx
import pytest

from service.models import JobState
from tests.bot.dashboard.world import NOW, World, form

EVIL = '"><script>evil()</script><img src=x onerror=evil()>'
PAGES = ("reviews", "rules", "jobs", "models", "health")


def text_of(page: httpx.Response) -> str:
    """The text of a page, without tags and with single spaces."""
    assert page.status_code == 200, page.text
    return " ".join(re.sub(r"<[^>]+>", " ", page.text).split())


def test_the_fate_of_comments(world: World) -> None:
    repo = world.repository("fate/models", dev="read")
    review = world.review(repo, adapter="a" * 64, model="judge")
    liked, disliked, _ = (world.comment(repo, review, rule=rule) for rule in ("PTO101", "PTO102", "PTO101"))
    world.signal(liked, "applied", "exact", actor="")
    world.signal(disliked, "verdict", "bad", note=f"intentional {EVIL}")
    client = world.person("dev")
    listed = text_of(client.get(f"/dashboard/reviews?repository={repo.id}"))
    assert "1 good , 1 bad , 1 open" in listed
    assert "a" * 12 in listed
    page = client.get(f"/dashboard/reviews/{review}")
    shown = text_of(page)
    assert "Good : suggestion committed." in shown
    assert "Bad : /ptopt feedback." in shown
    assert "Open : neither the author nor anybody with write access has answered." in shown
    assert "by somebody with write access : intentional" in shown.replace("access:", "access :")
    assert "<script>evil" not in page.text and "<img" not in page.text and "&lt;img" in page.text
    found = client.get(f"/dashboard/api/reviews/{review}").json()
    assert [each["fate"] for each in found["comments"]] == ["good", "bad", "open"]
    assert "somebody" not in str(found)  # people are not named, not even by their hash


def test_pages_of_a_list(world: World) -> None:
    repo = world.repository("paged/models", dev="read")
    ids = [world.review(repo) for _ in range(60)]
    client = world.person("dev")
    seen: list[int] = []
    address = f"/dashboard/api/reviews?repository={repo.id}"
    before = ""
    for _ in range(3):
        page = client.get(address + before).json()
        seen += [each["id"] for each in page["items"]]
        before = f"&before={page['older']}"
    assert seen == ids[::-1]
    assert page["older"] is None
    first = client.get(f"/dashboard/reviews?repository={repo.id}").text
    assert f"before={ids[-25]}" in first
    assert (
        'id="older-link"' not in client.get(f"/dashboard/reviews?repository={repo.id}&before={ids[10]}").text
    )


def test_what_calibration_did(world: World) -> None:
    repo = world.repository("rules/models", dev="read")
    review = world.review(repo)
    for person in range(6):
        for rule in ("PTO101", "PTO102"):
            comment = world.comment(repo, review, rule=rule, pull=person)
            value = "bad" if rule == "PTO102" else "good"
            world.signal(comment, "verdict", value, actor=f"person {person}")
    world.comment(repo, review, rule="PTO301")
    client = world.person("dev")
    found = client.get(f"/dashboard/api/repositories/{repo.id}/rules").json()
    by_rule = {each["rule"]: each for each in found["rules"]}
    good, bad = by_rule["PTO101"]["accepted"], by_rule["PTO102"]["accepted"]
    assert good["good"] == good["votes"] == bad["votes"] > 3 and bad["good"] == 0
    assert bad["low"] == 0 < bad["high"] < 0.6 and good["high"] == 1 > good["low"] > 0.4
    assert by_rule["PTO102"]["quiet"] and not by_rule["PTO101"]["quiet"]
    assert by_rule["PTO102"]["now"] < by_rule["PTO102"]["before"]
    assert by_rule["PTO301"]["accepted"] is None
    page = client.get(f"/dashboard/rules?repository={repo.id}")
    assert page.text.count("<svg") == 5
    assert "6 good, 1 open, 6 bad" in page.text
    assert "Quiet here: 6 people voted on it here, 6 against it" in text_of(page)
    assert "weighted votes" in text_of(page) and "; all votes together make it 0." in text_of(page)
    assert "no votes" in page.text


def test_a_dead_job_is_retried_by_those_who_may_write(world: World) -> None:
    repo = world.repository("jobs/models", dev="write", reader="read")
    job = world.job(repo, error=f"Traceback\n{EVIL}", attempts=3)
    reader, dev = world.person("reader"), world.person("dev")
    page = reader.get("/dashboard/jobs?state=dead")
    assert "Traceback" not in reader.get(f"/dashboard/jobs/{job}").text
    assert f"/jobs/{job}/retry" not in page.text
    theirs = form(page, "/sign-out")
    assert reader.post(f"/dashboard/jobs/{job}/retry", data=theirs).status_code == 403
    page = dev.get("/dashboard/jobs?state=dead")
    assert "<script>" not in page.text.replace('<script src="/dashboard/static/htmx.min.js" defer>', "")
    assert "Traceback" in dev.get(f"/dashboard/jobs/{job}").text
    for wrong in ({}, {"csrf": ""}, theirs):
        assert dev.post(f"/dashboard/jobs/{job}/retry", data=wrong).status_code == 403
    assert dev.get(f"/dashboard/jobs/{job}/retry").status_code == 405
    fields = form(page, f"/jobs/{job}/retry")
    answer = dev.post(f"/dashboard/jobs/{job}/retry", data=fields)
    assert (answer.status_code, answer.headers["location"]) == (303, f"/dashboard/jobs/{job}")
    found = dev.get(f"/dashboard/api/jobs/{job}").json()
    assert (found["state"], found["attempts"]) == ("queued", 0)
    assert dev.post(f"/dashboard/jobs/{job}/retry", data=fields).status_code == 409


@pytest.mark.parametrize("sent", [b"\xff\xfe", b"a=" + b"x" * 5000, b"&".join([b"a=b"] * 50)])
def test_forms_that_are_none(world: World, sent: bytes) -> None:
    answer = world.person("dev").post("/dashboard/sign-out", content=sent)
    assert answer.status_code in (400, 403, 413)


def test_health(world: World) -> None:
    repo = world.repository("health/models", dev="read")
    world.review(repo)
    world.job(repo, JobState.QUEUED, due_at=NOW)
    found = world.person("dev").get("/dashboard/api/health").json()
    assert found["checks"].pop("dispatcher") in (True, False)
    assert found["checks"] == {"database": True, "inbox": True, "broker": True}
    assert found["median_seconds"] == 8.0
    assert found["oldest_due_seconds"] >= 0


def test_headers(world: World) -> None:
    client = world.person("dev")
    for path in (*PAGES, "nowhere", "reviews/9999999", "api/reviews", "static/dashboard.css"):
        answer = client.get(f"/dashboard/{path}")
        policy = answer.headers["content-security-policy"]
        assert (
            "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
        )
        assert answer.headers["x-content-type-options"] == "nosniff"
        kept = "no-cache" if path.startswith("static") else "no-store"
        assert answer.headers["cache-control"] == kept


def test_pages_have_no_script_or_style_of_their_own(world: World) -> None:
    repo = world.repository("clean/models", dev="write")
    review = world.review(repo)
    world.comment(repo, review)
    job = world.job(repo)
    client = world.person("dev")
    for path in (*PAGES, f"reviews/{review}", f"jobs/{job}"):
        page = client.get(f"/dashboard/{path}").text
        assert re.findall(r"<script[^>]*>", page) == ['<script src="/dashboard/static/htmx.min.js" defer>']
        assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:", page)
        assert page.count("<h1>") == 1


@pytest.mark.parametrize(
    "path",
    [
        "reviews?before=x",
        "reviews/x",
        "reviews/-1",
        f"reviews/{2**70}",
        "jobs?state=odd",
        "reviews?repository=-1",
    ],
)
def test_odd_addresses(world: World, path: str) -> None:
    client = world.person("dev")
    page, api = client.get(f"/dashboard/{path}"), client.get(f"/dashboard/api/{path}")
    assert page.status_code == api.status_code == 422
    assert page.headers["content-type"].startswith("text/html")
    assert api.headers["content-type"] == "application/problem+json"


def test_the_root_leads_to_the_reviews(world: World) -> None:
    for path in ("/dashboard", "/dashboard/"):
        assert world.stranger().get(path).headers["location"] == "/dashboard/reviews"


def test_what_is_over_is_not_shown(world: World) -> None:
    """Access that was taken away on GitHub is gone within the time of the cache; a new sign-in sees it at once."""
    repo = world.repository("over/models", dev="write")
    review = world.review(repo)
    assert world.person("dev").get(f"/dashboard/reviews/{review}").status_code == 200
    repo.permission("dev", "none")
    assert world.person("dev").get(f"/dashboard/reviews/{review}").status_code == 404
    repo.permission("dev", "read")
    assert repo.installation is not None
    world.github.suspend(repo.installation)
    assert world.person("dev").get(f"/dashboard/reviews/{review}").status_code == 404


def test_a_silent_review_beside_open_findings_says_that_nothing_was_new(world: World) -> None:
    repo = world.repository("silent/models", dev="read")
    client = world.person("dev")

    def said(findings: int) -> str:
        review = world.review(repo, github_id=None, findings=findings)
        return text_of(client.get(f"/dashboard/reviews/{review}"))

    assert "nothing new was worth a comment" in said(1)
    assert "nothing was worth a comment" in said(0)


def test_jobs_of_one_kind(world: World) -> None:
    repo = world.repository("kinds/models", dev="read")
    reviewed, asked = world.job(repo), world.job(repo, kind="command")
    client = world.person("dev")
    address = f"/dashboard/jobs?repository={repo.id}"
    page = client.get(f"{address}&kind=command").text
    assert f"/jobs/{asked}" in page and f"/jobs/{reviewed}" not in page
    assert "dead (1)" in page and "kind=command&amp;state=dead" in page
    assert '<option value="command" selected>' in page and '<option value="review">' in page
    both = client.get(f"{address}&kind=").text
    assert f"/jobs/{asked}" in both and f"/jobs/{reviewed}" in both
    found = client.get(f"/dashboard/api/jobs?repository={repo.id}&kind=command").json()
    assert [job["id"] for job in found["items"]] == [asked]
    assert client.get(f"{address}&kind=nothing").status_code == 422


def test_looks_for_reactions_do_not_bury_the_other_jobs(world: World) -> None:
    """One follows another for as long as the pull request is open."""
    repo = world.repository("polls/models", dev="read")
    reviewed = world.job(repo, state=JobState.DONE)
    polled, broken = world.job(repo, state=JobState.DONE, kind="poll"), world.job(repo, kind="poll")
    client = world.person("dev")
    address = f"/dashboard/jobs?repository={repo.id}"
    page = client.get(address).text
    assert f"/jobs/{reviewed}" in page and f"/jobs/{broken}" in page and f"/jobs/{polled}" not in page
    assert "done (1)" in page and "dead (1)" in page and "All but looks for reactions" in page
    page = client.get(f"{address}&kind=poll").text
    assert f"/jobs/{reviewed}" not in page and f"/jobs/{polled}" in page and "done (1)" in page


def test_findings_of_earlier_heads_where_there_are_any(world: World) -> None:
    repo = world.repository("heads/models", dev="read")
    first, second = (world.review(repo, pull=7, findings=number) for number in (2, 3))
    other = world.review(repo, pull=8)
    client = world.person("dev")
    said = {
        review: "those of earlier heads included" in client.get(f"/dashboard/reviews/{review}").text
        for review in (first, second, other)
    }
    assert said == {first: False, second: True, other: False}


def test_a_confidence_below_the_threshold_is_that_of_a_quiet_rule(world: World) -> None:
    """One vote makes no rule quiet, so that its comments are still made."""
    repo = world.repository("votes/models", dev="read")
    comment = world.comment(repo, world.review(repo))
    world.signal(comment, "verdict", "bad")
    client = world.person("dev")
    (rule,) = (found := client.get(f"/dashboard/api/repositories/{repo.id}/rules").json())["rules"]
    assert not rule["quiet"] and rule["now"] >= found["threshold"]
    explanation = rule["explanation"]
    assert explanation.startswith("Less sure here, but not quiet: 1 person voted on it here, 1 against it;")
    assert f"is kept at {found['threshold']:.2f} while the rule is not quiet" in explanation
    assert "->" not in explanation and "log-odds" not in explanation
