"""Keeps keys that do not fit into memory in a file of a scratch folder.

The file has no name, so the system deletes it when the process ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from consumer.attempt.copies.keys import KEYS_PER_PAGE, MemoryKeys, encode_key, split_into_pages
from consumer.errors import TransientError
from schemas.io.scratch import SCRATCH_ERRORS, Cursor, get_scratch_folder, open_nameless_database
from schemas.table.model import Key

MAX_KEYS_IN_MEMORY = 200_000
"""Number of keys up to which no file is created; each takes about 150 bytes."""
MAX_BUFFERED_KEYS = 10_000
"""Number of keys that are written to the file at a time."""


class SpilledKeys:
    """A KeyComparison in a file of `folder`, filled with the content of `first`."""

    def __init__(self, folder: Path, first: MemoryKeys) -> None:
        with _translate_disk_errors(folder):
            self._db = open_nameless_database(folder, "keys-")
        self._folder = folder
        self._waiting: dict[bytes, bool] = {}  # → whether it exists
        self._run_statement("CREATE TABLE living (k BLOB PRIMARY KEY, found INTEGER) WITHOUT ROWID")
        self._run_statement("CREATE TABLE doubts (k BLOB PRIMARY KEY) WITHOUT ROWID")
        self._run_for_each("INSERT INTO living VALUES (?, ?)", first.living.items())
        self._run_for_each("INSERT INTO doubts VALUES (?)", ((key,) for key in first.doubts))

    def _run_statement(self, text: str, *values: object) -> Cursor:
        with _translate_disk_errors(self._folder):
            return self._db.execute(text, values)

    def _run_for_each(self, text: str, rows: Iterable[tuple[object, ...]]) -> None:
        with _translate_disk_errors(self._folder):
            self._db.executemany(text, rows)

    def note_key(self, key: Key, exists: bool) -> None:
        self._waiting[encode_key(key)] = exists
        if len(self._waiting) >= MAX_BUFFERED_KEYS:
            self._write_buffered()

    def _write_buffered(self) -> None:
        waiting, self._waiting = sorted(self._waiting.items()), {}
        come = ((key,) for key, exists in waiting if exists)
        deleted = ((key,) for key, exists in waiting if not exists)
        self._run_for_each("INSERT OR REPLACE INTO living VALUES (?, 0)", come)
        self._run_for_each("DELETE FROM living WHERE k = ?", deleted)

    def clear(self) -> None:
        self._waiting.clear()
        self._run_statement("DELETE FROM living")

    def compare_keys(self, keys: Iterable[Key]) -> None:
        self._write_buffered()
        there = [(key,) for key in map(encode_key, keys)]
        self._run_for_each("UPDATE living SET found = 1 WHERE k = ?", there)
        self._run_for_each(
            "INSERT OR IGNORE INTO doubts SELECT ?1 WHERE NOT EXISTS (SELECT 1 FROM living WHERE k = ?1)",
            there,
        )

    def yield_unmatched(self) -> Iterator[list[Key]]:
        self._write_buffered()
        return split_into_pages(row[0] for row in self._run_statement("SELECT k FROM living WHERE NOT found"))

    def discard_doubts(self, keys: Iterable[Key]) -> None:
        self._run_for_each("DELETE FROM doubts WHERE k = ?", [(encode_key(key),) for key in keys])

    def yield_doubted(self) -> Iterator[list[Key]]:
        return split_into_pages(self._yield_doubts())

    def _yield_doubts(self) -> Iterator[bytes]:
        """Yield the doubted keys. Each page is asked for when it is needed, because keys may be discarded
        before.
        """
        query, after = "SELECT k FROM doubts WHERE k > ? ORDER BY k", b""
        while rows := self._run_statement(query, after).fetchmany(KEYS_PER_PAGE):
            yield from (row[0] for row in rows)
            after = rows[-1][0]

    def close(self) -> None:
        self._db.close()


class ScratchKeys:
    """A KeyComparison that moves to a file of `folder` once it holds more than `most` keys.

    Used by one thread.
    """

    def __init__(self, folder: Path | None = None, most: int = MAX_KEYS_IN_MEMORY) -> None:
        """`folder`: the system's folder for temporary files by default."""
        self._folder = folder or get_scratch_folder()
        self._most = most
        self._keys: MemoryKeys | SpilledKeys = MemoryKeys()

    def _spill_if_large(self) -> None:
        keys = self._keys
        if isinstance(keys, MemoryKeys) and len(keys.living) + len(keys.doubts) > self._most:
            self._keys = SpilledKeys(self._folder, keys)

    def note_key(self, key: Key, exists: bool) -> None:
        self._keys.note_key(key, exists)
        self._spill_if_large()

    def clear(self) -> None:
        self._keys.clear()

    def compare_keys(self, keys: Iterable[Key]) -> None:
        self._keys.compare_keys(keys)
        self._spill_if_large()

    def yield_unmatched(self) -> Iterator[list[Key]]:
        return self._keys.yield_unmatched()

    def discard_doubts(self, keys: Iterable[Key]) -> None:
        self._keys.discard_doubts(keys)

    def yield_doubted(self) -> Iterator[list[Key]]:
        return self._keys.yield_doubted()

    def close(self) -> None:
        self._keys.close()


@contextmanager
def _translate_disk_errors(folder: Path) -> Iterator[None]:
    """Raise a disk that is full or missing as TransientError: the unit continues when there is room."""
    try:
        yield
    except SCRATCH_ERRORS as error:
        raise TransientError(
            f"the keys of a copy cannot be kept in {folder}: {error}", "make room there (state_dir)"
        ) from error
