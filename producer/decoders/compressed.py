"""Values of MariaDB's COMPRESSED columns, as the log has them (sql/field.cc, Field_longstr::compress). Pure.

An empty value has no bytes. Any other begins with a byte that names the method: 0 if the value follows as it
is, else 8 in its upper half for zlib. Then its bit 3 is set if the data is raw (without zlib's header and
checksum), and its lower three bits are the size of the value's length, which follows, big-endian.
"""

from __future__ import annotations

import zlib

_ZLIB = 8
_RAW = 8
_SIZE = 7


def unpack_value(data: bytes) -> bytes:
    """Return the value of a COMPRESSED column. Raises ValueError for bytes that are none."""
    if not data or not data[0]:
        return data[1:]
    head = data[0]
    if head >> 4 != _ZLIB:
        raise ValueError(f"the compression method {head >> 4} of a COMPRESSED column is not known")
    start = 1 + (head & _SIZE)
    length = int.from_bytes(data[1:start], "big")
    unpacker = zlib.decompressobj(-zlib.MAX_WBITS if head & _RAW else zlib.MAX_WBITS)
    try:
        value = unpacker.decompress(data[start:], length + 1)
    except zlib.error as error:
        raise ValueError(f"a value of a COMPRESSED column cannot be unpacked: {error}") from error
    if len(value) != length or not unpacker.eof:
        raise ValueError(f"a value of a COMPRESSED column has not its length of {length} bytes")
    return value
