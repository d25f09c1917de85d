from __future__ import annotations

import json
from pathlib import Path

from tests.cli.command import findings, run, unwrapped


def test_rules_are_chosen_on_the_command_line(tree: Path) -> None:
    assert [f[0] for f in findings(run("check", tree, "--ignore", "pto101", "--format", "json"))] == [
        "PTO407"
    ]
    assert findings(run("check", tree, "--ignore", "sync,ops", "--format", "json")) == []
    result = run("check", tree, "--ignore", "item-every-stp")
    assert result.exit_code == 2
    assert result.stderr.startswith(
        "ptopt: error: unknown rule 'item-every-stp', did you mean item-every-step"
    )


def test_select_replaces_and_extend_select_adds(tree: Path) -> None:
    def rules(*options: str) -> list[str]:
        return sorted(f[0] for f in findings(run("check", tree, *options, "--format", "json")))

    assert rules("--select", "log-of-softmax") == ["PTO407"]
    assert rules("--select", "sync", "--extend-select", "PTO407") == ["PTO101", "PTO407"]
    assert rules("--extend-select", "log-of-softmax") == ["PTO101", "PTO407"]
    assert rules("--select", "ALL", "--ignore", "sync") == ["PTO407"]
    (tree / ".ptopt.toml").write_text('select = ["sync"]\nignore = ["PTO407"]\n')
    assert rules() == ["PTO101"]
    assert rules("--select", "PTO407") == ["PTO407"]  # over all that the file says of rules
    (tree / ".ptopt.toml").write_text('select = []\nextend-select = ["PTO407"]\n')
    assert rules() == ["PTO407"]


def test_the_configuration_file_is_read_and_can_be_another_one(tree: Path) -> None:
    (tree / ".ptopt.toml").write_text('ignore = ["PTO101"]\n')
    result = run("check", tree, "--format", "json")
    assert [f[0] for f in findings(result)] == ["PTO407"]
    assert json.loads(result.stdout)["config_path"] == ".ptopt.toml"
    other = tree / "other.toml"
    other.write_text('ignore = ["PTO407"]\n')
    assert [f[0] for f in findings(run("check", tree, "--config", other, "--format", "json"))] == ["PTO101"]


def test_a_broken_configuration_is_an_error_per_problem(tree: Path) -> None:
    (tree / ".ptopt.toml").write_text('budgt = 3\nignore = ["PTO100001"]\n')
    result = run("check", tree)
    assert result.exit_code == 2
    lines = result.stderr.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("ptopt: error: .ptopt.toml: ")
    assert "did you mean 'budget'?" in result.stderr


def test_a_rule_that_is_named_by_itself_shows_all_that_it_finds(tree: Path) -> None:
    def rules(*options: str) -> list[str]:
        return sorted(f[0] for f in findings(run("check", tree / "train.py", *options, "--format", "json")))

    assert rules() == ["PTO101"] and "PTO236" in rules("--min-confidence", "0")
    assert rules("--select", "PTO236") == rules("--select", "batch-copy-waits") == ["PTO236"]
    assert rules("--extend-select", "pto236") == ["PTO101", "PTO236"]
    assert rules("--select", "PTO236", "--min-confidence", "0.6") == []  # the user says what is enough
    assert rules("--select", "transfer") == rules("--select", "PTO2") == []
    text = unwrapped(run("check", tree / "train.py", "--select", "PTO236"))
    assert "Not shown by default: confidence" in text and "left out" not in text
    (tree / ".ptopt.toml").write_text('select = ["PTO236"]\n')
    assert rules() == []  # in everybody's reviews it is as sure as the other comments


def test_the_start_of_ids_stands_for_the_rules(tree: Path) -> None:
    def rules(*options: str) -> list[str]:
        return sorted(f[0] for f in findings(run("check", tree, *options, "--format", "json")))

    assert rules("--select", "PTO1") == rules("--select", "pto10") == ["PTO101"]
    assert rules("--ignore", "PTO1") == ["PTO407"]
    assert rules("--select", "PTO") == ["PTO101", "PTO407"]
    assert run("check", tree, "--select", "PTO77777").exit_code == 2
    assert run("check", tree, "--select", "QT").exit_code == 2
    (tree / ".ptopt.toml").write_text('ignore = ["PTO4"]\n')
    assert rules() == ["PTO101"]
    (tree / ".ptopt.toml").write_text('[per-path-ignores]\n"train.py" = ["PTO10"]\n')
    assert rules() == ["PTO407"]
    (tree / ".ptopt.toml").write_text('select = ["pto1"]\n')
    assert "did you mean" in run("check", tree).stderr


def test_what_the_configuration_leaves_out_of_a_file_is_said_where_all_rules_are_selected(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.py").write_text(
        "import torch\n\n\ndef f(x):\n    return torch.log(torch.softmax(x, dim=-1))\n"
    )
    config = tmp_path / ".ptopt.toml"
    config.write_text('[per-path-ignores]\n"a.py" = ["PTO407"]\n')
    shown = run("check", tmp_path, "--config", config, "--select", "ALL").stdout
    assert "No performance findings in 1 file." in shown and "switch rules off in 1 file." in shown
    config.write_text('[per-path-ignores]\n"b.py" = ["PTO407"]\n')
    assert "switch rules off" not in run("check", tmp_path, "--config", config, "--select", "PTO101").stdout


def test_the_file_that_switches_rules_off_is_named_as_it_was_given(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "import torch\n\n\ndef f(x):\n    return torch.log(torch.softmax(x, dim=-1))\n"
    )
    config = tmp_path / "elsewhere.toml"
    config.write_text('[per-path-ignores]\n"a.py" = ["PTO407"]\n')
    shown = "".join(run("check", tmp_path / "a.py", "--config", config).stdout.split())
    assert f"per-path-ignoresof{config}switchrulesoff" in shown
