"""Which projects go into which split, and which of their samples: balanced by label, rule and difficulty."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from training.dataset.dedup import NearDuplicates, signature
from training.dataset.rows import JUDGED, Sample

SPLITS = ("train", "validation", "test")
CONSTRUCTED = frozenset({"guarded", "corrected"})  # kinds of samples whose "no" is true by how they were made
LARGEST_SHARE = 0.06  # a project with more of all samples than this only trains
PER_GROUP = 8  # samples made of one piece of original code, for each label
PER_RULE = 0.05  # largest share of a label that one rule may have


@dataclass(frozen=True, slots=True)
class Sizes:
    """Rows wanted in each split."""

    train: int
    validation: int
    test: int

    def of(self, split: str) -> int:
        return int(getattr(self, split))


def assign(
    weights: Mapping[str, int], sizes: Sizes, seed: int, train_only: frozenset[str] = frozenset()
) -> dict[str, str]:
    """Project -> split. The small splits are given twice their share, for choice; very large projects only train."""
    total = sum(weights.values())
    wanted = {
        s: 2.0 * sizes.of(s) / (sizes.train + sizes.validation + sizes.test) * total for s in SPLITS[1:]
    }
    split_of: dict[str, str] = {}
    for project in sorted(weights, key=lambda p: _order(seed, p)):
        split_of[project] = "train"
        if project in train_only or weights[project] > LARGEST_SHARE * total:
            continue
        neediest = max(wanted, key=lambda s: (wanted[s], s))
        if wanted[neediest] > 0:
            split_of[project] = neediest
            wanted[neediest] -= weights[project]
    return split_of


def select(samples: Iterable[Sample], size: int, seed: int) -> list[Sample]:
    """About `size` samples, half of them with a problem; every rule in turn gives one, until there are enough.

    What people judged comes first, up to half of all, whatever the answer: it is the only data on what is worth a comment.
    """
    judged: list[Sample] = []
    positives: list[Sample] = []
    negatives: list[Sample] = []
    for sample in samples:
        kind = judged if sample.kind == JUDGED else positives if sample.positives else negatives
        kind.append(sample)
    judged = sorted(judged, key=lambda s: _order(seed, s.hash))[: size // 2]
    size -= len(judged)
    chosen = judged + _in_turns(positives, (size + 1) // 2, seed)
    # Two thirds of the code without a problem are such by construction, as far as there is enough of it.
    wanted = size - (len(chosen) - len(judged))
    built = _in_turns([s for s in negatives if s.kind in CONSTRUCTED], 2 * wanted // 3, seed)
    chosen += built
    taken = {s.hash for s in built}
    chosen += _in_turns([s for s in negatives if s.hash not in taken], wanted - len(built), seed)
    return sorted(chosen, key=lambda s: _order(seed, s.hash))


def _in_turns(samples: Sequence[Sample], size: int, seed: int) -> list[Sample]:
    queues: defaultdict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        queues[sample.main_rule].append(sample)
    for rule, queue in queues.items():
        queues[rule] = _mixed(queue, seed)
    limit = max(20, int(PER_RULE * size))
    seen: defaultdict[str, NearDuplicates] = defaultdict(NearDuplicates)
    groups: Counter[str] = Counter()
    kinds: set[tuple[str, str]] = set()
    of_rule: Counter[str] = Counter()
    chosen: list[Sample] = []
    while queues and len(chosen) < size:
        for rule in sorted(queues):
            found = _next(queues[rule], seen[rule], groups, kinds)
            if found is None or of_rule[rule] >= limit:
                del queues[rule]
                continue
            of_rule[rule] += 1
            chosen.append(found)
            if len(chosen) == size:
                break
    return chosen


def _next(
    queue: list[Sample], seen: NearDuplicates, groups: Counter[str], kinds: set[tuple[str, str]]
) -> Sample | None:
    """The next sample of a rule whose piece of code was not used too often, and that is not near one that was taken."""
    while queue:
        sample = queue.pop()
        once = (sample.group, sample.text)
        if groups[sample.group] >= PER_GROUP or once in kinds:
            continue
        if seen.add(sample.hash, signature(sample.text)):
            groups[sample.group] += 1
            kinds.add(once)
            return sample
    return None


def _mixed(samples: list[Sample], seed: int) -> list[Sample]:
    """Easy, medium and hard in turns; plain originals behind look-alikes, which are few and of which more is known.

    The last of the list comes first.
    """
    ranks: Counter[tuple[str, str]] = Counter()
    keys = {}
    for sample in sorted(samples, key=lambda s: _order(seed, s.hash)):
        kind = sample.kind if sample.kind != "organic" else "mutated"
        keys[sample.hash] = (
            kind == "original", ranks[sample.difficulty, kind], _order(seed, sample.hash)
        )  # fmt: skip
        ranks[sample.difficulty, kind] += 1
    return sorted(samples, key=lambda s: keys[s.hash], reverse=True)


def _order(seed: int, key: str) -> bytes:
    return hashlib.sha256(f"{seed}:{key}".encode()).digest()
