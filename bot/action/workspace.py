"""The audit of the checkout that a workflow made before this step."""

from __future__ import annotations

from pathlib import Path

from bot.action.errors import ActionError
from ptopt.audit.run import audit_of
from ptopt.audit.values import Audit
from ptopt.config import OWN_FILE, PROJECT_FILE, ConfigError, load_config
from ptopt.inputs import project_files
from ptopt.inputs.whole import whole_folder
from ptopt.project.facts import FACT_FILES, read_facts
from ptopt.rules import known_names


def audit_of_folder(folder: Path, name: str) -> Audit:
    """Raises ActionError where the configuration has errors."""
    found = project_files(folder, [OWN_FILE, PROJECT_FILE, *FACT_FILES])
    try:
        own = {path: found[path] for path in (OWN_FILE, PROJECT_FILE) if path in found}
        config = load_config(own, known_names())
    except ConfigError as error:
        raise ActionError(str(error)) from None
    chosen = config.model_copy(update={"skip": ()})  # training scripts often lie among the examples
    files = whole_folder(folder, folder, wants=lambda path: chosen.why_skipped(path) is None)
    facts = read_facts({path: data for path, data in found.items() if path in FACT_FILES})
    return audit_of(name, files.files, config, facts, files.not_read)
