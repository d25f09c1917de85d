"""A review job, from the row to the posted review and the rows about it, against the fake GitHub."""

from __future__ import annotations

import pytest
from sqlalchemy import select, update

from fake_github import FakeGitHub, Request, Response
from fake_github.repos import Repo
from feedback.signals.suggestions import Match, match_suggestion
from ptopt.github import markers
from ptopt.model.prompt import PROMPT_VERSION
from ptopt.model.schema import SCHEMA_VERSION
from ptopt.report.text import MODEL_AWAY
from service.database import reading
from service.jobs import Kind, ReviewPayload
from service.models import CommentRow, Installation, Job, PolledPull, Repository, ReviewRow
from tests.worker.models import Opener
from tests.worker.pulls import FAST, SLOW, job_for, run
from tests.worker.rows import change, row
from worker.job_context import Resources
from worker.model_pool import ModelPool
from worker.review_records import hash_key
from worker.run_job import execute


def jobs(resources: Resources) -> list[Job]:
    with reading(resources.engine) as session:
        return list(session.scalars(select(Job).order_by(Job.id)))


def test_a_review_is_posted_and_written_down(resources: Resources, repo: Repo) -> None:
    pull = repo.pull(files={"train.py": SLOW}, author="dev")
    job = run(resources, job_for(resources, pull))
    assert (job.state, job.error, job.attempts) == ("done", "", 1)
    (review,) = pull.reviews
    (comment,) = pull.review_comments
    with reading(resources.engine) as session:
        stored = session.scalars(select(ReviewRow)).one()
        told = session.scalars(select(CommentRow)).one()
        polled = session.scalars(select(PolledPull)).one()
        assert session.scalars(select(Repository.full_name)).one() == "octo/models"
        assert session.scalars(select(Installation.account)).one() == "octo"
    assert (stored.github_id, stored.pull, stored.head_sha) == (review.id, pull.number, pull.head_sha)
    assert (stored.files_reviewed, stored.findings, stored.received_at) == (1, 1, job.created_at)
    assert (told.github_id, told.review_id, told.repository_id) == (comment.id, stored.id, repo.id)
    assert markers.first(comment.body, "finding") == markers.finding(told.rule, told.fingerprint)
    assert "train" not in told.path_hash and len(told.path_hash) == 32
    assert (polled.pull, polled.closed_at) == (pull.number, None)


def with_model(resources: Resources, opener: Opener) -> Resources:
    settings = resources.settings.model_copy(update={"model": "package:base"})
    made = Resources(settings)
    made.model = ModelPool(settings, opener=opener)
    return made


def model_of_reviews(resources: Resources) -> list[tuple[str, str, str, str, str]]:
    row = ReviewRow
    told = select(row.model, row.adapter, row.prompt_version, row.schema_version, row.model_note)
    with reading(resources.engine) as session:
        return [tuple(found) for found in session.execute(told.order_by(row.id))]


def test_the_model_is_heard_and_written_down(resources: Resources, repo: Repo) -> None:
    opener = Opener()
    modelled = with_model(resources, opener)
    pull = repo.pull(files={"train.py": SLOW}, author="dev")
    assert run(modelled, job_for(modelled, pull)).state == "done"
    heard = ("package:base", "", PROMPT_VERSION, SCHEMA_VERSION, "")
    assert model_of_reviews(modelled) == [heard]
    with reading(modelled.engine) as session:
        with_it = session.scalars(select(CommentRow.confidence)).one()
    assert pull.reviews[0].body and "package:base" in pull.reviews[0].body
    # Looked at again, by another: what is posted is still the word of the first.
    opener.opened[0].name = "another"
    job_id = job_for(modelled, pull, subject="requested-1", payload=ReviewPayload(requested=True))
    assert run(modelled, job_id).state == "done"
    assert model_of_reviews(modelled) == [heard]
    # The rules alone are less sure of the same.
    other = repo.pull(files={"train.py": SLOW}, author="dev")
    run(resources, job_for(resources, other))
    assert model_of_reviews(resources)[1] == ("",) * 5
    with reading(resources.engine) as session:
        assert with_it > session.scalars(select(CommentRow.confidence).order_by(CommentRow.id.desc())).first()
    modelled.close()
    assert opener.open_now() == []


def test_without_its_model_a_review_goes_out_and_says_so(resources: Resources, repo: Repo) -> None:
    opener = Opener()
    opener.fail["package:base"] = RuntimeError("/a/path of ours")
    modelled = with_model(resources, opener)
    pull = repo.pull(files={"train.py": SLOW}, author="dev")
    assert run(modelled, job_for(modelled, pull)).state == "done"
    assert len(pull.review_comments) == 1
    assert MODEL_AWAY in pull.reviews[0].body and "path of ours" not in pull.reviews[0].body
    (told,) = model_of_reviews(modelled)
    assert (told[0], told[4]) == ("package:base", "the model could not be loaded")
    modelled.close()


def test_what_the_model_said_of_a_silent_review_gives_way(resources: Resources, repo: Repo) -> None:
    """First nothing was posted, then something: people answer to the second."""
    opener = Opener()
    modelled = with_model(resources, opener)
    pull = repo.pull(files={"train.py": SLOW}, author="dev")
    job_id = job_for(modelled, pull)
    run(modelled, job_id)
    with modelled.engine.begin() as connection:
        connection.execute(update(ReviewRow).values(github_id=None, model="the first"))
    change(modelled.engine, job_id, state="queued", attempts=1)
    assert run(modelled, job_id).state == "done"
    assert model_of_reviews(modelled)[0][0] == "package:base"
    modelled.close()


def test_the_suggestion_is_known_again(resources: Resources, repo: Repo) -> None:
    pull = repo.pull(files={"train.py": SLOW}, author="dev")
    run(resources, job_for(resources, pull))
    pull.accept(pull.review_comments[0].id, "dev")
    with reading(resources.engine) as session:
        suggestion = session.scalars(select(CommentRow.suggestion)).one()
    text = repo.file("train.py", pull.head_sha)
    assert text is not None
    key = hash_key(resources.settings)
    assert match_suggestion(text.decode(), suggestion, key) is Match.EXACT
    assert match_suggestion(SLOW.decode(), suggestion, key) is Match.NO
    assert "loss" not in str(suggestion)


def test_silence_is_written_down_too(resources: Resources, repo: Repo) -> None:
    pull = repo.pull(files={"other.py": FAST}, author="dev")
    assert run(resources, job_for(resources, pull)).state == "done"
    assert pull.reviews == []
    with reading(resources.engine) as session:
        stored = session.scalars(select(ReviewRow)).one()
        assert (stored.github_id, stored.findings) == (None, 0)
        assert session.scalars(select(PolledPull)).first() is None


def test_run_again_after_a_crash_it_posts_nothing_twice(resources: Resources, repo: Repo) -> None:
    """The worker died after it posted, before it wrote that down."""
    pull = repo.pull(files={"train.py": SLOW}, author="dev")
    job_id = job_for(resources, pull)
    run(resources, job_id)
    with resources.engine.begin() as connection:
        connection.execute(CommentRow.__table__.delete())
        connection.execute(ReviewRow.__table__.delete())
    change(resources.engine, job_id, state="queued", attempts=1)
    assert run(resources, job_id).state == "done"
    change(resources.engine, job_id, state="queued", attempts=1)
    assert run(resources, job_id).state == "done"
    assert len(pull.reviews) == len(pull.review_comments) == 1
    with reading(resources.engine) as session:
        assert session.scalars(select(ReviewRow.github_id)).one() == pull.reviews[0].id
        assert session.scalars(select(CommentRow.github_id)).one() == pull.review_comments[0].id


def test_a_comment_that_is_found_again_keeps_its_row(resources: Resources, repo: Repo) -> None:
    pull = repo.pull(files={"train.py": SLOW}, author="dev")
    run(resources, job_for(resources, pull))
    pull.push({"train.py": SLOW, "new.py": SLOW.replace(b"def train", b"def fit")})
    run(resources, job_for(resources, pull))
    with reading(resources.engine) as session:
        reviews = session.scalars(select(ReviewRow).order_by(ReviewRow.id)).all()
        told = session.scalars(select(CommentRow).order_by(CommentRow.id)).all()
    assert [review.findings for review in reviews] == [1, 2]
    assert [comment.review_id for comment in told] == [review.id for review in reviews]


def test_a_head_that_moved_is_followed(resources: Resources, repo: Repo) -> None:
    """The delivery of the push is late, or lost."""
    pull = repo.pull(files={"train.py": SLOW}, author="dev")
    first = job_for(resources, pull)
    head = pull.push({"new.py": FAST})
    assert run(resources, first).state == "superseded"
    assert pull.reviews == []
    (_, follower) = jobs(resources)
    assert (follower.head_sha, follower.state, follower.kind) == (head, "queued", "review")
    assert run(resources, follower.id).state == "done"
    assert [review.commit_id for review in pull.reviews] == [head]


def test_a_push_during_the_review_stops_it(resources: Resources, github: FakeGitHub, repo: Repo) -> None:
    pull = repo.pull(files={"train.py": SLOW}, author="dev")
    job_id = job_for(resources, pull)
    pushed: list[str] = []

    def push(request: Request, response: Response) -> None:
        if request.route == "/repos/{owner}/{repo}/pulls/{pull_number}/files" and not pushed:
            pushed.append(pull.push({"new.py": FAST}))

    github.checks.append(push)
    assert run(resources, job_id).state == "superseded"
    assert pull.reviews == []
    assert [(job.head_sha, job.state) for job in jobs(resources)[1:]] == [(pushed[0], "queued")]


def test_a_newer_job_stops_the_older_before_it_writes(
    resources: Resources, github: FakeGitHub, repo: Repo
) -> None:
    pull = repo.pull(files={"train.py": SLOW}, author="dev")
    job_id = job_for(resources, pull)
    newer: list[int] = []

    def deliver(request: Request, response: Response) -> None:
        if request.route == "/repos/{owner}/{repo}/pulls/{pull_number}/files" and not newer:
            newer.append(job_for(resources, pull, head="b" * 40))

    github.checks.append(deliver)
    assert run(resources, job_id).state == "superseded"
    assert pull.reviews == []


def test_who_lost_the_lease_writes_nothing(resources: Resources, github: FakeGitHub, repo: Repo) -> None:
    pull = repo.pull(files={"train.py": SLOW}, author="dev")
    job_id = job_for(resources, pull)

    def steal(request: Request, response: Response) -> None:
        if request.route == "/repos/{owner}/{repo}/pulls/{pull_number}/files":
            change(resources.engine, job_id, owner="another")

    github.checks.append(steal)
    job = run(resources, job_id)
    assert (job.state, job.owner) == ("running", "another")
    assert pull.reviews == []


def test_an_older_head_is_given_time_to_go_away(resources: Resources, github: FakeGitHub, repo: Repo) -> None:
    """GitHub's API may not know the push yet of which its webhook told. Or the older head was pushed again."""
    pull = repo.pull(files={"train.py": SLOW}, author="dev")
    older = pull.head_sha
    run(resources, job_for(resources, pull))
    job_id = job_for(resources, pull, head="b" * 40)
    for deferrals in (1, 2, 3):
        job = run(resources, job_id)
        assert (job.state, job.deferrals, job.attempts) == ("queued", deferrals, 0)
        change(resources.engine, job_id, due_at=job.created_at)
    assert run(resources, job_id).state == "superseded"
    assert [job.head_sha for job in jobs(resources)] == [older, "b" * 40]


def test_a_push_back_is_reviewed(resources: Resources, repo: Repo) -> None:
    """Pushed a, b, and a again, while nobody worked: a is reviewed in the end."""
    pull = repo.pull(files={"train.py": SLOW}, author="dev")
    first, second = job_for(resources, pull), job_for(resources, pull, head="b" * 40)
    assert run(resources, first).state == "superseded"
    job_for(resources, pull)  # the third delivery
    assert run(resources, second).state == "superseded"
    assert run(resources, first).state == "done"
    assert len(pull.reviews) == 1


def test_a_draft_is_reviewed_once_it_is_ready(resources: Resources, repo: Repo) -> None:
    pull = repo.pull(files={"train.py": SLOW}, author="dev", draft=True)
    job = run(resources, job_for(resources, pull))
    assert (job.state, pull.reviews) == ("superseded", [])
    assert "draft" in job.error
    pull.ready()
    assert job_for(resources, pull) == job.id
    assert run(resources, job.id).state == "done"
    assert len(pull.reviews) == 1


def test_who_asks_gets_a_draft_reviewed(resources: Resources, repo: Repo) -> None:
    pull = repo.pull(files={"train.py": SLOW}, author="dev", draft=True)
    job = run(
        resources, job_for(resources, pull, subject="requested-1", payload=ReviewPayload(requested=True))
    )
    assert job.state == "done"
    assert len(pull.reviews) == 1


def test_a_closed_pull_request_is_left_alone(resources: Resources, repo: Repo) -> None:
    pull = repo.pull(files={"train.py": SLOW}, author="dev")
    job_id = job_for(resources, pull)
    pull.close()
    assert run(resources, job_id).state == "superseded"
    assert pull.reviews == []


@pytest.mark.parametrize("fault", ["502", "502-after", "drop", "drop-after"])
def test_a_write_that_may_have_happened_is_not_repeated(
    resources: Resources, github: FakeGitHub, repo: Repo, fault: str
) -> None:
    pull = repo.pull(files={"train.py": SLOW}, author="dev")
    job_id = job_for(resources, pull)
    github.faults.add("POST", r"/reviews$", fault, times=1)
    for _ in range(5):
        job = run(resources, job_id)
        if job.state == "done":
            break
        assert (job.state, job.attempts) == ("queued", 0)
        change(resources.engine, job_id, due_at=job.created_at)
    assert job.state == "done"
    assert len(pull.reviews) == len(pull.review_comments) == 1


@pytest.mark.parametrize("fault", ["primary-limit", "secondary-limit", "secondary-limit-429", "abuse"])
def test_a_limit_is_waited_for_outside_of_the_worker(
    resources: Resources, github: FakeGitHub, repo: Repo, fault: str
) -> None:
    pull = repo.pull(files={"train.py": SLOW}, author="dev")
    job_id = job_for(resources, pull)
    github.faults.add("POST", r"/reviews$", fault, times=1, seconds=40)
    job = run(resources, job_id)
    assert (job.state, job.deferrals, job.attempts) == ("queued", 1, 0)
    assert (job.due_at - job.created_at).total_seconds() > 30
    change(resources.engine, job_id, due_at=job.created_at)
    assert run(resources, job_id).state == "done"
    assert len(pull.reviews) == 1


def test_github_is_down(resources: Resources, github: FakeGitHub, repo: Repo) -> None:
    pull = repo.pull(files={"train.py": SLOW}, author="dev")
    job_id = job_for(resources, pull)
    github.faults.add("GET", r"/pulls/1$", "503", times=99)
    job = run(resources, job_id)
    assert (job.state, job.deferrals, job.attempts) == ("queued", 1, 0)
    assert "503" in job.error


def test_what_is_gone_is_not_tried_again(resources: Resources, repo: Repo) -> None:
    pull = repo.pull(files={"train.py": SLOW}, author="dev")
    job_id = job_for(resources, pull)
    change(resources.engine, job_id, repository="octo/gone")
    job = run(resources, job_id)
    assert (job.state, job.attempts) == ("done", 1)
    assert "404" in job.error


def test_without_an_installation_nothing_is_tried_again(resources: Resources, repo: Repo) -> None:
    pull = repo.pull(files={"train.py": SLOW}, author="dev")
    job_id = job_for(resources, pull)
    change(resources.engine, job_id, installation_id=987_654)
    assert run(resources, job_id).state == "done"
    assert pull.reviews == []


def test_before_the_app_is_set_up_jobs_wait(resources: Resources, repo: Repo) -> None:
    pull = repo.pull(files={"train.py": SLOW}, author="dev")
    job_id = job_for(resources, pull)
    early = Resources(resources.settings.model_copy(update={"app_id": None, "private_key": None}))
    job = run(early, job_id)
    early.engine.dispose()
    assert (job.state, job.deferrals, job.attempts) == ("queued", 1, 0)
    assert "/setup" in job.error


def test_an_error_of_ours_is_kept_with_its_traceback(resources: Resources, repo: Repo) -> None:
    pull = repo.pull(files={"train.py": SLOW}, author="dev")
    job_id = job_for(resources, pull, Kind.COMMAND)
    change(resources.engine, job_id, payload={"actor": {"login": "ghp_x"}})
    job = run(resources, job_id)
    assert (job.state, job.attempts) == ("queued", 1)
    assert "Traceback" in job.error and "PayloadError" in job.error
    assert "command job is malformed: where: Field required" in job.error and "ghp_x" not in job.error
    for _ in range(2):
        change(resources.engine, job_id, due_at=job.created_at)
        execute(resources, job_id)
    assert row(resources.engine, job_id).state == "dead"
