"""What replies say. Those of the table are worded as people word them on GitHub."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedback.signals.replies import Says, classify

REPLIES = {
    Says.AGREEMENT: (
        "Good catch!",
        "Thanks",
        "👍",
        "+1",
        "Done",
        "You're right, fixed in abc1234",
        "you’re **right**",
        "Fixed, thanks. Why do you think so?",
        "Agreed.",
        "makes sense",
        "Right, it is not needed here",
        "not intentional, will fix",
        "Yes, this should be hoisted.",
        "> false positive?\n\nAgreed",
        "```python\n# false positive\n```\nok",
        "oops, my bad",
    ),
    Says.DISAGREEMENT: (
        "I disagree",
        "false positive",
        "I don't think so.",
        "No, it is not",
        "Wrong.",
        "👎",
        "won't fix",
        "This doesn't make sense",
        "this runs once, so it doesn't matter",
        "Good point, but it would break resuming",
        "Thanks, but this is a false positive.",
        "This is not a good catch",
        "that's a good idea but not worth it",
        "No measurable speedup here",
    ),
    Says.INTENTIONAL: (
        "This is intentional, we log on each step",
        "by design",
        "Good catch, but it is on purpose",
        "we need the value here for early stopping",
        "The sync is required for correct timing",
        "I'd keep it as is",
    ),
    Says.QUESTION: (
        "Why is that slow?",
        "why would this matter",
        "Isn't this wrong?",
        "What do you suggest instead?",
        "How much would it gain?",
    ),
    Says.NOTHING: (
        "",
        "The tensor is on the CPU",
        "Not sure this is right",
        "Maybe a false positive",
        "cc @ada",
        "Good catch. However, this is wrong.",
        "<!-- false positive -->",
        "`false positive`",
        "> I disagree",
        "https://example.org/false/positive-false-positive",
        "不同意",
    ),
}


@pytest.mark.parametrize(
    ("says", "text"), [(says, text) for says, several in REPLIES.items() for text in several]
)
def test_what_a_reply_says(says: Says, text: str) -> None:
    assert classify(text) is says
    assert classify(f"  {text.upper() if text.isascii() and '://' not in text else text}  \n") is says


PIECES = st.sampled_from(
    [
        *(text for several in REPLIES.values() for text in several),
        ">",
        "`",
        "```",
        "\n",
        "<!--",
        "-->",
        "?",
        ".",
        "no ",
        "not ",
        "\0",
        "\ud800",
    ]
)


@given(st.one_of(st.text(), st.lists(PIECES, max_size=12).map("".join)))
def test_any_text_says_one_thing(text: str) -> None:
    assert classify(text) in Says
    assert classify(text) is classify(text)


@given(
    st.sampled_from([t for several in REPLIES.values() for t in several]),
    st.text(alphabet="` <>-!\n#", max_size=30),
)
def test_quotations_and_code_do_not_speak(text: str, noise: str) -> None:
    quoted = "".join(f"> {line}\n" for line in f"{text}{noise}".split("\n"))
    assert classify(quoted) is Says.NOTHING
    assert classify(f"```\n{text.replace('`', '')}\n```") is Says.NOTHING


@pytest.mark.parametrize(
    "piece", ["`", "<", "<!--", "```\n", "> ", "no ", "not really ", "?", "is ", "'", "a", "\n", "https://"]
)
def test_hostile_replies_take_no_time(piece: str) -> None:
    before = time.process_time()
    classify(piece * (262_144 // len(piece)))
    assert time.process_time() - before < 2  # milliseconds
