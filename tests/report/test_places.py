"""What a comment says of the other places of a rule."""

from __future__ import annotations

from ptopt.report.places import joint_message


def test_a_text_names_the_lines_of_all_its_places() -> None:
    first = "`x.cuda()` at line 77 copies each batch of the loop at line 70."
    other = "`x.cuda()` at line 50 copies each batch of the loop at line 40."
    joint = "`x.cuda()` at lines 50, 77 copies each batch of the loop at lines 40, 70."
    assert joint_message([first, other]) == joint
    assert joint_message([first, first]) == joint_message([first]) == first
    assert joint_message([]) == ""


def test_a_text_that_says_more_than_other_lines_stands_alone() -> None:
    assert joint_message(["reads `a` on line 3", "reads `b` on line 4"]) == "reads `a` on line 3"
    assert joint_message(["reads `a` on line 3", "reads `a`"]) == "reads `a` on line 3"
