"""The table of `waits.py` for people, beside what the static analysis says of the same code today.

python -m benchmarks.gpu.waits_table        # writes it again after a change of the analysis; needs no GPU
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.gpu.wait_cases import Case, stated

RESULTS = Path(__file__).parent / "results"

SLEEP_MS = 25.0  # of the kernel that is queued before each expression


def markdown(rows: list[dict[str, Any]], where: str) -> str:
    """The table for people; where the analysis and the GPU differ comes first."""
    decided = [
        {**row, "stated": stated(Case(row["code"], row["given"]))} for row in rows if row["waits"] is not None
    ]
    differ = [row for row in decided if row["waits"] != row["stated"]]
    missed = sum(row["waits"] for row in differ)
    lines = [
        "# What waits for the GPU",
        "",
        (
            f"`python -m benchmarks.gpu --only waits`, {where}. {len(decided)} expressions behind a kernel of "
            f"{SLEEP_MS:.0f} ms; {sum(row['waits'] for row in decided)} waited. The static analysis differs on {len(differ)}: "
            f"it missed {missed} waits and saw {len(differ) - missed} that were none."
        ),
        "",
        "| expression | host ms | waits | the analysis |",
        "|---|--:|---|---|",
    ]
    for row in sorted(decided, key=lambda row: row["waits"] == row["stated"]):
        given = f" (`{_one_line(row['given'])}`)" if row["given"] else ""
        said = (
            "the same"
            if row["waits"] == row["stated"]
            else "**waits**"
            if row["stated"]
            else "**does not wait**"
        )
        lines.append(
            f"| `{_one_line(row['code'])}`{given} | {row['host_ms']:.2f} | {'yes' if row['waits'] else 'no'} | {said} |"
        )
    failed = [row for row in rows if row["waits"] is None]
    lines += ["", *(f"- not measured: `{_one_line(row['code'])}`: {row['error']}" for row in failed)]
    return "\n".join(lines).rstrip() + "\n"


def _one_line(code: str) -> str:
    return "; ".join(code.splitlines()).replace("|", "\\|")


def of_results() -> str:
    """The table of the results that stand in the repository."""
    found = json.loads((RESULTS / "waits.json").read_text("utf-8"))
    return markdown(found["rows"], found["where"])


if __name__ == "__main__":
    (RESULTS / "waits.md").write_text(of_results(), encoding="utf-8")
