from __future__ import annotations

import dataclasses

import pytest

from ptopt.change import whole_file
from ptopt.config import Config
from ptopt.findings import Condition, Evidence, Finding, LeftOut, Review, Severity, Span, fingerprint
from ptopt.profiles.attach import weighed
from ptopt.profiles.profile import Profile
from ptopt.profiles.reading import profile_of
from ptopt.project.facts import NO_FACTS
from ptopt.review import review_files
from tests.profiles.traces import CODE, DATA


@pytest.fixture(scope="module")
def run() -> Profile:
    found = profile_of(DATA / "data.json.gz")
    assert isinstance(found, Profile)
    return found


def finding(name: str, line: int, end: int | None = None, path: str = "train.py") -> Finding:
    return Finding(
        rule="PTO101", name=name, family="sync", severity=Severity.LOW, path=path, span=Span(line, end or line), symbol="",
        message="", when_wrong="", confidence=0.9, fingerprint=fingerprint(name, path, "", str(line)), evidence=(Evidence(1, ""),),
    )  # fmt: skip


def line_of(code: str) -> int:
    return [line.strip() for line in CODE.split("\n")].index(code) + 1


def test_findings_carry_what_their_lines_took_and_come_in_that_order(run: Profile) -> None:
    cheap, costly = finding("a", line_of("return losses")), finding("b", line_of("time.sleep(self.seconds)"))
    review = Review(findings=(cheap,), over_limit=(costly,), files_reviewed=1)
    result = weighed(review, [run], {"train.py": CODE}, 1)
    assert [f.name for f in result.findings] == ["b"] and [f.name for f in result.over_limit] == ["a"]
    measured = result.findings[0].measured
    assert measured is not None
    assert measured.share > 0.8 and not measured.at_most and measured.trace == "data.json.gz"
    assert result.over_limit[0].measured is None
    assert result.sources == {"train.py": CODE}


def test_a_line_has_the_time_of_what_it_calls(run: Profile) -> None:
    loop = line_of("for number, (x, y) in enumerate(loader):")
    (found,) = weighed(Review((finding("a", loop),)), [run], {"train.py": CODE}, None).findings
    assert found.measured is not None and found.measured.share > 0.9


def test_one_of_several_lines_has_at_most_their_time(run: Profile) -> None:
    last = line_of("return self.last(hidden)")
    (found,) = weighed(Review((finding("a", last),)), [run], {"train.py": CODE}, None).findings
    assert found.measured is not None and found.measured.at_most
    first = line_of("hidden = torch.relu(self.first(x))")
    (both,) = weighed(Review((finding("a", first, last),)), [run], {"train.py": CODE}, None).findings
    assert both.measured is not None and not both.measured.at_most


def test_a_loader_without_workers_has_the_share_of_loading(run: Profile) -> None:
    review = review_files(
        [whole_file("train.py", CODE.encode())],
        config=Config().model_copy(update={"min_confidence": 0.0, "skip": ()}), facts=NO_FACTS, limit_to_change=False,
    )  # fmt: skip
    names = [f.name for f in weighed(review, [run], {"train.py": CODE}, None).findings]
    assert "loader-without-workers" in names
    (found,) = weighed(Review((finding("loader-without-workers", 3),)), [run], {}, None).findings
    assert found.measured is not None
    assert found.measured.of == "data loading" and found.measured.share == pytest.approx(
        run.shares["data"], abs=1e-3
    )


def test_what_takes_much_of_the_step_is_a_finding_that_the_ranker_cannot_leave_out(run: Profile) -> None:
    costly = dataclasses.replace(
        finding("costly", line_of("time.sleep(self.seconds)")),
        confidence=0.1,
        missed=(Condition.CONFIDENCE, Condition.RIGHT),
    )
    perhaps = finding("perhaps", line_of("return self.last(hidden)"))
    cheap, known = finding("cheap", line_of("return losses")), finding("known", 3)
    left_out = LeftOut(
        {Condition.CONFIDENCE: 3}, {Condition.CONFIDENCE: 0.5}, 4, 4, also={Condition.RIGHT: 2}
    )
    review = Review((known,), left_out=left_out)
    proposed = [costly, perhaps, cheap, known]
    result = weighed(review, [run], {"train.py": CODE}, None, proposed)
    assert [f.name for f in result.findings] == ["costly", "known"]
    assert result.left_out is not None and result.left_out.places == {Condition.CONFIDENCE: 2}
    assert result.left_out.also == {Condition.RIGHT: 1}
    assert weighed(review, [run], {"train.py": CODE}, None).findings == (known,)


def test_other_files_and_reviews_without_a_run_stay_as_they_are(run: Profile) -> None:
    review = Review(
        (finding("a", 3, path="other.py"), finding("b", 4, path="other.py")), sources={"other.py": "x"}
    )
    assert weighed(review, [], {}, 1) is review
    result = weighed(review, [run], {"train.py": CODE}, None)
    assert result.findings == review.findings


def test_of_several_runs_the_one_in_which_it_took_most_is_named(run: Profile) -> None:
    other = profile_of(DATA / "host.json.gz")
    assert isinstance(other, Profile)
    place = finding("a", line_of("time.sleep(self.seconds)"))
    (found,) = weighed(Review((place,)), [other, run], {"train.py": CODE}, None).findings
    assert found.measured is not None and found.measured.trace == "data.json.gz"
    assert dataclasses.replace(found, measured=None) == place
