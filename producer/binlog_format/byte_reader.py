"""A cursor over bytes for the parts of the binlog that are parsed once (TABLE_MAP), not for rows."""

from __future__ import annotations


class ByteReader:
    """Reads forward. Raises IndexError after the end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def rest(self) -> int:
        return len(self._data) - self._at

    def read_bytes(self, size: int) -> bytes:
        if size > self.rest:
            raise IndexError(f"{size} bytes expected at {self._at} of {len(self._data)}")
        self._at += size
        return self._data[self._at - size : self._at]

    def read_uint(self, size: int) -> int:
        return int.from_bytes(self.read_bytes(size), "little")

    def read_lenenc(self) -> int:
        """Read a length-encoded integer of the client protocol."""
        first = self.read_uint(1)
        if first < 251:
            return first
        return self.read_uint({252: 2, 253: 3, 254: 8}[first])

    def read_text(self) -> bytes:
        """Read a length-encoded string."""
        return self.read_bytes(self.read_lenenc())
