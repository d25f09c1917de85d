"""What people said of our comments, as rows that `training.recipes.kto` learns from.

The service keeps no code. The file that a comment was about is read from a clone, at the commit that was reviewed; our own
rules find the finding again by its fingerprint, and the question is the one that a reviewer asks the judge about it. What
cannot be found again is counted, never guessed.

Votes can be bought, or cast by mistake: each person counts once for a rule in a pull request, and `most_per_person`
times for a rule in all.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ptopt.model import prompt
from ptopt.model.backends.encoding import YES
from ptopt.model.region import JUDGE_TOKENS, Candidate, fit, regions_of
from ptopt.project.facts import FACT_FILES, ProjectFacts, read_facts
from ptopt.proposals import propose
from ptopt.rules import rules
from ptopt.rules.engine import Prefilter, run
from ptopt.source.file import SourceFile
from ptopt.syntax import ParseError
from training.sources.base import SourceError
from training.sources.git import Clone

if TYPE_CHECKING:
    from sqlalchemy import Row

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,99}/(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,100}")
_SHA = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_SUFFIXES = (".py", ".ipynb")
_MAX_FILE = 5_000_000  # bytes; what a review reads
_MAX_FACTS = 1_000_000

NO_CLONE = "there is no clone of the repository"
PRIVATE = "the repository is private, and not named"
NO_REPOSITORY = "the name of the repository or of the commit is none"
NO_COMMIT = "the reviewed commit is not in the clone (force-pushed, or not fetched)"
NO_RULE = "the rule is no more"
BY_MODEL = "a model found it, and no rule finds it again"
NOT_FOUND = "the rule does not find it any more"
NO_ROOM = "its lines are not what a judge is shown (a notebook, or too long)"
_WHY_NOT = (NO_COMMIT, NO_RULE, NOT_FOUND, NO_ROOM)
DRAW = "as many people for it as against it"
CAPPED = "these people had their votes on the rule"
DISAGREED = "people disagree about the same code"
FEW_PEOPLE = "too few people say so of the rule"


@dataclass(slots=True)
class Made:
    """`rows` as kto.py reads them, and how many comments were left out, by reason."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Labelled:
    """A comment that people said something clear about: votes by person, and how they said it."""

    comment: Row[Any]
    votes: Mapping[str, bool]
    by: str

    @property
    def repository(self) -> str:
        return str(self.comment.full_name)


def make(
    database_url: str,
    clones: Path,
    *,
    private: Collection[str] = (),
    judge_tokens: int = JUDGE_TOKENS,
    most_per_person: int = 1,
    least_people: int = 1,
) -> Made:
    """The rows, in the order of the comments. Raises SourceError where the database or git cannot be read.

    `clones` holds clones as OWNER/NAME, OWNER+NAME or OWNER+NAME/repo, bare ones with or without ".git". `private` names
    the private repositories whose code may be learned from. `judge_tokens` is how much code the adapter judges from. With
    `least_people`, a label counts where so many different people gave it to the rule.
    """
    made = Made()
    by_head: defaultdict[tuple[str, str], list[Labelled]] = defaultdict(list)
    for one in _labelled(database_url):
        reason = _refused(one.comment, private)
        if reason:
            made.left_out[reason] += 1
        else:
            by_head[one.repository, str(one.comment.head_sha)].append(one)
    found: list[tuple[Labelled, str]] = []
    for repository in dict.fromkeys(name for name, _ in by_head):
        heads = {sha: several for (name, sha), several in by_head.items() if name == repository}
        found += _rebuilt(repository, heads, clones, judge_tokens, made.left_out)
    found.sort(key=lambda one: int(one[0].comment.id))
    counted = list(_counted(found, most_per_person, made.left_out))
    made.rows = list(_rows(counted, least_people, judge_tokens, made.left_out))
    return made


def _labelled(database_url: str) -> Iterator[Labelled]:
    from training.sources.feedback import comments, votes

    with closing(comments(database_url)) as pages:
        for page in pages:
            for comment, signals in page:
                said = votes(signals)
                if said is not None:
                    yield Labelled(comment, *said)


def _refused(comment: Row[Any], private: Collection[str]) -> str:
    if not _NAME.fullmatch(comment.full_name) or not _SHA.fullmatch(comment.head_sha):
        return NO_REPOSITORY
    if comment.private and comment.full_name not in private:
        return PRIVATE
    if comment.origin != "rule":
        return BY_MODEL
    return ""


# -- the finding, found again --------------------------------------------------------------------------------


def _rebuilt(
    repository: str,
    heads: Mapping[str, Sequence[Labelled]],
    clones: Path,
    judge_tokens: int,
    left_out: Counter[str],
) -> list[tuple[Labelled, str]]:
    """Comments of one repository, by commit, each with the text that ends in the question about it."""
    total = sum(map(len, heads.values()))
    place = _clone_of(repository, clones)
    if place is None:
        left_out[NO_CLONE] += total
        return []
    found: list[tuple[Labelled, str]] = []
    missed: Counter[str] = Counter()
    try:
        with Clone(place, _MAX_FILE) as clone:
            again = _Again(clone, judge_tokens)
            for sha, several in heads.items():
                wanted = {(str(one.comment.rule), str(one.comment.fingerprint)) for one in several}
                known = again.questions(sha, wanted)
                for one in several:
                    text = NO_COMMIT if known is None else known[one.comment.rule, one.comment.fingerprint]
                    if text in _WHY_NOT:
                        missed[text] += 1
                    else:
                        found.append((one, text))
    except SourceError as error:
        left_out[f"the clone cannot be read: {error}"] += total
        return []
    left_out.update(missed)
    return found


def _clone_of(repository: str, clones: Path) -> Path | None:
    owner, _, name = repository.partition("/")
    joined = f"{owner}+{name}"
    names = (repository, f"{repository}.git", f"{joined}/repo", f"{joined}/repo.git", joined, f"{joined}.git")
    # Only a folder that is a repository itself: git would go on in those above it.
    return next(
        (at for n in names if ((at := clones / n) / ".git").exists() or (at / "HEAD").is_file()), None
    )


class _Again:
    """Runs rules over the files of commits; a file that is the same in two of them is read once."""

    def __init__(self, clone: Clone, judge_tokens: int) -> None:
        self._clone = clone
        self._judge_tokens = judge_tokens
        self._rules = {rule.id: rule for rule in rules()}
        self._known: dict[tuple[str, str, str, str], dict[str, str]] = {}

    def questions(
        self, commit: str, wanted: Collection[tuple[str, str]]
    ) -> dict[tuple[str, str], str] | None:
        """For each rule and fingerprint the question, or why there is none; None where there is no such commit."""
        files = self._clone.files(commit)
        if files is None:
            return None
        found = {key: NOT_FOUND if key[0] in self._rules else NO_RULE for key in wanted}
        facts, facts_key = self._facts(dict(files))
        for path, blob in files:
            missing = sorted({rule for (rule, _), text in found.items() if text == NOT_FOUND})
            if not missing:
                break
            if not path.endswith(_SUFFIXES):
                continue
            unread = [rule for rule in missing if (path, blob, rule, facts_key) not in self._known]
            if unread:
                several = self._asked(path, blob, unread, facts)
                self._known.update({(path, blob, rule, facts_key): several[rule] for rule in unread})
            for rule in missing:
                for mark, text in self._known[path, blob, rule, facts_key].items():
                    if (rule, mark) in found:
                        found[rule, mark] = text
        return found

    def _facts(self, files: Mapping[str, str]) -> tuple[ProjectFacts, str]:
        """The library versions at this commit, and what tells one such set from another."""
        present = {name: files[name] for name in FACT_FILES if name in files}
        contents = {name: self._clone.blob(blob) for name, blob in present.items()}
        facts = read_facts({n: data for n, data in contents.items() if data and len(data) <= _MAX_FACTS})
        return facts, " ".join(present.values())

    def _asked(
        self, path: str, blob: str, wanted: Sequence[str], facts: ProjectFacts
    ) -> dict[str, dict[str, str]]:
        """By rule, the question about each of its findings in the file, by fingerprint."""
        asked: dict[str, dict[str, str]] = {rule: {} for rule in wanted}
        data = self._clone.blob(blob)
        likely = Prefilter([self._rules[rule] for rule in wanted])(data) if data else []
        if not likely or data is None:
            return asked
        try:
            source = SourceFile.parse(path, data, facts)
        except ParseError:
            return asked
        hits = run(source, likely, [])
        for proposed in propose(source, hits, None, 0.0):
            finding = proposed.finding
            lines = tuple(finding.span.lines())
            asked[finding.rule][finding.fingerprint] = self._question(source, finding.name, lines)
        return asked

    def _question(self, source: SourceFile, rule: str, lines: tuple[int, ...]) -> str:
        """As `Advisor.judge` puts it about a finding that is the only one of its function."""
        if not source.numbered_as_on_disk:
            return NO_ROOM
        whole = next((r for r in regions_of(source, None, [Candidate(rule, lines)]) if r.candidates), None)
        shown = fit(whole, self._judge_tokens) if whole is not None else None
        if shown is None or not {line.number for line in shown.lines}.intersection(lines):
            return NO_ROOM
        return "".join(prompt.judge(shown)[0].pieces)


# -- votes ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Counted:
    one: Labelled
    text: str
    good: int
    bad: int
    people: frozenset[str]  # of the side that won

    @property
    def label(self) -> bool:
        return self.good > self.bad


def _counted(
    found: Sequence[tuple[Labelled, str]], most_per_person: int, left_out: Counter[str]
) -> Iterator[_Counted]:
    """Comments with the votes that people still had."""
    spent: Counter[tuple[str, str]] = Counter()
    cast: set[tuple[str, str, str, int]] = set()
    for one, text in found:
        rule, pull = str(one.comment.rule), int(one.comment.pull)
        heard = {}
        for actor, said in one.votes.items():
            person = _person(actor, one)
            if spent[person, rule] < most_per_person and (person, rule, one.repository, pull) not in cast:
                heard[person] = (actor or one.repository, said)
        good = sum(said for _, said in heard.values())
        bad = len(heard) - good
        if good == bad:
            left_out[DRAW if heard else CAPPED] += 1
            continue
        for person in heard:
            spent[person, rule] += 1
            cast.add((person, rule, one.repository, pull))
        winners = frozenset(who for who, said in heard.values() if said == (good > bad))
        yield _Counted(one, text, good, bad, winners)


def _person(actor: str, one: Labelled) -> str:
    """Who pushed is not known. What was merged, somebody with the right to do so has merged; anybody may push the rest."""
    if actor:
        return actor
    return f"{one.repository}#{one.comment.pull}" if one.by == "merged" else one.repository


def _rows(
    counted: Sequence[_Counted], least_people: int, judge_tokens: int, left_out: Counter[str]
) -> Iterator[dict[str, Any]]:
    """One row for each text, where all agree on it and enough people stand behind the label."""
    labels: defaultdict[str, set[bool]] = defaultdict(set)
    people: defaultdict[tuple[str, bool], set[str]] = defaultdict(set)
    for item in counted:
        labels[item.text].add(item.label)
        people[item.one.comment.rule, item.label] |= item.people
    told: set[str] = set()
    for item in counted:
        comment = item.one.comment
        if len(labels[item.text]) > 1:
            left_out[DISAGREED] += 1
        elif len(people[comment.rule, item.label]) < least_people:
            left_out[FEW_PEOPLE] += 1
        elif item.text not in told:
            told.add(item.text)
            yield {
                "prompt": item.text,
                "completion": YES,
                "label": item.label,
                "metadata": {
                    "rule": comment.rule,
                    "by": item.one.by,
                    "votes": [item.good, item.bad],
                    "adapter": "" if comment.model_note else comment.adapter,
                    "repository": hashlib.sha256(item.one.repository.encode()).hexdigest()[:16],
                    "prompt_version": prompt.PROMPT_VERSION,
                    "judge_tokens": judge_tokens,
                },
            }
