"""A recipe's YAML: the allowed keys, and the one line that names an error."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from training.recipes.settings import HERE, SettingsError, find, read, to_yaml

BASE = "name: x\nmodel: {base: a}\ndata: {folder: d}\n"


def settings(tmp_path: Path, text: str, *changes: str) -> str:
    path = tmp_path / "x.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SettingsError) as caught:
        read(path, changes)
    said = str(caught.value)
    assert "\n" not in said
    return said.replace(f"{tmp_path}/", "")


@pytest.mark.parametrize(
    ("text", "changes", "said"),
    [
        (
            f"{BASE}lora:\n  dropuot: 0.1\n",
            (),
            "x.yaml:5: lora.dropuot: unknown key; did you mean lora.dropout?",
        ),
        (f"{BASE}max_tokens: 3\n", (), "x.yaml:4: max_tokens: unknown key; did you mean data.max_tokens?"),
        (
            f"{BASE}lora: {{rank: 8}}\n",
            (),
            "x.yaml:4: lora.rank: unknown key; there are: r, alpha, dropout, targets",
        ),
        (
            f"{BASE}lora: {{r: 0}}\n",
            (),
            "x.yaml:4: lora.r: input should be greater than or equal to 1, not 0",
        ),
        (f"{BASE}lora: {{r: x}}\n", (), "x.yaml:4: lora.r: input should be a valid integer"),
        (BASE, ("optimizer.name=adam",), "x.yaml: optimizer.name: input should be 'adamw_torch',"),
        (BASE, ("lora.alfa=3",), "x.yaml: lora.alfa: unknown key; did you mean lora.alpha?"),
        (BASE, ("lora.r",), "'lora.r': write key=value, for example lora.r=8"),
        (BASE, ("name.x=3",), "name.x: name is not a table"),
        (BASE, ("seed=[",), "seed: '[' is not a YAML value"),
        (BASE, ("name=../x",), "x.yaml: name: "),
        (BASE, ("data.views.judge=0",), "x.yaml:3: data.views: at least one view needs a share above 0"),
        (BASE, ("cpu_offload=parameters",), "x.yaml: cpu_offload: parameters needs distributed: fsdp"),
        (
            BASE,
            ("model.four_bit=true", "distributed=fsdp"),
            "x.yaml: model.four_bit goes with distributed: ddp",
        ),
        (BASE, ("data.pack_to=64",), "data.pack_to must not be below data.max_tokens"),
        (BASE, ("data.max_tokens=64",), "data.judge_tokens must not be above data.max_tokens"),
        ("name: x\nmodel: {base: a}\n", (), "x.yaml: data: is needed"),
        ("- 1\n", (), "x.yaml: a table of settings is expected, not list"),
        ("a: [\n", (), "x.yaml: not YAML: "),
    ],
)
def test_a_mistake_is_one_line_that_names_place_and_key(
    tmp_path: Path, text: str, changes: tuple[str, ...], said: str
) -> None:
    assert said in settings(tmp_path, text, *changes)


def test_changes_and_a_written_copy_give_the_same_settings(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(BASE, encoding="utf-8")
    changed = read(path, ["lora.r=8", "optimizer.lr=2e-4", "lora.targets=[q_proj]", "limits.minutes=5"])
    assert (changed.lora.r, changed.optimizer.lr, changed.lora.targets) == (8, 2e-4, ("q_proj",))
    copy = tmp_path / "copy.yaml"
    copy.write_text(to_yaml(changed), encoding="utf-8")
    assert read(copy) == changed


@pytest.mark.parametrize("name", sorted(path.name for path in (HERE / "configs").glob("*.yaml")))
def test_each_config_is_valid_and_each_of_its_lines_is_explained(name: str) -> None:
    path = find(f"configs/{name}")
    read(path)
    for line in path.read_text(encoding="utf-8").splitlines():
        key = line.split("#")[0].strip()
        assert not key or key.endswith(":") or "#" in line, line


def test_a_config_that_is_not_there_names_those_that_are() -> None:
    with pytest.raises(
        SettingsError, match=r"none\.yaml: no such file; there are: .*configs/smollm2-cpu\.yaml"
    ):
        find("configs/none.yaml")


def test_the_command_says_it_in_one_line() -> None:
    from training.recipes.cli import sft

    for args in (["configs/none.yaml"], [], ["configs/smollm2-cpu.yaml", "lora.rnk=3"]):
        result = CliRunner().invoke(sft, args)
        assert result.exit_code == 1
        assert result.output.startswith("Error: ") and result.output.count("\n") == 1
