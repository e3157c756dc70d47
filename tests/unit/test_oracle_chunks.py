"""A chunk of an Oracle table is returned once the log of that same table is read up to it, whatever number
its request has."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from producer.errors import TableStoppedError, TransientSourceError
from producer.sources.chunk_data import ChunkFailed, ChunkRead, ChunkRefused, LowWatermark, ReadChunk
from producer.sources.oracle.chunks import OracleChunkQueue, OracleChunkReader, _answer_error
from producer.sources.oracle.following import FollowedTable, FollowedTables
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Table, UniqueIndex
from tests.kits.oracle_poll import NAME, logged
from tests.stands.chunk_queue import ScriptedChunks


def asked(name: str, number: int = 1) -> ReadChunk:
    columns = (Column(name="ID", type=ColumnType(kind=Kind.INT), nullable=False),)
    key = UniqueIndex(name="PK", parts=(IndexPart(column="ID"),))
    return ReadChunk(number, Table(db="BANK", name=name, columns=columns, key=key), None, 3, 0.0)


def read(rows: int, high: int, number: int = 1) -> ChunkRead:
    return ChunkRead(number, [("1",)] * rows, LowWatermark((0, 2), None), (0, high))


def test_a_table_that_is_copied_again_while_an_answer_is_on_its_way() -> None:
    """The job of before is given up, and the next one counts its requests from 1, too: its own answer waits
    for the log, the other is discarded."""
    brought: dict[str, int | None] = {"A": None, "B": 4}
    reader = ScriptedChunks()
    chunks = OracleChunkQueue(reader, lambda name: brought[name[1]])
    chunks.submit(asked("A"))
    chunks.submit(asked("B"))
    reader.answers += [read(1, 6), read(2, 8)]
    assert chunks.poll_answer() == read(1, 6), "A is not followed"
    assert chunks.poll_answer() is None, "the log of B is not brought"
    brought["B"] = 8
    assert chunks.poll_answer() == read(2, 8)
    assert chunks.poll_answer() is None


def test_a_table_that_stops_by_a_value_leaves_the_next_ones_answer_right() -> None:
    brought: dict[str, int | None] = {"A": 99, "B": 4}
    reader = ScriptedChunks()
    chunks = OracleChunkQueue(reader, lambda name: brought[name[1]])
    chunks.submit(asked("A"))
    chunks.submit(asked("B"))
    reader.answers += [TableStoppedError(frozenset([("BANK", "A")]), "value", "x", "y"), read(1, 8)]
    with pytest.raises(TableStoppedError):
        chunks.poll_answer()
    assert chunks.poll_answer() is None
    brought["B"] = 8
    assert chunks.poll_answer() == read(1, 8)


class Session:
    """Answers each statement with these rows, or raises."""

    def __init__(self, answer: object) -> None:
        self.answer = answer

    def fetch_rows(self, *_: object) -> object:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def read_chunk(answer: object, table: Table | None = None) -> object:
    following = FollowedTables({NAME: FollowedTable(None, logged())})  # type: ignore[arg-type]
    reader = OracleChunkReader(Session(answer), following, lambda: 3, lambda: 4)  # type: ignore[arg-type]
    return reader.read_chunk(ReadChunk(1, table or logged().table, None, 3, 0.0))


def test_a_chunk_is_read_of_the_table_as_it_is_followed() -> None:
    found = read_chunk([("1", "10")])
    assert isinstance(found, ChunkRead)
    assert (found.rows, found.low) == ([("1", "10")], LowWatermark((0, 3), None))
    other = asked("A").table
    assert other != logged().table
    assert read_chunk([("1", "10")], other) == ChunkFailed(1, "the table was replaced by another one")


def test_a_value_that_cannot_be_read_stops_its_table() -> None:
    with pytest.raises(TableStoppedError, match=r"a value of BANK.A cannot be read") as stopped:
        read_chunk([("1", "ten")])
    assert stopped.value.cause == "value"


@pytest.mark.parametrize(
    ("number", "refused"), [(0, False), (1013, False), (4036, False), (12541, False), (936, True)]
)
def test_a_condition_is_blamed_only_for_errors_that_may_be_its_own(number: int, refused: bool) -> None:
    """A copy with a refused condition ends; after a lost connection or a full PGA it goes on."""
    error = TransientSourceError("the chunk cannot be read")
    error.__cause__ = Exception(SimpleNamespace(code=number)) if number else Exception("no number")
    answer = _answer_error(asked("A")._replace(where="V > 1"), error)
    assert isinstance(answer, ChunkRefused if refused else ChunkFailed)
