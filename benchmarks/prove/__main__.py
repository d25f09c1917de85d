"""How many right rewrites are proved, and whether a wrong one is.

    python -m benchmarks.prove

Judges two sets of `rewrites.py` as `ptopt prove` does, on this machine: it needs the extra `prove`, and an idle machine for
its times, as a fix whose gain drowns in noise is not proved. Prints the result of each that is not judged as it should be.
"""

from __future__ import annotations

import argparse
import platform
import time

from benchmarks.prove.rewrites import GOOD, WRONG, Rewrite
from ptopt.findings import Proof
from ptopt.impact.machine import processor
from ptopt.prove.extract import compared
from ptopt.prove.reasons import Reason, RefusedError
from ptopt.prove.session import Session


def judged(session: Session, rewrite: Rewrite) -> Proof | RefusedError:
    """The proof of a rewrite, or why there is none."""
    try:
        return session.judge(compared(rewrite.source(rewrite.before), rewrite.source(rewrite.after)))
    except RefusedError as error:
        return error


def main() -> None:
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    print(f"{processor()}, Python {platform.python_version()}, {time.strftime('%Y-%m-%d')}")
    with Session() as session:
        right = [(rewrite, judged(session, rewrite)) for rewrite in GOOD]
        wrong = [(rewrite, judged(session, rewrite)) for rewrite in WRONG]
    proved = sum(isinstance(answer, Proof) for _, answer in right)
    noticed = sum(_is_different(answer) for _, answer in wrong)
    print(f"right: {proved} of {len(right)} are proved")
    print(f"wrong: {noticed} of {len(wrong)} are refused as different")
    for rewrite, answer in right:
        if isinstance(answer, RefusedError):
            print(f"right, not proved: {_line(rewrite)}: {answer}")
    for rewrite, answer in wrong:
        if not _is_different(answer):
            print(f"wrong ({rewrite.kind}), not noticed: {_line(rewrite)}: {answer}")


def _is_different(answer: Proof | RefusedError) -> bool:
    return isinstance(answer, RefusedError) and answer.reason is Reason.DIFFERENT


def _line(rewrite: Rewrite) -> str:
    return rewrite.after.replace("\n", "; ")


if __name__ == "__main__":
    main()
