"""The constant text around row images: the envelope of schemas/wire/event.py, rendered once per table
and transaction.

All text is UTF-8 carried as latin-1 (producer/binlog_format/charsets.py). The order of the members is
that of the structs in schemas/wire/event.py. `transaction.last` comes after everything that has a value
of the database, so that the event that turns out to be the last can be patched.
"""

from __future__ import annotations

from producer.binlog_format.charsets import encode_utf8_in_latin1
from producer.decoders.context import SourceContext, TransactionContext
from producer.decoders.scalars import quote_json_text
from schemas.wire.event import ENVELOPE_VERSION
from schemas.wire.position import Position

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
