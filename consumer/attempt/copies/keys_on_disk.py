"""Keys that are too many for memory, in a file of a folder for scratch. It has no name: what dies takes it along."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from consumer.attempt.copies.keys import MemoryKeys, encode_key, pages
from consumer.errors import TransientError
from schemas.io.scratch import SCRATCH_ERRORS, Cursor, nameless_database, scratch_folder
from schemas.table.model import Key

IN_MEMORY = 200_000
"""Keys up to which no file is made; they take about as many times 150 bytes."""
WAITING = 10_000
"""Keys that are written to the file at a time."""


class SpilledKeys:
    """A `KeyCheck` in a file of `folder`, which begins with what `first` holds."""

    def __init__(self, folder: Path, first: MemoryKeys) -> None:
        with _translated(folder):
            self._db = nameless_database(folder, "keys-")
        self._folder = folder
        self._waiting: dict[bytes, bool] = {}  # → lives
        self._run("CREATE TABLE living (k BLOB PRIMARY KEY, found INTEGER) WITHOUT ROWID")
        self._run("CREATE TABLE doubts (k BLOB PRIMARY KEY) WITHOUT ROWID")
        self._each("INSERT INTO living VALUES (?, ?)", first.living.items())
        self._each("INSERT INTO doubts VALUES (?)", ((key,) for key in first.doubts))

    def _run(self, text: str, *values: object) -> Cursor:
        with _translated(self._folder):
            return self._db.execute(text, values)

    def _each(self, text: str, rows: Iterable[tuple[object, ...]]) -> None:
        with _translated(self._folder):
            self._db.executemany(text, rows)

    def note(self, key: Key, lives: bool) -> None:
        self._waiting[encode_key(key)] = lives
        if len(self._waiting) >= WAITING:
            self._write()

    def _write(self) -> None:
        waiting, self._waiting = sorted(self._waiting.items()), {}
        come = ((key,) for key, lives in waiting if lives)
        gone = ((key,) for key, lives in waiting if not lives)
        self._each("INSERT OR REPLACE INTO living VALUES (?, 0)", come)
        self._each("DELETE FROM living WHERE k = ?", gone)

    def clear(self) -> None:
        self._waiting.clear()
        self._run("DELETE FROM living")

    def compare(self, keys: Iterable[Key]) -> None:
        self._write()
        for key in map(encode_key, keys):
            if not self._run("UPDATE living SET found = 1 WHERE k = ?", key).rowcount:
                self._run("INSERT OR IGNORE INTO doubts VALUES (?)", key)

    def unmatched(self) -> Iterator[list[Key]]:
        self._write()
        return pages(row[0] for row in self._run("SELECT k FROM living WHERE NOT found"))

    def excuse(self, keys: Iterable[Key]) -> None:
        self._each("DELETE FROM doubts WHERE k = ?", [(encode_key(key),) for key in keys])

    def doubted(self) -> Iterator[list[Key]]:
        return pages(row[0] for row in self._run("SELECT k FROM doubts"))

    def close(self) -> None:
        self._db.close()


class ScratchKeys:
    """A `KeyCheck` that goes to a file of `folder` once it holds more than `most` keys. Used by one thread."""

    def __init__(self, folder: Path | None = None, most: int = IN_MEMORY) -> None:
        """`folder`: None: where the system has its temporary files."""
        self._folder = folder or scratch_folder()
        self._most = most
        self._few: MemoryKeys | None = MemoryKeys()
        self._keys: MemoryKeys | SpilledKeys = self._few

    def _look(self) -> None:
        few = self._few
        if few is not None and len(few.living) + len(few.doubts) > self._most:
            self._few, self._keys = None, SpilledKeys(self._folder, few)

    def note(self, key: Key, lives: bool) -> None:
        self._keys.note(key, lives)
        self._look()

    def clear(self) -> None:
        self._keys.clear()

    def compare(self, keys: Iterable[Key]) -> None:
        self._keys.compare(keys)
        self._look()

    def unmatched(self) -> Iterator[list[Key]]:
        return self._keys.unmatched()

    def excuse(self, keys: Iterable[Key]) -> None:
        self._keys.excuse(keys)

    def doubted(self) -> Iterator[list[Key]]:
        return self._keys.doubted()

    def close(self) -> None:
        self._keys.close()


@contextmanager
def _translated(folder: Path) -> Iterator[None]:
    """Raise a full or missing disk as a transient error: the unit goes on when there is room."""
    try:
        yield
    except SCRATCH_ERRORS as error:
        raise TransientError(
            f"the keys of a copy cannot be kept in {folder}: {error}: make room there (state_dir)"
        ) from error
