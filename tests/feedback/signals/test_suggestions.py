from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedback.signals import SignalKind
from feedback.signals.stored_suggestion import Replacement, suggestion_hashes
from feedback.signals.suggestions import Match, is_undone, match_suggestion, signals_of

KEY = b"key"
CODE = "import torch\n\nfor x in loader:\n    x = x.cuda()\n    y = model(x)\n    total += y.item()\n"
NEW = ["    total += y.detach()"]


def _suggestion(text: str = CODE, line: int = 6, new: list[str] = NEW) -> dict[str, object]:
    return suggestion_hashes(text, Replacement(line, line, new), KEY)


def test_the_suggested_lines_in_place_of_the_old_ones() -> None:
    assert match_suggestion(CODE.replace(".item()", ".detach()"), _suggestion(), KEY) is Match.EXACT


def test_it_may_move_and_its_neighbours_may_change() -> None:
    later = (
        "import os\n" + CODE.replace(".item()", ".detach()").replace("model(x)", "net(x)") + "print(total)\n"
    )
    assert match_suggestion(later, _suggestion(), KEY) is Match.EXACT


def test_lines_added_to_the_old_ones() -> None:
    more = _suggestion(new=["    total += y.item()", "    steps_done += 1"])
    assert match_suggestion(CODE, more, KEY) is Match.NO
    assert match_suggestion(CODE + "    steps_done += 1\n", more, KEY) is Match.EXACT


def test_formatted_otherwise() -> None:
    later = CODE.replace("total += y.item()", "total  +=  y.detach( )")
    assert match_suggestion(later, _suggestion(), KEY) is Match.SIMILAR


def test_untouched_changed_otherwise_or_deleted() -> None:
    assert match_suggestion(CODE, _suggestion(), KEY) is Match.NO
    assert match_suggestion(CODE.replace(".item()", ".tolist()"), _suggestion(), KEY) is Match.NO
    assert match_suggestion("import torch\n", _suggestion(), KEY) is Match.NO
    assert match_suggestion("", _suggestion(), KEY) is Match.NO


def test_lines_to_delete() -> None:
    delete = _suggestion(line=4, new=[])
    assert match_suggestion(CODE.replace("    x = x.cuda()\n", ""), delete, KEY) is Match.EXACT
    assert match_suggestion(CODE, delete, KEY) is Match.NO


def test_what_stood_there_before_is_no_proof() -> None:
    twice = CODE + CODE.replace(".item()", ".detach()")
    suggestion = suggestion_hashes(twice, Replacement(6, 6, NEW), KEY)
    assert match_suggestion(twice, suggestion, KEY) is Match.NO


def test_windows_line_ends() -> None:
    text = CODE.replace("\n", "\r\n")
    suggestion = suggestion_hashes(text, Replacement(6, 6, NEW), KEY)
    assert match_suggestion(text.replace(".item()", ".detach()"), suggestion, KEY) is Match.EXACT


def test_no_code_is_kept() -> None:
    assert "detach" not in str(_suggestion()) and "total" not in str(_suggestion())


def test_what_another_suggestion_makes_of_the_neighbour() -> None:
    text = "for x in loader:\n    total += x.item()\n    torch.cuda.empty_cache()\n    gc.collect()\n    step(x)\n"
    item = Replacement(2, 2, ["    total += x.detach()"])
    empty, collect = Replacement(3, 3, []), Replacement(4, 4, [])
    first = suggestion_hashes(text, empty, KEY, [item, collect])
    second = suggestion_hashes(text, collect, KEY, [item, empty])
    without_item = text.replace(".item()", ".detach()")
    without_empty = text.replace("    torch.cuda.empty_cache()\n", "")
    all_three = without_item.replace("    torch.cuda.empty_cache()\n    gc.collect()\n", "")
    assert [match_suggestion(without_item, made, KEY) for made in (first, second)] == [Match.NO, Match.NO]
    assert [match_suggestion(without_empty, made, KEY) for made in (first, second)] == [Match.EXACT, Match.NO]
    assert [match_suggestion(all_three, made, KEY) for made in (first, second)] == [Match.EXACT, Match.EXACT]
    guarded = text.replace("    torch.cuda", "    if full: torch.cuda")
    assert match_suggestion(guarded, first, KEY) is Match.NO


FUNCTIONS = """\
import torch


def train(model, loader):
    total = 0.0
    for x in loader:
        loss = model(x).mean()
        total += loss.item()
        loss.backward()
    return total


def evaluate(model, loader):
    total = 0.0
    for x in loader:
        loss = model(x).sum()
        total += loss.item()
        print(total)
    return total
"""
DETACHED = ["        total += loss.detach()"]
IN_TRAIN = Replacement(8, 8, DETACHED)
IN_EVALUATE = Replacement(17, 17, DETACHED)


def _applied(text: str, *replacements: Replacement) -> str:
    lines = text.split("\n")
    for one in sorted(replacements, key=lambda one: one.start, reverse=True):
        lines[one.start - 1 : one.end] = one.lines
    return "\n".join(lines)


def test_of_two_places_alike_the_one_that_was_changed() -> None:
    first, second = (suggestion_hashes(FUNCTIONS, one, KEY) for one in (IN_TRAIN, IN_EVALUATE))
    later = _applied(FUNCTIONS, IN_EVALUATE)
    assert match_suggestion(later, first, KEY) is Match.NO
    assert match_suggestion(later, second, KEY) is Match.EXACT
    # The neighbours of both changed, too: the function tells which it is.
    later = later.replace("        loss = ", "        # forward\n        loss = ").replace(
        "        print(total)", "        show(total)"
    )
    later = later.replace("        loss.backward()", "        (loss / 2).backward()")
    assert match_suggestion(later, first, KEY) is Match.NO
    assert match_suggestion(later, second, KEY) is Match.EXACT
    assert match_suggestion(_applied(FUNCTIONS, IN_TRAIN, IN_EVALUATE), first, KEY) is Match.EXACT


def test_the_same_text_in_another_function_proves_nothing() -> None:
    text = FUNCTIONS[: FUNCTIONS.index("def evaluate")]
    stored = suggestion_hashes(text, IN_TRAIN, KEY)
    otherwise = text.replace("loss.item()", "float(loss)")
    elsewhere = "\n\ndef other(loss, total):\n    if loss:\n        total += loss.detach()\n"
    assert match_suggestion(otherwise + elsewhere, stored, KEY) is Match.NO
    # Moved there, with a line that stood beside it.
    moved = text.replace("        total += loss.item()\n        loss.backward()\n", "        step(loss)\n")
    helper = "\n\ndef step(loss):\n    total += loss.detach()\n    loss.backward()\n"
    assert match_suggestion(moved + helper, stored, KEY) is Match.SIMILAR  # indented otherwise
    # The function has another name now.
    assert (
        match_suggestion(_applied(text, IN_TRAIN).replace("def train", "def fit"), stored, KEY) is Match.EXACT
    )


@pytest.mark.parametrize(
    ("new", "match"),
    [
        ("        total += loss.detach()  # no wait", Match.SIMILAR),
        ("        total += loss.detach(\n        )", Match.SIMILAR),
        ("        # no wait\n        total += loss.detach()", Match.EXACT),
        ("        total += loss.clone().detach()", Match.NO),
        ("        pass", Match.NO),
    ],
)
def test_comments_and_line_breaks(new: str, match: Match) -> None:
    text = FUNCTIONS[: FUNCTIONS.index("def evaluate")]
    stored = suggestion_hashes(text, IN_TRAIN, KEY)
    assert match_suggestion(text.replace("        total += loss.item()", new), stored, KEY) is match


def test_statements_with_others_between_them() -> None:
    text = "def run(model, batches):\n    for b in batches:\n        out = model(b.cuda())\n        print(out.item())\n"
    new = ["        out = model(b.cuda(non_blocking=True))", "        outputs.append(out.detach())"]
    stored = suggestion_hashes(text, Replacement(3, 4, new), KEY)
    later = text.replace(
        "\n        out = model(b.cuda())\n        print(out.item())\n", "\n{}\n        check(out)\n{}\n"
    )
    assert match_suggestion(later.format(*new), stored, KEY) is Match.CHANGED
    assert match_suggestion(later.format(new[0], "        print(out.item())"), stored, KEY) is Match.NO


def test_undone() -> None:
    stored = _suggestion()
    applied = CODE.replace(".item()", ".detach()")
    assert not is_undone(applied, stored, KEY)
    assert is_undone(CODE, stored, KEY)
    assert not is_undone(CODE.replace("    total += y.item()\n", ""), stored, KEY)  # gone, not back
    assert not is_undone(applied + "    total += y.item()\n", stored, KEY)  # there in another place, too
    more = _suggestion(new=["    total += y.item()", "    steps_done += 1"])
    assert is_undone(CODE, more, KEY) and not is_undone(CODE + "    steps_done += 1\n", more, KEY)


def test_what_an_older_version_stored_matches_nothing() -> None:
    old = {"old": {"lines": 1, "exact": "a", "loose": "b", "count": 1}, "new": [], "kept": False}
    assert match_suggestion(CODE, old, KEY) is Match.NO and not is_undone(CODE, old, KEY)


MERGED, APPLIED, CHANGED = SignalKind.MERGED, SignalKind.APPLIED, SignalKind.CHANGED


@pytest.mark.parametrize(
    ("match", "undone", "merged", "standing", "new", "back"),
    [
        (Match.NO, False, True, set(), [], []),
        (Match.EXACT, False, False, set(), [(APPLIED, "exact")], []),
        (Match.EXACT, False, True, {APPLIED}, [(MERGED, "exact")], []),
        (Match.SIMILAR, False, True, set(), [(APPLIED, "similar"), (MERGED, "similar")], []),
        (Match.CHANGED, False, False, set(), [(CHANGED, "suggested")], []),
        (Match.CHANGED, False, True, {APPLIED}, [(MERGED, "similar")], []),
        (Match.EXACT, False, False, {CHANGED}, [(APPLIED, "exact")], []),
        (Match.NO, True, True, {APPLIED, CHANGED}, [], [APPLIED, CHANGED]),
        (Match.NO, True, False, set(), [], []),
    ],
)
def test_what_a_head_says(
    match: Match,
    undone: bool,
    merged: bool,
    standing: set[SignalKind],
    new: list[tuple[SignalKind, str]],
    back: list[SignalKind],
) -> None:
    assert signals_of(match, undone, merged, standing) == (new, back)


_OFFER = st.tuples(st.integers(1, 50), st.integers(0, 50), st.lists(st.text(), max_size=4))


@given(
    st.text(),
    st.integers(1, 50),
    st.integers(0, 5),
    st.lists(st.text(), max_size=4),
    st.lists(_OFFER, max_size=3),
    st.text(),
)
def test_never_raises(
    text: str,
    start: int,
    more: int,
    new: list[str],
    others: list[tuple[int, int, list[str]]],
    later: str,
) -> None:
    suggestion = suggestion_hashes(
        text, Replacement(start, start + more, new), KEY, [Replacement(*other) for other in others]
    )
    assert match_suggestion(text, suggestion, KEY) is Match.NO
    match_suggestion(later, suggestion, KEY)
    is_undone(later, suggestion, KEY)
