"""The pipeline, on one page: propose, verify, rank. Text in, values out; no network, no disk, no clock."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from ptopt.change import Change, ChangedFile
from ptopt.file_result import FileResult
from ptopt.findings import Finding, ModelRecord, NotReviewed, Review, UnusedSuppression
from ptopt.inspection import Inspect, Inspection, inspect_files, least_looked_for
from ptopt.learned import FEEDBACK, NOTHING_LEARNED, Learned, log_odds
from ptopt.left_out import counted_left_out, unusual_places
from ptopt.model.interface import ModelUnavailableError
from ptopt.pathkind import PYTHON, is_config_for_sure
from ptopt.proposals import Proposal
from ptopt.ranker.model import comment_conditions, threshold
from ptopt.ranking import across_files, grouped, merged, rank, split_ignored, without_repeated
from ptopt.rules import config_rules, rules
from ptopt.runner import AnalysisError, Runner, in_process

if TYPE_CHECKING:
    from ptopt.config import Config
    from ptopt.model.advisor import Advisor
    from ptopt.project.around import Neighbours
    from ptopt.project.facts import ProjectFacts

_LONGEST_NOTE = 200


def review_change(
    change: Change,
    *,
    config: Config,
    facts: ProjectFacts,
    advisor: Advisor | None = None,
    muted: Collection[str] = (),
    learned: Learned = NOTHING_LEARNED,
    runner: Runner = in_process,
) -> Review:
    """Review a pull request: comments on what it changed, the best `config.budget` of them.

    `muted` are fingerprints that are ignored in it: they do not count towards the budget. `learned` is the feedback of the
    repository. `runner` is where the files are analysed.
    """
    files: list[ChangedFile | NotReviewed] = [*change.files, *change.not_reviewed]
    return review_files(
        files,
        config=config,
        facts=facts,
        limit_to_change=True,
        around=change.around,
        advisor=advisor,
        muted=muted,
        learned=learned,
        runner=runner,
    )


def review_files(
    files: Iterable[ChangedFile | NotReviewed],
    *,
    config: Config,
    facts: ProjectFacts,
    limit_to_change: bool,
    one_per_cause: bool = True,
    around: Mapping[str, bytes] = MappingProxyType({}),
    neighbours: Neighbours | None = None,
    advisor: Advisor | None = None,
    muted: Collection[str] = (),
    baseline: frozenset[str] = frozenset(),
    learned: Learned = NOTHING_LEARNED,
    runner: Runner = in_process,
    inspect: Inspect | None = None,
) -> Review:
    """Review files one at a time: propose, verify, rank.

    `around` holds other files of the repository, by path, that may answer questions about these; `neighbours` gives
    those around each file, for callers that have the whole repository at hand.
    `baseline` are fingerprints of places that are reported as old ones only. `learned` moves the confidence of rules last,
    after a model.
    With `limit_to_change`, only what their hunks touch is reported, within the budget. Without `one_per_cause`, every
    place is a finding of its own, each with its own fix. An `advisor` reweighs the proposals of all files at once; when
    it does not answer each question, the review is what it would be without it, and its `model.note` says why.
    `inspect` inspects the files (default: `inspect_files`, where `runner` runs it).
    """
    model = None if advisor is None or advisor.calibration.silent else advisor
    if inspect is None and runner is not in_process:
        files = list(files)  # it has to go elsewhere as a whole
    inspection = Inspection(
        config=config,
        facts=facts,
        limit_to_change=limit_to_change,
        calibration=None if model is None else model.calibration,
        around=dict(around),
        baseline=baseline,
        floor=learned.floor(threshold(config.min_confidence)),
        neighbours=neighbours,
    )
    try:
        results = runner(inspect_files, files, inspection) if inspect is None else inspect(files, inspection)
    except AnalysisError as error:
        results = [
            FileResult.skipped(NotReviewed(file.path, str(error)))
            for file in files
            if file.path.endswith(PYTHON) or is_config_for_sure(file.path)
        ]

    def settle(results: Sequence[FileResult], record: ModelRecord | None) -> Review:
        budget = config.budget if limit_to_change else None
        return _settle(results, config, budget, one_per_cause, frozenset(muted), learned, record)

    if model is None:
        return settle(results, None)
    if not any(result.regions or result.changed for result in results):
        return settle(results, model.record)
    from ptopt.model_review import explained, reweighed

    try:
        weighed, record = reweighed(model, results, facts, config.enabled, runner)
        review = settle(weighed, record)
        return dataclasses.replace(review, findings=explained(model, review.findings, results))
    except ModelUnavailableError as error:
        note = " ".join(str(error).split())[:_LONGEST_NOTE] or "it is unavailable"
        return settle(results, dataclasses.replace(model.record, note=note))


def _settle(
    results: Sequence[FileResult],
    config: Config,
    budget: int | None,
    one_per_cause: bool,
    muted: frozenset[str],
    learned: Learned,
    record: ModelRecord | None,
) -> Review:
    """Drop what is not sure enough, merge what has one cause, leave out what is silenced, rank the rest."""
    comments: list[Finding] = []
    ignored: list[Finding] = []
    suppressed: list[Finding] = []
    old: list[Finding] = []
    dropped: list[Finding] = []
    quieted: list[Finding] = []
    unused: list[UnusedSuppression] = []
    least = threshold(config.min_confidence)
    for file in results:
        dropped += [
            p.finding
            for p in file.proposals
            if p.confidence < least <= p.ranked_confidence and p.finding.rule not in config.asked
        ]
        sure = []
        for weighed in file.proposals:
            proposal = _with_feedback(weighed, learned, least)
            feedback = learned.of(proposal.finding.rule, proposal.finding.family)
            quiet = learned.quiet(feedback, weighed.confidence, least)
            if proposal.finding.rule in config.asked or (not quiet and proposal.confidence >= least):
                sure.append(proposal)
            elif quiet and weighed.confidence >= least and weighed.reported:
                share = learned.explored(feedback, weighed.confidence)
                explored = learned.explores(proposal.finding.fingerprint, share)
                quieted.append(dataclasses.replace(proposal.finding, explored=explored))
        old += [p.finding for p in sure if p.in_baseline]
        suppressed += [
            dataclasses.replace(p.finding, excuse=file.suppressions.reason(p.silenced_by))
            for p in sure
            if p.silenced_by
        ]
        loud = [p for p in sure if p.reported]
        # Feedback may have moved an ignored one below the threshold: what was said with it stays ignored, too.
        there = {p.finding.fingerprint for p in loud}
        loud += [
            p
            for p in file.proposals
            if p.reported and p.finding.fingerprint in muted and p.finding.fingerprint not in there
        ]
        kept, left = split_ignored(grouped(loud) if one_per_cause else [[p] for p in loud], muted)
        comments += map(merged, kept)
        ignored += map(merged, left)
        unused += _unused(file, config)
    comments.sort(key=rank)
    wanted = across_files(without_repeated(comments, ignored)) if one_per_cause else comments
    shown = wanted[:budget]
    quieted.sort(key=rank)
    if budget is not None and len(shown) < budget:  # a quiet rule takes no place of another
        shown += [f for f in quieted if f.explored and f.fingerprint not in muted][:1]
    texts = {file.path: file.text for file in results if file.text is not None}
    return Review(
        findings=tuple(shown),
        over_limit=tuple(wanted[budget:] if budget is not None else ()),
        muted=tuple(sorted(ignored, key=rank)),
        suppressed=tuple(sorted(suppressed, key=Finding.sort_key)),
        not_reviewed=tuple(sorted({note for file in results for note in file.not_reviewed})),
        unused_suppressions=tuple(sorted(unused)),
        files_reviewed=sum(file.reviewed for file in results),
        reviewed=tuple(sorted(file.path for file in results if file.reviewed)),
        partly=sum(file.reviewed and config.switches_off_at(file.path) for file in results),
        config_path=config.origin,
        sources={path: texts[path] for path in dict.fromkeys(f.path for f in shown) if path in texts},
        dropped=tuple(sorted(dropped, key=Finding.sort_key)),
        cells={file.path: file.cells for file in results if file.cells is not None},
        disk_lines={file.path: file.disk_lines for file in results if file.disk_lines is not None},
        in_baseline=tuple(sorted(old, key=Finding.sort_key)),
        quieted=tuple(f for f in quieted if f not in shown),
        left_out=counted_left_out(results, comments, config, muted, budget),
        model=record,
        conditions=comment_conditions(config.usual_min_confidence),
        unusual=unusual_places(results, comments, config),
        least_stated=least_looked_for(config, record is not None),
        asked=config.asked,
    )


def _with_feedback(proposal: Proposal, learned: Learned, least: float) -> Proposal:
    """The proposal with what the people of the repository say of its rule, which becomes a reason like the others."""
    finding = proposal.finding
    feedback = learned.of(finding.rule, finding.family)
    if not feedback.offset:
        return proposal
    confidence = learned.confidence(feedback, proposal.confidence, least)
    by = round(log_odds(confidence) - log_odds(proposal.confidence), 2)
    finding = dataclasses.replace(
        finding,
        score=round(proposal.confidence, 4),
        reasons=((FEEDBACK, by), *finding.reasons) if by else finding.reasons,
    )
    return dataclasses.replace(proposal, finding=finding).reweighed(confidence)


def _unused(file: FileResult, config: Config) -> Iterator[UnusedSuppression]:
    """Comments of the change that silence nothing; a rule that is switched off may have its comments."""
    used = file.used.union(*(p.silenced_by for p in file.proposals))
    found = file.suppressions.unused(used)
    if not found:
        return
    keys = {True: set[str](), False: set[str]()}
    for rule in (*rules(), *config_rules()):
        on = config.enabled(*rule.keys(), rule.default, file.path)
        keys[on] |= set(map(str.lower, rule.keys()))
    off = keys[False] - keys[True]  # a family is on while one of its rules is
    for line, codes in found:
        at = file.head_line(line)
        left = tuple(code for code in codes if code.lower() not in off)
        if (left or not codes) and (file.change is None or at in file.change.added):
            yield UnusedSuppression(file.path, at, left)
