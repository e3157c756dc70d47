"""What capture writes into Kafka: events, and the records beside them."""

from __future__ import annotations

from msgspec.structs import replace

from producer.decoders.envelope import SourceContext, TopicTail, TransactionContext
from producer.kafka.control_events import encode_snapshot
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Table, UniqueIndex
from schemas.table.names import format_table_text
from schemas.wire import codec
from schemas.wire.copies import CopyRequest, CopyState
from schemas.wire.debezium_snapshot import encode_snapshot_signal
from schemas.wire.event import ENVELOPE_VERSION, EventEnvelope, Source
from schemas.wire.records import StoredPosition, Watermark
from tests.formats.samples import sample
from tests.formats.structure import Case, Structure

#: A key of several columns, one of them beyond what a number of JSON holds exactly.
KEYED = Table(
    db="bank",
    name="acct",
    columns=(
        Column(name="branch", type=ColumnType(kind=Kind.VARCHAR, length=20), nullable=False),
        Column(name="id", type=ColumnType(kind=Kind.INT, bits=64, unsigned=True), nullable=False),
    ),
    key=UniqueIndex(name="PRIMARY", parts=(IndexPart(column="branch"), IndexPart(column="id"))),
)


def _event() -> EventEnvelope:
    """Every field at once, which no event of the log has."""
    return replace(sample(EventEnvelope), source=replace(sample(Source), version=ENVELOPE_VERSION))


def _snapshot_key(row: tuple[str, str]) -> bytes:
    source = SourceContext(name="branch1", epoch=0, gen=12, connector="mysql")
    tx = TransactionContext(
        id="x", gtid=None, file="binlog.000003", file_number=3, pos=4, ts_ms=1, server_id=7, made_ms=2
    )
    ((key, _),) = encode_snapshot(KEYED, source, TopicTail(), tx, rows=[row], first_row=-5)
    return key


def _position() -> StoredPosition:
    """Tables have names here that `codec.decode_stored_position` leaves as they are."""
    made, name = sample(StoredPosition), "bank.acct"
    copy = replace(sample(CopyState), db="bank", table="acct")
    return replace(
        made,
        snapshot_done=(name,),
        anchors={name: next(iter(made.anchors.values()))},
        stops={name: next(iter(made.stops.values()))},
        copies={format_table_text(copy.db, copy.table): copy},
        topics={name: f"rowlock.{made.source}.{name}"},
    )


def _position_of_other_names() -> StoredPosition:
    """A record with a topic whose name earlier versions do not compute."""
    return replace(_position(), topics={"bank.acct": "rowlock.source.bank.acct-1"})


STRUCTURES = (
    Structure(
        "event",
        (
            Case("all-fields", _event(), codec.encode_event_value, codec.decode_event),
            Case("key", ("north", "18446744073709551615"), _snapshot_key, None),
        ),
        (EventEnvelope,),
    ),
    Structure(
        "position-record",
        (
            Case("record", _position(), codec.encode_stored_position, codec.decode_stored_position),
            Case(
                "other-names",
                _position_of_other_names(),
                codec.encode_stored_position,
                codec.decode_stored_position,
            ),
        ),
        (StoredPosition,),
    ),
    Structure(
        "watermark",
        (Case("record", sample(Watermark), codec.encode_watermark, codec.decode_watermark),),
        (Watermark,),
    ),
    Structure(
        "copy-request",
        (Case("record", sample(CopyRequest), codec.encode_copy_request, codec.decode_copy_request),),
        (CopyRequest,),
    ),
    Structure(
        "debezium-signal",
        (Case("signal", ("b.nk", "acct"), lambda name: encode_snapshot_signal(*name).encode(), None),),
    ),
)
