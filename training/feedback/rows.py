"""Feedback on our comments, as rows that `training.recipes.kto` trains on.

The service keeps no code. The file that a comment was about is read from a clone, at the commit that was reviewed; our own
rules find the finding again by its fingerprint, and the question is the one that a reviewer asks the judge about it. What
cannot be found again is counted, never guessed.

Votes can be bought, or cast by mistake: each person counts once for a rule in a pull request, and `most_per_person`
times for a rule in all; and an organisation, with all of its repositories, on twenty comments of a rule.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from ptopt.config import OWN_FILE, PROJECT_FILE, ConfigError, load_config
from ptopt.findings import Finding
from ptopt.model import prompt
from ptopt.model.backends.encoding import YES
from ptopt.model.region import JUDGE_TOKENS, Candidate, fit, regions_of
from ptopt.pathkind import PYTHON
from ptopt.project.facts import FACT_FILES, ProjectFacts, read_facts
from ptopt.proposals import Fixes, propose
from ptopt.rules import known_names, rules
from ptopt.rules.engine import Prefilter, run
from ptopt.source.file import SourceFile
from ptopt.syntax import ParseError
from training.feedback import MOST_PER_ORGANISATION
from training.feedback.evaluations import evaluations
from training.sources.base import SourceError
from training.sources.git import Clone, clone_of

if TYPE_CHECKING:
    from sqlalchemy import Row

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,99}/(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,100}")
_SHA = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_MAX_FILE = 5_000_000  # bytes; what a review reads
_MAX_FACTS = 1_000_000

NO_CLONE = "there is no clone of the repository"
PRIVATE = "the repository is private, and not named"
NO_REPOSITORY = "the name of the repository or of the commit is none"
NO_COMMIT = "the reviewed commit is not in the clone (force-pushed, or not fetched)"
NO_RULE = "the rule is no more"
BY_MODEL = "a model found it, and no rule finds it again"
NOT_FOUND = "the rule does not find it any more"
OPTED_OUT = "the base branch in the clone does not say `learn = true`"
MEASURED = "an evaluation set holds it"
NO_ROOM = "its lines are not what a judge is shown (a notebook, or too long)"
DRAW = "as many people for it as against it"
CAPPED = "these people, or this account, had their votes on the rule"
DISAGREED = "people disagree about the same code"
FEW_PEOPLE = "too few people say so of the rule"


class OfComment(Protocol):
    """Speaks of a comment: a row with `rule` and `fingerprint`."""

    @property
    def comment(self) -> Row[Any]: ...


Commented = TypeVar("Commented", bound=OfComment)
Made = TypeVar("Made")


@dataclass(slots=True)
class FeedbackRows:
    """`rows` as kto.py reads them, and how many comments were left out, by reason."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class LabelledComment:
    """A comment with a clear vote: votes by person (True: good), and the kind of signal that they are."""

    comment: Row[Any]
    votes: Mapping[str, bool]
    by: str

    @property
    def repository(self) -> str:
        return str(self.comment.full_name)


def build_rows(
    database_url: str,
    clones: Path,
    *,
    private: Collection[str] = (),
    judge_tokens: int = JUDGE_TOKENS,
    most_per_person: int = 1,
    least_people: int = 1,
) -> FeedbackRows:
    """The rows, in the order of the comments. Raises SourceError where the database or git cannot be read.

    `clones` holds clones as OWNER/NAME, OWNER+NAME or OWNER+NAME/repo, bare ones with or without ".git". `private` names
    the private repositories whose code may be trained on. `judge_tokens` is how much code the adapter judges from. With
    `least_people`, a label counts where so many different people gave it to the rule.
    """
    result = FeedbackRows()
    by_head: defaultdict[tuple[str, str], list[LabelledComment]] = defaultdict(list)
    for one in _labelled(database_url):
        reason = _refused(one.comment, private)
        if reason:
            result.left_out[reason] += 1
        else:
            by_head[one.repository, str(one.comment.head_sha)].append(one)
    found: list[tuple[LabelledComment, str]] = []
    for repository in dict.fromkeys(name for name, _ in by_head):
        heads = {sha: several for (name, sha), several in by_head.items() if name == repository}
        found += replayed(repository, heads, clones, Questions(judge_tokens), result.left_out)
    found.sort(key=lambda one: int(one[0].comment.id))
    counted = list(_counted(found, most_per_person, result.left_out))
    result.rows = list(_rows(counted, least_people, judge_tokens, result.left_out))
    return result


def _labelled(database_url: str) -> Iterator[LabelledComment]:
    from training.sources.feedback import comments, votes

    with closing(comments(database_url)) as pages:
        for page in pages:
            for comment, signals in page:
                counted = votes(signals)
                if counted is not None:
                    yield LabelledComment(comment, *counted)


def _refused(comment: Row[Any], private: Collection[str]) -> str:
    if not _NAME.fullmatch(comment.full_name) or not _SHA.fullmatch(comment.head_sha):
        return NO_REPOSITORY
    if comment.private and comment.full_name not in private:
        return PRIVATE
    if comment.origin != "rule":
        return BY_MODEL
    if evaluations().holds(comment.full_name, comment.head_sha, comment.features or {}):
        return MEASURED
    return ""


# -- replaying the rules --------------------------------------------------------------------------------


def replayed(
    repository: str,
    heads: Mapping[str, Sequence[Commented]],
    clones: Path,
    make: Callable[[SourceFile, Finding], Made | None],
    left_out: Counter[str],
) -> list[tuple[Commented, Made]]:
    """The comments of one repository, by head, that can be replayed, each with what `make` makes of its finding."""
    total = sum(map(len, heads.values()))
    place = clone_of(repository, clones)
    if place is None:
        left_out[NO_CLONE] += total
        return []
    found: list[tuple[Commented, Made]] = []
    missed: Counter[str] = Counter()
    try:
        with Clone(place, _MAX_FILE) as clone:
            if not opted_in(clone):
                left_out[OPTED_OUT] += total
                return []
            replay = _Replay(clone, make)
            for sha, several in heads.items():
                wanted = {(str(one.comment.rule), str(one.comment.fingerprint)) for one in several}
                known = replay.found(sha, wanted)
                for one in several:
                    made = NO_COMMIT if known is None else known[one.comment.rule, one.comment.fingerprint]
                    if isinstance(made, _Found):
                        found.append((one, made.made))
                    else:
                        missed[made] += 1
    except SourceError as error:
        left_out[f"the clone cannot be read: {error}"] += total
        return []
    left_out.update(missed)
    return found


def opted_in(clone: Clone) -> bool:
    """Does the base branch, the one that is checked out in the clone, let its feedback be learned from?"""
    files = {name: data for name in (OWN_FILE, PROJECT_FILE) if (data := clone.blob(f"HEAD:{name}"))}
    try:
        return load_config(files, known_names()).opted_in
    except ConfigError:
        return False


@dataclass(frozen=True, slots=True)
class _Found(Generic[Made]):
    made: Made


class _Replay(Generic[Made]):
    """Runs rules over the files of commits; a file that is the same in two of them is read once."""

    def __init__(self, clone: Clone, make: Callable[[SourceFile, Finding], Made | None]) -> None:
        self._clone = clone
        self._make = make
        self._rules = {rule.id: rule for rule in rules()}
        self._known: dict[tuple[str, str, str, str], dict[str, _Found[Made] | str]] = {}

    def found(
        self, commit: str, wanted: Collection[tuple[str, str]]
    ) -> dict[tuple[str, str], _Found[Made] | str] | None:
        """For each rule and fingerprint what was made, or why nothing was; None where there is no such commit."""
        files = self._clone.files(commit)
        if files is None:
            return None
        found: dict[tuple[str, str], _Found[Made] | str] = {
            key: NOT_FOUND if key[0] in self._rules else NO_RULE for key in wanted
        }
        facts, facts_key = self._facts(dict(files))
        for path, blob in files:
            missing = sorted({rule for (rule, _), text in found.items() if text == NOT_FOUND})
            if not missing:
                break
            if not path.endswith(PYTHON):
                continue
            unread = [rule for rule in missing if (path, blob, rule, facts_key) not in self._known]
            if unread:
                by_fingerprint = self._made_in(path, blob, unread, facts)
                self._known.update({(path, blob, rule, facts_key): by_fingerprint[rule] for rule in unread})
            for rule in missing:
                for fingerprint, made in self._known[path, blob, rule, facts_key].items():
                    if (rule, fingerprint) in found:
                        found[rule, fingerprint] = made
        return found

    def _facts(self, files: Mapping[str, str]) -> tuple[ProjectFacts, str]:
        """The library versions at this commit, and a key that identifies them."""
        present = {name: files[name] for name in FACT_FILES if name in files}
        contents = {name: self._clone.blob(blob) for name, blob in present.items()}
        facts = read_facts({n: data for n, data in contents.items() if data and len(data) <= _MAX_FACTS})
        return facts, " ".join(present.values())

    def _made_in(
        self, path: str, blob: str, wanted: Sequence[str], facts: ProjectFacts
    ) -> dict[str, dict[str, _Found[Made] | str]]:
        """By rule, what is made of each of its findings in the file, by fingerprint."""
        result: dict[str, dict[str, _Found[Made] | str]] = {rule: {} for rule in wanted}
        data = self._clone.blob(blob)
        likely = Prefilter([self._rules[rule] for rule in wanted])(data) if data else []
        if not likely or data is None:
            return result
        try:
            source = SourceFile.parse(path, data, facts)
        except ParseError:
            return result
        hits = run(source, likely, [])
        for proposed in propose(source, hits, None, 0.0, Fixes(source, hits)):
            finding = proposed.finding
            made = self._make(source, finding) if source.numbered_as_on_disk else None
            result[finding.rule][finding.fingerprint] = NO_ROOM if made is None else _Found(made)
        return result


@dataclass(frozen=True, slots=True)
class Questions:
    """The prompt of `Advisor.judge` for a finding that is the only one in its function; None where it cannot be shown."""

    judge_tokens: int

    def __call__(self, source: SourceFile, finding: Finding) -> str | None:
        lines = tuple(finding.span.lines())
        asked = [Candidate(finding.name, lines)]
        whole = next((r for r in regions_of(source, None, asked) if r.candidates), None)
        shown = fit(whole, self.judge_tokens) if whole is not None else None
        if shown is None or not {line.number for line in shown.lines}.intersection(lines):
            return None
        return "".join(prompt.judge(shown)[0].pieces)


# -- votes ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Counted:
    one: LabelledComment
    text: str
    good: int
    bad: int
    people: frozenset[str]  # of the side that won

    @property
    def label(self) -> bool:
        return self.good > self.bad


def _counted(
    found: Sequence[tuple[LabelledComment, str]], most_per_person: int, left_out: Counter[str]
) -> Iterator[_Counted]:
    """Comments with the votes left after the limits per person and per organisation."""
    spent: Counter[tuple[str, str]] = Counter()
    of_organisation: Counter[tuple[int, str]] = Counter()
    cast: set[tuple[str, str, str, int]] = set()
    for one, text in found:
        rule, pull = str(one.comment.rule), int(one.comment.pull)
        organisation = int(one.comment.installation_id)
        if of_organisation[organisation, rule] >= MOST_PER_ORGANISATION:
            left_out[CAPPED] += 1
            continue
        counted = {}
        for actor, vote in one.votes.items():
            person = _person(actor, one)
            if spent[person, rule] < most_per_person and (person, rule, one.repository, pull) not in cast:
                counted[person] = (actor or one.repository, vote)
        good = sum(vote for _, vote in counted.values())
        bad = len(counted) - good
        if good == bad:
            left_out[DRAW if counted else CAPPED] += 1
            continue
        of_organisation[organisation, rule] += 1
        for person in counted:
            spent[person, rule] += 1
            cast.add((person, rule, one.repository, pull))
        winners = frozenset(who for who, vote in counted.values() if vote == (good > bad))
        yield _Counted(one, text, good, bad, winners)


def _person(actor: str, one: LabelledComment) -> str:
    """The voter. Who pushed is unknown: a merge counts once for its pull request, other pushes once for the repository."""
    if actor:
        return actor
    return f"{one.repository}#{one.comment.pull}" if one.by == "merged" else one.repository


def _rows(
    counted: Sequence[_Counted], least_people: int, judge_tokens: int, left_out: Counter[str]
) -> Iterator[dict[str, Any]]:
    """One row for each text on which all agree, with a label that enough people gave to the rule."""
    labels: defaultdict[str, set[bool]] = defaultdict(set)
    people: defaultdict[tuple[str, bool], set[str]] = defaultdict(set)
    for item in counted:
        labels[item.text].add(item.label)
        people[item.one.comment.rule, item.label] |= item.people
    written: set[str] = set()
    for item in counted:
        comment = item.one.comment
        if len(labels[item.text]) > 1:
            left_out[DISAGREED] += 1
        elif len(people[comment.rule, item.label]) < least_people:
            left_out[FEW_PEOPLE] += 1
        elif item.text not in written:
            written.add(item.text)
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
