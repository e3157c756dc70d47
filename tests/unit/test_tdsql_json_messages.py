"""Messages of TDSQL's JSON subscription: the vendor's examples are read, and what differs is an error that
names what it may concern."""

from __future__ import annotations

from typing import Any

import pytest

from producer.sources.tdsql_json.covered import CoveredGtids
from producer.sources.tdsql_json.messages import (
    Address,
    SubscribedEvent,
    UnreadableEvent,
    decode_subscribed_event,
)
from tests.kits.tdsql_json import UUID, encode, message

GTID = f"{UUID}:469"
INSERT = message(
    "insert", "0-2670193178-726233561", 4, db="testdb", table="t", where=[], field=["1", "'name1'"]
)


def test_the_vendors_examples_are_read() -> None:
    insert = decode_subscribed_event(encode(INSERT))
    assert isinstance(insert, SubscribedEvent)
    assert (insert.event, insert.table_name, insert.index) == ("insert", ("testdb", "t"), 4)
    assert (insert.before, insert.after) == ([], ["1", "'name1'"])
    assert (insert.address, insert.begun_s) == (Address("127.0.0.1", 8810), 1_511_419_963)
    xid = decode_subscribed_event(encode(message("xid", GTID, 5, xid="11866")))
    assert isinstance(xid, SubscribedEvent)
    query = decode_subscribed_event(
        encode(message("query", GTID, 2, sql="create table t (id int primary key)"))
    )
    assert isinstance(query, SubscribedEvent)
    assert query.sql.startswith("create table")


@pytest.mark.parametrize("text", ["null", "NULL", "true", "1", "'null'"])
def test_literals_stay_texts(text: str) -> None:
    event = decode_subscribed_event(encode({**INSERT, "field": [text, None]}))
    assert isinstance(event, SubscribedEvent)
    assert event.after == [text, None]


@pytest.mark.parametrize(
    ("changed", "seen"),
    [
        ({"logtype": "audit"}, "logtype 'audit'"),
        ({"eventtypestr": "tid"}, "the event 'tid', in transaction"),
        ({"eventtypestr": "xa_prepare"}, "the event 'xa_prepare'"),
        ({"gtid": "7"}, "the GTID '7'"),
        ({"gtid": f"{UUID}:0"}, "the GTID"),
        ({"event_index": "0"}, "the event_index 0"),
        ({"event_index": "x"}, "not in the documented form"),
        ({"field": []}, "0 values in where and 0 in field"),
        ({"where": ["1", "'a'"]}, "2 values in where and 2 in field"),
        ({"eventtypestr": "update"}, "is the update of a row of testdb.t"),
        ({"eventtypestr": "delete"}, "is the delete of a row of testdb.t"),
        ({"field": [1]}, "not in the documented form"),
        ({"table": ""}, "without a table"),
    ],
)
def test_an_unknown_message_names_its_server(changed: dict[str, Any], seen: str) -> None:
    found = decode_subscribed_event(encode({**INSERT, **changed}))
    assert isinstance(found, UnreadableEvent)
    assert found.address == Address("127.0.0.1", 8810)
    assert seen in found.problem.what
    assert "name1" not in str(found.problem)


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b"{", b"\xff", encode({**INSERT, "localip": 7}), encode({**INSERT, "localport": "x"})]
)
def test_a_message_without_an_address_may_concern_every_set(raw: bytes) -> None:
    found = decode_subscribed_event(raw)
    assert isinstance(found, UnreadableEvent)
    assert found.address is None


def test_covered_gtids_of_both_forms_are_stored_and_read() -> None:
    covered = CoveredGtids()
    for gtid in (f"{UUID}:469", f"{UUID}:471", f"{UUID}:470", "0-1-42", "0-1-41", "0-2-7"):
        covered.add(gtid)
    assert str(covered) == f"0-1-42,0-2-7,{UUID}:469-471"
    again = CoveredGtids.parse(str(covered))
    assert str(again) == str(covered)
    assert all(each in again for each in (f"{UUID}:470", "0-1-42", "0-1-3", "0-2-7"))
    assert not any(each in again for each in (f"{UUID}:468", f"{UUID}:472", "0-1-43", "1-1-1", "0-3-1"))
    assert str(CoveredGtids.parse("")) == ""
