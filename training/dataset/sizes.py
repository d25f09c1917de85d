"""How long the prompts of a dataset are, part by part, and how much of them a server with a prefix cache reads only once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

from ptopt.model import prompt
from ptopt.model.region import ADVISE_TOKENS, JUDGE_TOKENS, Region, estimate, fit, render, render_around
from training.dataset.files import samples
from training.dataset.split import SPLITS
from training.dataset.views import judge_regions

Count = Callable[[str], int]
PARTS = ("around", "code", "facts, task and questions")


def sizes(folder: Path, count: Count = estimate) -> list[str]:
    """Lines of a table: tokens of each part of a prompt, mean and 95th percentile, of the judge and of the advise view.

    `shared` are tokens at the start of a prompt that the prompt before it, of the same file or another, begins with too.
    """
    regions = [r for split in SPLITS for s in samples(folder, split) for r in judge_regions(s)]
    regions.sort(key=lambda r: (r.path, r.start))
    lines = [f"{len(regions):,} regions", f"{'view':8} {'part':28} {'mean':>6} {'95 %':>6}"]
    for view, limit in (("judge", JUDGE_TOKENS), ("advise", ADVISE_TOKENS)):
        table: defaultdict[str, list[int]] = defaultdict(list)
        before = ""
        for region in regions:
            for name, tokens, text in _parts(view, fit(region, limit), count):
                table[name].append(tokens)
                if name == "all":
                    table["shared with the prompt before"].append(count(_common(before, text)))
                    before = text
        for name, tokens_of in table.items():
            ordered = sorted(tokens_of)
            mean, high = sum(ordered) / len(ordered), ordered[int(0.95 * (len(ordered) - 1))]
            lines.append(f"{view:8} {name:28} {mean:>6.0f} {high:>6}")
        whole, shared = sum(table["all"]), sum(table["shared with the prompt before"])
        lines.append(f"{view:8} {'left to read with a cache':28} {(whole - shared) / len(regions):>6.0f}")
    return lines


def _parts(view: str, region: Region, count: Count) -> Iterator[tuple[str, int, str]]:
    around, code = render_around(region.around), render(region)
    if view == "judge":
        text = "".join(prompt.judge(region)[0].pieces) if region.candidates else ""
    else:
        chat = prompt.advise(region)
        text = f"{chat.system}\n{chat.user}"
    yield PARTS[0], count(around), around
    yield PARTS[1], count(code), code
    yield PARTS[2], count(text) - count(around) - count(code), ""
    yield "all", count(text), text


def _common(a: str, b: str) -> str:
    at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    return b[:at]
