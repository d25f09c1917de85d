"""`/ptopt status`: where ptopt stands with this pull request."""

from __future__ import annotations

from collections.abc import Iterator

from bot.commands.base import Answer, Call, Command, Who, nothing
from ptopt.github import markers
from ptopt.github.base_config import settings_of
from ptopt.github.config_comment import listed
from ptopt.github.filters import why_skipped
from ptopt.report.text import code_span, count

_LISTED = 20


def run(call: Call, _: None) -> Answer:
    lines = [_reviewed(call), _findings(call), *_in_force(call), *call.host.status()]
    return Answer("\n".join(f"- {line}" for line in lines))


def _reviewed(call: Call) -> str:
    identity, pull = call.github.identity(), call.pull
    reviews = [
        review for review in call.github.reviews(pull.repo, pull.number) if review.author.login == identity
    ]
    heads = [
        marker.words[0] for review in reviews if (marker := markers.first(review.body, "review")) is not None
    ]
    head = code_span(pull.head_sha[:7])
    if not heads:
        return f"Review: none posted; the head is {head}."
    if pull.head_sha in heads:
        return f"Review: the head {head} was reviewed."
    return f"Review: the last one with findings was of {code_span(heads[-1][:7])}; the head is {head}."


def _findings(call: Call) -> str:
    ids = {one.comment_id for one in call.posted}
    if not ids:
        return "Findings: none reported."
    threads = call.github.threads(call.pull.repo, call.pull.number)
    ours = [thread for thread in threads if thread.comments and thread.comments[0][0] in ids]
    ignored = {
        one.comment_id
        for one in call.posted
        if not call.state.ignored.isdisjoint({one.rule, one.fingerprint})
    }
    counted = [thread for thread in ours if thread.comments[0][0] not in ignored]
    left = sum(not thread.resolved for thread in counted)
    apart = f", {len(ours) - len(counted):,} ignored" if len(counted) < len(ours) else ""
    return f"Findings: {left:,} open, {len(counted) - left:,} resolved{apart}."


def _in_force(call: Call) -> Iterator[str]:
    if call.state.paused:
        yield "Paused; `/ptopt resume` resumes reviews."
    if call.state.ignored:
        rules = sorted(word for word in call.state.ignored if word.startswith("PTO"))
        parts = [", ".join(rules[:_LISTED]) + (" and more" if len(rules) > _LISTED else "")] if rules else []
        others = len(call.state.ignored) - len(rules)
        parts += [count(others, "finding")] if others else []
        yield f"Ignored here: {' and '.join(parts)}."
    config, problems = settings_of(call.github, call.pull)
    if problems:
        yield f"Configuration: the defaults, because the one on the base branch has errors:\n{listed(problems, '  ')}"
    else:
        yield f"Configuration: {code_span(config.origin) if config.origin else 'the defaults'}."
    reason = why_skipped(call.pull, config)
    if reason is not None:
        yield f"Pushes are not reviewed: {reason}."


COMMAND: Command[None] = Command(
    name="status",
    arguments="",
    summary="show what was reviewed, what is open, and what applies here",
    details="Shows the reviewed head, open findings, pauses and ignores, the configuration, and the queue.",
    who=Who.AUTHOR_OR_TRIAGE,
    examples=(("/ptopt status", "find out why there is no review"),),
    parse=nothing,
    run=run,
)
