"""What a safe fix says of inputs for which it gives another, better result."""

from __future__ import annotations

from ptopt.change import whole_file
from ptopt.config import Config
from ptopt.findings import Edit, Finding, Fix, Safety
from ptopt.github.comment import body_section
from ptopt.project.facts import NO_FACTS
from ptopt.report.text import fix_line
from ptopt.review import review_files
from ptopt.verify import together

CODE = b"import torch\n\n\ndef logs(x):\n    return torch.log(torch.softmax(x, dim=-1))\n"
STAYS = "it stays finite where a probability underflows and its logarithm is `-inf`"


def _finding() -> Finding:
    config = Config.model_validate({"select": ["PTO407"]})
    review = review_files([whole_file("ops.py", CODE)], config=config, facts=NO_FACTS, limit_to_change=False)
    (finding,) = review.findings
    return finding


def test_the_logarithm_of_an_underflow_is_named() -> None:
    assert fix_line(_finding()) == f"Fix (safe: same behaviour, but {STAYS})"


def test_a_comment_names_it_too() -> None:
    review = review_files(
        [whole_file("ops.py", CODE)], config=Config(), facts=NO_FACTS, limit_to_change=False
    )
    text = body_section(review, _finding())
    assert f"does not change behaviour, but {STAYS}" in text and "assumes" not in text


def test_it_is_no_assumption_of_an_unsafe_fix_that_it_is_joined_with() -> None:
    safe = Fix(Safety.SAFE, (Edit(0, 1, "a"),), STAYS)
    unsafe = Fix(Safety.UNSAFE, (Edit(5, 6, "b"),), "nobody reads it")
    joint = together([safe, unsafe])
    assert joint is not None and joint.assumption == "nobody reads it"
