from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from feedback.suggestions import Match, Replacement, match_suggestion, suggestion_hashes

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
