from __future__ import annotations

import json
import re
import stat
import subprocess
from pathlib import Path

import pytest

from ptopt.change import ChangedFile, whole_file
from ptopt.config import Config
from ptopt.findings import Finding, Review
from ptopt.fixes import fix_file
from ptopt.project.facts import ProjectFacts
from ptopt.review import review_files
from tests.cli.command import OPS, TRAIN, command, run, unwrapped


def test_fix_writes_the_safe_fixes_once(tree: Path) -> None:
    (tree / "ops.py").write_bytes(OPS.replace("\n", "\r\n").encode())
    (tree / "ops.py").chmod(0o755)
    (tree / "link.py").symlink_to("ops.py")
    result = run("fix", tree)
    assert result.exit_code == 0
    assert "ops.py: 2 × PTO407 log-of-softmax\n" in result.stdout
    assert result.stdout.endswith(
        "Fixed 1 finding at 2 places in 1 file; 1 finding left, 1 with an unsafe fix (`--unsafe`), "
        f"2 files not reviewed, see `ptopt check {tree}`.\n"
    )
    after = OPS.replace("torch.log(torch.softmax(x, dim=-1))", "torch.log_softmax(x, dim=-1)")
    after = after.replace("torch.log(torch.softmax(x, dim=1))", "torch.log_softmax(x, dim=1)")
    assert (tree / "ops.py").read_bytes() == after.replace("\n", "\r\n").encode()
    assert stat.S_IMODE((tree / "ops.py").stat().st_mode) == 0o755
    assert (tree / "train.py").read_text() == TRAIN
    assert sorted(p.name for p in tree.iterdir()) == ["link.py", "ops.py", "tests", "train.py"]
    rest = (
        "1 finding left, 1 with an unsafe fix (`--unsafe`), 2 places left out (`--min-confidence 0`), "
        f"2 files not reviewed, see `ptopt check {tree}`"
    )
    assert run("fix", tree).stdout == f"Nothing to fix; {rest}.\n"
    same = run("fix", tree, "--min-confidence", "0.1", "--ignore", "PTO101,sync").stdout
    assert same.endswith(f"see `ptopt check --ignore PTO101,sync --min-confidence 0.1 {tree}`.\n")


def test_fix_unsafe(tree: Path) -> None:
    result = run("fix", "--unsafe", tree / "train.py", "--exit-code")
    assert result.exit_code == 1
    assert "total += loss.detach()" in (tree / "train.py").read_text()


def test_fix_diff_is_a_patch_and_changes_nothing(tree: Path) -> None:
    (tree / "ops.py").write_text(OPS.rstrip("\n"))
    done = command("fix", "--diff", tree)
    assert done.returncode == 0
    assert (tree / "ops.py").read_text() == OPS.rstrip("\n")
    subprocess.run(["git", "apply", "-"], cwd=tree, input=done.stdout, check=True)
    run("fix", tree)
    assert command("fix", "--diff", tree).stdout == b""
    assert "log_softmax" in (tree / "ops.py").read_text()


def test_fix_only_what_a_review_of_the_branch_shows(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(checkout)
    (checkout / "ops.py").write_text(
        OPS + "\n\ndef three(x):\n    return torch.log(torch.softmax(x, dim=2))\n"
    )
    said = run("review", "--base", "HEAD").stdout
    assert "1 with a safe fix (`ptopt fix --base HEAD`)" in " ".join(said.split())
    done = run("fix", "--base", "HEAD")
    assert "Fixed 1 finding in 1 file." in done.stdout
    after = (checkout / "ops.py").read_text()
    assert after.count("torch.log(torch.softmax(") == 2 and "torch.log_softmax(x, dim=2)" in after
    assert run("fix", "--base", "HEAD").stdout == "Nothing to fix.\n"
    assert run("fix", "--base", "HEAD", "-", stdin=b"").exit_code == 2
    left = run("fix", "--base", "main")
    assert (
        "1 finding left, 1 with an unsafe fix (`--unsafe`)" in left.stdout and "--base main`" in left.stdout
    )


def test_fix_of_a_branch_counts_what_the_review_of_the_branch_leaves_out(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(checkout)
    (checkout / "train.py").write_text(TRAIN + "\n\ndef reset(total):\n    return total * 0\n")
    assert "left out" in run("check", "train.py").stdout
    assert "left out" not in run("review", "--base", "HEAD").stdout
    assert "left out" not in run("fix", "--base", "HEAD").stdout
    (checkout / "train.py").write_text(TRAIN.replace("y.cuda()", "y.cuda() + 1"))
    assert "1 place left out" in run("review", "--base", "HEAD").stdout
    assert "1 place left out (`--min-confidence 0`)" in run("fix", "--base", "HEAD").stdout


def test_fix_of_a_branch_sees_its_files_together_as_the_review_does(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who calls a function says how often it runs, also where both files are of the change."""
    monkeypatch.chdir(checkout)
    (checkout / "helpers.py").write_text(
        "import torch\n\n\ndef spread_of(values):\n    return values.abs().max().item()\n"
    )
    calls = TRAIN.replace("import torch\n", "import torch\nfrom helpers import spread_of\n", 1)
    (checkout / "train.py").write_text(
        calls.replace(
            "        loss.backward()\n", "        print(spread_of(loss))\n        loss.backward()\n"
        )
    )
    subprocess.run(["git", "add", "-A"], cwd=checkout, check=True)
    for lowered in ([], ["--min-confidence", "0.05"], ["--min-confidence", "0"]):
        review = json.loads(run("review", "--base", "HEAD", *lowered, "--format", "json").stdout)
        comments = len(review["findings"]) + len(review["over_limit"])
        left = sum(review["left_out"]["places"].values()) if review["left_out"] else 0
        said = run("fix", "--base", "HEAD", *lowered, "--diff").stderr
        assert (f"{comments} finding" in said) is bool(comments), said
        assert (f"{left} place" in said) is bool(left), said


def test_fix_of_a_branch_names_the_limit_that_shows_what_is_left(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(checkout)
    (checkout / "pyproject.toml").write_text("[tool.ptopt]\nbudget = 1\n")
    (checkout / "train.py").write_text(
        TRAIN.replace("y.cuda()", "y.cuda() + 1").replace("+= loss.item()", "+= loss.item() * 2")
    )
    said = run("fix", "--base", "HEAD", "--min-confidence", "0").stdout
    number = int(re.search(r"(\d+) findings left", said)[1])
    assert number > 1 and f"--min-confidence 0 --budget {number}`" in said


def test_fix_of_a_branch_is_of_the_whole_repository_from_any_folder(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (checkout / "ops.py").write_text(OPS.replace("dim=1", "dim=2"))
    folder = checkout / "eval"
    folder.mkdir()
    monkeypatch.chdir(folder)
    assert "../ops.py" in run("review", "--base", "HEAD").stdout
    assert run("fix", "--base", "HEAD", ".").stdout == "Nothing to fix.\n"  # the folder that was named
    done = run("fix", "--base", "HEAD")
    assert "../ops.py: 1 × PTO407" in done.stdout and "Fixed 1 finding in 1 file." in done.stdout
    assert "log_softmax(x, dim=2)" in (checkout / "ops.py").read_text()


def test_fix_follows_a_named_link_and_keeps_it(tree: Path) -> None:
    link = tree / "named.py"
    link.symlink_to("ops.py")
    run("fix", link)
    assert link.is_symlink()
    assert "log_softmax" in (tree / "ops.py").read_text()


def test_fix_filters_stdin(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tree)
    done = command("fix", "-", "--stdin-filename", "ops.py", input=OPS.replace("\n", "\r\n").encode())
    assert done.stdout.count(b"torch.log_softmax(x, dim=") == 2
    assert done.stdout.count(b"\r\n") == OPS.count("\n")
    assert done.stderr == b"Fixed 1 finding at 2 places in 1 file.\n"
    for name, text in {"tests/a.py": OPS, "b.py": "import torch\ntorch.log(torch.softmax(\n"}.items():
        done = command("fix", "-", "--stdin-filename", name, input=text.encode())
        assert done.stdout.decode() == text  # an editor puts stdout in place of its text
    assert (tree / "ops.py").read_text() == OPS


def test_the_diff_of_a_fix_has_the_bytes_of_the_file(tmp_path: Path) -> None:
    before = f"# coding: latin-1\n{OPS}# größer".encode("latin-1").replace(b"\n", b"\r\n")
    (tmp_path / "a b.py").write_bytes(before)
    done = command("fix", "--diff", tmp_path)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "apply", "-"], cwd=tmp_path, check=True, input=done.stdout)
    assert (tmp_path / "a b.py").read_bytes() == before.replace(
        b"torch.log(torch.softmax(x, dim=-1))", b"torch.log_softmax(x, dim=-1)"
    ).replace(b"torch.log(torch.softmax(x, dim=1))", b"torch.log_softmax(x, dim=1)")


def test_fix_tells_how_many_files_it_could_not_read(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import torch\ntorch.log(torch.softmax(\n")
    assert run("fix", tmp_path).stdout == (
        f"Nothing to fix; 1 file not reviewed, see `ptopt check {tmp_path}`.\n"
    )


def test_what_appears_only_after_a_fix_is_fixed_in_the_same_run(tmp_path: Path) -> None:
    """`torch.as_tensor(range(n)).to(device)`: the copy hides the factory that is slow itself."""
    code = "import torch\n\n\nclass Net(torch.nn.Module):\n    def forward(self, x, n):\n"
    code += "        return x + torch.as_tensor(range(n)).to(x.device)\n"
    (tmp_path / "net.py").write_text(code)
    result = run("fix", "--unsafe", "--min-confidence", "0", tmp_path)
    assert "torch.arange(n, device=x.device)" in (tmp_path / "net.py").read_text()
    assert result.stdout.endswith("Fixed 1 finding in 1 file, and 1 finding that these fixes brought up.\n")
    again = run("fix", "--unsafe", "--min-confidence", "0", tmp_path)
    assert again.stdout == "Nothing to fix.\n"


LOADER = """\
import torch
from torchvision import datasets


def train(model, loader, optimizer):
    for images, labels in loader:
        criterion(model(images.cuda()), labels.cuda()).backward()
        optimizer.step()


def main():
    data = datasets.ImageFolder("train", transform)
"""
MADE = """\
    loader = torch.utils.data.DataLoader(data, batch_size=64, num_workers=0)
    for epoch in range(10):
        train(model, loader, optimizer)
"""


@pytest.mark.parametrize("state", ["changed", "new", "renamed"])
def test_one_run_on_a_branch_settles(checkout: Path, monkeypatch: pytest.MonkeyPatch, state: str) -> None:
    """Workers and pinning bring up that workers are kept, and where the branch wrote it, that copies need not wait."""
    monkeypatch.chdir(checkout)
    name = "loop.py"
    if state != "new":
        (checkout / name).write_text(LOADER)
        subprocess.run(["git", "add", name], check=True)
        subprocess.run(["git", "commit", "-qm", "loop"], check=True)
    if state == "renamed":
        subprocess.run(["git", "mv", name, "moved.py"], check=True)
        name = "moved.py"
    (checkout / name).write_text(LOADER + MADE)
    asked = ("fix", "--base", "HEAD", "--unsafe", "--min-confidence", "0")
    said = run(*asked).stdout
    assert re.search(r"Fixed \d findings? in 1 file, and \d findings? that these fixes brought up", said)
    after = (checkout / name).read_text()
    assert "persistent_workers=True" in after
    assert ("non_blocking=True" in after) is (state == "new")
    again = run(*asked).stdout
    assert again.startswith("Nothing to fix") and (checkout / name).read_text() == after


def test_what_a_fix_on_a_branch_leaves_is_what_the_next_run_finds(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(checkout)
    (checkout / "ops.py").write_text(OPS.replace("dim=1", "dim=2") + "\n\n" + DETECT.format("one"))
    asked = ("fix", "--base", "HEAD", "--min-confidence", "0", "--select", "PTO138,PTO103,PTO407")
    first, second = run(*asked).stdout, run(*asked).stdout
    assert "1 of the fixed places has another finding" in first and second.startswith(
        "Nothing to fix; 1 finding left"
    ), (first, second)


def test_fixes_that_other_fixes_bring_up_are_bounded() -> None:
    file = whole_file("ops.py", OPS.encode())
    (first, *_) = every_finding(file)

    def review(version: ChangedFile) -> Review:
        """It sees the second call only once the first one is gone."""
        found = every_finding(version)
        return Review(found[:1] if found and found[0].fingerprint == first.fingerprint else found[-1:])

    once = fix_file(file, review, unsafe=False, most_rounds=1)
    assert [f.fingerprint for f in once.fixed] == [first.fingerprint]
    assert once.after.endswith(OPS[OPS.rindex("torch.log(") :].encode())
    whole = fix_file(file, review, unsafe=False, most_rounds=2)
    assert b"softmax(x" not in whole.after.replace(b"log_softmax", b"") and whole.left == ()
    assert [each.places for each in whole.rounds] == [{("PTO407", 5)}, {("PTO407", 9)}]


def test_fix_counts_as_check_does(tmp_path: Path) -> None:
    """Equal code several times in a function, and twice on one line."""
    code = """\
import torch


def f(x, y):
    a = torch.log(torch.softmax(x, dim=-1))
    b = torch.log(torch.softmax(x, dim=-1))
    return a + b + torch.log(torch.softmax(y, dim=-1)) + torch.log(torch.softmax(y, dim=1))
"""
    (tmp_path / "net.py").write_text(code)
    assert "1 performance finding at 3 places in 1 file" in unwrapped(run("check", tmp_path))
    assert run("fix", tmp_path, "--diff").stderr == "Would fix 1 finding at 3 places in 1 file.\n"


def every_finding(file: ChangedFile) -> tuple[Finding, ...]:
    return review_files(
        [file], limit_to_change=False, one_per_cause=False, config=Config(), facts=ProjectFacts()
    ).findings


def test_two_fixes_on_one_line_of_the_branch_take_one_run(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(checkout)
    line = "    return torch.log(torch.softmax(x, dim=2)) + torch.log(torch.softmax(x, dim=3))\n"
    (checkout / "ops.py").write_text(f"{OPS}\n\ndef three(x):\n{line}")
    assert run("fix", "--base", "HEAD").stdout.endswith("Fixed 1 finding in 1 file.\n")
    assert "log_softmax(x, dim=2) + torch.log_softmax(x, dim=3)" in (checkout / "ops.py").read_text()


def test_places_that_keep_another_finding_are_said(tmp_path: Path) -> None:
    """The flag is asked first by the fix; that the tensor behind it is branched on shows only then."""
    (tmp_path / "a.py").write_text(f"import torch\n\n\n{DETECT.format('Loss')}")
    done = run("fix", tmp_path, "--min-confidence", "0", "--select", "PTO138,PTO103").stdout
    assert "Fixed 1 finding at 1 of 1 place in 1 file; 1 of the fixed places has another finding, see" in done
    left = run(
        "check", tmp_path, "--min-confidence", "0", "--select", "PTO138,PTO103", "--format", "concise"
    ).stdout
    assert "1 performance finding in 1 file" in left


DETECT = (
    "class {}(torch.nn.Module):\n    def forward(self, scores, labels):\n"
    "        loss = torch.nn.functional.cross_entropy(scores, labels)\n"
    "        if torch.isnan(loss) and self.strict:\n            raise ValueError\n        return loss\n"
)


def test_what_is_fixed_and_left_adds_up_to_what_check_finds(tmp_path: Path) -> None:
    """A place that is fixed and has another finding is counted as fixed, and the finding is said apart."""
    code = "\n\n".join(
        ["import torch\n", DETECT.format("one"), DETECT.format("two"), OPS.partition("import torch\n")[2]]
    )
    (tmp_path / "a.py").write_text(code)
    said = run("check", tmp_path, "--min-confidence", "0").stdout
    found = re.search(r"\d+ performance findings at (\d+) places", said)
    done = run("fix", tmp_path, "--min-confidence", "0").stdout
    of = re.search(
        r"at (\d+) of (\d+) places in 1 file; (?:(\d+) places? left, )?(\d+) of the fixed places have another finding",
        done,
    )
    assert found is not None and of is not None, done
    fixed, total, left, beside = (int(number or 0) for number in of.groups())
    assert beside and total == int(found[1]) == fixed + left
    still = run("check", tmp_path, "--min-confidence", "0", "--format", "json").stdout
    assert sum(1 + len(finding["also"]) for finding in json.loads(still)["findings"]) == left + beside


def test_on_a_branch_places_that_keep_another_finding_are_said(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(checkout)
    lines = "torch.log(torch.softmax(x, dim=2)).detach().cpu().numpy()"
    (checkout / "new.py").write_text(
        f"import torch\n\n\ndef run(model, loader):\n    kept = []\n    for x in loader:\n        kept.append({lines})\n    return kept\n"
    )
    asked = ("--base", "HEAD", "--min-confidence", "0")
    found = run("review", *asked, "--statistics").stdout
    done = unwrapped(run("fix", *asked))
    of = re.search(r"at (\d+) of (\d+) places? .*; (?:(\d+) places? left, )?(\d+) of the fixed", done)
    assert of is not None, (found, done)
    fixed, total, left, beside = (int(number or 0) for number in of.groups())
    assert beside and total == fixed + left


def test_check_fixes_what_fix_fixes_and_reports_what_is_left(tree: Path) -> None:
    """As `ruff check --fix`: the exit status is that of what is left."""
    once = run("check", tree, "--exit-code").stdout
    assert "log-of-softmax" in once and "item-every-step" in once
    done = command("check", tree, "--fix", "--exit-code", "--format", "concise")
    assert done.returncode == 1
    assert done.stderr.decode().startswith("Fixed 1 finding at 2 places in 1 file.\n")
    assert "log_softmax" in (tree / "ops.py").read_text() and (tree / "train.py").read_text() == TRAIN
    left = done.stdout.decode()
    assert "PTO407" not in left and "PTO101" in left and "1 performance finding in" in left
    done = command("check", tree, "--fix", "--unsafe-fixes", "--exit-code")
    assert done.returncode == 0, done.stdout.decode()
    assert "total += loss.detach()" in (tree / "train.py").read_text()
    again = command("check", tree, "--fix", "--exit-code")
    assert again.returncode == 0 and again.stderr.decode() == "Nothing to fix.\n"


def test_places_that_a_fix_elsewhere_cures_are_said(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The workers that the fix of the call writes are those that the change took out, on another line."""
    monkeypatch.chdir(checkout)
    loader = (
        "    loader = DataLoader(\n        dataset,\n        num_workers=4,\n        batch_size=8,\n    )\n"
    )
    code = TRAIN.replace("import nn\n", "import nn\nfrom torch.utils.data import DataLoader\n")
    code = code.replace("model, loader,", "model, dataset,").replace(
        "    total = 0.0\n", f"{loader}    total = 0.0\n"
    )
    (checkout / "train.py").write_text(code)
    subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-qam", "x"], check=True
    )
    (checkout / "train.py").write_text(code.replace("num_workers=4", "num_workers=0"))
    same = ("--base", "HEAD", "--min-confidence", "0", "--select", "PTO301,PTO956")
    assert "1 performance finding at 2 places" in unwrapped(run("review", *same))
    done = run("fix", "--unsafe", *same).stdout
    assert done.endswith("Fixed 1 finding at 1 of 2 places, which cures 1 more, in 1 file.\n")


@pytest.mark.parametrize(
    "options",
    [("--unsafe-fixes",), ("--fix", "--add-suppressions"), ("--fix", "--write-baseline", "b.json")],
)
def test_options_that_contradict_fixing_in_a_check(tree: Path, options: tuple[str, ...]) -> None:
    assert run("check", tree, *options).exit_code == 2
    assert "log_softmax" not in (tree / "ops.py").read_text()
