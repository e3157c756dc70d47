"""The logs of real servers are decoded to the values that SELECT returned: every type at its bounds, without
a server (tests/decoder_golden.py)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec
import pytest

from producer.binlog_format.errors import UndecodableRow
from producer.decoders import scalars
from producer.decoders.row_codec import TableCodec, TopicTail, count_rows
from schemas.table.model import Row
from schemas.wire.codec import decode_event
from tests.decoder_golden import NEIGHBOUR, OLD, Golden, goldens, types
from tests.kits.decoder_support import decode_rows, decoded, transaction

ALL = goldens()
EACH = pytest.mark.parametrize("golden", ALL, ids=lambda golden: f"{golden.server} {golden.declared[:40]}")


def expected(golden: Golden) -> list[tuple[Row | None, Row | None]]:
    """Return (before, after) of all that the events do."""
    rows: list[Row] = [tuple(row) for row in golden.rows]
    if golden.once:
        return [(None, row) for row in rows]
    moved: list[Row] = [(row[0] + 1000, *row[1:]) for row in rows]  # type: ignore[operator]
    return [*((None, row) for row in rows), *zip(rows, moved, strict=True), *((row, None) for row in moved)]


@EACH
def test_rows_are_what_select_said(golden: Golden) -> None:
    events = [(golden.table_map(), kind, body) for kind, body in golden.events]
    assert decoded(golden.table, events, golden.source) == expected(golden)
    assert sum(count_rows(*event) for event in events) == len(expected(golden))
    assert {row[2] for row in golden.rows} == {NEIGHBOUR}


@EACH
def test_events_have_these_rows(golden: Golden) -> None:
    codec = TableCodec(golden.table, golden.table_map(), golden.source, TopicTail(last=(0, 3, 4500, 1)))
    tx, records = transaction(), []
    for kind, body in golden.events:
        records += codec.build_records(kind, body, tx, 5 + len(records))
    events = [decode_event(value) for _, value in records]
    names = [column.name for column in golden.table.columns]
    assert [(each.before, each.after) for each in events] == [
        tuple(None if image is None else dict(zip(names, image, strict=True)) for image in pair)
        for pair in expected(golden)
    ]
    assert [each.source.position for each in events] == [(0, 3, 4711, 5 + n) for n in range(len(events))]
    assert [each.source.prev for each in events] == [
        (0, 3, 4500, 1),
        *((0, 3, 4711, 5 + n) for n in range(len(events) - 1)),
    ]
    assert [each.transaction and each.transaction.total_order for each in events] == list(
        range(1, len(events) + 1)
    )
    assert [msgspec.json.decode(key)["id"] for key, _ in records] == [
        (before if after is None else after)[0]  # type: ignore[index]
        for before, after in expected(golden)
    ]


def test_every_type_is_there() -> None:
    for server in ("mysql", "mariadb"):
        desired = [declared.strip() for declared, _ in types(server)]
        found = [golden.declared for golden in ALL if golden.server == server and OLD not in golden.declared]
        assert found == desired, "run: python -m tests.decoder_golden"
    assert sum(OLD in golden.declared for golden in ALL) == 3


@pytest.mark.parametrize(
    "change", [lambda body: body[:-1], lambda body: body + b"\0", lambda body: body + b"\0" * 4]
)
def test_an_event_that_ends_elsewhere_is_not_read(change: Callable[[bytes], bytes]) -> None:
    """Rows and events end together: where they do not, the definition is another one."""
    golden = next(each for each in ALL if each.declared == "INT")
    table_map = golden.table_map()
    for kind, body in golden.events:
        for reads in (
            lambda kind, body: TableCodec(golden.table, table_map, golden.source, TopicTail()).build_records(
                kind, body, transaction(), 0
            ),
            partial(decode_rows, TableCodec(golden.table, table_map, golden.source, TopicTail())),
            TableCodec(golden.table, table_map, golden.source, TopicTail()).decode_keys,
            lambda kind, body: count_rows(table_map, kind, body),
        ):
            assert reads(kind, body)
            with pytest.raises(UndecodableRow):
                reads(kind, change(body))


def test_what_is_remembered_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scalars, "_LIMIT", 3)
    for cache in (scalars.TextCache(str), scalars.SetLabels(("a", "b", "c"))):
        sizes = []
        for number in (1, 2, 3, 2, 4, 5):
            assert cache[number]
            sizes.append(len(cache))
        assert sizes == [1, 2, 3, 3, 1, 2]
