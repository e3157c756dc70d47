"""Packets of a binlog dump that are too large for memory: they are written to a file without a name as they
arrive.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from producer.binlog_format.byte_source import ByteSource
from producer.errors import TransientSourceError

OpenFile = Callable[[], IO[bytes]]
"""Creates a file without a name. Raises OSError."""
_HEAD = 64
_BLOCK = 1 << 20
_MAX_PART = 0xFFFFFF
"""Bytes of a part of a packet after which another part follows."""


def make_file_opener(folder: Path) -> OpenFile:
    """Return a function that creates a file with mode 0600 in `folder`, and the folder if it is missing; the
    file ends with the process.
    """

    def open_file() -> IO[bytes]:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return tempfile.TemporaryFile(dir=folder, buffering=_BLOCK)

    return open_file


def open_temporary_file() -> IO[bytes]:
    """Create a file without a name where the system keeps such files."""
    return tempfile.TemporaryFile(buffering=_BLOCK)


class FileSlice:
    """A part of a file, read from its own place: others may read the file meanwhile."""

    def __init__(self, file: IO[bytes], start: int, end: int) -> None:
        self._file, self._at, self._end = file, start, end

    def read(self, size: int) -> bytes:
        block = os.pread(self._file.fileno(), min(size, self._end - self._at), self._at)
        self._at += len(block)
        return block


class LargePacket(bytes):
    """A packet of `size` bytes in a file, and its first bytes, which contain the event's header. The disk
    space is freed with the packet.
    """

    file: IO[bytes]
    size: int

    @classmethod
    def build(cls, file: IO[bytes], size: int) -> LargePacket:
        packet = cls(FileSlice(file, 0, size).read(_HEAD))
        packet.file, packet.size = file, size
        return packet

    def __del__(self) -> None:
        self.file.close()

    def open_slice(self, start: int, end: int) -> FileSlice:
        """Return a reader of a part of the packet."""
        return FileSlice(self.file, start, end)

    def open_source(self, start: int, end: int) -> ByteSource:
        return ByteSource(self.open_slice(start, end), end - start)

    def yield_blocks(self, start: int, end: int) -> Iterator[bytes]:
        """Yield a part of the packet in blocks."""
        yield from self.open_source(start, end).yield_blocks(end - start)

    def read_whole(self) -> bytes:
        return b"".join(self.yield_blocks(0, self.size))


class LargePacketWriter:
    """Writes one packet to a file as its data arrives, part by part.

    All methods raise TransientSourceError if the file cannot be written.
    """

    def __init__(self, open_file: OpenFile) -> None:
        self._size = 0
        self._left = 0  # bytes of the part that is being written
        self._is_last = False  # the part after which no other follows
        self._head = b""  # the beginning of the next part's header
        try:
            self._file = open_file()
        except OSError as error:
            raise _build_write_error(error) from error

    def add_data(self, data: bytes | bytearray) -> bytes | None:
        """Write the packet's bytes of `data`. Return what follows the packet; None: it is not complete."""
        at = 0
        while True:
            if not self._left:
                if self._is_last:
                    return bytes(data[at:])
                part = bytes(data[at : at + 4 - len(self._head)])
                self._head, at = self._head + part, at + len(part)
                if len(self._head) < 4:
                    return None
                self._left = int.from_bytes(self._head[:3], "little")
                self._is_last, self._head = self._left < _MAX_PART, b""
                continue
            with memoryview(data) as view:
                written = self._write(view[at : at + self._left])
            at += written
            if self._left:
                return None

    def _write(self, block: memoryview) -> int:
        try:
            self._file.write(block)
        except OSError as error:
            raise _build_write_error(error) from error
        self._size += len(block)
        self._left -= len(block)
        return len(block)

    def finish(self) -> LargePacket:
        """Return the complete packet."""
        try:
            self._file.flush()
        except OSError as error:
            raise _build_write_error(error) from error
        return LargePacket.build(self._file, self._size)

    def close(self) -> None:
        """Free the disk space of an incomplete packet."""
        self._file.close()


def _build_write_error(error: OSError) -> TransientSourceError:
    return TransientSourceError(
        f"an event of the log is too large for memory, and `state_dir` has no room for it: {error}",
        "free space there: it needs up to the server's max_allowed_packet",
    )
