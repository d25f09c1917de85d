"""The table of `waits.py` for people."""

from __future__ import annotations

from typing import Any

SLEEP_MS = 25.0  # of the kernel that is queued before each expression


def markdown(rows: list[dict[str, Any]], where: str) -> str:
    """The table for people; where the analysis and the GPU differ comes first."""
    decided = [row for row in rows if row["waits"] is not None]
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
