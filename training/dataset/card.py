"""The card of a dataset: what is in it, where it is from, and what it cannot show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from training.dataset.build import BuildResult
from training.dataset.rows import Sample
from training.dataset.split import SPLITS

_WORDS = {
    "mutated": "real code with a slow form put in; the rule sees it there and did not before",
    "organic": "real code in which a rule sees a problem as it stands (the label is the rule's own)",
    "guarded": "a look-alike put in: the slow call behind a guard or a loop, or the switch in its good position",
    "corrected": "the answer to a mutation, or to an example: much the same lines, without the problem",
    "original": "real code with the words of a rule, and no finding: silence, which is no answer to a judge's question",
    "judged": "a comment of a rule on real code, with the verdict of a reader: would a maintainer act on it?",
    "example": "examples of the rules",
    "pair": "benchmarks of the rules, executed: equal, and measured faster",
}


def card(built: BuildResult, info: dict[str, Any], command: str, day: str) -> str:
    """The card as Markdown."""
    everything = [sample for split in SPLITS for sample in built.splits[split]]
    parts = [
        "---\nlicense: other\ntask_categories: [text-generation]\ntags: [pytorch, performance, code-review]\n---\n",
        "# PyTorch performance review: training data\n",
        f"Made on {day} by `{command}`. Content hash `{info['hash']}`; the same seed, pins and measurements give the same bytes.\n",
        ("Each sample is a whole function or small class. `rows/` holds one instruction row a sample; `judge/`, `advise/` and "
        "`explain/` hold the same knowledge as the model is asked for it; `samples/` holds all that is known.\n"),
        ("Labels of mutated code are true by construction and agreed to by the rule. All other labels are those of the rules: "
        "what the rules get wrong, this data gets wrong. A score on its test split says how well the rules are imitated on "
        "projects that were not seen, not how well real problems are found.\n"),
        _table("Splits (no project is in two)", ("split", "samples", "with a problem", "projects", "pieces of code"), (
            (split, len(s), sum(bool(x.positives) for x in s), len({x.project for x in s}), len({x.group for x in s}))
            for split, s in built.splits.items()
        )),
        _table("Kinds", ("kind", *SPLITS, "what it is"), (
            (kind, *row, _WORDS.get(kind, "")) for kind, row in _by_split(built, lambda s: s.kind).items()
        )),
        _table("Difficulty", ("difficulty", *SPLITS), ((k, *row) for k, row in _by_split(built, lambda s: s.difficulty).items())),
        _table("Sources", ("source", *SPLITS), ((k, *row) for k, row in _by_split(built, lambda s: s.source).items())),
        _table("Licences", ("licence", *SPLITS), ((k, *row) for k, row in _by_split(built, lambda s: s.licence).items())),
        _table("Rules", ("rule", "with the problem", "without it", "executed"), _rules(everything)),
        _table("Left out", ("reason", "pieces of code"), sorted(built.dropped.items())),
        _table("Pairs that were run", ("rule", "equal", "faster", "kept or why not"), (
            (name, o.equal, f"{o.factor:.2f}" if o.executed else "", o.skipped or ("kept" if o.keep else "not kept"))
            for name, o in built.outcomes.items()
        )),
        _table("Packages", ("package", "licence", "SHA-256 of the wheel", "split"), (
            (p.provenance, p.licence, f"`{p.sha256}`", _split_of(built, p.name)) for p in built.used
        )),
    ]  # fmt: skip
    if built.refused:
        parts.append(_table("Packages left out", ("package", "why"), sorted(built.refused.items())))
    return "\n".join(parts)


def _by_split(built: BuildResult, key: Callable[[Sample], str]) -> dict[str, tuple[int, ...]]:
    counts = {split: Counter(map(key, built.splits[split])) for split in SPLITS}
    return {k: tuple(counts[s][k] for s in SPLITS) for k in sorted(set().union(*counts.values()))}


def _rules(samples: Iterable[Sample]) -> list[tuple[object, ...]]:
    yes, no, executed = Counter[str](), Counter[str](), Counter[str]()
    for sample in samples:
        about = any(p.rule == sample.main_rule for p in sample.positives)
        (yes if about else no)[sample.main_rule] += 1
        executed[sample.main_rule] += sample.executed
    return [(rule, yes[rule], no[rule], executed[rule]) for rule in sorted(yes.keys() | no.keys())]


def _split_of(built: BuildResult, project: str) -> str:
    return next((split for split in SPLITS if any(s.project == project for s in built.splits[split])), "none")


def _table(title: str, head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    heads = list(head)
    lines = [f"## {title}\n", f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    lines += [f"| {' | '.join(str(cell).replace('|', '/') for cell in row)} |" for row in rows]
    return "\n".join(lines) + "\n"
