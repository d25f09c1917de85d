"""`/ptopt fix`: commit the safe fixes of what we commented on to the branch of the pull request.

Only findings that were posted, are open and are not ignored; only fixes that keep the behaviour; only on the head that
GitHub still has. Where ptopt may not write, the answer says how to apply the fixes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from bot.commands.base import Answer, Call, Command, PostedFinding, UserError, Who, nothing
from bot.commands.safe_fixes import SafeFixes, safe_fixes
from ptopt.findings import Finding
from ptopt.github.base_config import settings_of
from ptopt.github.errors import ForbiddenError, RejectedError, SupersededError
from ptopt.github.reading import project_files, read_change
from ptopt.github.values import PullRequest
from ptopt.project.facts import read_facts
from ptopt.report.text import code_span, markdown_text, place
from ptopt.rules import find_rule
from ptopt.runner import AnalysisError

_BY_HAND = "Use *Commit suggestion* in the comments, or run `ptopt fix` on the files."
_LISTED = 30
_LONGEST_PATH = 200


def run(call: Call, _: None) -> Answer:
    pull = call.pull
    _check_reachable(pull)
    wanted = _wanted(call)
    if not wanted:
        raise UserError("Nothing to fix: there are no open findings.")
    results = _safe_fixes(call, wanted)
    left = _left(wanted, results)
    files = {item.file.path: item.file.after for item in results if item.file.fixed}
    if not files:
        return Answer(f"Nothing was committed.\n\n{left}{_next_step(results)}")
    fixed = [finding for item in results for finding in item.file.fixed]
    message = _message(call, fixed)
    try:
        commit = call.github.commit_files(pull.repo, pull.head_ref, pull.head_sha, files, message)
    except ForbiddenError:
        raise UserError(
            f"ptopt has no write access to this repository (`contents: write`). {_BY_HAND}"
        ) from None
    except RejectedError as error:
        reasons = markdown_text("; ".join(error.errors)[:300]) or "the branch moved, or is protected"
        raise UserError(f"GitHub refused the commit: {reasons}. Try again, or: {_BY_HAND}") from None
    done = _bullets(f"{code_span(_cut(place(f.path, f.span)))} {_title(f.rule)}" for f in fixed)
    return Answer("\n\n".join(filter(None, (f"Fixed in {commit}:", done, f"{left}{_next_step(results)}"))))


def _check_reachable(pull: PullRequest) -> None:
    if not pull.open:
        raise UserError("The pull request is closed.")
    if pull.head_repo is None or pull.head_repo.lower() != pull.repo.lower():
        raise UserError(f"The branch is in a fork, which ptopt cannot write to. {_BY_HAND}")


def _wanted(call: Call) -> list[PostedFinding]:
    """The findings to fix: that of this thread, or all whose threads are open; none that is ignored."""
    posted = list(call.posted)
    if call.thread is not None:
        posted = [call.thread]
    elif posted:
        threads = call.github.threads(call.pull.repo, call.pull.number)
        settled = {thread.comments[0][0] for thread in threads if thread.resolved and thread.comments}
        posted = [item for item in posted if item.comment_id not in settled]
    return [item for item in posted if call.state.ignored.isdisjoint({item.rule, item.fingerprint})]


def _safe_fixes(call: Call, wanted: Sequence[PostedFinding]) -> list[SafeFixes]:
    config, _ = settings_of(call.github, call.pull)
    try:
        change = read_change(call.github, call.pull, config)
    except SupersededError:
        raise UserError("The branch was updated in the meantime. Run `/ptopt fix` again.") from None
    fingerprints = {
        file.path: {one.fingerprint for one in wanted if one.path == file.path} for file in change.files
    }
    runner = call.host.runner
    try:
        facts = runner(read_facts, project_files(call.github, call.pull))
        return [
            runner(safe_fixes, file, fingerprints[file.path], config, facts)
            for file in change.files
            if fingerprints[file.path] and file.head is not None
        ]
    except AnalysisError as error:
        raise UserError(f"Nothing was changed: the analysis was {markdown_text(str(error))}.") from None


def _left(wanted: Iterable[PostedFinding], results: Iterable[SafeFixes]) -> str:
    """What was not fixed, and why."""
    reasons = {fingerprint: reason for item in results for fingerprint, reason in item.left.items()}
    fixed = {finding.fingerprint for item in results for finding in item.file.fixed}
    lines = [
        f"{code_span(_cut(one.path))} {_title(one.rule)}: {reasons.get(one.fingerprint, 'its file is not reviewed')}"
        for one in wanted
        if one.fingerprint not in fixed
    ]
    return f"Not fixed:\n\n{_bullets(lines)}" if lines else ""


def _next_step(results: Iterable[SafeFixes]) -> str:
    """How to get the fixes that rest on an assumption."""
    if not any(item.assuming for item in results):
        return ""
    return (
        "\n\nWhere an assumption holds: `Commit suggestion`, if the comment has one, or `ptopt fix --unsafe FILE` on the command "
        "line, which applies all fixes of the file."
    )


def _bullets(lines: Iterable[str]) -> str:
    lines = list(lines)
    more = [f"and {len(lines) - _LISTED:,} more"] if len(lines) > _LISTED else []
    return "\n".join(f"- {line}" for line in [*lines[:_LISTED], *more])


def _cut(path: str) -> str:
    return path if len(path) <= _LONGEST_PATH else f"…{path[1 - _LONGEST_PATH :]}"


def _title(rule_id: str) -> str:
    rule = find_rule(rule_id)
    return f"{rule_id} {rule.name}" if rule is not None else rule_id


def _message(call: Call, fixed: Iterable[Finding]) -> str:
    """Nothing of the pull request stands in it: GitHub acts on words such as "closes #1" in a commit message."""
    tally = Counter((finding.rule, finding.name) for finding in fixed)
    lines = [
        f"- {rule} {name}{f' ({number} places)' if number > 1 else ''}"
        for (rule, name), number in sorted(tally.items())
    ]
    who = f"Requested by {call.request.actor.login} with /ptopt fix."
    return "\n".join(["Apply the safe fixes of ptopt", "", *lines, "", who])


COMMAND: Command[None] = Command(
    name="fix",
    arguments="",
    summary="commit the safe fixes of the open findings to the branch",
    details=(
        "Makes one commit with the safe fixes, which are those that keep the behaviour of the code; in the thread of a "
        "comment, with the fix of that finding. Findings that are resolved or ignored are skipped, and so are unsafe "
        "fixes, which rest on an assumption that their comment states, and notebooks. Branches of forks cannot be "
        "written to: use *Commit suggestion* there, or `ptopt fix` on the command line."
    ),
    who=Who.WRITE,
    examples=(("/ptopt fix", "commit all safe fixes"),),
    parse=nothing,
    run=run,
)
