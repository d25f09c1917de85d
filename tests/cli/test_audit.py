"""`ptopt audit`: the command."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from ptopt.report.audit import FORMATS
from tests.cli.command import TRAIN, run

MAIN = (
    TRAIN
    + "\n\nif __name__ == '__main__':\n    model = nn.Linear(512, 512)\n    train(model, loader, optimizer)\n"
)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(MAIN)
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / "finetune.py").write_text(MAIN)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_train.py").write_text(MAIN)
    return tmp_path


def test_examples_are_audited_and_tests_are_not(repository: Path) -> None:
    result = run("audit", repository, "--format", "json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert [entry["path"] for entry in document["entry_points"]] == ["train.py", "examples/finetune.py"]
    assert document["name"] == repository.name


def test_excluded_files_are_not_read(repository: Path) -> None:
    (repository / ".ptopt.toml").write_text('exclude = ["examples/"]\n')
    document = json.loads(run("audit", repository, "--format", "json").stdout)
    assert [entry["path"] for entry in document["entry_points"]] == ["train.py"]


def test_what_a_check_leaves_out_is_counted(repository: Path) -> None:
    """Findings that are seldom worth a change are not listed, and the report does not look complete without them."""
    few, every = (
        json.loads(run("audit", repository, "--format", "json", "--min-confidence", least).stdout)
        for least in ("0.99", "0")
    )
    assert few["left_out"] >= 2  # `loss.item()` of both scripts
    assert every["left_out"] == 0


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_can_go_to_a_file(repository: Path, name: str) -> None:
    out = repository / "report"
    assert run("audit", repository, "--format", name, "--output", out).exit_code == 0
    assert "train.py" in out.read_text(encoding="utf-8")


def test_the_exit_code_says_that_something_weighs(repository: Path, tmp_path: Path) -> None:
    assert run("audit", repository, "--exit-code").exit_code == 1
    (tmp_path / "empty").mkdir()
    assert run("audit", tmp_path / "empty", "--exit-code").exit_code == 0


def test_a_file_is_not_a_repository(repository: Path) -> None:
    result = run("audit", repository / "train.py")
    assert result.exit_code != 0
    assert "not a folder" in result.output


def test_a_link_out_of_the_folder_is_not_followed(
    repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside") / "secret.py"
    outside.write_text(MAIN)
    (repository / "linked.py").symlink_to(outside)
    document = json.loads(run("audit", repository, "--format", "json").stdout)
    assert "linked.py" not in [entry["path"] for entry in document["entry_points"]]
    assert "linked.py" in [item["path"] for item in document["not_reviewed"]]


USES_THE_PACKAGE = """
from package.training import Trainer

if __name__ == "__main__":
    Trainer().train()
"""
BESIDE = """
from ..training import Trainer

if __name__ == "__main__":
    Trainer().train()
"""


@pytest.mark.parametrize("code", [USES_THE_PACKAGE, BESIDE])
@pytest.mark.parametrize("source", ["", "src/"])
def test_scripts_of_a_folder_that_import_from_outside_it(tmp_path: Path, code: str, source: str) -> None:
    drivers = tmp_path / source / "package" / "drivers"
    drivers.mkdir(parents=True)
    (drivers / "fit.py").write_text(code)
    (drivers / "show.py").write_text("import torch\n\nif __name__ == '__main__':\n    print(torch.ones(1))\n")
    (tmp_path / source / "package" / "training.py").write_text(
        "import transformers\n\nclass Trainer(transformers.Trainer):\n    pass\n"
    )
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    said = " ".join(run("audit", drivers).stdout.split())
    assert (
        "2 Python files, but 1 script imports modules of the repository that lie outside this folder" in said
    )
    assert "Of a library" not in said
    document = json.loads(run("audit", drivers, "--format", "json").stdout)
    (note,) = document["not_judged"]
    assert note.startswith(f"{source}package/drivers/fit.py: it imports modules from outside the folder")
    whole = json.loads(run("audit", tmp_path, "--format", "json").stdout)
    assert [entry["path"] for entry in whole["entry_points"]] == [f"{source}package/drivers/fit.py"]


OPTIONAL = """
from transformers import HfArgumentParser, Trainer, TrainingArguments

def main():
    (args,) = HfArgumentParser(Own).parse_args_into_dataclasses()
    if args.do_train:
        Trainer(model, TrainingArguments("out"), train_dataset=data).train()

@dataclass
class Own:
    do_train: bool = field(default=False)

if __name__ == "__main__":
    main()
"""


def test_what_a_folder_alone_does_not_show_is_said(tmp_path: Path) -> None:
    """A command that lies elsewhere in the repository starts the training of one script, and sets what the other does."""
    folder = tmp_path / "training"
    folder.mkdir()
    (folder / "optional.py").write_text(OPTIONAL)
    (folder / "always.py").write_text(OPTIONAL.replace("if args.do_train:", "if True:"))
    (tmp_path / "run.sh").write_text("python training/optional.py --do_train True\n")
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    part = json.loads(run("audit", folder, "--format", "json").stdout)
    assert [entry["path"] for entry in part["entry_points"]] == ["training/always.py"]
    only, optional, *_ = part["not_judged"]
    assert only.startswith("only this folder was read: commands and configurations elsewhere")
    assert optional.startswith(
        "training/optional.py: it trains where an option says so, and not by the default of"
    )
    whole = json.loads(run("audit", tmp_path, "--format", "json").stdout)
    assert len(whole["entry_points"]) == 2
    assert not any("folder" in note or "option says" in note for note in whole["not_judged"])
