"""Tables that share a topic: equal keys must be kept apart, by a column that is in the key."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from consumer.attempt import spec as spec_module
from consumer.attempt.spec import UnitSpec, resolve_definition
from consumer.errors import UnitStoppedError
from consumer.ordering.model import ApplyUnit, LaneProgress, TopicOptions, UnitState
from consumer.tables.router import ResolvedRoute, TableRoute
from consumer.tables.shared_topics import explain_key_clash, find_sharing_problem
from consumer.tables.stored import StoredDefinition
from consumer.targets.kafka.store.state import ProgressRecord, RecordScheme, TopicUnits
from rowlock.inspect.checks.flows import TableFlow, yield_mixed_row_findings
from schemas.problems import Problem
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Table, UniqueIndex
from tests.kits.topic import usual_tables

ACCT = Table(
    db="bank",
    name="acct",
    columns=(Column(name="id", type=ColumnType(kind=Kind.INT, bits=32), nullable=False),),
    key=UniqueIndex(name="PRIMARY", parts=(IndexPart(column="id"),)),
)
WHOSE, ONE_KEY = "do not contain the name of the row's table", "the same key in the topic"
B1, B2 = {"branch": "b1"}, {"branch": "b2"}
KINDS = (("b1", "mysql"), ("b2", "mysql"))


def to(word: str, add: dict[str, str], *key: str) -> ResolvedRoute:
    return ResolvedRoute(
        "head", "acct", tuple(add.items()), topic=TopicOptions(format=word, key=key, kinds=KINDS)
    )


@pytest.mark.parametrize(
    ("word", "key", "one", "two", "reported"),
    [
        ("plain", (), {}, {}, WHOSE),
        ("canal-json", (), {}, {}, WHOSE),
        ("canal-json", ("town",), {}, {}, WHOSE),
        ("rowlock", (), {}, {}, ONE_KEY),
        ("debezium", (), {"branch": "x"}, {"branch": "x"}, ONE_KEY),
        ("debezium", (), B1, {}, ""),
        ("debezium", ("id",), B1, {}, ONE_KEY),
        ("plain", (), B1, B2, ""),
        ("rowlock", (), B1, B2, ""),
        ("rowlock", ("id",), B1, B2, ONE_KEY),
        ("plain", ("id",), B1, B2, ONE_KEY),
        ("rowlock", ("branch", "id"), B1, B2, ""),
        ("rowlock", ("town",), {}, {}, ""),
        ("plain", ("town",), B1, B2, ONE_KEY),
        ("plain", ("town", "branch"), B1, B2, ""),
    ],
)
def test_what_keeps_two_tables_apart(
    word: str, key: tuple[str, ...], one: dict[str, str], two: dict[str, str], reported: str
) -> None:
    found = explain_key_clash(ACCT, to(word, one, *key), to(word, two, *key))
    assert (reported in str(found)) if reported else not found


def keyed(*columns: str) -> Table:
    parts = tuple(IndexPart(column=name) for name in columns)
    return msgspec.structs.replace(ACCT, name="other", key=UniqueIndex(name="PRIMARY", parts=parts))


@pytest.mark.parametrize(
    ("word", "one", "two", "reported"),
    [
        # keys of other names are other keys
        ("rowlock", (("a_id",), ()), (("b_id",), ()), ""),
        ("debezium", (("id",), ()), (("id", "x"), ()), ""),
        ("rowlock", (("id",), ()), (("id",), ()), ONE_KEY),
        ("plain", (("a_id",), ()), (("b_id",), ()), WHOSE),
        # many rows of one are under a key that is one row of the other: its tombstone would take them along
        ("rowlock", (("id", "x"), ("id",)), (("id",), ()), ONE_KEY),
        ("rowlock", (("id", "x"), ("id",)), (("id", "y"), ("id",)), ""),
    ],
)
def test_both_keys_count(
    word: str,
    one: tuple[tuple[str, ...], tuple[str, ...]],
    two: tuple[tuple[str, ...], tuple[str, ...]],
    reported: str,
) -> None:
    for (mine, by), (theirs, their_key) in ((one, two), (two, one)):
        found = explain_key_clash(keyed(*mine), to(word, {}, *by), to(word, {}, *their_key), keyed(*theirs))
        assert (reported in str(found)) if reported else not found


def test_formats_of_both_count() -> None:
    for one, two in (("plain", "rowlock"), ("rowlock", "plain")):
        assert "format plain do not contain the name" in explain_key_clash(
            ACCT, to(one, {}, "town"), to(two, {}, "town"), ACCT
        )
        assert ONE_KEY in explain_key_clash(ACCT, to(one, B1, "town"), to(two, B2, "town"), ACCT)


def test_a_unit_judges_by_the_definition_of_the_other() -> None:
    routes = [TableRoute("bank.*", "head.acct", topic=TopicOptions(kinds=KINDS))]
    for columns, reported in ((("b_id",), ""), (("id",), ONE_KEY)):
        writers = {"a.b.b2.bank.other": (state(keyed(*columns)), 7)}
        found = find_sharing_problem(ACCT, to("rowlock", {}), "a.b.b1.bank.acct", writers, routes)
        assert (reported in str(found)) if reported else not found


def test_tables_of_a_database_are_none_of_it() -> None:
    assert explain_key_clash(ACCT, ResolvedRoute("head", "acct"), ResolvedRoute("head", "acct")) == ""


def state(table: Table = ACCT, emptied: int | None = None) -> UnitState:
    return UnitState(StoredDefinition(table, emptied_at=emptied).encode(), None, None)


@pytest.mark.parametrize(
    ("units", "add", "reported"),
    [
        ({"a.b.b1.bank.acct": state()}, {}, ""),
        ({"a.b.b1.bank.acct": state(), "a.b.b2.bank.acct": state()}, {}, "b2:bank.acct writes it, too"),
        ({"a.b.b2.bank.acct": UnitState(None, None, None)}, {}, "b2:bank.acct writes it, too"),
        ({"a.b.b2.bank.other": UnitState(None, None, None)}, {}, ""),
        ({"a.b.b2.bank.acct": state()}, {"branch": "{source}"}, ""),
        # what writes no more: another prefix's, a source that is no more, a table whose rows went when it was
        # dropped
        ({"b.b.b2.bank.acct": state()}, {}, ""),
        ({"a.b.b3.bank.acct": state()}, {}, ""),
        ({"a.b.b2.bank.acct": state(emptied=8)}, {}, ""),
        ({"a.b.b2.bank.acct": state(emptied=7)}, {}, "b2:bank.acct writes it, too"),
    ],
)
def test_a_unit_knows_the_others_of_its_pipeline(
    units: dict[str, UnitState], add: dict[str, str], reported: str
) -> None:
    route: dict[str, Any] = {"add": tuple(add.items()), "topic": TopicOptions(format="plain", kinds=KINDS)}
    routes = [TableRoute("bank.*", "head.{table}", **route)]
    mine = to("plain", dict.fromkeys(add, "b1"))
    writers = {topic: (each, 7) for topic, each in units.items()}
    tables = usual_tables(units)
    found = find_sharing_problem(
        ACCT, mine, "a.b.b1.bank.acct", writers, routes, table_of=lambda _, topic: tables[topic]
    )
    assert (
        (reported in str(found) and "add: " in str(found) and "no longer exists" in str(found))
        if reported
        else not found
    )
    elsewhere = [TableRoute("bank.*", "head.{source}_{table}", **route)]
    assert find_sharing_problem(ACCT, mine, "a.b.b1.bank.acct", writers, elsewhere) is None


MINE, OTHER = ApplyUnit("p", "a.b1.bank.acct"), ApplyUnit("p", "a.b2.bank.acct")


def record(topic: str | None, stopped: str | None = None) -> bytes:
    """The record of a unit that has written to `topic`."""
    lane = LaneProgress(0, 1, 1, "id", 7, (0, 1, 1, 0), 1, "{}")
    written = None if topic is None else RecordScheme(topic, "plain", ("id",), 1, "murmur2")
    return msgspec.json.encode(ProgressRecord((lane,), UnitState(None, None, stopped), written))


@pytest.mark.parametrize(
    ("mine", "theirs", "counts"),
    [
        (record(None), record(None), True),
        (record("head.acct"), record("head.acct"), True),
        (record("head.acct"), record("head.acct", "stopped"), True),
        (record(None), record("head.acct", "stopped"), True),
        # a newcomer that may not write stops alone: he looks before he writes, and finds who has
        (record("head.acct"), record(None), False),
        (record("head.old"), record(None), True),
        (record(None), record(None, "stopped"), False),
        (record(None), record("head.old"), False),
        (record(None), None, False),
    ],
)
def test_who_has_written_or_may_yet_counts(mine: bytes, theirs: bytes | None, counts: bool) -> None:
    units = TopicUnits()
    for unit, value in ((MINE, mine), (OTHER, theirs), (ApplyUnit("q", OTHER.topic), record("head.acct"))):
        units.take_record(msgspec.json.encode((unit.pipeline, unit.topic)), value)
    found = {topic: offset for topic, (_, offset) in units.find_topic_writers(MINE, "head.acct").items()}
    assert found == ({OTHER.topic: 7} if counts else {})


class Target:
    """A target of events that another unit was taken over at."""

    def find_topic_writers(self, unit: ApplyUnit, topic: str) -> dict[str, tuple[UnitState, int]]:
        assert (unit, topic) == (MINE, "head.acct")
        return {OTHER.topic: (UnitState(None, None, None), -1)}


def test_a_worker_refuses_to_open_a_topic_of_mixed_rows() -> None:
    routes = (TableRoute("bank.*", "head.{table}", topic=TopicOptions(format="plain", kinds=KINDS)),)
    spec = UnitSpec(MINE, "b1", 1, "", routes, 1, table_of=lambda _source, _topic: ("bank", "acct"))
    with pytest.raises(UnitStoppedError, match=r"^topic head\.acct: b2:bank\.acct writes it, too"):
        resolve_definition(spec, cast(Any, Target()), StoredDefinition(ACCT), first=True)


def test_check_says_it_of_topics_too() -> None:
    config = cast(Any, SimpleNamespace(find_line=lambda *path: ".".join(path)))

    def flow(source: str, routed: ResolvedRoute) -> TableFlow:
        return TableFlow("p", source, ACCT, "feed", routed)

    (found,) = yield_mixed_row_findings(config, [flow("b1", to("plain", {})), flow("b2", to("plain", {}))])
    assert found.place == "pipelines.p.routes: topic head.acct"
    assert "b1:bank.acct and b2:bank.acct write it" in found.message
    assert "add: " in found.remedy
    assert not list(
        yield_mixed_row_findings(config, [flow("b1", to("plain", B1)), flow("b2", to("plain", B2))])
    )
    assert not list(yield_mixed_row_findings(config, [flow("b1", to("plain", {}))]))


@pytest.mark.parametrize("lost", [None, Problem("topic public.acct was made anew", "start over")])
@pytest.mark.parametrize("first", [True, False])
def test_a_topic_whose_records_are_lost_stops_the_unit_that_wrote_them(
    lost: Problem | None, first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: Any = SimpleNamespace(target=SimpleNamespace(topic=object()))
    session: Any = SimpleNamespace(records_lost=lambda _unit, _target: lost)
    spec: Any = SimpleNamespace(
        source="b1", routes=(), create_tables=True, debezium=None, unit=None, batches=False
    )
    monkeypatch.setattr(spec_module, "prepare_definition", lambda *_, **__: found)
    monkeypatch.setattr(spec_module, "_keep_apart", lambda *_, **_more: None)
    monkeypatch.setattr(spec_module, "_decode_known_table", lambda *_: None)
    if lost is None or first:
        assert resolve_definition(spec, session, StoredDefinition(ACCT), first=first) is found
    else:
        with pytest.raises(UnitStoppedError, match="made anew: start over"):
            resolve_definition(spec, session, StoredDefinition(ACCT), first=first)
