from __future__ import annotations

import json
from pathlib import Path

import pytest

from ptopt.ranker.model import threshold
from tests.cli.command import run


def test_config_schema_and_check(tmp_path: Path) -> None:
    schema = json.loads(run("config", "schema").stdout)
    assert "min-confidence" in schema["properties"]
    assert run("config", "check", tmp_path).stdout == "No configuration file; the defaults apply\n"
    own = tmp_path / ".ptopt.toml"
    own.write_text("budget = 3\n")
    assert run("config", "check", tmp_path).stdout == ".ptopt.toml: no problems\n"
    own.write_text("budget = -3\n")
    assert run("config", "check", own).exit_code == 2


def test_config_show_prints_what_a_run_would_use(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = run("config", "show", checkout).stdout
    assert shown.startswith("# No configuration file; the defaults apply; ")
    assert "\n# select: the rules that are on by default\n" in shown
    (checkout / ".ptopt.toml").write_text(
        'budget = 3\nselect = ["PTO101"]\n[per-path-ignores]\n"a b/" = ["sync"]\n'
    )
    (checkout / "pkg").mkdir()
    monkeypatch.chdir(checkout / "pkg")  # the settings of the repository hold in all its folders
    shown = run("config", "show").stdout
    assert shown.startswith("# .ptopt.toml; 1 of ")
    assert '\nselect = ["PTO101"]\n' in shown
    assert "\nbudget = 3\n" in shown
    assert "\nignore = []  # default\n" in shown
    again = checkout / "shown.toml"
    again.write_text(shown)  # it is a configuration
    assert run("config", "check", again).exit_code == 0
    assert "\nbudget = 3\n" in run("config", "show", again).stdout


def test_show_says_that_the_file_sets_a_setting_to_its_default(tmp_path: Path) -> None:
    (tmp_path / ".ptopt.toml").write_text("budget = 5\n[pull-requests]\nmax-files = 300\n")
    shown = run("config", "show", tmp_path).stdout
    said = "  # set in .ptopt.toml; the default, too\n"
    assert f"\nbudget = 5{said}" in shown and f"\nmax-files = 300{said}" in shown
    assert shown.count(said) == 2
    assert "\nmax-lines = 20000  # default\n" in shown


def test_config_of_a_file_of_code_asks_for_a_configuration_file(tmp_path: Path) -> None:
    code = tmp_path / "train.py"
    code.write_text("import torch\n")
    for command in ("show", "check"):
        result = run("config", command, code)
        assert result.exit_code == 2 and "one configuration file" in result.stderr


@pytest.mark.usefixtures("learned_ranker")
@pytest.mark.parametrize(
    ("setting", "expected", "other"),
    [
        ("", "must also be true with a probability of at least", "No other condition"),
        ("min-confidence = 0.9\n", "a min-confidence below {:.2f} lifts both", "No other condition"),
        ("min-confidence = 0.2\n", "No other condition applies: this is below {:.2f}", "must also"),
    ],
)
def test_show_says_what_a_min_confidence_lifts(
    tmp_path: Path, setting: str, expected: str, other: str
) -> None:
    (tmp_path / ".ptopt.toml").write_text(setting)
    shown = run("config", "show", tmp_path).stdout
    words = " ".join(shown.replace("\n#", " ").split())
    assert expected.format(threshold(None)) in words and other not in words
    assert max(len(line) for line in shown.splitlines() if line.startswith("#")) <= 80


def test_config_takes_a_file_as_the_other_commands_do(checkout: Path) -> None:
    (checkout / ".ptopt.toml").write_text("budget = 3\n")
    other = checkout / "other.toml"
    other.write_text("budget = 9\n")
    shown = run("config", "show", "--config", other, checkout)
    assert shown.exit_code == 0 and "\nbudget = 9\n" in shown.stdout
    other.write_text("budget = -1\n")
    assert run("config", "check", checkout).exit_code == 0
    assert run("config", "check", "--config", other, checkout).exit_code == 2
