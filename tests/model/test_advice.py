"""What a model proposes becomes a finding only where it holds without the model's word."""

from __future__ import annotations

import ast
import textwrap

import pytest

from ptopt.findings import Finding, Safety, Span
from ptopt.model.advice import ASSUMPTION, Adviser
from ptopt.model.region import regions_of
from ptopt.model.schema import Advice
from ptopt.project.facts import read_facts
from ptopt.source.file import SourceFile
from ptopt.verify import apply_edits

CODE = textwrap.dedent(
    """\
    import os
    import torch


    class Net(torch.nn.Module):
        def forward(self, x, scale):
            # keep the mask small
            mask = torch.zeros(x.shape[0], 128)
            mask = mask.to(x.device)
            out = (x @ scale).masked_fill(mask > 0, 0.0)
            name = "rm -rf is only a word here"
            return out, name


    def later():
        return os.sep
    """
)
AT = CODE.split("\n").index("        mask = torch.zeros(x.shape[0], 128)") + 1
RULE = "factory-then-move"


def _finding(
    replacement: str, *, code: str = CODE, lines: tuple[int, int] = (AT, AT + 1), rule: str = RULE, path: str = "net.py",
    changed: frozenset[int] | None = None, taken: tuple[Span, ...] = (), facts: dict[str, bytes] | None = None,
) -> Finding | None:  # fmt: skip
    source = SourceFile.parse(path, code.encode(), read_facts(facts or {}))
    region = next(r for r in regions_of(source, None, []) if "forward" in r.symbol)
    adviser = Adviser(source, changed, list(taken), "tiny`model`")
    return adviser.finding(region, Advice(rule, *lines, replacement, "because"))


GOOD = "    mask = torch.zeros(x.shape[0], 128, device=x.device)"


def test_a_replacement_that_holds_is_an_unsafe_fix_and_says_who_found_it() -> None:
    finding = _finding(GOOD)
    assert finding is not None and finding.fix is not None
    assert (finding.name, finding.origin, finding.span) == (RULE, "model", Span(AT, AT + 1))
    assert finding.symbol == "Net.forward" and finding.impact == () and finding.evidence == ()
    assert finding.message.startswith("Found by a model (`tiny'model'`), not by a rule: ")
    assert (finding.fix.safety, finding.fix.assumption) == (Safety.UNSAFE, ASSUMPTION)
    after = apply_edits(CODE, finding.fix.edits)
    assert after == CODE.replace(
        "mask = torch.zeros(x.shape[0], 128)\n        mask = mask.to(x.device)\n",
        "mask = torch.zeros(x.shape[0], 128, device=x.device)\n",
    )


STEP = """\
import torch


def forward(model, loader, optimizer):
    for x in loader:
        loss = model(x.cuda())
        loss.backward()
        torch.cuda.synchronize()
        optimizer.step()
"""


def test_lines_that_compute_nothing_can_be_taken_away() -> None:
    finding = _finding("", code=STEP, lines=(8, 8), rule="synchronize-every-step")
    assert finding is not None and finding.fix is not None
    assert apply_edits(STEP, finding.fix.edits) == STEP.replace("        torch.cuda.synchronize()\n", "")


def test_the_last_line_of_a_block_can_be_taken_away() -> None:
    moved = STEP.replace("        torch.cuda.synchronize()\n", "") + "        torch.cuda.synchronize()\n"
    finding = _finding("", code=moved, lines=(9, 9), rule="synchronize-every-step")
    assert finding is not None and finding.fix is not None
    assert apply_edits(moved, finding.fix.edits) == STEP.replace("        torch.cuda.synchronize()\n", "")


@pytest.mark.parametrize("replacement", ["", "pass", "    pass", "# mask = mask.to(x.device)"])
def test_to_delete_what_the_program_does_is_no_advice(replacement: str) -> None:
    assert _finding(replacement, lines=(AT + 1, AT + 1)) is None
    assert _finding("", code=STEP, lines=(7, 7), rule="optimizer-built-in-loop") is None


def test_carriage_returns_and_a_missing_last_line_end_are_kept() -> None:
    code = "import torch\r\n\r\ndef forward(x):\r\n    y = torch.zeros(3)\r\n    return y.to(x.device)"
    finding = _finding(
        "    y = torch.zeros(3, device=x.device)\n    return y", code=code, lines=(4, 5), rule=RULE
    )
    assert finding is not None and finding.fix is not None
    assert apply_edits(code, finding.fix.edits).endswith(
        "\r\n    y = torch.zeros(3, device=x.device)\n    return y"
    )


def test_code_too_deep_to_compare_is_no_finding() -> None:
    """Python parses longer chains than it can dump: what cannot be compared is not shown, and no review is lost."""
    code = CODE + "\n\ndef deep(a):\n    return " + " + ".join(["a"] * 2_000) + "\n"
    assert _finding(GOOD, code=code) is None


def test_a_new_local_name_and_a_plain_builtin_may_come() -> None:
    assert _finding("    rows = len(x)\n    mask = torch.zeros(rows, 128, device=x.device)") is not None


@pytest.mark.parametrize(
    "replacement",
    [
        pytest.param(CODE.split("\n")[AT - 1][4:] + "\n" + CODE.split("\n")[AT][4:], id="the code as it is"),
        pytest.param("    mask = (torch.zeros(x.shape[0], 128))\n    mask = mask.to(x.device)", id="no other tree"),
        pytest.param("    mask = torch.zeros(x.shape[0], 128, device=", id="does not parse"),
        pytest.param("mask = torch.zeros(x.shape[0], 128)", id="leaves the block"),
        pytest.param("    mask = torch.zeros(rows, 128, device=x.device)", id="an undefined name"),
        pytest.param("    pass", id="a name that is read later is gone"),
        pytest.param("    import os\n" + GOOD, id="an import"),
        pytest.param("    from os import system\n" + GOOD, id="an import from"),
        pytest.param("    os.system('id')\n" + GOOD, id="a command, with what the file imports"),
        pytest.param("    __import__('os').system('rm -rf is only a word here')\n" + GOOD, id="a hidden import"),
        pytest.param("    eval('torch')\n" + GOOD, id="eval"),
        pytest.param("    exec('torch')\n" + GOOD, id="exec"),
        pytest.param("    open('/etc/passwd')\n" + GOOD, id="open"),
        pytest.param("    getattr(os, 'system')\n" + GOOD, id="getattr"),
        pytest.param("    torch.load('x')\n" + GOOD, id="a word of other pages"),
        pytest.param("    torch.hub.load('evil/repo', 'x')\n" + GOOD, id="code from elsewhere"),
        pytest.param("    name = 'https://evil.example'\n" + GOOD, id="an address"),
        pytest.param("    name = b'x'\n" + GOOD, id="bytes"),
        pytest.param("    def mask2(): return 1\n" + GOOD, id="a function"),
        pytest.param("    class Mask: pass\n" + GOOD, id="a class"),
        pytest.param("    mask = (lambda: 1)()\n" + GOOD, id="a lambda"),
        pytest.param("    global mask\n" + GOOD, id="a global"),
        pytest.param("    # @everyone: see https://evil.example\n" + GOOD, id="a comment"),
        pytest.param(GOOD + "  # ptopt: ignore", id="a suppression"),
        pytest.param("    mаsk2 = 1\n" + GOOD, id="a name with a Cyrillic letter"),
        pytest.param(GOOD + "\u202e", id="a direction mark"),
        pytest.param(GOOD + "\0", id="NUL"),
        pytest.param(GOOD + "\x0c", id="form feed"),
        pytest.param("    mask = x\r" + GOOD, id="a carriage return alone"),
        pytest.param(GOOD.replace("x.shape[0]", "\ud800"), id="a lone surrogate"),
        pytest.param("    x = torch.zeros(1)\n" * 100 + "(" * 5_000, id="nested too deeply"),
        pytest.param('    mask = """', id="an open string"),
        pytest.param("    if x.shape[0].item():\n        print(x.cpu())\n" + GOOD, id="worse than before"),
    ],
)  # fmt: skip
def test_what_brings_anything_new_is_nothing(replacement: str) -> None:
    assert _finding(replacement) is None


def test_a_string_may_not_swallow_the_lines_after_it() -> None:
    code = CODE.replace("0.0)\n", '0.0)  # """\n')
    assert _finding(GOOD, code=code) is not None
    swallowed = '    out = mask = """'
    ast.parse(code.replace("    mask = mask.to(x.device)", swallowed))
    assert _finding(swallowed, code=code, lines=(AT + 1, AT + 1)) is None


def test_a_new_problem_of_any_rule_is_no_fix() -> None:
    code = textwrap.dedent(
        """\
        import torch


        def train_forward(model, loader, optimizer, criterion, device):
            total = torch.zeros(())
            for x, y in loader:
                optimizer.zero_grad()
                loss = criterion(model(x.to(device)), y.to(device))
                loss.backward()
                optimizer.step()
                total += loss.detach()
            return total.item()
        """
    )
    assert _finding("        total += loss.item()", code=code, lines=(11, 11), rule="item-every-step") is None
    assert _finding("        total = total + loss.detach()", code=code, lines=(11, 11)) is not None


def test_where_it_may_not_speak() -> None:
    assert _finding(GOOD, changed=frozenset({1, AT + 2})) is None
    assert _finding(GOOD, changed=frozenset({AT})) is not None
    assert _finding(GOOD, taken=(Span(AT + 1, AT + 3),)) is None
    assert _finding(GOOD, taken=(Span(AT + 2, AT + 3),)) is not None
    assert _finding(GOOD, lines=(1, 2)) is None, "lines outside of the region"
    assert _finding(GOOD, rule="no-such-rule") is None


def test_a_rule_that_the_pinned_version_does_not_know_is_not_named() -> None:
    code = CODE.replace("torch.zeros(x.shape[0], 128)", "torch.optim.Adam(x)").replace(
        "mask = mask.to(x.device)", "pass"
    )
    faster = "    mask = torch.optim.Adam(x, fused=True)"
    old = {"requirements.txt": b"torch==1.13.0\n"}
    assert _finding(faster, code=code, rule="optimizer-not-fused") is not None
    assert _finding(faster, code=code, rule="optimizer-not-fused", facts=old) is None


def test_advice_that_names_what_the_pinned_version_lacks_is_not_posted() -> None:
    def found(torch: bytes) -> Finding | None:
        source = SourceFile.parse(
            "net.py", CODE.encode(), read_facts({"requirements.txt": b"torch==" + torch})
        )
        region = next(r for r in regions_of(source, None, []) if "forward" in r.symbol)
        advice = Advice(RULE, AT, AT + 1, GOOD, "`torch.count_nonzero` would do as well.")
        return Adviser(source, None, [], "tiny").finding(region, advice)

    assert found(b"1.7.0") is not None and found(b"1.6.0") is None


def test_equal_code_twice_gets_two_fingerprints_and_never_that_of_a_rule() -> None:
    from ptopt.findings import fingerprint

    source = SourceFile.parse("net.py", CODE.encode())
    region = next(r for r in regions_of(source, None, []) if "forward" in r.symbol)
    adviser = Adviser(source, None, [], "m")
    advice = Advice(RULE, AT, AT + 1, GOOD, "")
    first, second = adviser.finding(region, advice), adviser.finding(region, advice)
    assert first is not None and second is not None
    code = "\n".join(CODE.split("\n")[AT - 1 : AT + 1])
    by_rule = fingerprint(first.rule, "net.py", "Net.forward", code)
    assert len({first.fingerprint, second.fingerprint, by_rule}) == 3


def test_a_notebook_gets_no_code_of_a_model() -> None:
    import json

    cell = {
        "cell_type": "code",
        "source": CODE.splitlines(True),
        "metadata": {},
        "outputs": [],
        "execution_count": 1,
    }
    book = json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1)
    source = SourceFile.parse("net.ipynb", book.encode())
    region = next(r for r in regions_of(source, None, []) if "forward" in r.symbol)
    at = next(line.number for line in region.lines if "torch.zeros" in line.text)
    assert Adviser(source, None, [], "m").finding(region, Advice(RULE, at, at + 1, GOOD, "")) is None
