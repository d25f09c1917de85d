"""Scripts that start another script, which is given to them as an argument: that one decides what the training does."""

from __future__ import annotations

import ast
import re

from ptopt.audit.live import Live
from ptopt.audit.modules import dotted_name

_SCRIPT = re.compile(r"^(-{0,2})(training_script|train_script|user_script|script|script_path)$")
_STARTS = frozenset({"Popen", "run", "call", "check_call", "check_output", "run_path", "run_module", "execv", "execve", "execvp", "execvpe", "spawnv", "system"})  # fmt: skip
_OF = ("subprocess", "runpy", "os")


def started_script(live: Live) -> str:
    """The argument that names the script to start: `training_script`; "" where the script starts no other one."""
    module = live.start
    calls = [node for node in ast.walk(module.file.tree) if isinstance(node, ast.Call)]
    if not any(_starts(live, call) for call in calls):
        return ""
    for call in calls:
        named = call.args[0] if call.args else None
        if not dotted_name(call.func).endswith("add_argument") or not isinstance(named, ast.Constant):
            continue
        match = _SCRIPT.match(str(named.value).replace("-", "_").replace("__", "--", 1))
        if match is not None and module.file.index.attributes_named(match[2]):
            return match[2]
    return ""


def _starts(live: Live, call: ast.Call) -> bool:
    name = dotted_name(call.func)
    root, _, rest = name.partition(".")
    origin = live.start.imported.get(root)
    if origin is None or origin[0]:
        return False
    package = origin[1].partition(".")[0]
    return package in _OF and (rest or origin[2] or "").rpartition(".")[2] in _STARTS
