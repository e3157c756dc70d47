"""A retry brings a key to the image of its last recorded event, whatever happened in between."""

from __future__ import annotations

import json

import msgspec

from consumer.definition import InForce
from consumer.events import event_decoder, image_row, row_decoder
from consumer.model import Held
from consumer.router import Route, resolve, target_table, wanted_table
from rowlock.quarantine import HeldEvent, Selection, final_change, held_lines
from schemas.table import Column, ColumnType, IndexPart, Kind, Table, UniqueIndex

SOURCE = Table(
    db="bank",
    name="acct",
    columns=(
        Column(name="id", type=ColumnType(kind=Kind.INT, bits=32), nullable=False),
        Column(name="name", type=ColumnType(kind=Kind.VARCHAR, length=20)),
    ),
    key=UniqueIndex(name="PRIMARY", parts=(IndexPart(column="id"),)),
)


def in_force() -> InForce:
    routed = resolve([Route("bank.*", "public.{table}", (("branch", "{source}"),))], "b1", "bank", "acct")
    assert routed is not None
    wanted = wanted_table(SOURCE, routed)
    return InForce(
        text="", source=SOURCE, routed=routed, wanted=wanted, target=target_table(wanted, wanted, ("branch",)),
        decode=event_decoder(SOURCE), decode_row=row_decoder(SOURCE, {"id"}), row=image_row(routed.added),
    )  # fmt: skip


def held(offset: int, key: int, before: dict | None, after: dict | None, part: int = 0) -> Held:
    source = {
        "version": "1.0",
        "ts_ms": 1,
        "db": "bank",
        "table": "acct",
        "position": [0, 1, 2, 3],
        "prev": None,
        "gen": 1,
    }
    op = "c" if before is None else "d" if after is None else "u"
    event = json.dumps({"op": op, "before": before, "after": after, "source": source})
    text = msgspec.json.encode(("b1", key)).decode()
    return Held(offset, part, "public.acct", text, text, event, "too long", 1)


def row(key: int, name: str) -> dict[str, object]:
    return {"id": key, "name": name}


def test_the_last_image_counts() -> None:
    entries = [held(7, 1, row(1, "a"), row(1, "b")), held(5, 1, None, row(1, "a"))]
    net = final_change(in_force(), entries)
    assert (net.deletes, net.replaces, net.updates) == ([], [(1, "b", "b1")], [])


def test_a_delete_at_the_end_deletes() -> None:
    net = final_change(in_force(), [held(5, 1, None, row(1, "a")), held(9, 1, row(1, "a"), None)])
    assert (net.deletes, net.replaces) == ([("b1", 1)], [])


def test_a_key_that_moved_away_is_deleted_and_the_new_one_has_its_row() -> None:
    move = (row(1, "a"), row(2, "a"))
    net = final_change(in_force(), [held(5, 1, *move, part=0)])
    assert (net.deletes, net.replaces) == ([("b1", 1)], [])
    net = final_change(in_force(), [held(5, 2, *move, part=1)])
    assert (net.deletes, net.replaces) == ([], [(2, "a", "b1")])


def test_the_listing_shows_no_values() -> None:
    entry = HeldEvent("p", "hq", "t.b1.bank.acct", held(5, 1, None, row(1, "secret name")))
    assert held_lines([entry]) == ['p t.b1.bank.acct@5.0 public.acct key ["b1",1]: too long']
    assert held_lines([]) == ["nothing is held"]


def test_selection() -> None:
    entry = HeldEvent("p", "hq", "t", held(5, 1, None, row(1, "x")))
    assert Selection().takes(entry)
    assert Selection(pipeline="p", topic="t", key='["b1",1]').takes(entry)
    assert not Selection(key='["b1",2]').takes(entry)
