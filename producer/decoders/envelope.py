"""The envelope of an event besides its row images (schemas/wire/event.py): its context, and the constant
text around the images, rendered once per table and transaction.

All text is UTF-8 carried as latin-1 (producer/binlog_format/charsets.py). The order of the members is
that of the structs in schemas/wire/event.py. `transaction.last` comes after everything that has a value
of the database, so that the event that turns out to be the last can be patched.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from producer.binlog_format.charsets import encode_utf8_in_latin1
from producer.binlog_format.row_events import TableMapForm
from producer.decoders.scalars import quote_json_text
from schemas.wire.event import ENVELOPE_VERSION
from schemas.wire.position import Position


class SourceContext(msgspec.Struct, frozen=True, kw_only=True):
    """The source of events, constant for the life of a capture unit's assignment.

    `connector`: the kind of source in events. For a binlog: `form`: the server's form of TABLE_MAPs;
    `charsets`: the server's collation ids → character sets, as TABLE_MAPs use them.
    """

    connector: str
    name: str
    epoch: int
    gen: int
    form: TableMapForm | None = None
    charsets: Mapping[int, str] = {}


class TransactionContext(msgspec.Struct, kw_only=True):
    """One source transaction (or, for snapshot rows and definitions, their log position).

    `pos`: start of the transaction that published the rows. `ts_ms`: its commit time. `made_ms`:
    capture's clock now. Both in ms since 1970. `total_order`: captured rows of this transaction so far
    (the codecs raise it).
    """

    id: str
    gtid: str | None
    file: str
    file_number: int
    pos: int
    ts_ms: int
    server_id: int
    made_ms: int
    total_order: int = 0


class TopicTail(msgspec.Struct):
    """The position of the last event of a topic; None: the topic is empty or its tail is unknown."""

    last: Position | None = None


LAST_FALSE = b'"last":false},"ts_ms":'
LAST_TRUE = b'"last":true},"ts_ms":'

EnvelopeParts = tuple[str, str, str, str]
"""The text between the images and `row`; the beginning of the position; between `prev` and
`total_order`; the end.
"""


class EnvelopeRenderer:
    """Renders the parts that change with the transaction, and keeps them for its further events."""

    def __init__(self, db: str, table: str, source: SourceContext, snapshot: str = "false") -> None:
        self._source = source
        self._head = (
            f',"source":{{"version":{_render_string(ENVELOPE_VERSION)},"connector":{_render_string(source.connector)},'
            f'"name":{_render_string(source.name)},"ts_ms":'
        )
        self._table = (
            f',"snapshot":"{snapshot}","db":{_render_string(db)},"table":{_render_string(table)},"server_id":'
        )
        self._tx: TransactionContext | None = None
        self._parts: EnvelopeParts = ("", "", "", "")

    def get_parts(self, tx: TransactionContext) -> EnvelopeParts:
        """Return the parts for the events of `tx`."""
        if tx is not self._tx:
            self._parts = self._render_parts(tx)
            self._tx = tx
        return self._parts

    def _render_parts(self, tx: TransactionContext) -> EnvelopeParts:
        where = (
            f'{self._head}{tx.ts_ms}{self._table}{tx.server_id},"gtid":{_render_string(tx.gtid)},'
            f'"file":{_render_string(tx.file)},"pos":{tx.pos},"row":'
        )
        after_prev = (
            f',"gen":{self._source.gen}}},"transaction":{{"id":{_render_string(tx.id)},"total_order":'
        )
        end = f',"last":false}},"ts_ms":{tx.made_ms}}}'
        return where, f"[{self._source.epoch},{tx.file_number},{tx.pos},", after_prev, end

    @staticmethod
    def render_position(position: Position | None) -> str:
        """Return the JSON of a position, as `prev` contains it."""
        return "null" if position is None else f"[{position[0]},{position[1]},{position[2]},{position[3]}]"


def _render_string(text: str | None) -> str:
    return "null" if text is None else encode_utf8_in_latin1(quote_json_text(text))
