"""What stands below the findings in the terminal: the outcome, and what was left out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from ptopt.findings import Finding, Review, Span
from ptopt.report.text import (
    MODEL_AWAY,
    count,
    left_out_lines,
    left_out_shortly,
    named,
    one_line,
    option,
    outcome,
    rules_left_out,
    suppressed_line,
    unused,
    unusual_line,
    visible,
    where,
)

_LISTED = 5
_LINE = 78  # characters of an indented line of a terminal
_REASONS = 2


def summary(
    review: Review,
    verbose: bool,
    suppressed: bool,
    whole: Callable[[str], str] = str,
    explain: bool = False,
) -> Iterator[RenderableType]:
    """The outcome in one line, and below it what is not shown. `whole` keeps long paths in one piece."""

    def indented(text: str) -> Padding:
        return Padding(Text(whole(text), "dim"), (0, 0, 0, 2))

    silent = not review.findings and not review.over_limit
    yield Text(f"{outcome(review)}.", "bold green" if silent else "bold")
    if review.compared and not review.files_reviewed and not review.not_reviewed:
        yield Text(
            "The change has no file that ptopt reviews: --base REV compares with another commit, and `ptopt check` reviews whole files.",
            "dim",
        )
    if silent and review.partly:  # `--select ALL` leaves them off, too
        where_from = f" of {one_line(review.config_path)}" if review.config_path else ""
        yield Text(f"per-path-ignores{where_from} switch rules off in {count(review.partly, 'file')}.", "dim")
    if review.model is not None and review.model.note:
        yield Text(MODEL_AWAY, "yellow")
        yield indented(one_line(review.model.note))
    elif review.dropped:
        yield Text(f"{count(len(review.dropped), 'finding')} of the rules dropped by the model.", "dim")
    for finding in review.over_limit:
        yield indented(_named(review, finding))
    if review.over_limit:
        budget = f"--budget{'=' if review.in_hook else ' '}{len(review.findings) + len(review.over_limit)}"
        yield indented(
            f"{option(budget, review.in_hook)} shows {'them' if len(review.over_limit) > 1 else 'it'} in full"
        )
    asked = verbose or explain
    if review.left_out is not None:
        why, how = (left_out_lines if asked else left_out_shortly)(review.left_out, review.in_hook)
        yield Text(f"{why}.", "dim")
        # What stands below findings is read after them, and short.
        rules = rules_left_out(review.left_out, *([] if silent or asked else [_LINE]))
        if rules:
            yield indented(rules)
        yield indented(how)
    elif review.least_stated and review.files_reviewed:
        estimate = f" (estimate below {review.least_stated:.2f})" if asked else ""
        flag = option(f"--min-confidence{'=' if review.in_hook else ' '}0", review.in_hook)
        yield Text(f"What rules are unsure of{estimate} was not looked for; {flag} shows it, too.", "dim")
    unusual = unusual_line(review)
    if unusual and not review.asked:  # of which each finding says so
        yield Text(f"{unusual}.", "dim")
    if suppressed and review.suppressed:
        yield Text("Suppressed:", "dim")
        for finding in review.suppressed:
            yield indented(suppressed_line(review, finding))
    if verbose and review.reviewed:
        yield Text("Reviewed:", "dim")
        yield from map(indented, map(visible, review.reviewed))
    yield from _not_reviewed(review, verbose, indented)
    if review.unused_suppressions:
        yield Text("Unused suppressions:", "yellow")
        shown = [
            f"{where(review, u.path, Span(u.line, u.line))}  {unused(u)}" for u in review.unused_suppressions
        ]
        most = len(shown) if verbose else _LISTED
        for line in shown[:most]:
            yield indented(line)
        if len(shown) > most:
            yield indented(f"and {len(shown) - most:,} more ({_listed_with(review)})")


def _listed_with(review: Review) -> str:
    return f"listed with {option('-v', review.in_hook)}"


def _named(review: Review, finding: Finding) -> str:
    return named(finding, where(review, finding.path, finding.span))


def _not_reviewed(
    review: Review, verbose: bool, indented: Callable[[str], Padding]
) -> Iterator[RenderableType]:
    """One line for all of them, or a list: on demand, and where nothing else was reviewed."""
    if not review.not_reviewed:
        return
    short = not verbose and review.files_reviewed > 0
    by_reason: defaultdict[str, list[str]] = defaultdict(list)
    for item in review.not_reviewed:
        by_reason[item.reason.partition(":")[0] if short else item.reason].append(item.path)
    reasons = [  # a notebook can come once per cell
        (one_line(reason), list(dict.fromkeys(paths)))
        for reason, paths in sorted(by_reason.items(), key=lambda pair: -len(pair[1]))
    ]
    if short:
        number = len({item.path for item in review.not_reviewed})
        most = (
            _REASONS if len(reasons) > _REASONS + 1 else len(reasons)
        )  # one more takes no more room than its count
        parts = [
            f"{reason}: {len(paths):,}" if len(reasons) > 1 else reason for reason, paths in reasons[:most]
        ]
        if len(reasons) > most:
            others = len({path for _, paths in reasons[most:] for path in paths})
            parts.append(f"other reasons: {others:,}")
        yield Text(
            f"{count(number, 'file')} not reviewed ({_listed_with(review)}): {'; '.join(parts)}.", "dim"
        )
        return
    yield Text("Not reviewed:", "dim")
    for reason, paths in reasons:
        most = len(paths) if verbose else _LISTED
        names = ", ".join(visible(path) for path in paths[:most])
        rest = f" and {len(paths) - most:,} more ({_listed_with(review)})" if len(paths) > most else ""
        yield indented(f"{count(len(paths), 'file')}: {reason}: {names}{rest}")
    if any(reason.endswith("(`skip`)") for reason, _ in reasons):
        yield indented(f"{option('--all-paths', review.in_hook)} reviews those that `skip` leaves out")
