"""What a general model finds in a change as a whole: claims, each doubted once more, as proposals beside those of the rules.

What rules found and the ranker left out is put to the model like claims of its own: rules see little of what a line is worth, and
a model overlooks lines.
No claim is trusted: it stands on lines that the change wrote, or beside lines that it removed, its words are shown as a quotation,
and it has no fix that anybody could apply.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from ptopt.change import ChangedFile
from ptopt.file_result import FileResult
from ptopt.findings import CHECKED, Finding, Severity, Span, as_shown, fingerprint
from ptopt.model.advisor import Advisor
from ptopt.model.calibration import Calibration
from ptopt.model.region import Region, changed_regions, region_of_file
from ptopt.model.whole_change import KINDS, MAX_CLAIMS, Check, Claim
from ptopt.project.facts import ProjectFacts
from ptopt.proposals import Proposal
from ptopt.rules.model.found_by_model import FoundByModel
from ptopt.runner import AnalysisError, Runner, in_process
from ptopt.source.file import SourceFile

Enabled = Callable[[str, str, str, bool, str], bool]
"""Whether the settings want a rule: id, name, family, default, path."""

_LIBRARIES = (b"torch", b"lightning", b"transformers", b"accelerate", b"deepspeed", b"vllm")
KIND = "kind of claim:"  # begins the name of the feature that says it
# A claim that the model, asked to prove it wrong, calls less likely than this to be acted on is not asked about again, and no comment.
_LIKELY = 0.5
_OPINIONS = 2  # on each of the others
_MOST_LEFT_OUT = 5  # proposals of rules below their conditions that are put to the model; the likeliest


def changed(source: SourceFile, change: ChangedFile | None, calibration: Calibration) -> tuple[Region, ...]:
    """What the model is shown of one file of a change."""
    if (
        change is None
        or calibration.change_threshold is None
        or not source.numbered_as_on_disk
        or source.is_notebook
    ):
        return ()
    return tuple(changed_regions(source, change.added, change.removed))


def with_claims(
    advisor: Advisor,
    results: Sequence[FileResult],
    facts: ProjectFacts,
    enabled: Enabled,
    runner: Runner = in_process,
) -> tuple[list[FileResult], int]:
    """The results with what the model found and could not refute, without what rules found and it refutes; and the number of
    invalid answers.

    `runner` is where files are parsed once more. Raises ModelUnavailableError.
    """
    rule = FoundByModel
    wanted = [
        (at, result)
        for at, result in enumerate(results)
        if result.changed and enabled(*rule.keys(), rule.default, result.path)
    ]
    if not any(library in result.head for _, result in wanted for library in _LIBRARIES):
        return list(results), 0
    by_place = {(r.path, r.start): at for at, result in wanted for r in result.changed}
    claims, invalid = advisor.review([region for _, result in wanted for region in result.changed])
    doubts = _of_rules(wanted)
    for claim in claims:
        at = by_place[claim.region.path, claim.region.start]
        if _stands(claim, results[at]):
            doubts[at].append(_Doubt(claim, None))
    for at, several in _left_out(wanted).items():  # last: they take the place of claims on their lines
        doubts[at] += several
    shown: list[tuple[int, _Doubt, Region]] = []
    for at, several in doubts.items():
        with contextlib.suppress(AnalysisError):  # what could not be checked stays as the rules made it
            views = runner(_views, results[at], [doubt.claim for doubt in several], facts)
            shown += [(at, doubt, view) for doubt, view in zip(several, views, strict=True)]
    checks = _checked(advisor, [(doubt, view) for _, doubt, view in shown])
    found = list(results)
    for (at, doubt, _), check in zip(shown, checks, strict=True):
        found[at] = _decided(found[at], doubt, check, advisor)
    return found, invalid + checks.count(None)


@dataclass(frozen=True, slots=True)
class _Doubt:
    """A claim that is to be proved wrong; `rule_proposal` is that of a rule, None for the model's own."""

    claim: Claim
    rule_proposal: Proposal | None
    left_out: bool = False  # is the rule's proposal no comment, unless the model finds it worth one?

    @property
    def needs_more(self) -> bool:
        """Is it shown only where further opinions agree?"""
        return self.rule_proposal is None or self.left_out


def _checked(advisor: Advisor, doubts: Sequence[tuple[_Doubt, Region]]) -> list[Check | None]:
    """What the model makes of each claim; None for an invalid answer.

    Claims that need more, and that it stands by, are put to it again, and the mean of these opinions is their probability: the first
    one was high, or nobody would have asked again, so it says little about what the next one will be.
    """
    checks = advisor.check([(doubt.claim, view) for doubt, view in doubts])
    likely: list[int] = []
    for at, ((doubt, _), check) in enumerate(zip(doubts, checks, strict=True)):
        if not doubt.needs_more or check is None or check.verdict != "right":
            continue
        if check.probability >= _LIKELY:
            likely.append(at)
        else:
            checks[at] = dataclasses.replace(check, verdict="trivial")
    again = advisor.check_again([(doubts[at][0].claim, doubts[at][1]) for at in likely], _OPINIONS)
    for at, drawn in zip(likely, again, strict=True):
        checks[at] = _mean(drawn)
    return checks


def _mean(opinions: Sequence[Check | None]) -> Check | None:
    """What several opinions on a claim come to; None where one of them is invalid."""
    valid = [check for check in opinions if check is not None]
    if len(valid) < len(opinions):
        return None
    return Check("right", fmean(check.probability for check in valid))


def _of_rules(wanted: Sequence[tuple[int, FileResult]]) -> defaultdict[int, list[_Doubt]]:
    """The likeliest comments of the rules, by the number of their result: a rule is doubted as the model is."""
    return _likeliest([(at, result, p) for at, result in wanted for p in result.proposals], MAX_CLAIMS, False)


def _left_out(wanted: Sequence[tuple[int, FileResult]]) -> defaultdict[int, list[_Doubt]]:
    """The same of what is no comment by the ranker alone."""
    return _likeliest(
        [(at, result, p) for at, result in wanted for p in result.left_out], _MOST_LEFT_OUT, True
    )


def _likeliest(
    proposals: Sequence[tuple[int, FileResult, Proposal]], most: int, left_out: bool
) -> defaultdict[int, list[_Doubt]]:
    reported = [found for found in proposals if found[2].reported and found[2].finding.origin == "rule"]
    doubts: defaultdict[int, list[_Doubt]] = defaultdict(list)
    for at, result, proposal in sorted(reported, key=lambda found: -found[2].confidence)[:most]:
        finding, span = proposal.finding, proposal.finding.span
        region = next((r for r in result.changed if r.start <= span.start <= r.end), None)
        if region is not None:
            claim = Claim(region, span.start, span.end, finding.name, finding.message, "", 1.0)
            doubts[at].append(_Doubt(claim, proposal, left_out))
    return doubts


def _decided(result: FileResult, doubt: _Doubt, check: Check | None, advisor: Advisor) -> FileResult:
    """The result with a claim of the model or a proposal that was left out, if it stands; without a comment of a rule that the model
    does not call right.
    """
    calibration = advisor.calibration
    least = calibration.change_threshold or 0.0
    right = check is not None and check.verdict == "right"
    if doubt.needs_more:
        if check is None or not right or check.probability < least:
            return result
        confidence = calibration.change_confidence  # what the model states is no probability
        if doubt.rule_proposal is None:
            own = _proposal(doubt.claim, check, result, advisor.record.name, confidence)
            return dataclasses.replace(result, proposals=(*result.proposals, own))
        return _let_in(result, doubt.rule_proposal, check, confidence)
    if check is None or right:
        return result
    kept = tuple(p.reweighed(0.0) if p is doubt.rule_proposal else p for p in result.proposals)
    return dataclasses.replace(result, proposals=kept)


def _let_in(result: FileResult, proposal: Proposal, check: Check, confidence: float) -> FileResult:
    """The result with a proposal of a rule that the ranker left out. A claim of the model on its lines says the same again, without a
    fix."""
    finding = dataclasses.replace(
        proposal.finding, missed=(), features=(*proposal.finding.features, (CHECKED, check.probability))
    )
    shown = dataclasses.replace(proposal, finding=finding).reweighed(confidence)
    others = (p for p in result.proposals if p.finding.origin == "rule" or not _meet(p.finding, finding))
    left = tuple(p for p in result.left_out if p is not proposal)
    return dataclasses.replace(result, proposals=(*others, shown), left_out=left)


def _meet(one: Finding, other: Finding) -> bool:
    return one.span.start <= other.span.end and other.span.start <= one.span.end


def _stands(claim: Claim, result: FileResult) -> bool:
    """On lines that the change wrote or beside some that it removed, and not on those of another proposal."""
    change = result.change
    if change is None:
        return False
    lines = range(claim.start, claim.end + 1)
    removed = any(claim.start <= before <= claim.end + 1 for before, text in change.removed if text.strip())
    if not removed and change.added.isdisjoint(lines):
        return False
    return not any(
        proposal.finding.span.start <= claim.end and claim.start <= proposal.finding.span.end
        for proposal in result.proposals
    )


def _views(result: FileResult, claims: Sequence[Claim], facts: ProjectFacts) -> list[Region]:
    """The whole file for each claim, with what else of the repository stands around its region."""
    source = SourceFile.parse(result.path, result.head, facts)
    change = result.change
    added, removed = (frozenset[int](), ()) if change is None else (change.added, change.removed)
    views = []
    for claim in claims:
        view = region_of_file(source, added, range(claim.start, claim.end + 1), removed)
        views.append(dataclasses.replace(view, around=claim.region.around))
    return views


def _proposal(claim: Claim, check: Check, result: FileResult, model: str, confidence: float) -> Proposal:
    rule = FoundByModel
    span = Span(claim.start, claim.end)
    code = "\n".join(line.text for line in claim.region.lines if line.number in span.lines())
    name = model.replace("`", "'")
    finding = Finding(
        rule=rule.id,
        name=rule.name,
        family=rule.family,
        severity=Severity.MEDIUM,
        path=result.path,
        span=span,
        symbol=claim.region.symbol,
        message=f"Found by a model (`{name}`), not by a rule: {KINDS[claim.kind]}.",
        when_wrong=rule.when_wrong,
        confidence=as_shown(confidence),
        fingerprint=fingerprint(f"{rule.id} {claim.kind}", result.path, claim.region.symbol, code),
        origin="model",
        explanation=" ".join(f"{claim.problem} {claim.fix}".split()),
        features=(
            (f"{KIND}{claim.kind}", 1.0),
            ("stated by the model", claim.sure),
            (CHECKED, check.probability),
        ),
    )
    silenced_by = result.suppressions.matching(rule.keys(), span.start, span.end)
    return Proposal(finding, None, confidence, confidence, silenced_by)
