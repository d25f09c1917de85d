"""Baselines that a model has to beat: a linear model over tokens, and the prior of each rule."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline

from ptopt.model.region import JUDGE_TOKENS, Region, fit
from training.evaluation.judges import LabelledRegion

_TOKEN = re.compile(r"[A-Za-z_]\w*|\d+(?:\.\d+)?|\S")
_FEATURES = 2**21
_CERTAIN = 20.0  # log-odds of a judge that saw one label only


class Prior:
    """The share of true findings of each rule in training, whatever the code."""

    def __init__(self, labelled: Sequence[LabelledRegion]) -> None:
        total = Counter(rule for a in labelled for rule in a.rules)
        right = Counter(rule for a in labelled for rule in a.rules if a.truth[rule])
        self._log_odds = {
            rule: math.log((right[rule] + 1) / (n - right[rule] + 1)) for rule, n in total.items()
        }

    def judge(self, regions: Sequence[Region]) -> list[Mapping[str, float]]:
        return [{c.rule: self._log_odds.get(c.rule, 0.0) for c in region.candidates} for region in regions]


class TokenClassifier:
    """TF-IDF of one to three tokens, alone and together with the rule, and a logistic regression.

    It reads the lines and the facts that a model would be shown, cut to `tokens`.
    """

    def __init__(
        self, labelled: Sequence[LabelledRegion], *, tokens: int = JUDGE_TOKENS, strength: float = 10.0
    ) -> None:
        self._tokens = tokens
        questions = [(words, rule) for a in labelled for words in [self._words(a.region)] for rule in a.rules]
        truth = np.array([a.truth[rule] for a in labelled for rule in a.rules], bool)
        self._model: Pipeline | None = None
        self._constant = _CERTAIN if truth.any() else -_CERTAIN
        if truth.any() and not truth.all():
            self._model = make_pipeline(
                HashingVectorizer(
                    analyzer=_features,
                    n_features=_FEATURES,
                    norm=None,
                    alternate_sign=False,
                    dtype=np.float32,
                ),
                TfidfTransformer(sublinear_tf=True),
                LogisticRegression(C=strength, solver="liblinear"),
            )
            self._model.fit(questions, truth)

    def judge(self, regions: Sequence[Region]) -> list[Mapping[str, float]]:
        questions = [(words, c.rule) for r in regions for words in [self._words(r)] for c in r.candidates]
        if not questions:
            return [{} for _ in regions]
        if self._model is None:
            scores = iter([self._constant] * len(questions))
        else:
            scores = iter(self._model.decision_function(questions).tolist())
        return [{c.rule: next(scores) for c in region.candidates} for region in regions]

    def _words(self, region: Region) -> frozenset[str]:
        shown = fit(region, self._tokens)
        tokens = _TOKEN.findall("\n".join([*(line.text for line in shown.lines), *_kinds_of_facts(shown)]))
        grams = [" ".join(tokens[i : i + n]) for n in (1, 2, 3) for i in range(len(tokens) - n + 1)]
        return frozenset(grams)


def _kinds_of_facts(region: Region) -> list[str]:
    """The facts without their line numbers."""
    return [re.sub(r"[\d,\s…-]+", " ", fact) for fact in region.facts]


def _features(question: tuple[frozenset[str], str]) -> list[str]:
    words, rule = question
    return [rule, *words, *(f"{rule}\0{word}" for word in words)]
