"""Bytes that are read forward once, block by block, and never held as a whole. Pure."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Protocol

from producer.binlog_format.errors import UndecodableRow

_BLOCK = 1 << 20


class Reader(Protocol):
    """The data that a source reads. `read` returns at most `size` bytes, b"" at the end."""

    def read(self, size: int, /) -> bytes: ...


class ByteSource:
    """The next `size` bytes of a reader. Raises UndecodableRow if they end early."""

    def __init__(self, reader: Reader, size: int) -> None:
        self._reader = reader
        self.rest = size
        """How many bytes are left."""

    def take(self, size: int) -> bytes:
        """Return the next `size` bytes."""
        return b"".join(self.yield_blocks(size))

    def skip(self, size: int) -> None:
        """Pass over the next `size` bytes."""
        for _ in self.yield_blocks(size):
            pass

    def has_more(self) -> bool:
        """Return whether the reader has more than the source's bytes, all of which were read."""
        return bool(self._reader.read(1))

    def yield_blocks(self, size: int) -> Iterator[bytes]:
        """Yield the next `size` bytes in blocks."""
        if size > self.rest:
            raise UndecodableRow(f"{size} bytes are expected where {self.rest} are left")
        while size:
            block = self._reader.read(min(size, _BLOCK))
            if not block:
                raise UndecodableRow(f"the data ends {size} bytes early")
            size -= len(block)
            self.rest -= len(block)
            yield block


class Unpacker:
    """The unpacked data of a zlib stream in the rest of a source. Raises UndecodableRow."""

    def __init__(self, packed: ByteSource) -> None:
        self._packed = packed
        self._stream = zlib.decompressobj()

    def read(self, size: int) -> bytes:
        while not self._stream.eof:
            data = self._stream.unconsumed_tail or self._packed.take(min(self._packed.rest, _BLOCK))
            try:
                block = self._stream.decompress(data, size)
            except zlib.error as error:
                raise UndecodableRow(f"a compressed row event cannot be unpacked: {error}") from error
            if block or not data:
                return block
        return b""
