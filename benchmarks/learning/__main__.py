"""How well votes teach: simulated people vote on judged comments of real commits.

python -m benchmarks.learning [replay] [--seeds N]   addressed, lost, drift, attackers, against the bars
python -m benchmarks.learning prior                  fit the strengths of the prior
python -m benchmarks.learning accepted [--seed N]    accepted suggestions: how many are found
"""

from __future__ import annotations

import sys

from benchmarks.learning import accepted, prior, replay

COMMANDS = {"accepted": accepted.main, "prior": prior.main, "replay": replay.main}


def main() -> int:
    name, rest = (
        (sys.argv[1], sys.argv[2:]) if sys.argv[1:2] and sys.argv[1] in COMMANDS else ("replay", sys.argv[1:])
    )
    return COMMANDS[name](rest)


if __name__ == "__main__":
    sys.exit(main())
