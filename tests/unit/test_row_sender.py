"""What is sent of the rows of a log event, and what is passed over (producer.loop.rows)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from producer.decoders.envelope import TopicTail
from producer.errors import TableStoppedError
from producer.kafka.event_limits import EventLimits
from producer.kafka.settings import MAX_EVENT_BYTES
from producer.loop import rows as rows_module
from producer.loop.rows import RowSender
from producer.sources.changes import TransactionHeader
from producer.stops import explain_unseen_table
from schemas.problems import Problem
from schemas.table.names import EXACT

Records = list[tuple[bytes, bytes]]


class Rows:
    """Three rows of one event, the second one too large; remembers what was taken back."""

    table = ("bank", "acct")
    header: Any = None

    def __init__(self) -> None:
        self.read_retention: list[int] = []

    def build_records(self, *_: object) -> Records:
        large = b'{"before":null,"after":{"id":2,"note":"%b"}}' % (b"x" * MAX_EVENT_BYTES)
        return [(b"1", b"x"), (b"2", large), (b"3", b"x")]

    def withdraw_rows(
        self, _state: object, _source: object, _context: object, records: Records, keep: int
    ) -> None:
        self.read_retention.append(keep)
        del records[keep:]


def test_rows_from_the_one_that_is_too_large_on_are_taken_back_and_not_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else what follows would name them as the events before it, and a row that Kafka refuses would end the
    process."""
    sent: list[tuple[bytes, bytes]] = []

    def send_all(_topic: str, records: Records, _size: int) -> None:
        sent.extend(records)

    writer: Any = SimpleNamespace(
        send=lambda _topic, key, value: sent.append((key, value)), send_all=send_all, full=False
    )
    state: Any = SimpleNamespace(topic=SimpleNamespace(name="rowlock.b1.bank.acct", tail=TopicTail()))
    started: Any = SimpleNamespace(
        captured=SimpleNamespace(tables={Rows.table: state}),
        context=None,
        errors={},
        begins={},
        covered={},
        limits=EventLimits(),
    )
    ports: Any = SimpleNamespace(writer=writer, names=EXACT)
    nothing: Any = None
    sender = RowSender(
        started, ports, log=nothing, new_tables=nothing, snapshots=nothing, on_batch=lambda: None
    )
    monkeypatch.setattr(sender, "get_transaction_context", lambda _header: None)
    rows: Any = Rows()
    with pytest.raises(TableStoppedError) as stopped:
        sender.send_rows(rows)
    assert stopped.value.tables == {("bank", "acct")}
    assert f"(column note: {MAX_EVENT_BYTES + 2} bytes)" in stopped.value.reason
    monkeypatch.setattr(rows_module, "mark_last", lambda value: value)
    sender.end_transaction()
    assert (rows.read_retention, sent) == ([1], [(b"1", b"x")])


class Fed:
    """A sender of the rows of `bank.acct`, and what it did, in its order. `full`: whether the writer wants to
    send."""

    def __init__(self, *, known: bool = True, begins: Any = None) -> None:
        self.did: list[Any] = []
        self.full = False
        did = self.did.append
        state: Any = SimpleNamespace(topic=SimpleNamespace(name="topic", tail=TopicTail()))
        self.started: Any = SimpleNamespace(
            captured=SimpleNamespace(tables={Rows.table: state} if known else {}), context=None, errors={},
            begins={} if begins is None else {Rows.table: begins}, covered={}, limits=EventLimits(),
        )  # fmt: skip
        ports: Any = SimpleNamespace(writer=self, names=EXACT)
        log: Any = SimpleNamespace(
            record_position_count=lambda _rows: None, skip_uncaptured=lambda rows: did(("passed over", rows))
        )
        snapshots: Any = SimpleNamespace(tables=SimpleNamespace(is_under_way=lambda _name: False))
        new_tables: Any = SimpleNamespace(take_up_unknown_table=lambda _name, _at: None)
        self.sender = RowSender(
            self.started, ports, log=log, new_tables=new_tables, snapshots=snapshots,
            on_batch=lambda: did("batch left")
        )  # fmt: skip

    def send(self, _topic: str, key: bytes, _value: bytes) -> None:
        self.did.append(key)

    def send_all(self, _topic: str, records: Records, size: int) -> None:
        self.did.append(([key for key, _ in records], size))

    def flush(self) -> None:
        self.did.append("flush")

    def take(self, *records: tuple[bytes, bytes], pos: int = 100) -> Any:
        rows: Any = SimpleNamespace(
            table=Rows.table, header=TransactionHeader("binlog.000003", pos, 7, 1, None),
            build_records=lambda *_: list(records)
        )  # fmt: skip
        self.sender.send_rows(rows)
        return rows


def test_rows_of_a_table_whose_definition_nobody_knows_are_passed_over_and_the_table_is_left_out() -> None:
    fed = Fed(known=False)
    rows = fed.take((b"1", b"x"))
    assert fed.did == [("passed over", rows)]
    assert fed.started.errors == {Rows.table: explain_unseen_table(Rows.table)}
    fed.started.errors[Rows.table] = Problem("no key")
    fed.take((b"1", b"x"))
    assert fed.started.errors == {Rows.table: Problem("no key")}, "the first reason stays"


def test_rows_before_the_place_where_a_former_start_took_the_table_up_are_passed_over() -> None:
    """Its snapshot had them; the log learns of it, or its next row of the transaction would be counted
    wrong."""
    fed = Fed(begins=(0, 3, 100, 0))
    before = fed.take((b"1", b"x"), pos=99)
    fed.take((b"2", b"x"), pos=100)
    fed.sender.release_last_row()
    assert fed.did == [("passed over", before), ([], 0), b"2"]


def test_the_size_of_a_batch_is_that_of_the_rows_in_it() -> None:
    """The last row is held: it goes later, with its own size."""
    fed = Fed()
    fed.take((b"1", b"xxx"), (b"22", b"yyyyy"), (b"333", b"zzzzzzz"))
    assert fed.did == [([b"1", b"22"], 4 + 7)]
    assert fed.sender.sent == 3


def test_rows_leave_when_the_writer_is_full_also_in_the_middle_of_a_transaction() -> None:
    """A transaction may be larger than the memory; and what is due once a second is due inside of it, too."""
    fed = Fed()
    fed.full = True
    fed.take((b"1", b"x"), (b"2", b"x"))
    assert fed.did == [([b"1"], 2), "flush", "batch left"]
