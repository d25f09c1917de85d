from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.training import texts
from training.dataset.licences import (
    ATTRIBUTION,
    TRAINABLE,
    UNKNOWN,
    gate,
    normalised,
    of_metadata,
    of_text,
    together,
)


@pytest.mark.parametrize(
    ("expression", "store", "train"),
    [
        ("MIT", True, True),
        ("Apache-2.0", True, True),
        ("MIT OR GPL-3.0-only", True, True),
        ("MIT AND Apache-2.0", True, True),
        ("MIT AND GPL-3.0-only", False, False),
        ("(MIT OR GPL-2.0-only) AND BSD-3-Clause", True, True),
        ("MIT OR BSD-3-Clause AND GPL-2.0-only", True, True),
        ("GPL-3.0-only", False, False),
        ("Apache-2.0 WITH LLVM-exception", False, False),
        ("CC-BY-SA-4.0", True, False),
        ("CC-BY-SA-4.0 AND MIT", True, False),
        ("CC-BY-NC-4.0", False, False),
        ("LicenseRef-terms-of-github.com", True, False),
        (UNKNOWN, False, False),
        ("no licence at all", False, False),
        ("", False, False),
        ("MIT AND", False, False),
        ("(MIT", False, False),
    ],
)
def test_the_gate(expression, store, train):
    verdict = gate(expression)
    assert (verdict.store, verdict.train) == (store, train)
    assert bool(verdict.reason) is not train


def test_an_opt_in_counts_for_what_it_names_alone():
    assert gate("CC-BY-SA-4.0", {"CC-BY-SA-4.0"}).train
    assert not gate("CC-BY-SA-3.0", {"CC-BY-SA-4.0"}).train
    assert not gate("CC-BY-SA-4.0 AND CC-BY-SA-3.0", {"CC-BY-SA-4.0"}).train
    assert gate("LicenseRef-x AND MIT", {"LicenseRef-x"}).train


@given(st.lists(st.sampled_from(sorted(TRAINABLE | ATTRIBUTION | {"GPL-3.0-only"})), min_size=1, max_size=4))
def test_together_is_as_strict_as_its_strictest_part(parts):
    assert gate(together(parts)).train == all(gate(part).train for part in parts)
    assert gate(together(parts)).store == all(gate(part).store for part in parts)


@given(st.text(max_size=80))
def test_no_text_breaks_the_gate_or_passes_it(text):
    gate(text)
    of_text(text)
    normalised(text)


@pytest.mark.parametrize(
    ("text", "licence"),
    [
        (texts.MIT, "MIT"),
        (texts.MIT.upper(), "MIT"),
        (texts.BSD3, "BSD-3-Clause"),
        (texts.BSD2, "BSD-2-Clause"),
        (texts.ISC, "ISC"),
        (texts.ZERO_BSD, "0BSD"),
        (texts.UNLICENSE, "Unlicense"),
        ("SPDX-License-Identifier: Apache-2.0\n", "Apache-2.0"),
        (texts.GPL, None),
        (texts.MIT + texts.GPL, None),
        (texts.MIT + texts.BSD3, None),
        (texts.MIT + '\n"Commons Clause" License Condition v1.0\n', None),
        (texts.MIT + "\nThe Software may be used for non-commercial purposes only.\n", None),
        (texts.MIT.replace("without restriction", "for research"), None),
        (texts.BSD3.replace("3. Neither", "3. All advertising materials must tell. 4. Neither"), None),
        ("All rights reserved.", None),
        ("", None),
    ],
)
def test_licence_texts(text, licence):
    assert of_text(text) == licence


def test_the_licence_of_this_project():
    from pathlib import Path

    assert of_text((Path(__file__).parents[3] / "LICENSE").read_text()) == "Apache-2.0"


@pytest.mark.parametrize(
    ("expression", "field", "classifiers", "licence"),
    [
        ("MIT", None, [], "MIT"),
        ("mit or apache-2.0", None, [], "MIT OR Apache-2.0"),
        (None, None, ["License :: OSI Approved :: MIT License"], "MIT"),
        (None, "MIT", ["License :: OSI Approved :: MIT License"], "MIT"),
        (None, "GPL-3.0-only", ["License :: OSI Approved :: MIT License"], None),
        (None, None, ["License :: OSI Approved :: BSD License"], None),
        (None, "BSD-3-Clause", ["License :: OSI Approved :: BSD License"], "BSD-3-Clause"),
        (None, texts.BSD3, ["License :: OSI Approved :: BSD License"], "BSD-3-Clause"),
        (None, "BSD", ["License :: OSI Approved :: BSD License"], None),
        (None, "Apache 2.0", ["Programming Language :: Python"], "Apache-2.0"),
        (None, None, ["License :: OSI Approved"], None),
        (None, "UNKNOWN", [], None),
        ("NOASSERTION", None, [], None),
        (None, None, [], None),
        (
            None,
            None,
            ["License :: OSI Approved :: MIT License", "License :: OSI Approved :: Apache Software License"],
            "Apache-2.0 AND MIT",
        ),
        (None, "MIT", ["License :: OSI Approved :: GNU General Public License v3 (GPLv3)"], None),
    ],
)
def test_the_licence_of_a_package(expression, field, classifiers, licence):
    assert of_metadata(expression, field, classifiers) == licence
