"""What is sent of a log event of which one row is larger than Kafka takes (producer.loop.rows)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from producer.errors import TableStoppedError
from producer.kafka.settings import LARGEST
from producer.loop import rows as rows_module
from producer.loop.rows import RowSender
from schemas.table.names import EXACT

Records = list[tuple[bytes, bytes]]


class Rows:
    """Three rows of one event, the second one too large; remembers what was taken back."""

    table = ("bank", "acct")
    header: Any = None

    def __init__(self) -> None:
        self.kept: list[int] = []

    def encode(self, *_: object) -> Records:
        return [(b"1", b"x"), (b"2", b"x" * LARGEST), (b"3", b"x")]

    def forget(self, _state: object, _source: object, _context: object, records: Records, keep: int) -> None:
        self.kept.append(keep)
        del records[keep:]


def test_rows_from_the_one_that_is_too_large_on_are_taken_back_and_not_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else what follows would name them as the events before it, and a row that Kafka refuses would end the process."""
    sent: list[tuple[bytes, bytes]] = []

    def send_all(_topic: str, records: Records, _size: int) -> None:
        sent.extend(records)

    writer: Any = SimpleNamespace(
        send=lambda _topic, key, value: sent.append((key, value)), send_all=send_all, full=False
    )
    state: Any = SimpleNamespace(topic=SimpleNamespace(name="rowlock.b1.bank.acct"))
    started: Any = SimpleNamespace(
        captured=SimpleNamespace(tables={Rows.table: state}), context=None, errors={}, begins={}
    )
    ports: Any = SimpleNamespace(writer=writer, names=EXACT)
    nothing: Any = None
    sender = RowSender(
        started, ports, log=nothing, new_tables=nothing, snapshots=nothing, on_batch=lambda: None
    )
    monkeypatch.setattr(sender, "transaction", lambda _header: None)
    rows: Any = Rows()
    with pytest.raises(TableStoppedError) as stopped:
        sender.take(rows)
    assert stopped.value.tables == {("bank", "acct")}
    monkeypatch.setattr(rows_module, "mark_last", lambda value: value)
    sender.end()
    assert (rows.kept, sent) == ([1], [(b"1", b"x")])
