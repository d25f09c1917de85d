"""Libraries that lie in a repository with examples of their own."""

from __future__ import annotations

import pytest

from tests.audit.conftest import Auditor
from tests.audit.test_measures import LOADER, script

TRAIN = script(before=LOADER.format(""))
LIBRARY = {"lib/amp/setup.py": "", "lib/amp/amp/__init__.py": "", "lib/amp/examples/imagenet/main.py": TRAIN}
OWN = {"train.py": TRAIN}
OF_LIBRARY = {"lib/amp/README.md": "python examples/imagenet/main.py"}
PACKAGES = {f"{name}/{path}": "" for name in ("a", "b") for path in ("setup.py", f"{name}/__init__.py")}


@pytest.mark.parametrize(
    ("files", "kept"),
    [
        ({**LIBRARY, **OWN}, False),
        ({**LIBRARY, **OWN, **OF_LIBRARY}, False),
        (LIBRARY, True),  # nothing else trains
        ({**LIBRARY, **OWN, "README.md": "python lib/amp/examples/imagenet/main.py"}, True),
        ({**LIBRARY, **OWN, **PACKAGES}, True),  # the packages of one project
        ({**OWN, "lib/amp/examples/imagenet/main.py": TRAIN}, True),  # no library
    ],
)
def test_examples_of_a_library_are_no_trainings(audited: Auditor, files: dict[str, str], kept: bool) -> None:
    audit = audited(files)
    assert ("lib/amp/examples/imagenet/main.py" in {entry.path for entry in audit.entries}) is kept
    said = "lib/amp/examples/imagenet/main.py: an example of the library in lib/amp"
    assert (said in audit.not_judged) is not kept
