"""`/ptopt explain`: a rule, or one of our comments in the light of the code at the head."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from bot.commands.base import Answer, Call, Command, PostedFinding, UsageError, UserError, Who
from bot.commands.rulename import rule_named
from ptopt import impact
from ptopt.change import ChangedFile, whole_file
from ptopt.config import Config
from ptopt.findings import Finding
from ptopt.github.base_config import settings_of
from ptopt.github.errors import TooLargeError
from ptopt.github.reading import project_files
from ptopt.learned import FEEDBACK
from ptopt.project.facts import ProjectFacts, read_facts
from ptopt.ranker.model import threshold
from ptopt.report.gains import markdown_gain
from ptopt.report.text import code_span, markdown_text, place
from ptopt.review import review_files
from ptopt.rules import find_rule
from ptopt.rules.base import Rule
from ptopt.runner import AnalysisError

_COMMENT = re.compile(r"(?:https://\S+#|#)?(?:discussion_)?r?(\d{1,18})", re.A)
_FOLDED = ("What it does", "Example", "Use instead", "Fix safety", "Sources")
_EVIDENCE = 10
_REASONS = 3  # that moved the confidence most
# Features of the ranker in words; one without any says nothing to a reader, and is left out.
_FEATURES = {
    FEEDBACK: FEEDBACK,
    "evidence": "how many lines prove it",
    "fix": "whether it has a fix",
    "hits of the rule": "how many findings of its rule the file has",
    "other waits": "how much else waits for the GPU there",
    "blocking copies": "how many other copies wait there",
    "waits:none other": "that nothing else waits there",
    "waits:unavoidable": "that something else has to wait there",
    "in a loop": "that it stands in a loop",
    "often:step": "that it runs on every step",
    "often:in training": "that it runs in training",
    "often:in a worker": "that it runs in a worker of the data loader",
    "autograd:off": "that autograd is off there",
    "file:trains": "that the file trains",
    "file:steps are read": "that the loss is read on every step anyway",
    "file:old torch": "that the file is written for an old torch",
    "file:new torch": "that the file is written for a new torch",
    "file:notebook": "that it is in a notebook",
    "file:command line": "that the file is a program",
    "file:named nowhere else": "that no other file names this one",
}
_FEATURE_FAMILIES = {
    "rule": "its rule",
    "family": "its kind of problem",
    "severity": "its severity",
    "path": "what its path says of the file",
    "kind": "what its path says of the file",
    "symbol": "the names of the function and the class around it",
    "class": "the class around it",
    "often": "how often it runs",
    "value": "what the value is",
    "device": "where the value lies",
    "use": "what the value is used for",
}


@dataclass(frozen=True, slots=True)
class Topic:
    """A rule, or a comment by its id; neither: the finding of this thread."""

    rule: type[Rule] | None = None
    comment_id: int | None = None


def parse(words: Sequence[str]) -> Topic:
    if len(words) > 1:
        raise UsageError("Name one rule or one comment.")
    if not words or words[0].lower() == "here":
        return Topic()
    comment = _COMMENT.fullmatch(words[0])
    return Topic(comment_id=int(comment[1])) if comment else Topic(rule=rule_named(words[0]))


def run(call: Call, topic: Topic) -> Answer:
    if topic.rule is not None:
        return Answer(_rule(topic.rule))
    if topic.comment_id is None:
        posted = call.thread
        if posted is None:
            raise UserError(
                "Name a rule, as in `/ptopt explain item-every-step`, or reply in the thread of a ptopt comment."
            )
    else:
        posted = next((one for one in call.posted if one.comment_id == topic.comment_id), None)
        if posted is None:
            raise UserError(
                f"Comment {topic.comment_id} is not a ptopt comment of this pull request. The link of a comment ends in "
                "`#discussion_r` and a number."
            )
    rule = find_rule(posted.rule)
    if rule is None:
        raise UserError(f"The comment is from {posted.rule}, which this version of ptopt does not have.")
    said = call.host.feedback(rule.id)
    feedback = f"\n- feedback in this repository: {said}" if said else ""
    return Answer(f"{_in_this_code(call, posted)}{feedback}\n\n{_rule(rule)}")


def _in_this_code(call: Call, posted: PostedFinding) -> str:
    """What the finding rests on, at the head as it is now."""
    pull = call.pull
    head = code_span(pull.head_sha[:7])
    try:
        finding = _look(call, posted)
    except TooLargeError:
        return f"**In this code:** {code_span(posted.path)} is too large to analyse again."
    except AnalysisError as error:
        return f"**In this code:** {code_span(posted.path)} was {markdown_text(str(error))}."
    if finding is None:
        return f"**In this code:** no longer found in {code_span(posted.path)} at {head}."
    notes = [f"line {e.line}: {markdown_text(e.note)}" for e in finding.evidence[:_EVIDENCE]]
    if finding.reasons:
        notes.append(markdown_text(_confidence(finding)))
    if finding.assumes:
        notes.append(f"it assumes {markdown_text(finding.assumes)}")
    where = code_span(place(finding.path, finding.span))
    return "\n".join(
        [
            f"**In this code:** {where} at {head}. {markdown_text(finding.message)}",
            *(f"- {note}" for note in notes),
        ]
    )


def _confidence(finding: Finding) -> str:
    """The probabilities in words, and what moved them most."""
    true = "" if finding.right is None else f"true with a probability of {finding.right:.0%}, and "
    said = (
        f"{words} ({'for' if weight > 0 else 'against'} it)"
        for name, weight in finding.reasons
        if (words := _in_words(name))
    )
    reasons = list(dict.fromkeys(said))[:_REASONS]
    probabilities = f"{true}worth a change with {finding.confidence:.0%}; by default comments are made from {threshold(None):.0%} on"
    return f"{probabilities}. What counted most: {', '.join(reasons)}" if reasons else probabilities


def _in_words(name: str) -> str:
    """A feature of the ranker for people; "" for one that would say nothing to them."""
    return _FEATURES.get(name) or _FEATURE_FAMILIES.get(name.partition(":")[0], "")


def _look(call: Call, posted: PostedFinding) -> Finding | None:
    """The finding at the head. Raises AnalysisError where the analysis was ended."""
    github, pull = call.github, call.pull
    data = github.file(pull.repo, posted.path, pull.head_sha)
    if data is None:
        return None
    config, _ = settings_of(github, pull)
    facts = call.host.runner(read_facts, project_files(github, pull))
    return call.host.runner(_found_again, whole_file(posted.path, data), posted.fingerprint, config, facts)


def _found_again(file: ChangedFile, fingerprint: str, config: Config, facts: ProjectFacts) -> Finding | None:
    config = config.model_copy(update={"min_confidence": 0.0})
    review = review_files([file], config=config, facts=facts, limit_to_change=False, one_per_cause=False)
    return next((finding for finding in review.findings if finding.fingerprint == fingerprint), None)


def _rule(rule: type[Rule]) -> str:
    """The rule's page, the part that convinces first and the rest folded."""
    sections = {title: _unwrapped(text) for title, text in rule.sections().items()}
    worth = [markdown_gain(i) for i in impact.of_rule(rule.name)]
    parts = [
        f"**{rule.id} {rule.name}**: {rule.summary()}",
        f"**Why it is slow.** {sections['Why it is slow']}",
        *(["**What the fix is worth.**\n" + "\n".join(f"- {line}" for line in worth)] if worth else []),
        f"**When this is wrong.** {sections['When this is wrong']}",
        "<details><summary>What it does, example, fix, sources</summary>",
        *(f"**{title}**\n\n{sections[title]}" for title in _FOLDED if title in sections),
        "</details>",
    ]
    return "\n\n".join(parts)


def _unwrapped(text: str) -> str:
    """Each paragraph and each item of a list on one line: in comments GitHub shows a line end as one."""
    lines: list[str] = []
    fenced = joins = False
    for line in text.split("\n"):
        fence = line.lstrip().startswith("```")
        if joins and not fenced and not fence and line.strip() and not line.lstrip().startswith("- "):
            lines[-1] += f" {line.strip()}"
        else:
            lines.append(line)
        fenced ^= fence
        joins = not fenced and not fence and bool(line.strip())
    return "\n".join(lines)


COMMAND: Command[Topic] = Command(
    name="explain",
    arguments="[RULE|COMMENT]",
    summary="explain a rule, or the finding of this thread in this code",
    details=(
        "`RULE` is the id or the name of a rule, `COMMENT` the link of a ptopt comment. In the thread of such a "
        "comment neither is needed."
    ),
    who=Who.AUTHOR_OR_TRIAGE,
    examples=(
        ("/ptopt explain PTO101", "why it is slow, what the fix gains, when the rule is wrong"),
        ("/ptopt explain", "in a thread: the evidence for the finding, and its rule"),
    ),
    parse=parse,
    run=run,
)
