"""What is proposed on one configuration file: the counterpart of `ptopt.inspection` for files that are not Python."""

from __future__ import annotations

from collections.abc import Collection

from ptopt.change import ChangedFile
from ptopt.config import Config
from ptopt.config_proposals import propose_config, seen_in
from ptopt.configs.file import load
from ptopt.configs.values import Refused
from ptopt.file_result import FileResult
from ptopt.findings import NotReviewed
from ptopt.pathkind import is_config_for_sure
from ptopt.project.facts import ProjectFacts
from ptopt.ranker.model import threshold
from ptopt.rules import config_rules
from ptopt.rules.configs import ConfigRule
from ptopt.suppress import Suppressions, find_in_config


def inspect_config(
    file: ChangedFile | NotReviewed,
    config: Config,
    facts: ProjectFacts,
    limit_to_change: bool,
    baseline: Collection[str],
    floor: float,
) -> FileResult | None:
    """What is proposed on the file, or why it is not reviewed; None for one that configures something else."""
    if isinstance(file, NotReviewed):
        return FileResult.skipped(file) if is_config_for_sure(file.path) else None
    reason = config.why_skipped(file.path)
    if reason is not None or file.head is None:
        lost = NotReviewed(file.path, reason or "its head version is not available")
        return FileResult.skipped(lost) if is_config_for_sure(file.path) else None
    read = load(file.path, file.head, facts)
    if read is None:
        return None
    if isinstance(read, Refused):
        return FileResult.skipped(NotReviewed(file.path, str(read)))
    change = file if limit_to_change else None
    wanted = [rule for rule in config_rules() if config.enabled(*rule.keys(), rule.default, file.path)]
    failed: list[tuple[ConfigRule, Exception]] = []
    found = seen_in(read, wanted, failed)
    suppressions = Suppressions() if file.path.endswith(".json") else find_in_config(read.text)
    proposals, unlikely = propose_config(
        read,
        found,
        change,
        floor,
        suppressions,
        least=threshold(config.usual_min_confidence),
        asked=config.asked,
    )
    spans = [(rule.keys(), read.span(problem.start, problem.end)) for rule, problem in found]
    return FileResult(
        path=file.path,
        not_reviewed=tuple(
            NotReviewed(
                file.path, f"{rule.id} crashed on it ({type(error).__name__}); please report this bug"
            )
            for rule, error in failed
        ),
        proposals=tuple(p.with_baseline(baseline) for p in proposals),
        left_out=tuple(p.with_baseline(baseline) for p in unlikely),
        suppressions=suppressions,
        used=frozenset().union(*(suppressions.matching(keys, s.start, s.end) for keys, s in spans)),
        change=change,
        text=read.text if proposals else None,
    )
