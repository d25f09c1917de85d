"""Audits the repository at the base commit of a pull request, and posts what it found as one comment."""

from __future__ import annotations

from ptopt.audit.run import audit_of
from ptopt.github import sticky
from ptopt.github.base_config import settings_of
from ptopt.github.errors import ForbiddenError, NotFoundError, RejectedError
from ptopt.github.git_files import FetchError, fetch_files
from ptopt.github.markers import Marker
from ptopt.project.facts import FACT_FILES, read_facts
from ptopt.report.audit.markdown import render
from ptopt.report.text import code_span, markdown_text
from ptopt.runner import AnalysisError
from service.jobs import AuditPayload
from worker.job_context import JobContext

_LONGEST = 60_000  # characters; GitHub takes 65,536


def handle(context: JobContext, payload: AuditPayload) -> str:
    github, job = context.github, context.job
    pull = github.pull(job.repository, payload.pull)
    config, _ = settings_of(github, pull)
    chosen = config.model_copy(update={"skip": ()})  # training scripts often lie among the examples
    ranker = context.resources.rankers.of(job.repository_id)
    try:
        folder = fetch_files(
            github, job.repository, pull.base_sha,
            wants=lambda path: chosen.why_skipped(path) is None, also=frozenset(FACT_FILES),
        )  # fmt: skip
        facts = read_facts({path: data for path, data in folder.files.items() if path in FACT_FILES})
        with ranker.used():
            isolated = ranker.runner(context.resources.isolation)
            found = isolated(audit_of, folder.name, folder.files, config, facts, folder.not_read)
        text = render(found, _LONGEST)
    except (FetchError, AnalysisError) as error:
        text = f"The repository was not audited: {markdown_text(str(error))}.\n"
    head = code_span(pull.base_sha[:7])
    body = f"{Marker('audit', (job.subject,))}\n{text}\nAudited at {head} of {code_span(pull.base_ref)}.\n"
    try:
        comments = github.issue_comments(job.repository, pull.number)
        sticky.upsert(github, pull, comments, Marker("audit", (job.subject,)), body, context.check)
    except (ForbiddenError, NotFoundError, RejectedError) as error:
        return f"could not post the audit: {error}"
    return ""
