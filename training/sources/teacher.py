"""Pairs that a larger model writes, through any OpenAI-compatible endpoint. Our rules decide what is kept.

A prompt is a rule's page. The answer must be JSON of one schema, every part must parse, and the rule must have a finding in the
slow form and none in the fast one or the look-alike; other answers are dropped and counted. What the model writes is never run.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ptopt.rules import rules
from ptopt.rules.base import SURE, Rule
from ptopt.rules.engine import run
from ptopt.rules.examples import PRELUDE, plain
from ptopt.source.file import SourceFile
from ptopt.syntax import ParseError
from training.dataset import licences
from training.sources.base import Block, Cursor, Document, Page, QuotaError, UnusableError, clean
from training.sources.http import HttpClient
from training.sources.throttle import timestamp

_SYSTEM = (
    "You write realistic PyTorch code for a data set about performance. Answer with one JSON object. `slow` is a whole function "
    "of 15 to 60 lines, as in a real project, that has exactly the problem described and no other. `fast` is the same function "
    "with the problem corrected and nothing else changed. `look_alike` is a different function in which the same calls are right, "
    "because the described condition holds or the pattern is not there. No comments about performance, no Markdown."
)
_DOMAINS = (
    "image classification", "object detection", "segmentation", "diffusion models", "language-model fine-tuning", "speech",
    "text classification", "recommendation", "graph networks", "reinforcement learning", "time series", "medical images",
    "video", "point clouds", "contrastive learning", "evaluation and inference scripts",
)  # fmt: skip
_STYLES = (
    "a plain script",
    "a trainer class with methods",
    "a Lightning module",
    "a library function",
    "an Accelerate loop",
)


class Answer(BaseModel):
    """The schema of a teacher's answer."""

    model_config = ConfigDict(extra="forbid")
    slow: str = Field(min_length=40, max_length=8_000)
    fast: str = Field(min_length=40, max_length=8_000)
    look_alike: str = Field(min_length=40, max_length=8_000)


@dataclass(frozen=True, slots=True)
class Price:
    """The price of a million tokens, in any currency, and the most that all pulls may cost together."""

    prompt: float = 0.0
    completion: float = 0.0
    most: float = 0.0


class Teacher:
    """One document per answer that passed. `client` must know the endpoint's host and send the key to it.

    The cursor counts prompts and their cost: the cap holds over all pulls, and each prompt is sent once.
    """

    name = "teacher"

    def __init__(
        self,
        client: HttpClient,
        *,
        base_url: str,
        model: str,
        price: Price = Price(),
        per_rule: int = 20,
        only: Sequence[str] = (),
        max_tokens: int = 4_000,
        licence: str = "",
        opted_in: Collection[str] = (),
        seed: int = 0,
    ) -> None:
        self._client = client
        self._url = f"{base_url.rstrip('/')}/chat/completions"
        self._model = model
        self._price = price
        self._per_rule = per_rule
        self._rules = [r for r in rules() if r.default and (not only or r.name in only or r.id in only)]
        self._max_tokens = max_tokens
        slug = "".join(c if c.isalnum() or c in ".-" else "-" for c in model)
        self._licence = licence or f"LicenseRef-output-of-{slug}"
        self._train = licences.gate(self._licence, opted_in).train
        self._seed = seed

    def pull(self, cursor: Cursor | None, limit: int) -> Iterator[Page]:
        at: dict[str, Any] = dict(cursor or {"prompt": 0, "cost": 0.0})
        total = self._per_rule * len(self._rules)
        number = 0
        while at["prompt"] < total and number < limit:
            rule = self._rules[at["prompt"] % len(self._rules)]  # every rule once, then every rule again
            messages = self._messages(rule, at["prompt"])
            self._check_price(messages, at["cost"])
            reply = self._client.post_json(self._url, self._request(messages, at["prompt"]))
            at["prompt"] += 1
            try:
                value = reply.json()
                at["cost"] += self._cost(value)
                answer = _answer(value)
                found: tuple[Document, ...] = (self._document(rule, answer, at["prompt"]),)
                notes: tuple[str, ...] = ()
            except UnusableError as error:
                found, notes = (), (f"{rule.name}: {error}",)
            number += len(found)
            yield Page(found, dict(at), notes)

    def _check_price(self, messages: list[dict[str, str]], so_far: float) -> None:
        """Raises QuotaError where the longest possible next answer would exceed the cap."""
        prompt = sum(len(m["content"]) for m in messages) / 3 * self._price.prompt / 1e6
        worst = prompt + self._max_tokens * self._price.completion / 1e6
        if worst and so_far + worst > self._price.most:
            raise QuotaError(
                f"{so_far:.4f} of {self._price.most:g} are spent, and an answer may cost {worst:.4f}"
            )

    def _messages(self, rule: Rule, number: int) -> list[dict[str, str]]:
        draw = random.Random(f"{self._seed}:{number}")  # noqa: S311 (variety, not secrecy)
        sections = rule.sections()
        invalid, valid = draw.choice(rule.INVALID), draw.choice(rule.VALID)
        page = [
            f"Problem: {rule.summary()}",
            *(
                f"{title}: {sections[title]}"
                for title in ("What it does", "Why it is slow", "When this is wrong")
            ),
            f"It has the problem:\n{plain(invalid.code)}",
            f"It is corrected:\n{plain(invalid.fixed)}" if invalid.fixed else "",
            f"It does not have the problem:\n{plain(valid)}",
            f"Write {draw.choice(_STYLES)} for {draw.choice(_DOMAINS)}. Use torch, nn, F, DataLoader, np; they are imported.",
        ]
        return [
            {"role": "system", "content": _SYSTEM},
            {"role": "user", "content": "\n\n".join(part for part in page if part)},
        ]

    def _request(self, messages: list[dict[str, str]], number: int) -> dict[str, Any]:
        return {
            "model": self._model,
            "messages": messages,
            "max_tokens": self._max_tokens,
            "temperature": 0.9,
            "seed": self._seed * 1_000_003 + number,
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "pair", "strict": True, "schema": Answer.model_json_schema()},
            },
        }

    def _cost(self, reply: Any) -> float:
        """The cost of an answer, dropped ones too. Without a token count it is the most that an answer can cost."""
        usage = reply.get("usage") if isinstance(reply, dict) else None
        tokens = [
            usage.get(f"{kind}_tokens") if isinstance(usage, dict) else None
            for kind in ("prompt", "completion")
        ]
        prompt, completion = (t if isinstance(t, int) and t >= 0 else self._max_tokens for t in tokens)
        return (prompt * self._price.prompt + completion * self._price.completion) / 1e6

    def _document(self, rule: Rule, answer: Answer, number: int) -> Document:
        slow, fast, other = (
            clean(text).strip("\n") + "\n" for text in (answer.slow, answer.fast, answer.look_alike)
        )
        if slow == fast:
            raise UnusableError("slow and fast are the same")
        for name, code, expected in (
            ("slow", slow, True),
            ("fast", fast, False),
            ("look_alike", other, False),
        ):
            if reports(rule, code) is not expected:
                raise UnusableError(f"the rule {'is silent' if expected else 'speaks'} on `{name}`")
        digest = hashlib.sha256(f"{slow}\0{fast}".encode()).hexdigest()[:16]
        return Document(
            source=self.name,
            id=f"{rule.name}/{digest}",
            url="",
            project=f"teacher-{self._model}",
            text="",
            blocks=(
                Block(slow, "slow", 1, context=PRELUDE, rules=(rule.name,)),
                Block(fast, "fast", 1, context=PRELUDE),
                Block(other, "tuned", context=PRELUDE, rules=(rule.name,)),
            ),
            licence=self._licence,
            train=self._train,
            fetched_at=timestamp(self._client.clock),
            provenance=f"{self._model}:{self._seed}:{number}",
            author=self._model,
            raw={"rule": rule.name},
        )


def _answer(reply: Any) -> Answer:
    try:
        choice = reply["choices"][0]
        content, reason = choice["message"]["content"], choice.get("finish_reason")
    except (AttributeError, KeyError, IndexError, TypeError):
        raise UnusableError("not the answer of a chat completion") from None
    if reason == "length":
        raise UnusableError("the answer was cut off")
    try:
        return Answer.model_validate_json(content)
    except (ValidationError, TypeError):
        raise UnusableError("the answer is not JSON of the form that was asked for") from None


def reports(rule: Rule, code: str) -> bool:
    """Does the rule have a finding in the code, below the usual imports, that a review would show? Raises UnusableError."""
    try:
        file = SourceFile.parse("sample.py", (PRELUDE + code).encode("utf-8"))
    except ParseError as error:
        raise UnusableError(f"code that does not parse ({error})") from None
    failed: list[tuple[Rule, Exception]] = []
    return any(hit.problem.confidence >= SURE for hit in run(file, [rule], failed))
