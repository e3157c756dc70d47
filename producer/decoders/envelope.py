"""The constant text around row images: the envelope of schemas/wire/event.py, rendered once per table and transaction.

All text is UTF-8 carried as latin-1 (producer/binlog_format/charsets.py). The order of the members is that of the structs
in schemas/wire/event.py; `transaction.last` stands behind everything that holds a value of the database, so that the one
event that turns out to be the last can be patched.
"""

from __future__ import annotations

from producer.binlog_format.charsets import utf8_in_latin1
from producer.decoders.context import SourceContext, TransactionContext
from producer.decoders.scalars import quote
from schemas.wire.event import ENVELOPE_VERSION
from schemas.wire.position import Position

LAST_FALSE = b'"last":false},"ts_ms":'
LAST_TRUE = b'"last":true},"ts_ms":'

Parts = tuple[str, str, str, str]
"""Between the images and `row`; the beginning of the position; between `prev` and `total_order`; the end."""


class Frame:
    """Renders the parts that change with the transaction, and keeps them for its further events."""

    def __init__(self, db: str, table: str, source: SourceContext, snapshot: str = "false") -> None:
        self._source = source
        self._head = (
            f',"source":{{"version":{_string(ENVELOPE_VERSION)},"connector":{_string(source.connector)},'
            f'"name":{_string(source.name)},"ts_ms":'
        )
        self._table = f',"snapshot":"{snapshot}","db":{_string(db)},"table":{_string(table)},"server_id":'
        self._tx: TransactionContext | None = None
        self._parts: Parts = ("", "", "", "")

    def of(self, tx: TransactionContext) -> Parts:
        """Return the parts for the events of `tx`."""
        if tx is not self._tx:
            self._parts = self._render(tx)
            self._tx = tx
        return self._parts

    def _render(self, tx: TransactionContext) -> Parts:
        where = (
            f'{self._head}{tx.ts_ms}{self._table}{tx.server_id},"gtid":{_string(tx.gtid)},'
            f'"file":{_string(tx.file)},"pos":{tx.pos},"row":'
        )
        after_prev = f',"gen":{self._source.gen}}},"transaction":{{"id":{_string(tx.id)},"total_order":'
        end = f',"last":false}},"ts_ms":{tx.made_ms}}}'
        return where, f"[{self._source.epoch},{tx.file_number},{tx.pos},", after_prev, end

    @staticmethod
    def position(position: Position | None) -> str:
        """Return the JSON of a position, as `prev` has it."""
        return "null" if position is None else f"[{position[0]},{position[1]},{position[2]},{position[3]}]"


def _string(text: str | None) -> str:
    return "null" if text is None else utf8_in_latin1(quote(text))
