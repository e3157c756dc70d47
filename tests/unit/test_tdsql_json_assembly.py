"""Transactions of TDSQL's JSON subscription: complete, in order and each once, whatever is delivered again,
and whenever the reader starts again."""

from __future__ import annotations

import random
from typing import Any

import pytest

from producer.sources.tdsql_json.assembly import (
    AssembledTransaction,
    LoggedQuery,
    OversizedTransaction,
    StoppedScope,
    SubscriptionAssembler,
)
from producer.sources.tdsql_json.messages import SubscribedEvent, UnreadableEvent, decode_subscribed_event
from tests.kits.tdsql_json import UUID, encode, message, transaction

Messages = list[dict[str, Any]]
SETS = ("set_1", "set_2")


def decode(each: dict[str, Any]) -> SubscribedEvent:
    event = decode_subscribed_event(encode(each))
    assert isinstance(event, SubscribedEvent)
    return event


def push(assembler: SubscriptionAssembler, messages: Messages, set_name: str = "set_1") -> list[Any]:
    return [item for each in messages for item in assembler.push_event(set_name, decode(each), 0)]


def assembler(covered: dict[str, str] | None = None, most: int = 100) -> SubscriptionAssembler:
    return SubscriptionAssembler(covered or {}, max_messages=most)


def insert(gtid: str, index: int, literal: str = "1", table: str = "acct") -> dict[str, Any]:
    return message("insert", gtid, index, db="bank", table=table, where=[], field=[literal])


def list_state(machine: SubscriptionAssembler) -> tuple[int | None, dict[str, str]]:
    return machine.resume_offset, machine.list_covered()


def rows_of(items: list[Any]) -> list[tuple[str, int, list[str | None], bool]]:
    return [
        (row.position.gtid, row.position.event_index, row.event.after, row.last)
        for item in items
        if isinstance(item, AssembledTransaction)
        for row in item.rows
    ]


def stops_of(items: list[Any]) -> list[tuple[str | None, set[str] | None]]:
    return [
        (item.set_name, None if item.tables is None else {table for _, table in item.tables})
        for item in items
        if isinstance(item, StoppedScope)
    ]


ONE, TWO, THREE = f"{UUID}:1", f"{UUID}:2", f"{UUID}:3"


def test_rows_are_returned_at_the_end_of_their_transaction() -> None:
    machine = assembler()
    written = transaction(ONE, [["1"], ["2"]])
    assert push(machine, written[:-1]) == []
    assert list_state(machine) == (0, {"set_1": ""})
    assert rows_of(push(machine, written[-1:])) == [(ONE, 4, ["1"], False), (ONE, 6, ["2"], True)]
    assert list_state(machine) == (None, {"set_1": ONE})


def test_a_transaction_without_rows_is_covered_and_returns_nothing() -> None:
    machine = assembler()
    assert push(machine, [message("gtid", ONE, 1), message("gtid", TWO, 1), message("xid", TWO, 2)]) == []
    assert machine.list_covered() == {"set_1": f"{UUID}:1-2"}


def test_another_end_than_xid_stops_the_tables_with_masked_messages() -> None:
    machine = assembler()
    opened = [message("gtid", ONE, 1), insert(ONE, 4, "'Lucy'"), insert(ONE, 6, "2", "other")]
    items = push(machine, [*opened, *transaction(TWO, [["3"]])])
    assert stops_of(items) == [("set_1", {"acct", "other"})]
    assert rows_of(items) == [(TWO, 4, ["3"], True)]
    text = str(items[0].problem)
    assert "has another end than xid" in text
    assert "4 insert bank.acct where [] field ['aaaa']" in text
    assert "Lucy" not in text
    assert push(machine, opened) == []  # its tables are stopped


def test_a_statement_is_returned_when_its_transaction_has_ended() -> None:
    query = message("query", ONE, 2, sql="alter table acct add x int")
    for end in ([message("gtid", TWO, 1)], [message("xid", ONE, 3)]):
        machine = assembler()
        assert push(machine, [message("gtid", ONE, 1), query]) == []
        (item,) = push(machine, end)
        assert isinstance(item, LoggedQuery)
        assert (item.position.gtid, item.position.event_index, item.event.sql) == (ONE, 2, query["sql"])


def test_rows_after_a_statement_stop_their_tables_and_the_statement_is_returned() -> None:
    xa = [
        message("gtid", ONE, 1),
        message("query", ONE, 2, sql="XA START 'secret'"),
        insert(ONE, 4),
        insert(ONE, 6, "2", "other"),
        message("query", ONE, 7, sql="XA END 'secret'"),
    ]
    items = push(assembler(), [*xa, *transaction(TWO, [["3"]])])
    assert [item.event.sql for item in items if isinstance(item, LoggedQuery)] == [
        "XA START 'secret'",
        "XA END 'secret'",
    ]
    assert stops_of(items) == [("set_1", {"acct"}), ("set_1", {"other"})]
    assert rows_of(items) == [(TWO, 4, ["3"], True)]
    assert not any("secret" in str(item.problem) for item in items if isinstance(item, StoppedScope))


def test_a_statement_within_a_transaction_stops_its_tables() -> None:
    items = push(
        assembler(),
        [
            message("gtid", ONE, 1),
            insert(ONE, 4),
            message("query", ONE, 5, sql="COMMIT"),
            message("xid", ONE, 6),
        ],
    )
    assert [type(item) for item in items] == [LoggedQuery, StoppedScope]
    assert stops_of(items) == [("set_1", {"acct"})]


@pytest.mark.parametrize(
    "first", [insert(ONE, 4), message("xid", ONE, 5), message("query", ONE, 2, sql="drop table t")]
)
def test_a_transaction_whose_begin_is_missing_stops_its_set(first: dict[str, Any]) -> None:
    items = push(assembler(), [first, message("xid", ONE, 9)])
    assert stops_of(items)[0] == ("set_1", None)
    assert rows_of(items) == []


@pytest.mark.parametrize("index", [2, 4])
def test_another_event_of_an_index_that_has_passed_stops_its_table(index: int) -> None:
    items = push(
        assembler(),
        [message("gtid", ONE, 1), insert(ONE, 4), insert(ONE, index, "2"), message("xid", ONE, 9)],
    )
    assert stops_of(items) == [("set_1", {"acct"})]
    assert rows_of(items) == []


def test_a_row_after_the_end_of_its_transaction_stops_its_table() -> None:
    machine = assembler()
    push(machine, transaction(ONE, [["1"], ["2"]]))
    assert push(machine, transaction(ONE, [["1"], ["2"]])) == []
    assert stops_of(push(machine, [insert(ONE, 5, "9", "other")])) == [("set_1", {"other"})]


def test_a_begin_that_is_delivered_again_keeps_what_was_collected() -> None:
    written = transaction(ONE, [["1"], ["2"], ["3"]])
    items = push(assembler(), [*written[:3], *written[:2], *written[3:]])
    assert [row[2] for row in rows_of(items)] == [["1"], ["2"], ["3"]]
    assert stops_of(items) == []


def test_a_large_transaction_is_reported_once() -> None:
    items = push(assembler(most=2), transaction(ONE, [[str(i)] for i in range(9)]))
    assert [item for item in items if isinstance(item, OversizedTransaction)] == [
        OversizedTransaction("set_1", ONE, 3)
    ]
    assert len(rows_of(items)) == 9


def test_an_unreadable_message_stops_its_set_or_all() -> None:
    found = decode_subscribed_event(encode({**insert(ONE, 4), "eventtypestr": "xa"}))
    assert isinstance(found, UnreadableEvent)
    assert stops_of(list(assembler().push_unreadable("set_1", found))) == [("set_1", None)]
    assert stops_of(list(assembler().push_unreadable(None, found))) == [(None, None)]


class Life:
    """A topic that a subscription writes for two sets, with repetitions from any earlier point, and a reader
    that is started again at any point from what it stored with the transactions that it returned.
    """

    def __init__(self, seed: int, *, is_covered_stored: bool) -> None:
        self.random = random.Random(seed)
        self.is_covered_stored = is_covered_stored
        self.history = {name: self.draw_history(name) for name in SETS}
        self.topic = self.draw_topic()
        self.returned: dict[str, list[Any]] = {name: [] for name in SETS}
        self.stops: list[Any] = []

    def draw_history(self, name: str) -> list[Messages]:
        """Return the transactions of a set, in one of the two forms of GTIDs."""
        form = f"{UUID}:{{}}" if self.random.random() < 0.5 else f"{SETS.index(name)}-1-{{}}"
        history = []
        for number in range(1, self.random.randint(2, 7)):
            gtid = form.format(number)
            if self.random.random() < 0.2:
                history.append(
                    [
                        message("gtid", gtid, 1),
                        message("query", gtid, 2, sql=f"alter table acct add c{number} int"),
                    ]
                )
            else:
                history.append(transaction(gtid, [[str(i)] for i in range(self.random.randint(0, 3))]))
        last = form.format(len(history) + 1)
        return [*history, [message("gtid", last, 1), message("xid", last, 2)]]

    def draw_topic(self) -> list[tuple[str, dict[str, Any]]]:
        streams = {name: [each for part in self.history[name] for each in part] for name in SETS}
        places = dict.fromkeys(SETS, 0)
        topic = []
        while open_sets := [name for name in SETS if places[name] < len(streams[name])]:
            name = self.random.choice(open_sets)
            topic.append((name, streams[name][places[name]]))
            places[name] += 1
            if self.random.random() < 0.1:
                places[name] = self.random.randrange(places[name])
        return topic

    def run(self) -> None:
        stored: tuple[dict[str, str], int] = ({}, 0)
        machine, offset = assembler(), 0
        restarts = self.random.randint(0, 3)
        while offset < len(self.topic):
            name, written = self.topic[offset]
            items = machine.push_event(name, decode(written), offset)
            offset += 1
            self.stops += [item for item in items if isinstance(item, StoppedScope)]
            self.returned[name] += [
                item.gtid if isinstance(item, AssembledTransaction) else item.position.gtid
                for item in items
                if isinstance(item, (AssembledTransaction, LoggedQuery))
            ]
            resume = machine.resume_offset
            stored = machine.list_covered(), offset if resume is None else resume
            if restarts and self.random.random() < 0.1:
                restarts -= 1
                machine = assembler(stored[0] if self.is_covered_stored else {})
                offset = stored[1]

    def is_right(self) -> bool:
        """Return whether each transaction with rows or a statement was returned once, in order."""
        expected = {
            name: [
                part[0]["gtid"]
                for part in parts
                if any(each["eventtypestr"] in ("insert", "query") for each in part)
            ]
            for name, parts in self.history.items()
        }
        return self.returned == expected and not self.stops


def live(seed: int, *, is_covered_stored: bool = True) -> Life:
    life = Life(seed, is_covered_stored=is_covered_stored)
    life.run()
    return life


def test_each_transaction_is_returned_once_in_order_whatever_is_repeated() -> None:
    for seed in range(600):
        life = live(seed)
        assert life.is_right(), f"seed {seed}: {life.returned}, {life.stops}"


def test_covered_transactions_in_memory_only_are_not_enough() -> None:
    assert not all(live(seed, is_covered_stored=False).is_right() for seed in range(100))
