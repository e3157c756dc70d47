"""Where capture resumes: which record counts, and which servers and logs are refused."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer.errors import SourceRefusedError
from producer.snapshot.chunks import FROM_START, ResumePoint
from producer.snapshot.scheduler import _resume_after, resume_point
from producer.sources.changes import LogFile
from producer.start.positions import (
    PositionStore,
    check_gtids,
    check_log,
    require_recorded_server,
    select_record,
)
from producer.start.topic_recovery import ChunkMarker, TableTail, TopicFindings
from producer.tables import BegunCopy
from schemas.findings import START_OVER
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Table, UniqueIndex
from schemas.wire.copies import CopyMark
from schemas.wire.event import Chunk
from schemas.wire.position import DEFINITION_ROW, Position
from schemas.wire.records import Identity, StoredPosition
from tests.kits.apply import account_table

MYSQL = Identity(server_uuid="u1", server_id=1, version="9.1", gtid_set="u1:1-9")
MARIADB = Identity(server_uuid=None, server_id=1, version="11.4", gtid_set="0-1-9")


def record(
    gen: int = 1, file: str = "binlog.000010", pos: int = 400, identity: Identity = MYSQL
) -> StoredPosition:
    return StoredPosition(source="s", gen=gen, epoch=0, file=file, pos=pos, identity=identity, ts_ms=1)


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(4, 99), st.booleans()), max_size=20))
def test_the_highest_gen_wins_whenever_it_was_written(written: list[tuple[int, int, bool]]) -> None:
    alive: dict[int, int] = {}
    found: list[tuple[str, bytes | None]] = []
    for gen, pos, tombstone in written:
        found.append((str(gen), None if tombstone else msgspec.json.encode(record(gen, pos=pos))))
        alive.pop(gen, None)
        if not tombstone:
            alive[gen] = pos
    chosen = select_record(found)
    if not alive:
        assert chosen.newest is None
    else:
        assert chosen.newest is not None
        assert (chosen.newest.gen, chosen.newest.pos) == (max(alive), alive[max(alive)])
        assert sorted(chosen.older_keys) == sorted(str(gen) for gen in alive if gen < max(alive))


def test_files_compare_by_number() -> None:
    files = [LogFile("binlog.999999", 1000), LogFile("binlog.1000000", 1000)]
    check_log(record(file="binlog.999999"), files)
    check_log(record(file="binlog.1000000"), files)


@pytest.mark.parametrize(
    ("file", "pos", "reported"),
    [
        ("binlog.000009", 4, "purged"),
        ("binlog.000010", 1001, "shorter"),
        ("binlog.000012", 4, "shorter"),
    ],
)
def test_a_log_that_does_not_reach_back_is_refused(file: str, pos: int, reported: str) -> None:
    with pytest.raises(SourceRefusedError, match=reported) as refused:
        check_log(record(file=file, pos=pos), [LogFile("binlog.000010", 1000), LogFile("binlog.000011", 200)])
    assert str(refused.value).endswith(START_OVER)


@pytest.mark.parametrize(
    ("was", "now", "contained"),
    [
        (MYSQL, msgspec.structs.replace(MYSQL, server_uuid="u2"), True),
        (MARIADB, msgspec.structs.replace(MARIADB, server_id=2), True),
        (MARIADB, MYSQL, True),
        (MYSQL, MYSQL, False),
    ],
)
def test_another_server_is_refused(was: Identity, now: Identity, contained: bool) -> None:
    if contained:
        with pytest.raises(SourceRefusedError, match="start over"):
            require_recorded_server(record(identity=was), now)
    else:
        require_recorded_server(record(identity=was), now)
    with contextlib.nullcontext() if contained else pytest.raises(SourceRefusedError, match="start over"):
        check_gtids(record(identity=was), now, contained=contained)


def test_a_source_that_lists_no_log_is_refused() -> None:
    with pytest.raises(
        SourceRefusedError,
        match=r"lists no binlog files, capture's position is binlog\.000010:400: start over",
    ):
        check_log(record(), [])


def test_the_same_server_is_not() -> None:
    now = msgspec.structs.replace(MYSQL, server_id=7, gtid_set="u1:1-20")
    require_recorded_server(record(), now)
    check_gtids(record(), now, contained=True)


def test_the_definition_in_force_is_the_one_before_the_position() -> None:
    first, later = (0, 3, 100, DEFINITION_ROW), (0, 3, 500, 0)
    tail = TableTail(definitions={first: "first", later: "later"})  # type: ignore[dict-item]
    assert tail.find_definition(3, 99, 0) is None
    assert tail.find_definition(3, 100, 0) == (first, "first")
    assert tail.find_definition(3, 500, 0) == (first, "first"), "the statement at 500 is not done at 500"
    assert tail.find_definition(3, 501, 0) == (later, "later")


def marker(number: int, after: int | None, upto: int | None) -> ChunkMarker:
    chunk = Chunk(
        number=number,
        after=None if after is None else (after,),
        upto=None if upto is None else (upto,),
        first_row=-9,
        rows=1,
        last=upto is None,
    )
    return ChunkMarker(chunk, (0, 1, 4, -8), 1, 0)


def test_a_snapshot_goes_on_behind_the_last_marker_that_counts() -> None:
    table = keyed("id")
    assert _resume_after(TableTail(), table) == FROM_START
    behind = _resume_after(
        TableTail(markers=[marker(4, 30, 40), marker(5, 40, 50), marker(7, 60, 70)]), table
    )
    assert behind == (False, 6, (50,), False), "7 does not follow 5"
    assert _resume_after(TableTail(markers=[marker(4, 30, 40), marker(5, 40, None)]), table).done
    again = _resume_after(TableTail(markers=[marker(5, 40, None), marker(1, None, 10)]), table)
    assert again == (False, 2, (10,), False)


def keyed(*key: str) -> Table:
    number = ColumnType(kind=Kind.INT, bits=32)
    columns = tuple(Column(name=name, type=number, nullable=False) for name in ("id", "nr", "at"))
    parts = tuple(IndexPart(column=name) for name in key)
    return Table(db="d", name="t", columns=columns, key=UniqueIndex(name="PRIMARY", parts=parts))


@pytest.mark.parametrize("key", [("nr",), ("id", "nr")])
@pytest.mark.parametrize("reported", [True, False], ids=["with the definition of then", "without it"])
def test_a_snapshot_does_not_go_on_behind_a_key_of_before(key: tuple[str, ...], reported: bool) -> None:
    """ALTER TABLE … ADD PRIMARY KEY passed, and capture died before a chunk by the new key stood in the
    topic."""
    then: Position = (0, 1, 4, DEFINITION_ROW)
    definitions = {(0, 1, 9, DEFINITION_ROW): keyed(*key)} | ({then: keyed("id")} if reported else {})
    half = TableTail(markers=[marker(4, 30, 40), marker(5, 40, 50)], definitions=definitions)
    if reported or len(key) > 1:
        assert _resume_after(half, keyed(*key)) == FROM_START._replace(repeated=True)
    assert _resume_after(half, keyed("id")) == (False, 6, (50,), False)
    whole = TableTail(markers=[*half.markers, marker(6, 50, None)], definitions=definitions)
    assert _resume_after(whole, keyed(*key)).done, "all rows are in the topic, in whatever order"
    begun = ChunkMarker(msgspec.structs.replace(marker(1, None, 7).chunk, repeated=True), (0, 1, 9, -7), 1, 0)
    if len(key) == 1:
        anew = TableTail(markers=[*half.markers, begun], definitions=definitions)
        assert _resume_after(anew, keyed(*key)) == (False, 2, (7,), True)


def _event(
    gen: int, position: tuple[int, int, int, int], prev: tuple[int, int, int, int] | None = None
) -> bytes:
    source = {"db": "d", "table": "t", "row": position[3], "position": position, "prev": prev, "gen": gen}
    return msgspec.json.encode({"op": "c", "source": source})


def test_a_topic_s_highest_position_counts_what_prev_says_and_not_what_zombies_say() -> None:
    tails = TopicFindings()
    tails.add_event(0, _event(2, (0, 1, 50, 0), (0, 1, 90, 3)))
    tails.add_event(1, _event(1, (0, 9, 9, 9)))
    assert (tails.highest, tails.gen) == ((0, 1, 90, 3), 2)


class _Slow:
    """A writer of records and a reader of the topic; `come` is when what was sent is there, in the order of
    the calls."""

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self.removed: list[bytes] = []
        self.under_way: list[tuple[bytes, Callable[[int], None] | None]] = []

    def send(
        self, _topic: str, key: bytes, value: bytes | None, on_offset: Callable[[int], None] | None = None
    ) -> None:
        if value is None:
            self.removed.append(key)
        self.under_way.append((key, on_offset))

    def drain(self) -> None:
        for key, on_offset in self.under_way:
            self.keys.append(key)
            if on_offset is not None:
                on_offset(len(self.keys) - 1)
        self.under_way.clear()

    def get_bounds(self, _topic: str) -> tuple[int, int]:
        return 0, len(self.keys)

    def read_range(self, _topic: str, start: int, end: int) -> list[Any]:
        return [
            SimpleNamespace(key=lambda key=key: key, offset=lambda at=at: at)
            for at, key in enumerate(self.keys[start:end], start)
        ]


def test_a_claim_is_seen_also_in_the_place_of_a_record_that_is_under_way() -> None:
    topic: Any = _Slow()
    store, ours = PositionStore("p"), record()
    store.claim_position(topic, topic, ours, [])
    assert not store.is_superseded(topic, 1)
    store.store_position(topic, ours)
    topic.drain()
    assert not store.is_superseded(topic, 1)
    store.store_position(topic, ours)  # under way: another process claims the source first
    topic.keys.append(b"2")
    assert store.is_superseded(topic, 1)
    topic.drain()
    assert store.is_superseded(topic, 1)


@pytest.mark.parametrize("older", [0, 1, 2])
@pytest.mark.parametrize("sent", [0, 1, 2])
def test_a_claim_right_behind_ours_is_seen(older: int, sent: int) -> None:
    topic: Any = _Slow()
    store, ours = PositionStore("p"), record()
    store.claim_position(topic, topic, ours, ["0"] * older)
    assert topic.under_way == [], "Kafka has all of it"
    for _ in range(sent):
        store.store_position(topic, ours)
    topic.drain()
    topic.keys.append(b"2")
    assert store.is_superseded(topic, 1)


def test_a_claim_takes_the_next_gen_that_is_free_and_removes_what_is_older() -> None:
    """Another start had the same idea: its record came first."""
    topic: Any = _Slow()
    topic.keys += [b"1", b"2"]
    claimed = PositionStore("p").claim_position(topic, topic, record(gen=2), ["1"])
    assert claimed == record(gen=3)
    assert topic.keys == [b"1", b"2", b"2", b"3", b"1"]
    assert topic.removed == [b"1"]


def test_a_record_that_was_counted_by_the_topics_end_is_not_counted_again() -> None:
    """It is there, and its acknowledgement comes later, behind the look that a zombie's record has caused."""
    topic: Any = _Slow()
    store, ours = PositionStore("p"), record()
    store.claim_position(topic, topic, ours, [])
    store.store_position(topic, ours)
    ((key, acknowledge),) = topic.under_way
    topic.keys += [b"0", key]
    assert not store.is_superseded(topic, 1)
    acknowledge(len(topic.keys) - 1)
    topic.keys.append(b"2")
    assert store.is_superseded(topic, 1)


@pytest.mark.parametrize("always", [True, False])
def test_a_row_of_the_log_makes_its_table_known_where_that_is_asked(always: bool) -> None:
    tails = TopicFindings()
    tails.add_event(0, _event(1, (0, 1, 50, 0)), always=always)
    assert list(tails.tables) == ([("d", "t")] if always else [])


def test_a_copy_that_is_over_does_not_go_on() -> None:
    """`copies.resumes`: whoever cancelled it has said so."""
    begun = BegunCopy(CopyMark(id="r1"), (0, 3, 900, -5), 2, "")
    state: Any = SimpleNamespace(begun=begun, name=("d", "t"), table=None)
    over: Any = SimpleNamespace(should_resume=lambda _table, _begun: False)
    assert resume_point(state, None, over) == ResumePoint(done=True, number=1, after=None, repeated=True)
    on: Any = SimpleNamespace(should_resume=lambda _table, _begun: True)
    assert resume_point(state, None, on) == ResumePoint(done=False, number=1, after=None, repeated=True)
    first: Any = SimpleNamespace(begun=None, name=("d", "t"), table=None)
    assert resume_point(first, None, on) == ResumePoint(done=False, number=1, after=None, repeated=False)
    assert _resume_after(TableTail(), account_table()) == ResumePoint(
        done=False, number=1, after=None, repeated=False
    )


@pytest.mark.parametrize("key", [("id",), ("id", "nr")])
def test_a_table_whose_key_is_another_one_than_its_chunks_has_a_copy_begin_first(
    key: tuple[str, ...],
) -> None:
    """The rows of those chunks may be gone since: only a copy has readers of the topic forget them."""
    on: Any = SimpleNamespace(should_resume=lambda _table, _begun: True)
    state: Any = SimpleNamespace(begun=None, name=("d", "t"), table=keyed(*key))
    found = resume_point(state, TableTail(markers=[marker(1, None, 40), marker(2, 40, 50)]), on)
    assert found == (None if len(key) > 1 else ResumePoint(done=False, number=3, after=(50,), repeated=False))
