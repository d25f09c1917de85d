"""The report: one folder with report.md for people, report.json for programs, and plots."""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from training.evaluation.cases import Pool
from training.evaluation.combine import LEVELS, Operating
from training.evaluation.metrics import Interval, share
from training.evaluation.plots import draw
from training.evaluation.study import BASE, RECALLS, RULES, TUNED, WORDS, Study, plain_values
from training.evaluation.synthetic import AdviceCounts

_LABELLER = (
    "The rules themselves are not in this table: the labels are theirs (or put in and agreed to by them), so they would score "
    "about 1 by definition. This table says how well the rules are imitated on projects that were not seen. "
    "It says nothing about how well real problems are found; the next part does."
)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the numbers are from."""

    command: str
    day: str
    hashes: Mapping[str, str]
    sizes: Mapping[str, Any]


def machine() -> dict[str, str]:
    """What the numbers were measured on."""
    import sklearn

    found = {
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "cpus": str(os.cpu_count()),
        "scikit-learn": str(sklearn.__version__),
    }
    try:
        import torch
    except ImportError:
        return found
    found["torch"] = str(torch.__version__)
    if torch.cuda.is_available():
        found["gpu"] = str(torch.cuda.get_device_name())
    return found


def write(folder: Path, study: Study, origin: Origin, decision: str) -> None:
    """Write the report into `folder`, which is made where it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    values = {"origin": asdict(origin), "machine": machine(), "decision": decision, **plain_values(study)}
    (folder / "report.json").write_text(
        json.dumps(values, indent=1, sort_keys=True, allow_nan=False) + "\n", encoding="utf-8"
    )
    pictures = draw(folder, study)
    (folder / "report.md").write_text(markdown(study, origin, decision, pictures), encoding="utf-8")


def markdown(study: Study, origin: Origin, decision: str, pictures: Iterable[str]) -> str:
    """The report as Markdown."""
    parts = [
        "# Evaluation of the reviewer's model\n",
        f"Made on {origin.day} by `{origin.command}`.\n",
        f"**{decision}**\n",
        _table(("what", "value"), [*origin.hashes.items(), *origin.sizes.items(), *machine().items()]),
        "Intervals are 95 % bootstrap intervals that draw whole projects or repositories; differences are paired.\n",
        _held_out(study),
        _advice(study),
        _cases(study),
        "\n".join(f"![{name.removesuffix('.png').replace('_', ' ')}]({name})" for name in pictures),
    ]
    return "\n".join(part for part in parts if part).rstrip() + "\n"


def _held_out(study: Study) -> str:
    rows = [
        (
            name, j.auc, _n(j.auc_within_rules), _n(j.average_precision),
            *(_n(j.precision_at[recall]) for recall in RECALLS), _n(j.calibration_error),
            ", ".join(f"{kind} {_n(value)}" for kind, value in j.auc_by_kind.items()),
        )
        for name, j in study.judged.items()
    ]  # fmt: skip
    head = (
        "judge", "AUC", "AUC within a rule", "average precision", *(f"precision at recall {r}" for r in RECALLS),
        "calibration error", "AUC by kind of the problem",
    )  # fmt: skip
    gains = [
        (f"{name} over {other}", gain)
        for name, judged in study.judged.items()
        if name in (BASE, TUNED, WORDS)
        for other, gain in judged.over.items()
        if (name, other) not in ((BASE, TUNED), (WORDS, TUNED), (WORDS, BASE))
    ]
    return (
        f"## Judge, held-out projects of the dataset\n\n{study.questions:,} questions on {study.projects} projects, "
        f"{study.right:,} with the answer yes.\n\n{_table(head, rows)}\n{_table(('gain in AUC', 'with interval'), gains)}\n{_LABELLER}\n"
    )


def _advice(study: Study) -> str:
    if not study.advised:
        return ""
    rows = [(name, *_of_advice(a)) for name, a in study.advised.items()]
    head = (
        "model", "answers", "valid in the schema", "findings", "precision (rule and line)", "recall (rule and line)",
        "only delete what is needed", "silent where clean", "hold (apply, parse, change only their lines)", "then the rule is silent", "then the known fix",
    )  # fmt: skip
    text = f"## Findings of the model's own, held-out projects\n\n{_table(head, rows)}\n"
    for name, a in study.advised.items():
        text += (
            f"{name}: {a.executable} of these samples can be run (benchmarks of the rules); {a.executed} were, "
            f"{a.equal} gave the same, {a.faster} were faster. Code of packages is never run.\n"
        )
        by_rule = [
            (rule, c.get("wanted", 0), c.get("said", 0), c.get("right", 0)) for rule, c in a.by_rule.items()
        ]
        text += f"\n{_table((f'rule ({name})', 'problems', 'findings', 'right'), by_rule)}\n"
    return text


def _of_advice(a: AdviceCounts) -> tuple[object, ...]:
    return (
        a.answers, _n(share(a.valid, a.answers)), a.said, _n(share(a.right, a.said)), _n(share(a.right, a.wanted)),
        a.deleting, f"{a.silent_where_clean} of {a.clean}", f"{a.holds} of {a.said}", a.resolved, a.known_fix,
    )  # fmt: skip


def _cases(study: Study) -> str:
    if study.rules is None:
        return ""
    pool = study.pool
    bands = [(band, *counts) for band, counts in pool["by_confidence"].items()]
    text = (
        f"## Real commits\n\nWith every rule on and no threshold the rules have {pool['remarks']} remarks to make on "
        f"{sum(pool['commits'].values())} cases: {pool['right']} say what the label says, {pool['wrong']} stand on commits or files "
        f"that were found clean ({pool['on_clean_commits']} on clean commits), and of {pool['unknown']} nobody can tell, as a labelled problem does not rule "
        f"out others.\n\n{_table(('confidence of the rule', 'right', 'wrong', 'unknown'), bands)}\n"
        f"Room for a judge: {pool['shown_and_wrong']} remarks are shown by default and certainly wrong; "
        f"{pool['right_and_not_shown']} are right and not shown.\n\n"
    )
    rules = study.rules
    rows: list[tuple[object, ...]] = [
        (RULES, "", rules.strict.average_precision, rules.certain.average_precision, "", "", "", "")
    ]
    rows += [
        (
            f"rules + {name}", c.alone, c.strict.average_precision, c.certain.average_precision, _i(c.strict.gain),
            _i(c.certain.gain), c.across, "yes" if c.helps else "no",
        )
        for name, c in study.cases.items()
    ]  # fmt: skip
    head = (
        "ranking", "AUC of the judge alone", "average precision (unknown = wrong)", "average precision (unknown left out)",
        "gain in precision at equal recall (unknown = wrong)", "the same (unknown left out): this decides",
        "the same, fitted on the other repositories", "helps",
    )  # fmt: skip
    text += _table(head, rows) + "\n"
    text += (
        "Equal recall is that of the rules at the default settings. The combination is fitted on held-out projects of the "
        "dataset, never on these commits, except in the column that says so. A judge helps only if the whole interval is above 0 "
        "and the default settings find no fewer problems with it.\n\n"
    )
    levels = [(RULES, *(_n(rules.certain.precision_at[r]) for r in LEVELS))]
    levels += [
        (f"rules + {n}", *(_n(c.certain.precision_at[r]) for r in LEVELS)) for n, c in study.cases.items()
    ]
    text += (
        _table(("precision at recall (unknown left out)", *(f"{level:g}" for level in LEVELS)), levels) + "\n"
    )
    text += _table(
        (
            "at the default settings",
            "comments",
            "right",
            "wrong",
            "problems found",
            "clean commits commented",
        ),
        [
            _at_default(RULES, rules.at_default),
            *(_at_default(f"rules + {n}", c.at_default) for n, c in study.cases.items()),
        ],
    )
    words = [(name, c.words, _n(c.words_within_rules)) for name, c in study.cases.items()]
    text += (
        f"\n### Where no rule spoke\n\nFunctions of the same commits in which the words of a rule stand: {pool['words']} questions with "
        f"a certain answer, {pool['words_right']} of them yes (a rule that fits the label, at its lines). No review asks these today; they show "
        f"whether a judge reads code or knows the rules.\n\n{_table(('judge', 'AUC', 'AUC within a rule'), words)}\n"
    )
    return text


def _at_default(name: str, o: Operating) -> tuple[object, ...]:
    return (
        name, o.comments, o.right, o.wrong, f"{o.found} of {o.wanted}", f"{o.clean_commented} of {o.clean}",
    )  # fmt: skip


def room(pool: Pool) -> str:
    """The remarks that a judge could have removed, in a sentence."""
    wrong = sum(r.shown and r.truth is False for r in pool.remarks)
    return f"of {len(pool.remarks)} remarks on real commits, {wrong} are shown by default and certainly wrong"


def _n(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.3f}"


def _i(value: Interval | None) -> str:
    return "–" if value is None else str(value)


def _table(head: Iterable[object], rows: Iterable[Iterable[object]]) -> str:
    heads = list(head)
    lines = [f"| {' | '.join(map(str, heads))} |", f"|{'---|' * len(heads)}"]
    lines += [f"| {' | '.join(str(cell).replace('|', '/') for cell in row)} |" for row in rows]
    return "\n".join(lines) + "\n"
