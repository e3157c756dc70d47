"""The judge of every topic that a test of capture reads: no row's version goes back."""

from __future__ import annotations

from msgspec.structs import replace

from schemas.wire.event import EventEnvelope
from tests.kits.apply import FakeSource
from tests.kits.capture import row_that_goes_back


def keyed(events: list[EventEnvelope]) -> list[tuple[bytes, EventEnvelope]]:
    return [(str((event.after or event.before or {}).get("id")).encode(), event) for event in events]


def test_a_row_that_goes_back_is_named() -> None:
    source = FakeSource()
    events = [
        source.put(source.row(1, None, 3)),
        source.put(source.row(2, None, 1)),
        source.put(source.row(1, None, 4)),
    ]
    assert row_that_goes_back(keyed(events)) is None
    stale = source.put(source.row(1, None, 3), "r")
    assert "row b'1' goes back from 4 to 3" in (row_that_goes_back(keyed([*events, stale])) or "")


def test_a_row_that_was_deleted_does_not_come_back_older() -> None:
    source = FakeSource()
    events = [source.put(source.row(1, None, 3)), source.delete(1), source.put(source.row(1, None, 2))]
    assert row_that_goes_back(keyed(events)) is not None


def test_what_readers_drop_may_be_older() -> None:
    source = FakeSource()
    first, second = source.put(source.row(1, None, 1)), source.put(source.row(1, None, 2))
    assert row_that_goes_back(keyed([first, second, first, second])) is None, (
        "written again from an earlier place on"
    )
    later = replace(second, source=replace(second.source, gen=2))
    zombie = source.put(source.row(1, None, 1))
    assert row_that_goes_back(keyed([first, later, zombie])) is None
    assert row_that_goes_back(keyed([first, second, zombie])) is not None
