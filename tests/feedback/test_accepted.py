from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from feedback.accepted import Taken, remember, taken

KEY = b"key"
CODE = "import torch\n\nfor x in loader:\n    x = x.cuda()\n    y = model(x)\n    total += y.item()\n"
NEW = ["    total += y.detach()"]


def _suggestion(text: str = CODE, line: int = 6, new: list[str] = NEW) -> dict[str, object]:
    return remember(text, line, line, new, KEY)


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
    suggestion = remember(twice, 6, 6, NEW, KEY)
    assert taken(twice, suggestion, KEY) is Taken.NO


def test_windows_line_ends() -> None:
    text = CODE.replace("\n", "\r\n")
    suggestion = remember(text, 6, 6, NEW, KEY)
    assert taken(text.replace(".item()", ".detach()"), suggestion, KEY) is Taken.EXACT


def test_no_code_is_kept() -> None:
    assert "detach" not in str(_suggestion()) and "total" not in str(_suggestion())


@given(st.text(), st.integers(1, 50), st.integers(0, 5), st.lists(st.text(), max_size=4), st.text())
def test_never_raises(text: str, start: int, more: int, new: list[str], later: str) -> None:
    suggestion = remember(text, start, start + more, new, KEY)
    assert taken(text, suggestion, KEY) is Taken.NO
    taken(later, suggestion, KEY)
