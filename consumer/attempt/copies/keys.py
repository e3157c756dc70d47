"""Compares the source's keys with the target's as JSON bytes, because each wire value has exactly one
JSON form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Protocol

import msgspec

from schemas.table.model import Key

KEYS_PER_PAGE = 5_000
"""Number of keys that are yielded at a time: that many rows are deleted in one transaction."""
encode_key = msgspec.json.Encoder().encode
_decode: Callable[[bytes], list[object]] = msgspec.json.Decoder(list).decode


class KeyComparison(Protocol):
    """A comparison of the source's keys with the target's.

    First `note_key` every key of the source in topic order, then `compare_keys` those of the target;
    after that the results can be read.
    """

    def note_key(self, key: Key, exists: bool) -> None:
        """Record whether the last event of `key`, so far, leaves a row."""

    def clear(self) -> None:
        """Forget the source's keys: the table was emptied."""

    def compare_keys(self, keys: Iterable[Key]) -> None:
        """Compare `keys` of the target with the source's keys."""

    def yield_unmatched(self) -> Iterator[list[Key]]:
        """Yield the existing keys of the source that equal no key of the target."""

    def discard_doubts(self, keys: Iterable[Key]) -> None:
        """Remove `keys` from the doubted keys, because the target shows existing keys in this form."""

    def yield_doubted(self) -> Iterator[list[Key]]:
        """Yield the target's keys that are neither existing keys nor removed by `discard_doubts`, also those
        that it removes between two pages.
        """

    def close(self) -> None: ...


class MemoryKeys:
    """A KeyComparison in memory."""

    def __init__(self) -> None:
        self.living: dict[bytes, bool] = {}  # → whether the target has it
        self.doubts: dict[bytes, None] = {}

    def note_key(self, key: Key, exists: bool) -> None:
        if exists:
            self.living[encode_key(key)] = False
        else:
            self.living.pop(encode_key(key), None)

    def clear(self) -> None:
        self.living.clear()

    def compare_keys(self, keys: Iterable[Key]) -> None:
        for key in map(encode_key, keys):
            if key in self.living:
                self.living[key] = True
            else:
                self.doubts[key] = None

    def yield_unmatched(self) -> Iterator[list[Key]]:
        return split_into_pages(key for key, found in list(self.living.items()) if not found)

    def discard_doubts(self, keys: Iterable[Key]) -> None:
        for key in map(encode_key, keys):
            self.doubts.pop(key, None)

    def yield_doubted(self) -> Iterator[list[Key]]:
        return split_into_pages(key for key in list(self.doubts) if key in self.doubts)

    def close(self) -> None:
        self.living, self.doubts = {}, {}


def split_into_pages(keys: Iterable[bytes]) -> Iterator[list[Key]]:
    rest = iter(keys)
    while page := [_decode_key(key) for key in islice(rest, KEYS_PER_PAGE)]:
        yield page


def _decode_key(raw: bytes) -> Key:
    values: Sequence[object] = _decode(raw)
    return tuple(values)  # type: ignore[arg-type]  # wire values, as they were encoded
