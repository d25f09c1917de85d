"""Where the time of a run went: traces and memory snapshots that somebody recorded, read and judged. They are hostile data."""
