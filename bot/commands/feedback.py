"""`/ptopt feedback`: a rating of one of our comments, stored as a signal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bot.commands.base import Answer, Call, Command, UsageError, UserError, Who, nearest, shown

_VERDICTS = ("good", "bad")


@dataclass(frozen=True, slots=True)
class Verdict:
    good: bool
    reason: str


def parse(words: Sequence[str]) -> Verdict:
    if not words:
        raise UsageError("Use `good` or `bad`.")
    verdict = words[0].lower().rstrip(":,.")
    if verdict not in _VERDICTS:
        raise UsageError(f"Use `good` or `bad`, not {shown(words[0])}.{nearest(verdict, _VERDICTS)}")
    return Verdict(verdict == "good", " ".join(words[1:]))


def run(call: Call, verdict: Verdict) -> Answer:
    if call.thread is None:
        raise UserError("Feedback is about one comment: reply in the thread of a ptopt comment.")
    call.host.record_feedback(call.thread.comment_id, verdict.good, verdict.reason, call.request.actor)
    noted = f"Noted as {'good' if verdict.good else 'bad'}{', with your reason' if verdict.reason else ''}. Thank you."
    if verdict.good:
        return Answer(noted)
    known = {call.thread.rule, call.thread.fingerprint}
    silence = " To dismiss it: `/ptopt ignore here`." if call.state.ignored.isdisjoint(known) else ""
    return Answer(noted + silence)


COMMAND: Command[Verdict] = Command(
    name="feedback",
    arguments="good|bad [REASON]",
    summary="rate a ptopt comment, in its thread",
    details="Used to calibrate the confidence of the rules. A 👍 or 👎 on the comment counts too, with less weight. "
    "The reason (up to 500 characters) is stored with the rating, for those who improve the rules; it is the only "
    "text of users that ptopt stores, and is deleted when the App is uninstalled.",
    who=Who.AUTHOR_OR_TRIAGE,
    examples=(
        ("/ptopt feedback good saved us 8% of the step", "say that the comment helped"),
        ("/ptopt feedback bad runs once, at start-up", "say that it is wrong, and why"),
    ),
    parse=parse,
    run=run,
)
