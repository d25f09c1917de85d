from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from feedback.suggestions import Offer, Taken, remember, taken

KEY = b"key"
CODE = "import torch\n\nfor x in loader:\n    x = x.cuda()\n    y = model(x)\n    total += y.item()\n"
NEW = ["    total += y.detach()"]


def _suggestion(text: str = CODE, line: int = 6, new: list[str] = NEW) -> dict[str, object]:
    return remember(text, Offer(line, line, new), KEY)


def test_the_suggested_lines_in_place_of_the_old_ones() -> None:
    assert taken(CODE.replace(".item()", ".detach()"), _suggestion(), KEY) is Taken.EXACT


def test_it_may_move_and_its_neighbours_may_change() -> None:
    later = (
        "import os\n" + CODE.replace(".item()", ".detach()").replace("model(x)", "net(x)") + "print(total)\n"
    )
    assert taken(later, _suggestion(), KEY) is Taken.EXACT


def test_lines_added_to_the_old_ones() -> None:
    more = _suggestion(new=["    total += y.item()", "    steps_done += 1"])
    assert taken(CODE, more, KEY) is Taken.NO
    assert taken(CODE + "    steps_done += 1\n", more, KEY) is Taken.EXACT


def test_formatted_otherwise() -> None:
    later = CODE.replace("total += y.item()", "total  +=  y.detach( )")
    assert taken(later, _suggestion(), KEY) is Taken.SIMILAR


def test_untouched_changed_otherwise_or_deleted() -> None:
    assert taken(CODE, _suggestion(), KEY) is Taken.NO
    assert taken(CODE.replace(".item()", ".tolist()"), _suggestion(), KEY) is Taken.NO
    assert taken("import torch\n", _suggestion(), KEY) is Taken.NO
    assert taken("", _suggestion(), KEY) is Taken.NO


def test_lines_to_delete() -> None:
    delete = _suggestion(line=4, new=[])
    assert taken(CODE.replace("    x = x.cuda()\n", ""), delete, KEY) is Taken.EXACT
    assert taken(CODE, delete, KEY) is Taken.NO


def test_what_stood_there_before_is_no_proof() -> None:
    twice = CODE + CODE.replace(".item()", ".detach()")
    suggestion = remember(twice, Offer(6, 6, NEW), KEY)
    assert taken(twice, suggestion, KEY) is Taken.NO


def test_windows_line_ends() -> None:
    text = CODE.replace("\n", "\r\n")
    suggestion = remember(text, Offer(6, 6, NEW), KEY)
    assert taken(text.replace(".item()", ".detach()"), suggestion, KEY) is Taken.EXACT


def test_no_code_is_kept() -> None:
    assert "detach" not in str(_suggestion()) and "total" not in str(_suggestion())


def test_what_another_suggestion_makes_of_the_neighbour() -> None:
    text = "for x in loader:\n    total += x.item()\n    torch.cuda.empty_cache()\n    gc.collect()\n    step(x)\n"
    item = Offer(2, 2, ["    total += x.detach()"])
    empty, collect = Offer(3, 3, []), Offer(4, 4, [])
    first = remember(text, empty, KEY, [item, collect])
    second = remember(text, collect, KEY, [item, empty])
    without_item = text.replace(".item()", ".detach()")
    without_empty = text.replace("    torch.cuda.empty_cache()\n", "")
    all_three = without_item.replace("    torch.cuda.empty_cache()\n    gc.collect()\n", "")
    assert [taken(without_item, made, KEY) for made in (first, second)] == [Taken.NO, Taken.NO]
    assert [taken(without_empty, made, KEY) for made in (first, second)] == [Taken.EXACT, Taken.NO]
    assert [taken(all_three, made, KEY) for made in (first, second)] == [Taken.EXACT, Taken.EXACT]
    guarded = text.replace("    torch.cuda", "    if full: torch.cuda")
    assert taken(guarded, first, KEY) is Taken.NO


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
    suggestion = remember(text, Offer(start, start + more, new), KEY, [Offer(*other) for other in others])
    assert taken(text, suggestion, KEY) is Taken.NO
    taken(later, suggestion, KEY)
