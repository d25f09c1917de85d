"""Keeps a second embedded service off a database: it would take back the jobs that the first one runs."""

from __future__ import annotations

import fcntl
import os
from contextlib import ExitStack
from pathlib import Path

from sqlalchemy import Engine

from service.database import DatabaseError


def only_one(engine: Engine) -> ExitStack:
    """Holds the lock beside a SQLite file until the result is closed or the process ends, in whichever way.

    Raises DatabaseError when another process holds it.
    """
    held = ExitStack()
    if engine.dialect.name != "sqlite":
        return held
    database = Path(str(engine.url.database)).resolve()  # the same for every link to it
    path = database.with_name(f"{database.name}.lock")
    file = held.enter_context(os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+"))
    try:
        # Not flock: children that a killed process leaves behind would go on holding it.
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        process = file.read(20).strip() or "unknown"
        held.close()
        raise DatabaseError(
            f"{database} is in use by another embedded service, process {process}: stop it, "
            "or use another file"
        ) from None
    file.truncate()
    file.write(str(os.getpid()))
    file.flush()
    return held
