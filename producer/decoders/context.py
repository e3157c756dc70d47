"""The context of an event besides its row: source, transaction, and its place in the topic."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from producer.binlog_format.metadata import TableMapForm
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
