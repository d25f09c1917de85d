"""Importing this module imports, and reads, all that an analysis needs: a child of `worker.isolation` may open no file.

The server that the children are forked from does so once. No other process should: it takes some 15 MB.
"""

from __future__ import annotations

import codecs
import contextlib
import encodings.aliases
import importlib

from ptopt import impact
from ptopt.ranker.model import default_ranker
from ptopt.rules import rules

# All that the functions which run in a child import when they run, and the modules of what is handed to them.
_NEEDED = """
bot.commands.explain bot.commands.safe_fixes configparser json packaging.requirements packaging.specifiers
packaging.version ptopt.audit.run ptopt.config ptopt.configs.json_events ptopt.configs.toml_values
ptopt.configs.yaml_events ptopt.model_review ptopt.notebook_edits ptopt.project.facts ptopt.review ptopt.source.magics
ptopt.source.notebook tokenize
""".split()
for _name in _NEEDED:
    importlib.import_module(_name)
for _encoding in sorted({*encodings.aliases.aliases.values(), "utf_8_sig"}):
    with contextlib.suppress(LookupError):  # of other platforms
        codecs.lookup(_encoding)  # a source file may declare any
default_ranker()  # reads its data file
for _rule in rules():
    impact.of_rule(_rule.name)  # reads its data files
