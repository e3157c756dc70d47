"""The SELECT of a chunk: where it goes on, against a modelled table; and the thread that reads it."""

from __future__ import annotations

import threading
from decimal import Decimal
from itertools import product
from typing import Any

import pytest
from msgspec.structs import replace

from producer.snapshot.reader import BackgroundChunkReader, build_chunk_query
from producer.sources.chunk_data import ChunkFailed, ChunkRead, LowWatermark, ReadChunk
from schemas.table.model import Column, ColumnType, IndexPart, Key, Kind, Table, UniqueIndex, Value

LABELS = ("small", "medium", "large")


def table(*types: ColumnType) -> Table:
    columns = tuple(Column(name=f"k{n}", type=kind, nullable=False) for n, kind in enumerate(types))
    parts = tuple(IndexPart(column=column.name) for column in columns)
    return Table(db="d", name="t", columns=columns, key=UniqueIndex(name="PRIMARY", parts=parts))


INT = ColumnType(kind=Kind.INT, bits=32)


@pytest.mark.parametrize(
    ("kind", "value", "compared", "parameter"),
    [
        (INT, 7, "`k0`", 7),
        (ColumnType(kind=Kind.INT, bits=64), str(2**60), "`k0`", 2**60),
        (ColumnType(kind=Kind.DECIMAL, precision=20, scale=2), "12345678901234567.89", "`k0`", Decimal("12345678901234567.89")),  # noqa: E501
        (ColumnType(kind=Kind.ENUM, members=LABELS, charset="utf8mb4"), "small", "CAST(`k0` AS UNSIGNED)", 1),
        (ColumnType(kind=Kind.ENUM, members=LABELS, charset="utf8mb4"), "large", "CAST(`k0` AS UNSIGNED)", 3),
        (ColumnType(kind=Kind.ENUM, members=LABELS, charset="utf8mb4"), "", "CAST(`k0` AS UNSIGNED)", 0),
        (ColumnType(kind=Kind.SET, members=LABELS, charset="utf8mb4"), "", "CAST(`k0` AS UNSIGNED)", 0),
        (ColumnType(kind=Kind.SET, members=LABELS, charset="utf8mb4"), "small,large", "CAST(`k0` AS UNSIGNED)", 5),  # noqa: E501
        (ColumnType(kind=Kind.SET_NUMBER, members=("", "a"), charset="utf8mb4"), 3, "CAST(`k0` AS UNSIGNED)", 3),  # noqa: E501
        (ColumnType(kind=Kind.ENUM_NUMBER, members=("", "a"), charset="utf8mb4"), 0, "CAST(`k0` AS UNSIGNED)", 0),  # noqa: E501
        (ColumnType(kind=Kind.YEAR), 2026, "CAST(`k0` AS UNSIGNED)", 2026),
        (ColumnType(kind=Kind.VARCHAR, length=9, charset="utf8mb4"), "50%", "`k0`", "50%"),
        (ColumnType(kind=Kind.VARBINARY, length=9), "AAE=", "`k0`", b"\0\1"),
    ],
)  # fmt: skip
def test_a_chunk_goes_on_behind_a_key_as_the_server_sorts_it(
    kind: ColumnType, value: Value, compared: str, parameter: Any
) -> None:
    sql, parameters = build_chunk_query(table(kind), (value,), 100)
    assert f"WHERE {compared} > %s ORDER BY {compared} LIMIT 100" in sql
    assert parameters == (parameter,)
    assert type(parameters[0]) is type(parameter), "a decimal as a text would be compared as a double"


def test_a_backslash_in_sjis_keeps_its_code() -> None:
    """The server would make two bytes of it, and skip the rows between both."""
    text = ColumnType(kind=Kind.VARCHAR, length=9, charset="sjis", collation="sjis_bin")
    sql, parameters = build_chunk_query(table(INT, text), (7, "a\\表"), 5)
    place = "CONVERT(%s USING sjis) COLLATE sjis_bin"
    assert f"`k0` >= %s AND (`k0` > %s OR `k1` > {place})" in sql
    assert parameters == (7, 7, b"a\\\x95\\")


def test_the_first_chunk_has_no_condition() -> None:
    sql, parameters = build_chunk_query(table(INT), None, 5)
    assert (sql.partition("FROM ")[2], parameters) == ("`d`.`t` ORDER BY `k0` LIMIT 5", ())


@pytest.mark.parametrize(
    ("after", "behind", "parameters"),
    [(None, "", ()), ((7,), " AND `100%` > 7", (7,))],
    ids=["first", "later"],
)
def test_a_condition_holds_for_every_chunk_and_nothing_of_it_is_taken_for_a_parameter(
    after: Key | None, behind: str, parameters: tuple[object, ...]
) -> None:
    """The driver inserts parameters only where it is given some; only then is `%` its placeholder. A `%` of
    the query must mean itself in both cases."""
    column = Column(name="100%", type=INT, nullable=False)
    percent = replace(
        table(INT), columns=(column,), key=UniqueIndex(name="PRIMARY", parts=(IndexPart(column="100%"),))
    )
    sql, found = build_chunk_query(percent, after, 5, "`100%` % 2 = 0 -- even")
    assert found == parameters
    assert (sql % found if found else sql) == (
        f"SELECT `100%` FROM `d`.`t` WHERE (`100%` % 2 = 0 -- even\n){behind} ORDER BY `100%` LIMIT 5"
    )


@pytest.mark.parametrize("width", [1, 2, 3])
def test_what_stands_behind_a_key_of_several_columns(width: int) -> None:
    """The condition holds for exactly the keys above, in the order of all columns."""
    keys = list(product(range(3), repeat=width))
    for after in keys:
        sql, parameters = build_chunk_query(table(*[INT] * width), after, 100)
        condition = sql.partition(" WHERE ")[2].partition(" ORDER BY ")[0]
        assert [key for key in keys if _holds(condition, parameters, key)] == [k for k in keys if k > after]


def _holds(condition: str, parameters: tuple[object, ...], key: Key) -> bool:
    text = condition.replace("AND", "and").replace("OR", "or").replace("`", "") % parameters
    return bool(eval(text, {f"k{n}": value for n, value in enumerate(key)}))


class Slow:
    """A reader whose SELECT takes until it is told to end."""

    def __init__(self, answer: Exception | ChunkRead | None = None) -> None:
        """`answer`: to every request (None: one that has failed)."""
        self.reading, self.go_on = threading.Event(), threading.Event()
        self.closed = False
        self.thread: threading.Thread | None = None
        self._answer = answer

    def read_chunk(self, request: ReadChunk) -> ChunkRead | ChunkFailed:
        self.thread = threading.current_thread()
        self.reading.set()
        self.go_on.wait(30)
        assert not self.closed, "its connection was closed while it read"
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer or ChunkFailed(request.request, "slow")

    def close(self) -> None:
        self.closed = True


def test_the_end_waits_for_a_select_in_flight_and_closes_the_connection_behind_it() -> None:
    slow = Slow()
    reader = BackgroundChunkReader(slow)
    reader.submit(ReadChunk(1, table(INT), None, 10, 0.0))
    assert slow.reading.wait(30)
    threading.Timer(0.05, slow.go_on.set).start()
    reader.close()
    assert slow.closed
    assert isinstance(reader.poll_answer(), ChunkFailed)


def test_what_is_not_due_yet_is_not_read_and_does_not_hold_up_the_end() -> None:
    slow = Slow()
    reader = BackgroundChunkReader(slow, clock=lambda: 10.0)
    slow.go_on.set()
    reader.submit(ReadChunk(1, table(INT), None, 10, 10_000.0))
    assert not slow.reading.wait(0.2)
    reader.close()
    assert reader.poll_answer() is None


def answered(answer: Exception | ChunkRead) -> BackgroundChunkReader:
    """Return a reader that has come to its end behind this answer."""
    slow = Slow(answer)
    reader = BackgroundChunkReader(slow)
    assert reader.poll_answer() is None, "nobody waits for an answer"
    reader.submit(ReadChunk(1, table(INT), None, 10, 0.0))
    assert slow.reading.wait(30)
    assert reader.poll_answer() is None
    slow.go_on.set()
    reader.close()
    return reader


def test_what_was_read_is_handed_over_once() -> None:
    read = ChunkRead(1, [(1,)], LowWatermark((1, 4), None), (1, 4))
    reader = answered(read)
    assert [reader.poll_answer(), reader.poll_answer()] == [read, None]


def test_what_the_reading_raised_is_raised_to_who_asks_for_the_answer() -> None:
    reader = answered(LookupError("no grant"))
    with pytest.raises(LookupError, match="no grant"):
        reader.poll_answer()
    assert reader.poll_answer() is None


def test_a_select_in_flight_does_not_keep_a_process_from_its_end() -> None:
    """A process that dies closes nothing; a source may take an hour over a SELECT, or never answer."""
    slow = Slow()
    reader = BackgroundChunkReader(slow)
    reader.submit(ReadChunk(1, table(INT), None, 10, 0.0))
    assert slow.reading.wait(30)
    assert slow.thread is not None
    assert slow.thread.daemon
    slow.go_on.set()
    reader.close()
