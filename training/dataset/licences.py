"""The licence gate: what may be stored, what may be trained on, and which licence a text or its metadata names."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from license_expression import LicenseSymbol, Licensing
from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

TRAINABLE = frozenset(
    "0BSD Apache-2.0 BSD-2-Clause BSD-3-Clause ISC MIT MIT-0 PSF-2.0 Python-2.0 Unlicense Zlib".split()
)
ATTRIBUTION = frozenset("CC-BY-SA-2.5 CC-BY-SA-3.0 CC-BY-SA-4.0 CC-BY-3.0 CC-BY-4.0".split())
"""May be stored with author and address; trained on only where the operator says so."""

UNKNOWN = "LicenseRef-unknown"

# Classifiers and free-text names that say which licence it is; "BSD" or "License :: OSI Approved" alone do not.
_NAMES = {
    "apache 2": "Apache-2.0",
    "apache 2.0": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "apache license, version 2.0": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "apache-2": "Apache-2.0",
    "bsd 2-clause": "BSD-2-Clause",
    "bsd 3-clause": "BSD-3-Clause",
    "bsd-2": "BSD-2-Clause",
    "bsd-3": "BSD-3-Clause",
    "isc license": "ISC",
    "isc license (iscl)": "ISC",
    "mit license": "MIT",
    "mit no attribution license (mit-0)": "MIT-0",
    "new bsd": "BSD-3-Clause",
    "new bsd license": "BSD-3-Clause",
    "psf": "PSF-2.0",
    "python software foundation license": "PSF-2.0",
    "simplified bsd": "BSD-2-Clause",
    "the mit license": "MIT",
    "the mit license (mit)": "MIT",
    "the unlicense (unlicense)": "Unlicense",
    "zero-clause bsd (0bsd)": "0BSD",
    "zlib/libpng license": "Zlib",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision of the gate, with the reason for a refusal."""

    store: bool
    train: bool
    reason: str = ""


def gate(expression: str, opted_in: Collection[str] = ()) -> Verdict:
    """May a text under this SPDX expression be stored, and trained on?

    `A OR B` passes with either, `A AND B` with both. `LicenseRef-…` and attribution licences are stored; they and all
    others are trained on only where the operator names them in `opted_in`.
    """
    try:
        allowed = _holds(expression, lambda one: one in TRAINABLE or one in opted_in)
        stored = _holds(expression, lambda one: _storable(one) or one in opted_in)
    except InvalidLicenseExpression:
        return Verdict(False, False, f"{expression!r} is no SPDX expression")
    if allowed:
        return Verdict(True, True)
    if stored:
        return Verdict(True, False, f"{expression} needs an opt-in to be trained on")
    return Verdict(False, False, f"{expression} is not on the list of licences")


def _storable(licence: str) -> bool:
    return licence in TRAINABLE | ATTRIBUTION or (licence.startswith("LicenseRef-") and licence != UNKNOWN)


def _holds(expression: str, allowed: Callable[[str], bool]) -> bool:
    """Evaluate the expression; a licence with an exception is not the licence."""
    algebra = Licensing()
    parsed = algebra.parse(canonicalize_license_expression(expression))
    values = {
        one: algebra.TRUE if type(one) is LicenseSymbol and allowed(one.key) else algebra.FALSE
        for one in parsed.symbols
    }
    return bool(parsed.subs(values).simplify() == algebra.TRUE)


def together(licences: Iterable[str]) -> str:
    """The expression for a document whose parts are under these licences."""
    parts = sorted({licence for licence in licences if licence}) or [UNKNOWN]
    return " AND ".join(f"({part})" if " OR " in part else part for part in parts)


def normalised(name: str) -> str | None:
    """The SPDX expression for a metadata field or a classifier, or None where it is ambiguous."""
    name = name.rpartition("::")[2].strip()
    known = _NAMES.get(name.lower())
    if known:
        return known
    if not name or len(name) > 200 or name.upper() in ("NOASSERTION", "NONE", "UNKNOWN"):
        return None
    try:
        return str(canonicalize_license_expression(name))
    except InvalidLicenseExpression:
        return None


def of_metadata(expression: str | None, field: str | None, classifiers: Iterable[str]) -> str | None:
    """The licence that a package's metadata names: License-Expression, else classifiers, else the License field.

    None where they name no licence, or contradict each other.
    """
    if expression:
        return normalised(expression)
    named = [c for c in classifiers if c.startswith("License ::") and not c.endswith("OSI Approved")]
    meant = {normalised(c) for c in named}
    declared = (normalised(field) or of_text(field)) if field else None
    vague = all(c.rpartition("::")[2].strip() == "BSD License" for c in named)  # any number of clauses
    if not named or (vague and declared in ("BSD-2-Clause", "BSD-3-Clause", "0BSD")):
        return declared
    if None in meant or (declared and declared not in meant):
        return None
    return together(meant)  # type: ignore[arg-type]


# --- licence texts

_MIT_BODY = (
    "permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated "
    "documentation files"
)
_NOTICE = (
    "copyright notice and this permission notice shall be included in all copies or substantial portions"
)
_BSD = "redistribution and use in source and binary forms, with or without modification, are permitted provided that"
_BSD_1 = "redistributions of source code must retain the above copyright notice"
_BSD_2 = "redistributions in binary form must reproduce the above copyright notice"
_BSD_3 = re.compile(r"neither the names? of .{1,200}? may be used to endorse or promote products")
_ISC_NOTICE = "provided that the above copyright notice and this permission notice appear in all copies"

# (SPDX id, phrases that must all be there, longest text in characters, normalised)
_TEXTS: tuple[tuple[str, tuple[str, ...], int], ...] = (
    ("MIT-0", (_MIT_BODY, "without restriction", "the software is provided as is"), 1_400),
    ("MIT", (_MIT_BODY, "without restriction", _NOTICE, "the software is provided as is"), 1_900),
    ("BSD-3-Clause", (_BSD, _BSD_1, _BSD_2, "endorse or promote products", "as is"), 2_600),
    ("BSD-2-Clause", (_BSD, _BSD_1, _BSD_2, "as is"), 2_200),
    ("ISC", ("for any purpose with or without fee is hereby granted", _ISC_NOTICE, "as is"), 1_400),
    ("0BSD", ("for any purpose with or without fee is hereby granted", "as is"), 1_100),
    (
        "Apache-2.0",
        (
            "apache license version 2.0, january 2004",
            "grant of copyright license",
            "grant of patent license",
            "redistribution",
            "submission of contributions",
            "disclaimer of warranty",
        ),
        13_500,
    ),
    (
        "Unlicense",
        (
            "this is free and unencumbered software released into the public domain",
            "anyone is free to copy, modify, publish, use, compile, sell, or distribute this software",
        ),
        2_000,
    ),
    (
        "Zlib",
        (
            "this software is provided as-is, without any express or implied warranty",
            "permission is granted to anyone to use this software for any purpose",
            "this notice may not be removed or altered from any source distribution",
        ),
        1_500,
    ),
)
_FOREIGN = re.compile(
    r"non-?commercial (?:use|purpose|research|licen)|commons clause|gnu (?:affero |lesser |library )?general public|creative commons|"
    r"academic (?:use|research) only|research purposes only|not for commercial|ethical|field of use|"
    r"machine learning models? (?:may|shall|must) not|mozilla public|server side public|business source"
)
_TAG = re.compile(r"SPDX-License-Identifier:\s*([A-Za-z0-9.+() \-]{1,100})")


def of_text(text: str) -> str | None:
    """The SPDX id of a licence file, or None where it is not one of the known texts, whole and alone.

    A text with anything more than its licence, such as a second one or a restriction, is not one of them.
    """
    flat = re.sub(r"[\"'`“”‘’*#_<>=]|\(c\)|©", "", text[:60_000].lower())
    flat = " ".join(flat.split())
    if _FOREIGN.search(flat) or len({phrases[0] for _, phrases, _ in _TEXTS if phrases[0] in flat}) > 1:
        return None
    for licence, phrases, longest in _TEXTS:
        if len(flat) > longest or not all(phrase in flat for phrase in phrases):
            continue
        if licence == "MIT-0" and ("subject to the following" in flat or "permission notice" in flat):
            continue
        if licence == "BSD-2-Clause" and ("endorse" in flat or "advertising" in flat):
            continue
        if licence == "BSD-3-Clause" and (not _BSD_3.search(flat) or "advertising materials" in flat):
            continue
        if licence == "0BSD" and "provided that" in flat:
            continue
        return licence
    tag = _TAG.search(text[:2_000])
    return normalised(tag.group(1).strip()) if tag and len(flat) < 600 else None
