"""A store of a topic's rows, by the place of their record and by their key, in a file: a topic is
larger than memory.

A place is a byte string that begins with the partition. Memory holds a few thousand changes and the
database's cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from consumer.errors import TransientError
from schemas.io.scratch import SCRATCH_ERRORS, get_scratch_folder, open_nameless_database

MAX_PENDING_ROWS = 10_000
"""Changes that are written to the file at a time."""
_ASKED = 500
"""Keys that are looked up at a time."""


class RowStore:
    """A map of place → (key, value) that can also be searched by key. Used by one thread.

    A key may be at several places. Raises TransientError if the disk is full or missing.
    """

    def __init__(self, folder: Path | None = None) -> None:
        """Create the store in `folder`; None: in the system's folder for temporary files."""
        self._folder = folder or get_scratch_folder()
        self._waiting: dict[bytes, tuple[bytes, bytes] | None] = {}
        self._by_key = False
        with self._translate_errors():
            self._db = open_nameless_database(self._folder, "rows-")
            self._db.execute(
                "CREATE TABLE rows (place BLOB PRIMARY KEY, k BLOB NOT NULL, value "
                "BLOB NOT NULL) WITHOUT ROWID"
            )

    def put_row(self, place: bytes, key: bytes, value: bytes) -> None:
        self._waiting[place] = key, value
        if len(self._waiting) >= MAX_PENDING_ROWS:
            self._write_pending()

    def drop_row(self, place: bytes) -> None:
        self._waiting[place] = None
        if len(self._waiting) >= MAX_PENDING_ROWS:
            self._write_pending()

    def clear_prefix(self, prefix: bytes) -> None:
        """Delete the rows at places that begin with `prefix`."""
        self._write_pending()
        end = prefix + b"\xff" * 64
        with self._translate_errors():
            self._db.execute("DELETE FROM rows WHERE place >= ? AND place < ?", (prefix, end))

    def find_rows(self, keys: Sequence[bytes]) -> list[tuple[bytes, bytes, bytes]]:
        """Return (place, key, value) of all rows with one of these keys."""
        self._write_pending()
        self._create_key_index()
        found: list[tuple[bytes, bytes, bytes]] = []
        for at in range(0, len(keys), _ASKED):
            some = keys[at : at + _ASKED]
            marks = ", ".join("?" * len(some))
            with self._translate_errors():
                found += self._db.execute(
                    f"SELECT place, k, value FROM rows WHERE k IN ({marks})",
                    list(some),
                )
        return found

    def list_values_by_prefix(self, prefix: bytes) -> list[bytes]:
        """Return the values of all rows with keys that begin with `prefix`."""
        self._write_pending()
        self._create_key_index()
        with self._translate_errors():
            found = self._db.execute(
                "SELECT value FROM rows WHERE k >= ? AND k < ?", (prefix, prefix + b"\xff")
            )
            return [row[0] for row in found]

    def yield_key_pages(self, size: int) -> Iterator[list[bytes]]:
        """Yield the keys, each once, `size` at a time.

        The store may change meanwhile: a key that is added after the current page may or may not be
        included.
        """
        self._create_key_index()
        last = b""
        while True:
            self._write_pending()
            with self._translate_errors():
                page = [
                    row[0]
                    for row in self._db.execute(
                        "SELECT DISTINCT k FROM rows WHERE k > ? ORDER BY k LIMIT ?", (last, size)
                    )
                ]
            if not page:
                return
            last = page[-1]
            yield page

    def close(self) -> None:
        self._db.close()

    def _write_pending(self) -> None:
        if not self._waiting:
            return
        waiting, self._waiting = sorted(self._waiting.items(), key=lambda each: each[0]), {}
        with self._translate_errors():
            self._db.executemany(
                "INSERT OR REPLACE INTO rows VALUES (?, ?, ?)",
                ((place, *row) for place, row in waiting if row is not None),
            )
            self._db.executemany(
                "DELETE FROM rows WHERE place = ?", ((place,) for place, row in waiting if row is None)
            )

    def _create_key_index(self) -> None:
        """Create the index after the topic was first read, which is faster without it."""
        if not self._by_key:
            self._write_pending()
            with self._translate_errors():
                self._db.execute("CREATE INDEX by_key ON rows (k)")
            self._by_key = True

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except SCRATCH_ERRORS as error:
            raise TransientError(
                f"the rows of a topic cannot be kept in {self._folder}: {error}",
                "make room there, or set TMPDIR to a folder that has it",
            ) from error
