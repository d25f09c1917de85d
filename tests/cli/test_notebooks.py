from __future__ import annotations

import json
from pathlib import Path

from tests.cli.command import command, run


def test_a_notebook_is_named_by_cell_with_its_code_and_its_fix(notebook: Path) -> None:
    text = run("check", notebook).stdout
    assert text.startswith("nb.ipynb:cell 3:4  PTO407 log-of-softmax")
    assert (
        "\n  3 │ def one(x):\n  4 ┃     return torch.log(torch.softmax(x, dim=-1))\n\n  Also at cell 4:2\n"
        in text
    )
    assert (
        "\n  4 - return torch.log(torch.softmax(x, dim=-1))\n    + return torch.log_softmax(x, dim=-1)\n"
        in text
    )
    assert "nb.ipynb:cell 2:14  PTO101 item-every-step" in text
    assert "of the loop at line 9 of cell 2." in " ".join(text.split())
    assert "\n  line 12 of cell 2: the training step: `loss.backward()`\n" in text
    assert "Fix (unsafe: assumes that `total` becomes a tensor" in text
    markdown = run("check", notebook, "--format", "markdown").stdout
    assert "### `nb.ipynb:cell 3:4` PTO407" in markdown
    assert "line 12 of cell 2: the training step" in markdown
    assert "No newline" not in markdown


def test_lines_of_a_notebook_in_formats_for_programs_are_those_of_the_file(notebook: Path) -> None:
    lines = notebook.read_text().split("\n")
    (first, second) = json.loads(run("check", notebook, "--format", "json").stdout)["findings"]
    assert "torch.log(torch.softmax(x, dim=-1))" in lines[first["start_line"] - 1]
    assert first["cell"] == {"number": 3, "start_line": 4, "end_line": 4}
    assert (first["fix"]["safety"], second["fix"]["safety"]) == ("safe", "unsafe")
    assert (first["fix"]["postable"], second["fix"]["postable"]) == (False, False)
    assert run("check", notebook, "--add-suppressions").stdout == (
        "Suppressed 0 places in 0 files; 3 places left, where a comment cannot stand:\n"
        "  nb.ipynb:cell 2:14  PTO101 item-every-step\n"
        "  nb.ipynb:cell 3:4  PTO407 log-of-softmax\n"
        "  nb.ipynb:cell 4:2  PTO407 log-of-softmax\n"
    )
    assert notebook.read_text().split("\n") == lines


def _saved_on_one_line(notebook: Path) -> None:
    notebook.write_text(json.dumps(json.loads(notebook.read_text())))


def test_a_notebook_that_was_saved_on_one_line_has_the_same_findings(notebook: Path) -> None:
    indented = run("check", notebook).stdout
    listed = json.loads(run("check", notebook, "--format", "json").stdout)["findings"]
    _saved_on_one_line(notebook)
    assert run("check", notebook).stdout == indented
    data = json.loads(run("check", notebook, "--format", "json").stdout)
    assert [f["cell"] for f in data["findings"]] == [f["cell"] for f in listed]
    assert [f["fingerprint"] for f in data["findings"]] == [f["fingerprint"] for f in listed]
    assert (
        {f["start_line"] for f in data["findings"]}
        == {e["line"] for f in data["findings"] for e in f["evidence"]}
        == {1}
    )
    first, *rest = run("check", notebook, "--format", "concise").stdout.splitlines()
    assert first.startswith("nb.ipynb:1: PTO407") and "; PTO101" in first  # one line of the file: one place
    assert "of the loop at line 9 of cell 2" in first and rest[0].startswith("2 performance findings")
    found = json.loads(run("check", notebook, "--format", "sarif").stdout)["runs"][0]["results"]
    assert {r["locations"][0]["physicalLocation"]["region"]["startLine"] for r in found} == {1}


def test_a_change_of_a_notebook_on_one_line_asks_for_line_breaks(notebook: Path) -> None:
    _saved_on_one_line(notebook)
    lines = notebook.read_text().rstrip("\n").split("\n")
    added = "".join(f"+{line}\n" for line in lines)
    diff = f"--- /dev/null\n+++ b/nb.ipynb\n@@ -0,0 +1,{len(lines)} @@\n{added}\\ No newline at end of file\n"
    result = run("review", "--diff", "-", "--tree", notebook.parent, stdin=diff.encode())
    assert "save the notebook with line breaks" in " ".join(result.stdout.split())


def test_fixes_are_written_into_the_cells(notebook: Path) -> None:
    before = notebook.read_text()
    shown = command("fix", "--diff", notebook)
    assert notebook.read_text() == before
    assert shown.stdout.decode().startswith(
        "--- a/nb.ipynb:cell 3\n+++ b/nb.ipynb:cell 3\n@@ -1,4 +1,4 @@\n import torch\n \n def one(x):\n"
        "-    return torch.log(torch.softmax(x, dim=-1))\n+    return torch.log_softmax(x, dim=-1)\n"
        "--- a/nb.ipynb:cell 4\n"
    )
    assert "No newline" not in shown.stdout.decode()
    assert run("fix", notebook).stdout == (
        "nb.ipynb: 2 × PTO407 log-of-softmax\n"
        "Fixed 1 finding at 2 places in 1 file; 1 finding left, 1 with an unsafe fix (`--unsafe`), "
        f"see `ptopt check {notebook}`.\n"
    )
    after = before.replace("torch.log(torch.softmax(x, dim=-1))", "torch.log_softmax(x, dim=-1)")
    after = after.replace("torch.log(torch.softmax(x, dim=1))", "torch.log_softmax(x, dim=1)")
    assert notebook.read_text() == after
    run("fix", "--unsafe", notebook)
    assert notebook.read_text() == after.replace("loss.item()", "loss.detach()").replace(
        "return total", "return float(total)"
    )


def test_a_fix_of_a_notebook_on_one_line(notebook: Path) -> None:
    _saved_on_one_line(notebook)
    before = notebook.read_text()
    done = command("fix", "-", "--stdin-filename", "nb.ipynb", input=before.encode(), cwd=notebook.parent)
    assert done.stdout.decode() == before.replace("torch.log(torch.softmax(", "torch.log_softmax(").replace(
        "dim=-1))", "dim=-1)"
    ).replace("dim=1))", "dim=1)")
    assert notebook.read_text() == before


def test_programs_get_no_edits_of_the_json_of_a_notebook(notebook: Path) -> None:
    found = json.loads(run("check", notebook, "--format", "sarif").stdout)["runs"][0]["results"]
    assert len(found) == 2 and not any("fixes" in result for result in found)
    diagnostics = json.loads(run("check", notebook, "--format", "rdjson").stdout)["diagnostics"]
    assert diagnostics and not any("suggestions" in diagnostic for diagnostic in diagnostics)
