"""jsonschema, imported in a tenth of its time.

Where `rfc3987_syntax` is installed (a tool for SBOMs brings it), jsonschema makes parsers of 38 grammars, a second in each process
that imports it, for formats of internationalised addresses that no check here asks for. It takes a missing package as it comes.
"""

from __future__ import annotations

import sys

sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]

import jsonschema  # noqa: E402

__all__ = ["jsonschema"]
