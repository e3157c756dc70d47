"""The keys of a whole table, compared with those of another: in memory as long as they are few, then in a file.

Keys are compared as the bytes of their JSON, which has one form for each wire value. The file is SQLite's, in a folder for scratch,
and has no name: what dies takes it along, and whoever comes next begins anew.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Protocol

import msgspec

from consumer.errors import TransientError
from schemas.table.model import Key

IN_MEMORY = 200_000
"""Keys up to which no file is made; they take about as many times 150 bytes."""
PAGE = 500
"""Keys that are handed out at a time."""
WAITING = 10_000
"""Keys that are written to the file at a time."""
_encode = msgspec.json.Encoder().encode
_decode: Callable[[bytes], list[object]] = msgspec.json.Decoder(list).decode


class KeyCheck(Protocol):
    """`note` every key of the source in the order of the topic, then `compare` those of the target; then the rest can be asked for."""

    def note(self, key: Key, lives: bool) -> None:
        """The last event of `key`, so far, leaves a row or leaves none."""

    def clear(self) -> None:
        """The table was emptied."""

    def compare(self, keys: Iterable[Key]) -> None:
        """These are in the target."""

    def unmatched(self) -> Iterator[list[Key]]:
        """Yield the keys that live and are, as they stand, none of the target's."""

    def excuse(self, keys: Iterable[Key]) -> None:
        """These of the target's keys are what living keys look like there."""

    def doubted(self) -> Iterator[list[Key]]:
        """Yield the target's keys that are none of those that live, nor excused."""

    def close(self) -> None: ...


class MemoryKeys:
    """A `KeyCheck` in memory."""

    def __init__(self) -> None:
        self.living: dict[bytes, bool] = {}  # → found in the target
        self.doubts: dict[bytes, None] = {}

    def note(self, key: Key, lives: bool) -> None:
        if lives:
            self.living[_encode(key)] = False
        else:
            self.living.pop(_encode(key), None)

    def clear(self) -> None:
        self.living.clear()

    def compare(self, keys: Iterable[Key]) -> None:
        for key in map(_encode, keys):
            if key in self.living:
                self.living[key] = True
            else:
                self.doubts[key] = None

    def unmatched(self) -> Iterator[list[Key]]:
        return _pages(key for key, found in list(self.living.items()) if not found)

    def excuse(self, keys: Iterable[Key]) -> None:
        for key in map(_encode, keys):
            self.doubts.pop(key, None)

    def doubted(self) -> Iterator[list[Key]]:
        return _pages(list(self.doubts))

    def close(self) -> None:
        self.living, self.doubts = {}, {}


class SpilledKeys:
    """A `KeyCheck` in a file of `folder`, which begins with what `first` holds."""

    def __init__(self, folder: Path, first: MemoryKeys) -> None:
        with _translated(folder):
            self._db = _nameless(folder)
        self._folder = folder
        self._waiting: dict[bytes, bool] = {}  # → lives
        self._run("CREATE TABLE living (k BLOB PRIMARY KEY, found INTEGER) WITHOUT ROWID")
        self._run("CREATE TABLE doubts (k BLOB PRIMARY KEY) WITHOUT ROWID")
        self._each("INSERT INTO living VALUES (?, ?)", first.living.items())
        self._each("INSERT INTO doubts VALUES (?)", ((key,) for key in first.doubts))
        first.close()

    def _run(self, text: str, *values: object) -> sqlite3.Cursor:
        with _translated(self._folder):
            return self._db.execute(text, values)

    def _each(self, text: str, rows: Iterable[tuple[object, ...]]) -> None:
        with _translated(self._folder):
            self._db.executemany(text, rows)

    def note(self, key: Key, lives: bool) -> None:
        self._waiting[_encode(key)] = lives
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
        for key in map(_encode, keys):
            if not self._run("UPDATE living SET found = 1 WHERE k = ?", key).rowcount:
                self._run("INSERT OR IGNORE INTO doubts VALUES (?)", key)

    def unmatched(self) -> Iterator[list[Key]]:
        self._write()
        return _pages(row[0] for row in self._run("SELECT k FROM living WHERE NOT found"))

    def excuse(self, keys: Iterable[Key]) -> None:
        self._each("DELETE FROM doubts WHERE k = ?", [(_encode(key),) for key in keys])

    def doubted(self) -> Iterator[list[Key]]:
        return _pages(row[0] for row in self._run("SELECT k FROM doubts"))

    def close(self) -> None:
        self._db.close()


class ScratchKeys:
    """A `KeyCheck` that goes to a file of `folder` once it holds more than `most` keys. Used by one thread."""

    def __init__(self, folder: Path | None = None, most: int = IN_MEMORY) -> None:
        """`folder`: None: where the system has its temporary files."""
        self._folder = folder or Path(tempfile.gettempdir())
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


def _pages(keys: Iterable[bytes]) -> Iterator[list[Key]]:
    rest = iter(keys)
    while page := [_key(key) for key in islice(rest, PAGE)]:
        yield page


def _key(raw: bytes) -> Key:
    values: Sequence[object] = _decode(raw)
    return tuple(values)  # type: ignore[arg-type]  # wire values, as they were encoded


@contextmanager
def _translated(folder: Path) -> Iterator[None]:
    """A full or missing disk: the unit goes on when there is room."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise TransientError(
            f"the keys of a copy cannot be kept in {folder}: {error}: make room there (state_dir)"
        ) from error


def _nameless(folder: Path) -> sqlite3.Connection:
    """Return a database in a new file of `folder` that has no name any more."""
    folder.mkdir(parents=True, exist_ok=True)
    number, name = tempfile.mkstemp(prefix="keys-", dir=folder)
    os.close(number)
    db = sqlite3.connect(name, isolation_level=None, check_same_thread=False)
    for pragma in (
        "journal_mode = OFF",
        "synchronous = OFF",
        "locking_mode = EXCLUSIVE",
        "cache_size = -65536",
    ):
        db.execute(f"PRAGMA {pragma}")
    db.execute("BEGIN")  # never ended: nothing of it is ever read by anybody else
    with suppress(FileNotFoundError):
        Path(name).unlink()
    return db
