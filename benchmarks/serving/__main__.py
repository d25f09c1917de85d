"""How much of a model server's capacity the client can use, as ratios from one run.

    python -m benchmarks.serving [--regions N] [--marks N] [--rounds N] [--concurrency N] [--only judge|advise]
                                 [--tokens-per-s N] [--step-ms MS] [--slots N] [--budget N]
    python -m benchmarks.serving --server URL --model NAME

Without --server the server is simulated in a process of its own: its HTTP is real, and its engine batches continuously, with
the latency of a GPU that reads --tokens-per-s and takes --step-ms for each step; these are assumptions, not measured.

In turn, on questions of the same size that no cache knows: `bare`, the capacity, is what a client gets that sends requests made
beforehand and reads no answer; `ptopt` is a review with all that belongs to it, from regions to verdicts. Both keep --concurrency
requests under way. The ratio of their requests a second is paired by round, and its median printed; where the cores are shared
with others, look at the CPU time of a request too: it bounds what one process can ask for.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import httpx

from benchmarks.serving import bare, work
from benchmarks.serving import server as simulated
from ptopt import __version__
from ptopt.model import prompt
from ptopt.model.advisor import Advisor
from ptopt.model.backends.open import OpenModel, open_model
from ptopt.model.region import ADVISE_TOKENS, JUDGE_TOKENS, Region, fit


@dataclass(frozen=True, slots=True)
class Round:
    """Seconds by the clock and of this process's CPU, for so many requests."""

    requests: int
    wall: float
    cpu: float

    @property
    def rate(self) -> float:
        return self.requests / self.wall


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.serving", description=__doc__, parents=[simulated.options()],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--regions", type=int, default=200)
    parser.add_argument("--marks", type=int, default=5, help="of a region")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--only", choices=("judge", "advise"))
    parser.add_argument("--server", metavar="URL", help="a real one, such as vLLM")
    parser.add_argument("--model", help="the name that it serves")
    given = parser.parse_args()
    if (given.server is None) != (given.model is None):
        parser.error("--server and --model go together")
    print(
        f"ptopt {__version__}, Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores, "
        f"load {os.getloadavg()[0]:.1f}, {time.strftime('%Y-%m-%d')}"
    )
    model = given.model or simulated.MODEL
    with _server(given) as url, _opened(url, model, given.concurrency) as opened:
        for kind in ("judge", "advise"):
            if kind == (given.only or kind):
                _compare(kind, url, model, opened, given)


def _compare(kind: str, url: str, model: str, opened: OpenModel, given: argparse.Namespace) -> None:
    rounds: list[tuple[Round, Round]] = []
    most = 0
    for number in range(given.rounds + 1):
        seeds = (2 * number, 2 * number + 1)
        order = seeds if number % 2 else seeds[::-1]
        made = {seed: work.regions(given.regions, given.marks, seed) for seed in order}
        both: dict[str, Round] = {}
        for name, seed in zip(("bare", "ptopt") if number % 2 else ("ptopt", "bare"), order, strict=True):
            both[name] = (
                _bare(kind, url, model, made[seed], given.concurrency)
                if name == "bare"
                else _ours(kind, opened, made[seed])
            )
            if name == "ptopt" and given.server is None:
                most = max(most, int(httpx.get(f"{url}/stats").json()["most"]))
            elif given.server is None:
                httpx.get(f"{url}/stats")
        if number:  # the first warms up
            rounds.append((both["bare"], both["ptopt"]))
    capacity = statistics.median(b.rate for b, _ in rounds)
    ratios = sorted(ours.rate / b.rate for b, ours in rounds)
    cpu = {name: statistics.median(r.cpu / r.requests for r in some) * 1e3
           for name, some in zip(("bare", "ptopt"), zip(*rounds, strict=True), strict=True)}  # fmt: skip
    print(
        f"{kind}: capacity {capacity:,.0f} requests/s; ptopt reaches {statistics.median(ratios):.3f} of it "
        f"({ratios[0]:.3f} to {ratios[-1]:.3f} in {len(ratios)} rounds of {rounds[0][1].requests} requests), "
        f"CPU of a request {cpu['ptopt']:.2f} ms (bare {cpu['bare']:.2f} ms)"
        + (f", at most {most} under way" if most else "")
    )


def _ours(kind: str, opened: OpenModel, regions: list[Region]) -> Round:
    """A review's questions, by an advisor as `ptopt review` has it."""
    advisor: Advisor = opened.advisor(600.0)
    wall, cpu = time.perf_counter(), time.process_time()
    answers = sum(map(len, advisor.judge(regions))) if kind == "judge" else len(advisor.advise(regions))
    return Round(answers, time.perf_counter() - wall, time.process_time() - cpu)


def _bare(kind: str, url: str, model: str, regions: list[Region], concurrency: int) -> Round:
    bodies: list[dict[str, Any]]
    if kind == "judge":
        path = "/v1/completions"
        prompts = [one for region in regions for one in prompt.judge(fit(region, JUDGE_TOKENS))]
        bodies = [
            {
                "model": model,
                "prompt": list(accumulate(one.pieces)),
                "max_tokens": 1,
                "temperature": 0,
                "logprobs": 20,
            }
            for one in prompts
        ]
    else:
        path = "/v1/chat/completions"
        bodies = [_chat(model, fit(region, ADVISE_TOKENS)) for region in regions]
    made = bare.requests(url, path, bodies)
    wall, cpu = time.perf_counter(), time.process_time()
    bare.send(url, made, concurrency)
    answers = sum(len(body.get("prompt", "1")) for body in bodies)
    return Round(answers, time.perf_counter() - wall, time.process_time() - cpu)


def _chat(model: str, region: Region) -> dict[str, Any]:
    one = prompt.advise(region)
    messages = [{"role": "system", "content": one.system}, {"role": "user", "content": one.user}]
    schema = {"name": "answer", "schema": one.schema, "strict": True}
    return {
        "model": model, "messages": messages, "max_tokens": one.max_tokens, "temperature": 0,
        "response_format": {"type": "json_schema", "json_schema": schema},
    }  # fmt: skip


@contextmanager
def _opened(url: str, model: str, concurrency: int) -> Iterator[OpenModel]:
    opened = open_model(model, server=url, concurrency=concurrency, timeout=600.0)
    with closing(opened.backend):
        yield opened


@contextmanager
def _server(given: argparse.Namespace) -> Iterator[str]:
    """The address of the one that is named, or of a simulated one."""
    if given.server is not None:
        yield given.server
        return
    names = ("tokens_per_s", "step_ms", "slots", "budget")
    options = [f"--{name.replace('_', '-')}={getattr(given, name)}" for name in names]
    command = [sys.executable, "-m", "benchmarks.serving.server", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.kill()


if __name__ == "__main__":
    main()
