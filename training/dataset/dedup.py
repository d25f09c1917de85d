"""Near-duplicates and contamination: token shingles, MinHash, n-grams."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from datasketch import MinHash, MinHashLSH

NEAR = 0.8
CONTAMINATED = 0.5
GRAM = 13
_PERMUTATIONS = 64
_SCHEME = "affine32"
_SHINGLE = 5
_TOKEN = re.compile(r"[A-Za-z_]\w*|\d+|[^\s\w]")
_TEXT_KEYS = ("text", "code", "head", "before", "after", "input", "diff", "patch", "content")


def tokens(code: str) -> list[str]:
    """The words, numbers and signs of code; comments on lines of their own left out."""
    return _TOKEN.findall("\n".join(line for line in code.split("\n") if not line.lstrip().startswith("#")))


def signature(code: str) -> MinHash:
    """MinHash over shingles of five tokens; texts of fewer are one shingle."""
    words = tokens(code)
    shingles = {" ".join(words[i : i + _SHINGLE]).encode() for i in range(max(1, len(words) - _SHINGLE + 1))}
    minhash = MinHash(num_perm=_PERMUTATIONS, seed=1, scheme=_SCHEME)
    minhash.update_batch(sorted(shingles))
    return minhash


def pack(minhash: MinHash) -> list[int]:
    return [int(v) for v in minhash.hashvalues]


def unpack(values: Sequence[int]) -> MinHash:
    return MinHash(
        num_perm=_PERMUTATIONS, seed=1, scheme=_SCHEME, hashvalues=np.array(values, dtype=np.uint64)
    )


class NearDuplicates:
    """An index of the texts taken so far, which refuses near-duplicates."""

    def __init__(self, threshold: float = NEAR) -> None:
        self._threshold = threshold
        self._index = MinHashLSH(threshold=threshold, num_perm=_PERMUTATIONS)
        self._kept: dict[str, MinHash] = {}

    def contains(self, minhash: MinHash) -> bool:
        return any(self._kept[key].jaccard(minhash) >= self._threshold for key in self._index.query(minhash))

    def add(self, key: str, minhash: MinHash) -> bool:
        """Take the text unless it is near one that was taken. Returns whether it was taken."""
        if key in self._kept or self.contains(minhash):
            return False
        self._index.insert(key, minhash)
        self._kept[key] = minhash
        return True


class Evaluation:
    """Texts that must not be trained on: a common n-gram of 13 tokens, or half the shingles, is contamination."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._grams: set[bytes] = set()
        self._seen = NearDuplicates(CONTAMINATED)
        for number, text in enumerate(texts):
            self._grams |= grams(text)
            for part, chunk in enumerate(_chunks(text)):
                self._seen.add(f"{number}.{part}", signature(chunk))

    def __bool__(self) -> bool:
        return bool(self._grams)

    def contaminates(self, code: str) -> bool:
        return not self._grams.isdisjoint(grams(code)) or self._seen.contains(signature(code))


def grams(code: str) -> set[bytes]:
    """Hashes of the runs of 13 tokens that hold at least five different words."""
    words = tokens(code)
    found = set()
    for i in range(len(words) - GRAM + 1):
        run = words[i : i + GRAM]
        if len({w for w in run if w[0].isalpha()}) >= 5:
            found.add(hashlib.blake2b(" ".join(run).encode(), digest_size=8).digest())
    return found


def _chunks(text: str, lines: int = 40) -> Iterator[str]:
    split = text.split("\n")
    for start in range(0, max(1, len(split)), lines // 2):
        yield "\n".join(split[start : start + lines])


def evaluation_texts(places: Sequence[Path]) -> Iterator[str]:
    """The code in files and folders of evaluation cases: Python, diffs, and the text fields of JSON lines.

    Raises `FileNotFoundError` for a place that does not exist.
    """
    for place in places:
        if not place.exists():
            raise FileNotFoundError(f"{place}: no such file or folder to decontaminate against")
        files = sorted(place.rglob("*")) if place.is_dir() else [place]
        for file in files:
            if file.suffix == ".jsonl":
                yield from _of_json_lines(file.read_text(encoding="utf-8", errors="replace"))
            elif file.suffix in (".py", ".diff", ".patch", ".txt") and file.is_file():
                text = file.read_text(encoding="utf-8", errors="replace")
                yield re.sub(r"^[+ -]", "", text, flags=re.M) if file.suffix in (".diff", ".patch") else text


def _of_json_lines(text: str) -> Iterator[str]:
    for line in text.splitlines():
        case = json.loads(line) if line.strip() else {}
        yield from (case[key] for key in _TEXT_KEYS if isinstance(case.get(key), str))
