"""Tables that share a topic: equal keys must be kept apart, by a column that is in the key."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from consumer.attempt.spec import UnitSpec, prepared
from consumer.errors import UnitStoppedError
from consumer.ordering.model import ApplyUnit, TopicOptions, UnitState
from consumer.tables.router import Routed, TableRoute
from consumer.tables.shared_topics import mixed, shared_with
from consumer.tables.stored import Stored
from rowlock.inspect.check import Flow, not_kept_apart
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Table, UniqueIndex

ACCT = Table(
    db="bank",
    name="acct",
    columns=(Column(name="id", type=ColumnType(kind=Kind.INT, bits=32), nullable=False),),
    key=UniqueIndex(name="PRIMARY", parts=(IndexPart(column="id"),)),
)
WHOSE, ONE_KEY = "do not say whose row", "one key in the topic"
B1, B2 = {"branch": "b1"}, {"branch": "b2"}


def to(word: str, add: dict[str, str], *key: str) -> Routed:
    return Routed("head", "acct", tuple(add.items()), topic=TopicOptions(format=word, key=key))


@pytest.mark.parametrize(
    ("word", "key", "one", "two", "said"),
    [
        ("plain", (), {}, {}, WHOSE),
        ("canal-json", (), {}, {}, WHOSE),
        ("canal-json", ("town",), {}, {}, WHOSE),
        ("rowlock", (), {}, {}, ONE_KEY),
        ("debezium", (), {"branch": "x"}, {"branch": "x"}, ONE_KEY),
        ("debezium", (), B1, {}, ONE_KEY),
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
    word: str, key: tuple[str, ...], one: dict[str, str], two: dict[str, str], said: str
) -> None:
    found = mixed(ACCT, to(word, one, *key), to(word, two, *key))
    assert (said in found) if said else not found


def test_tables_of_a_database_are_none_of_it() -> None:
    assert mixed(ACCT, Routed("head", "acct"), Routed("head", "acct")) == ""


def state(table: Table = ACCT) -> UnitState:
    return UnitState(Stored(table).encode(), None, None)


@pytest.mark.parametrize(
    ("units", "add", "said"),
    [
        ({"a.b.b1.bank.acct": state()}, {}, ""),
        ({"a.b.b2.bank.acct": UnitState(Stored(ACCT, emptied=7).encode(), None, None)}, {}, ""),
        ({"a.b.b1.bank.acct": state(), "a.b.b2.bank.acct": state()}, {}, "b2:bank.acct writes it, too"),
        ({"a.b.b2.bank.acct": UnitState(None, None, None)}, {}, "b2:bank.acct writes it, too"),
        ({"a.b.b2.bank.other": UnitState(None, None, None)}, {}, ""),
        ({"a.b.b2.bank.acct": state()}, {"branch": "{source}"}, ""),
    ],
)
def test_a_unit_knows_the_others_of_its_pipeline(
    units: dict[str, UnitState], add: dict[str, str], said: str
) -> None:
    route: dict[str, Any] = {"add": tuple(add.items()), "topic": TopicOptions(format="plain")}
    routes = [TableRoute("bank.*", "head.{table}", **route)]
    mine = to("plain", dict.fromkeys(add, "b1"))
    found = shared_with(ACCT, mine, "b1", units, routes)
    assert (said in found and "add: " in found) if said else not found
    elsewhere = [TableRoute("bank.*", "head.{source}_{table}", **route)]
    assert shared_with(ACCT, mine, "b1", units, elsewhere) == ""


class Target:
    """A target of events that another unit was taken over at."""

    def units(self, pipeline: str) -> dict[str, UnitState]:
        assert pipeline == "p"
        return {"a.b2.bank.acct": UnitState(None, None, None), "a.b1.bank.acct": state()}


def test_a_worker_refuses_to_open_a_topic_of_mixed_rows() -> None:
    routes = (TableRoute("bank.*", "head.{table}", topic=TopicOptions(format="plain")),)
    spec = UnitSpec(ApplyUnit("p", "a.b1.bank.acct"), "b1", 1, "", routes, 1)
    with pytest.raises(UnitStoppedError, match=r"^topic head\.acct: b2:bank\.acct writes it, too"):
        prepared(spec, cast(Any, Target()), Stored(ACCT), first=True)


def test_check_says_it_of_topics_too() -> None:
    config = cast(Any, SimpleNamespace(where=lambda *path: ".".join(path)))

    def flow(source: str, routed: Routed) -> Flow:
        return Flow("p", source, ACCT, "feed", routed)

    (found,) = not_kept_apart(config, [flow("b1", to("plain", {})), flow("b2", to("plain", {}))])
    assert found.place == "pipelines.p.routes: topic head.acct"
    assert "b1:bank.acct and b2:bank.acct write it" in found.message
    assert "add: " in found.remedy
    assert not list(not_kept_apart(config, [flow("b1", to("plain", B1)), flow("b2", to("plain", B2))]))
    assert not list(not_kept_apart(config, [flow("b1", to("plain", {}))]))
