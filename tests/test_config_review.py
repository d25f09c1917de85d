"""Configurations go through the review like Python: findings, suppressions, baselines, changes, hostile input."""

from __future__ import annotations

import dataclasses
import random

from ptopt.change import ChangedFile, parse_diff, whole_file
from ptopt.config import Config, load_config
from ptopt.config_proposals import UNUSED, propose_config, seen_in, verified
from ptopt.configs.file import ConfigFile, load
from ptopt.configs.values import Refused
from ptopt.findings import NotReviewed, Review
from ptopt.project.facts import NO_FACTS
from ptopt.project.naming import Naming
from ptopt.review import review_change, review_files
from ptopt.rules import config_rules, find_rule, known_names, rules
from ptopt.rules.configs import ConfigRule
from ptopt.rules.examples import config_path, plain
from ptopt.suppress import Suppressions

SETTINGS = (
    b'{\n  "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": false}},\n'
    b'  "memory_breakdown": true\n}\n'
)
TRAINING = "per_device_train_batch_size: 8\ndataloader_num_workers: 0\ndataloader_pin_memory: false\n"


def review(files: dict[str, str | bytes], config: Config | None = None) -> Review:
    given = [whole_file(path, t if isinstance(t, bytes) else t.encode()) for path, t in files.items()]
    return review_files(given, config=config or Config(), facts=NO_FACTS, limit_to_change=False)


def names(found: Review) -> list[tuple[str, int]]:
    return sorted((finding.name, finding.span.start) for finding in found.findings)


def test_each_setting_is_a_comment_of_its_own() -> None:
    found = review({"ds_config.json": SETTINGS})
    assert names(found) == [("debugging-left-on", 3), ("pinning-off", 2)]
    assert found.files_reviewed == 1 and not found.not_reviewed
    assert found.sources is not None and found.sources["ds_config.json"] == SETTINGS.decode()
    assert all(finding.fix is not None and not finding.features for finding in found.findings)


def test_files_of_other_purposes_are_no_part_of_the_review() -> None:
    found = review({"other_config.json": '{"a": 1}', "a.yaml": "a: 1", "train.py": "x = 1\n"})
    assert found.files_reviewed == 1 and not found.not_reviewed


def test_a_file_that_nothing_names_gets_no_comment() -> None:
    def shown(script: bytes, least: float | None = None) -> int:
        facts = dataclasses.replace(NO_FACTS, naming=Naming({"train.sh": script}, whole=True))
        given = [whole_file("conf/ds_config.json", SETTINGS)]
        config = Config().model_copy(update={"min_confidence": least})
        return len(review_files(given, config=config, facts=facts, limit_to_change=False).findings)

    assert shown(b"--deepspeed conf/ds_config.json") == 2
    assert shown(b"--deepspeed conf/other.json") == 0
    assert shown(b"--deepspeed conf/other.json", UNUSED) == 2


def test_what_the_use_of_a_file_does_to_the_confidence_is_said() -> None:
    def reasons(script: bytes) -> set[str]:
        facts = dataclasses.replace(NO_FACTS, naming=Naming({"train.sh": script}, whole=True))
        config = Config().model_copy(update={"min_confidence": 0.0})
        given = [whole_file("conf/ds_config.json", SETTINGS)]
        found = review_files(given, config=config, facts=facts, limit_to_change=False).findings
        return {f"{name} {'+' if weight > 0 else '-'}" for f in found for name, weight in f.reasons}

    assert reasons(b"--deepspeed conf/ds_config.json") == {"a file of the repository uses it +"}
    assert reasons(b"--deepspeed conf/other.json") == {"nothing in the repository uses the file -"}


def test_the_files_of_a_change_name_one_another() -> None:
    facts = dataclasses.replace(NO_FACTS, naming=Naming({"README.md": b"# a"}, whole=True))
    files = [
        whole_file("conf/ds_config.json", SETTINGS),
        whole_file("train.py", b'CONFIG = "conf/ds_config.json"\n'),
    ]
    assert not review_files(files[:1], config=Config(), facts=facts, limit_to_change=True).findings
    assert len(review_files(files, config=Config(), facts=facts, limit_to_change=True).findings) == 2


def test_comments_silence() -> None:
    text = TRAINING.replace("dataloader_num", "# ptopt: ignore[loader-workers-off] small\n\ndataloader_num")
    text = text.replace("pin_memory: false", "pin_memory: false  # ptopt: ignore")
    found = review({"train.yaml": text})
    assert not found.findings and not found.unused_suppressions
    assert {finding.name for finding in found.suppressed} == {"loader-workers-off", "pinning-off"}
    unused = review({"train.yaml": "# ptopt: ignore[config]\n" + TRAINING.replace(": 0", ": 4")})
    assert [(u.line, u.codes) for u in unused.unused_suppressions] == [(1, ("config",))]


def test_a_comment_for_the_whole_file() -> None:
    assert not review({"Dockerfile": "# ptopt: ignore-file\nFROM a\nRUN pip install torch\n"}).findings


def test_settings_of_the_repository_hold() -> None:
    files = {".ptopt.toml": b'per-path-ignores = {"*.json" = ["debugging-left-on"]}\nignore = ["PTO012"]'}
    assert not review({"ds_config.json": SETTINGS}, load_config(files, known_names())).findings


def test_the_baseline_lists_old_ones() -> None:
    first = review({"ds_config.json": SETTINGS})
    old = frozenset(finding.fingerprint for finding in first.findings)
    given = [whole_file("ds_config.json", SETTINGS)]
    found = review_files(given, config=Config(), facts=NO_FACTS, limit_to_change=False, baseline=old)
    assert not found.findings and len(found.in_baseline) == 2


def test_only_what_the_change_wrote() -> None:
    old = TRAINING.replace("pin_memory: false", "pin_memory: true").split("\n")
    diff = "--- a/t.yaml\n+++ b/t.yaml\n@@ -1,3 +1,3 @@\n " + "\n ".join(old[:2])
    diff += f"\n-{old[2]}\n+dataloader_pin_memory: false\n"
    change = parse_diff(diff.encode(), {"t.yaml": TRAINING.encode()}.get)
    found = review_change(change, config=Config(), facts=NO_FACTS)
    assert names(found) == [("pinning-off", 3)]


def test_a_fix_that_leaves_its_hunk_cannot_be_posted() -> None:
    text = plain(next(case.code for case in find_rule("PTO071").INVALID if case.fixed))  # type: ignore[union-attr]
    line = next(n for n, code in enumerate(text.split("\n"), 1) if "pip install" in code)
    whole = whole_file(".github/workflows/ci.yml", text.encode())
    hunks = tuple(h.__class__(line, 1) for h in whole.hunks)
    file = ChangedFile(whole.path, None, whole.status, hunks, frozenset({line}), whole.head)
    read = load(file.path, text.encode())
    assert isinstance(read, ConfigFile)
    (proposal,), _ = propose_config(
        read, seen_in(read, config_rules()), file, 0.0, Suppressions(), least=0.43
    )
    assert proposal.finding.fix is not None and not proposal.finding.fix.postable


def test_what_is_surely_ours_is_named_when_it_cannot_be_read() -> None:
    given = [
        NotReviewed("Dockerfile", "binary"),
        NotReviewed("data.json", "binary"),
        NotReviewed("x.yaml", "gone"),
    ]
    found = review_files(given, config=Config(), facts=NO_FACTS, limit_to_change=True)
    assert [item.path for item in found.not_reviewed] == ["Dockerfile"]
    template = review({"pod.yaml": "apiVersion: v1\nkind: Pod\nx: {{ .Values.a }}\n"})
    assert [str(item.reason) for item in template.not_reviewed] == ["a template: its values are not known"]


def test_a_rule_that_crashes_is_named_and_the_others_go_on() -> None:
    class Broken(ConfigRule):
        id = "T1"
        kinds = frozenset({"deepspeed"})

        def check_config(self, file):  # type: ignore[no-untyped-def]
            raise KeyError("x")

    read = load("ds_config.json", SETTINGS)
    assert isinstance(read, ConfigFile)
    failed: list[tuple[ConfigRule, Exception]] = []
    assert len(seen_in(read, [Broken(), *config_rules()], failed)) == 2 and len(failed) == 1


def test_rules_about_python_and_configurations_are_apart() -> None:
    assert not any(isinstance(rule, ConfigRule) for rule in rules())
    assert config_rules() and {rule.family for rule in config_rules()} == {
        "config",
        "container",
        "cluster",
        "workflow",
    }


def test_1000_mutated_files_crash_nothing() -> None:
    chance = random.Random(11)
    examples = [
        (config_path(code), plain(code).encode())
        for rule in config_rules()
        for code in (*rule.VALID, *(case.code for case in rule.INVALID))
    ]
    parts = [
        b"\t",
        b":",
        b"{",
        b"[",
        b"&a ",
        b"*a",
        b"\n",
        b"- ",
        b"<<: *a",
        b"'",
        b'"',
        b"\xff",
        b"#",
        b"|\n",
        b"? ",
        b"\\\n",
    ]
    parts += [
        b" null",
        b"~",
        b"9" * 30,
        b"{{ x }}",
        b"!!binary ",
        b"\r\n",
        b"\xe2\x80\xa8",
        b"<<EOF\n",
        b"FROM x\n",
        b"---\n",
    ]
    read = 0
    for _ in range(1000):
        path, text = chance.choice(examples)
        data = bytearray(text)
        for _ in range(chance.randint(1, 5)):
            at = chance.randrange(len(data) + 1)
            draw = chance.random()
            if draw < 0.5:
                data[at:at] = chance.choice(parts)
            elif draw < 0.8:
                del data[at : at + chance.randint(1, 12)]
            else:
                data[at:at] = chance.choice(examples)[1][: chance.randint(1, 200)]
        file = load(path, bytes(data))
        assert file is None or isinstance(file, (ConfigFile, Refused))
        if isinstance(file, ConfigFile):
            read += 1
            for rule, problem in seen_in(file, config_rules()):  # which raises what a rule raises
                span = file.span(problem.start, problem.end)
                assert 1 <= span.start <= span.end <= len(file.lines)
                verified(file, rule, problem, 1)
    assert read > 200
