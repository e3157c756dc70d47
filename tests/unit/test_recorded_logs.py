"""Row events of servers that no machine of the tests can run, rebuilt from what others published of them.

Nothing of theirs is in this repository: an event is described here, built after MySQL's description of the
format, and its digest is compared with that of the published one, so a description that is wrong is found.
The only recording with rows of an 8.4 that was found is the output of `mysqlbinlog -v` on a Percona Server
8.4.2-2, in a README.md with notes of a course on replication (a database `bet`, a row '1xbet').
"""

from __future__ import annotations

import hashlib

from producer.binlog_format.definition_match import explain_mismatch
from producer.binlog_format.row_events import parse_table_map
from producer.decoders.row_codec import TableCodec, TopicTail
from producer.sources.mysql.flavour import MYSQL_FLAVOUR
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Table, UniqueIndex
from tests.kits.decoder_support import SOURCE, decode_rows

WRITE_ROWS_V2 = 30
TABLE_ID, LAST_OF_STATEMENT = (215).to_bytes(6, "little"), (1).to_bytes(2, "little")
INT_TYPE, VARCHAR_TYPE, BYTES_OF_VARCHAR = 3, 15, 255 * 3
SIGNEDNESS, CHARSET, UTF8_GENERAL = 1, 2, 33
UTF8 = {"charset": "utf8mb3", "collation": "utf8mb3_general_ci"}
BOOKMAKER = Table(
    db="bet",
    name="bookmaker",
    columns=(
        Column(name="id", type=ColumnType(kind=Kind.INT, bits=32), nullable=False),
        Column(name="bookmaker_name", type=ColumnType(kind=Kind.VARCHAR, length=255, **UTF8), nullable=True),
    ),
    key=UniqueIndex(name="PRIMARY", parts=(IndexPart(column="id"),)),
)


def name(text: str) -> bytes:
    return bytes([len(text)]) + text.encode() + b"\0"


def test_row_of_percona_8_4_is_decoded() -> None:
    """It has the metadata of binlog_row_metadata=MINIMAL: signs and character sets."""
    types = bytes([2, INT_TYPE, VARCHAR_TYPE])
    sizes = bytes([2]) + BYTES_OF_VARCHAR.to_bytes(2, "little")
    only_the_name_is_nullable = bytes([0b10])
    metadata = bytes([SIGNEDNESS, 1, 0, CHARSET, 1, UTF8_GENERAL])
    columns = types + sizes + only_the_name_is_nullable + metadata
    table_map = TABLE_ID + LAST_OF_STATEMENT + name("bet") + name("bookmaker") + columns
    assert digest(table_map) == "f929acc52f8be5eacca83821fefcea721404c3dc2c18a87096e6704f426b3d33"

    no_extra, both_columns, no_null = (2).to_bytes(2, "little"), bytes([2, 0xFF]), b"\0"
    row = (1).to_bytes(4, "little") + (5).to_bytes(2, "little") + b"1xbet"
    event = TABLE_ID + LAST_OF_STATEMENT + no_extra + both_columns + no_null + row
    assert digest(event) == "81c850a5ee22b654b27d9650834adb9595e6b9d97811d5ac3935fde42735df5a"

    logged = parse_table_map(table_map)
    charsets = {UTF8_GENERAL: "utf8mb3"}
    assert explain_mismatch(BOOKMAKER, logged, charsets, MYSQL_FLAVOUR.table_map) is None
    codec = TableCodec(BOOKMAKER, logged, SOURCE, TopicTail())
    assert decode_rows(codec, WRITE_ROWS_V2, event) == [(None, (1, "1xbet"))]


def digest(body: bytes) -> str:
    """Return the SHA-256 of an event without its header and checksum."""
    return hashlib.sha256(body).hexdigest()
