"""A database of one process in an unnamed file, for data that exceeds memory.

It vanishes with the process.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from contextlib import suppress
from pathlib import Path

Database = sqlite3.Connection
Cursor = sqlite3.Cursor
SCRATCH_ERRORS = (sqlite3.Error, OSError)
"""The errors of a full or missing disk."""
_PRAGMAS = ("journal_mode = OFF", "synchronous = OFF", "locking_mode = EXCLUSIVE", "cache_size = -65536")


def get_scratch_folder() -> Path:
    """Return the system's folder for temporary files (TMPDIR)."""
    return Path(tempfile.gettempdir())


def open_nameless_database(folder: Path, prefix: str) -> Database:
    """Return a database in a new file of `folder`, and remove the file's name at once.

    Its transaction never ends, because no other process reads it. Up to 64 MiB of it are in memory.
    Raises SCRATCH_ERRORS.
    """
    folder.mkdir(parents=True, exist_ok=True)
    number, name = tempfile.mkstemp(prefix=prefix, dir=folder)
    os.close(number)
    db = sqlite3.connect(name, check_same_thread=False)
    for pragma in _PRAGMAS:
        db.execute(f"PRAGMA {pragma}")
    with suppress(FileNotFoundError):
        Path(name).unlink()
    return db
