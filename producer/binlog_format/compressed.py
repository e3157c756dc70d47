"""MariaDB's compressed form (log_bin_compress), which query events and row events share."""

from __future__ import annotations

import zlib

from producer.binlog_format.errors import UndecodableRow


def unpack_compressed(packed: bytes, what: str) -> bytes:
    """Unpack a byte (bits 4–6 algorithm, 0–2 size of the length), the length (big-endian), and the data.

    At most the given length is unpacked. Raises UndecodableRow, with `what` as the name of the event.
    """
    if not packed:
        raise UndecodableRow(f"{what} is empty")
    header = packed[0]
    if header & 0x70:
        raise UndecodableRow(f"{what} has the unknown algorithm {header >> 4 & 7}: set log_bin_compress=OFF")
    start = 1 + (header & 7)
    length = int.from_bytes(packed[1:start], "big")
    reader = zlib.decompressobj()
    try:
        data = reader.decompress(packed[start:], length + 1)
    except zlib.error as error:
        raise UndecodableRow(f"{what} cannot be unpacked: {error}") from error
    if len(data) != length or not reader.eof:
        raise UndecodableRow(f"{what} unpacks to another length than its header states")
    return data
