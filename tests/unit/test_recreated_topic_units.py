"""A unit whose topic was created again, or has lost its last records, continues at a copy there."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from consumer.attempt.copies.begin import find_begin
from consumer.attempt.copies.new_topic import _forget_lost_offsets
from consumer.attempt.drivers.driver import AttemptInputs
from consumer.attempt.drivers.run import continue_in_topic
from consumer.attempt.operations import SupersedeDisplaced
from consumer.attempt.reports import CopyNeed
from consumer.attempt.spec import UnitSpec
from consumer.errors import CopyNeededError
from consumer.ordering.model import ApplyUnit, QuarantineEntry, TopicOptions, UnitState
from consumer.ordering.progress import find_lost_offsets
from consumer.tables.router import TableRoute
from consumer.tables.stored import StoredDefinition, decode_stored
from schemas.wire.copies import RemovedRows
from tests.kits.apply import FakeSource, account_table
from tests.kits.unit_apply import rows_of
from tests.kits.unit_copies import CopyBench, benched, copy_of

NEW = "another id"
DEBT = RemovedRows(id="d", offset=400, ddl="ALTER TABLE acct DROP PARTITION p", since_ms=1)


def applied(**options: object) -> tuple[CopyBench, FakeSource]:
    """Return a unit that has applied a definition and six rows: offset 6 is its last one."""
    bench, source = benched(**options)
    bench.write([source.put(source.row(n, f"{n}@x", 1)) for n in range(6)])
    assert bench.apply().state == "ok"
    assert set(bench.offsets()) == {6}
    return bench, source


def replace_topic(bench: CopyBench, source: FakeSource) -> None:
    """Delete the topic and create it again; changes of the source get lost."""
    for missing in (0, 4):
        source.delete(missing)
    bench.topic.clear()
    bench.take_over()


def continue_unit(bench: CopyBench, topic_id: str = NEW) -> None:
    """Do what a takeover does with a topic of other offsets. Raises CopyNeededError."""
    rows = list(bench.target.state.lanes.values())
    lost = find_lost_offsets(rows, topic_id, len(bench.topic))
    assert lost is not None
    spec = UnitSpec(
        unit=bench.unit, source="branch1", epoch=bench.epoch, topic_id=rows[0].topic_id,
        routes=bench.routes, lanes=bench.lanes, copy_at=bench.hint, patient=True,
    )  # fmt: skip
    inputs = AttemptInputs(
        find_begin=lambda after, hint: find_begin(
            lambda first, upto: bench.slices(first, upto, 10),
            lambda first: bench.slices(first, len(bench.topic), 10),
            after,
            hint,
        )
    )
    continue_in_topic(spec, bench.target, inputs, topic_id, lost)  # type: ignore[arg-type]


def apply_all(bench: CopyBench, topic_id: str = NEW) -> None:
    report = bench.apply(topic_id=topic_id)
    assert (report.state, report.offset) == ("ok", len(bench.topic) - 1), report.message


@pytest.mark.parametrize("before", [0, 1, 30], ids=["begin first", "one event first", "topic is longer"])
@pytest.mark.parametrize("lanes", [1, 3])
def test_a_copy_in_the_new_topic_makes_the_target_equal(before: int, lanes: int) -> None:
    """Events of the new topic before the copy are not applied: those before them are lost."""
    bench, source = applied(lanes=lanes)
    replace_topic(bench, source)
    positions = [row.position for row in bench.target.state.lanes.values()]
    bench.write([source.put(source.row(100 + n, None, 1)) for n in range(before)])
    copy_of(source, bench.topic).all()
    continue_unit(bench)
    rows = bench.target.state.lanes.values()
    assert {(row.topic_id, row.offset) for row in rows} == {(NEW, before - 1)}
    assert all(row.position >= max(positions) for row in rows)
    apply_all(bench)
    assert bench.target.rows_of() == rows_of(source)
    assert set(bench.offsets()) == {len(bench.topic) - 1}
    bench.write([source.put(source.row(7, "7@x", 2))])
    apply_all(bench)
    assert bench.target.rows_of() == rows_of(source)


@pytest.mark.parametrize("before", [0, 3, 30])
def test_without_a_copy_the_new_topic_is_not_applied(before: int) -> None:
    bench, source = applied()
    replace_topic(bench, source)
    kept = list(bench.target.state.lanes.values())
    bench.write([source.put(source.row(100 + n, None, 1)) for n in range(before)])
    with pytest.raises(CopyNeededError, match=r"created again.*rowlock copy bank.acct") as raised:
        continue_unit(bench)
    assert (raised.value.cause, raised.value.after) == ("topic-lost", -1)
    report = bench.apply(topic_id=NEW)
    assert (report.state, report.copy) == ("stopped", CopyNeed(-1, "topic-lost"))
    assert [(row.topic_id, row.offset) for row in kept] == [
        (row.topic_id, row.offset) for row in bench.target.state.lanes.values()
    ]


@pytest.mark.parametrize("hint", [None, 0, 2, 6, 400])
def test_a_hint_of_the_old_topic_misleads_nobody(hint: int | None) -> None:
    bench, source = applied()
    replace_topic(bench, source)
    bench.hint = hint
    bench.write([source.put(source.row(100 + n, None, 1)) for n in range(3)])
    copy_of(source, bench.topic).all()
    continue_unit(bench)
    apply_all(bench)
    assert bench.target.rows_of() == rows_of(source)


@pytest.mark.parametrize("hint", [None, 1, 5])
def test_a_topic_without_its_last_records_continues_at_a_later_copy(hint: int | None) -> None:
    """The copy that the topic still has brought nothing of what is lost."""
    bench, source = benched()
    copy_of(source, bench.topic).all()
    bench.write([source.put(source.row(n, f"{n}@x", 1)) for n in range(6)])
    apply_all(bench, "id")
    source.delete(3)
    del bench.topic[-2:]
    bench.take_over()
    with pytest.raises(CopyNeededError, match="lost its last records") as raised:
        continue_unit(bench, "id")
    assert raised.value.after == -1
    copy = copy_of(source, bench.topic, id="copy-2")
    copy.begin()
    bench.hint = hint
    continue_unit(bench, "id")
    while not copy.done:
        copy.emit()
    apply_all(bench, "id")
    assert bench.target.rows_of() == rows_of(source)


def test_what_refers_to_lost_offsets_is_ended_with_them() -> None:
    """Otherwise the offsets of the new topic would be compared with those of the old one."""
    bench, source = applied()
    entry = QuarantineEntry(5, 0, "public.acct", "[5]", "[5]", "{}", "refused", 1)
    bench.target.state.held[5, 0] = entry
    stored = decode_stored(bench.target.state.unit.definition or "").add_debt(DEBT, kept=False)
    bench.target.state.unit = UnitState(stored.encode(), None, None)
    replace_topic(bench, source)
    copy_of(source, bench.topic).all()
    continue_unit(bench)
    assert bench.target.state.held == {}
    assert [(each.offset, why) for each, why in bench.target.state.closed] == [
        (5, "the topic lost this event, and a copy that begins at offset 0 brings the row again")
    ]
    apply_all(bench)
    assert decode_stored(bench.target.state.unit.definition or "").removed is None, "the copy pays the debt"


def test_displaced_rows_are_superseded_by_the_copy_in_the_new_topic() -> None:
    """Their offsets cannot be compared with the copy's: those of the old topic may be higher or lower."""
    bench, source = applied()
    replace_topic(bench, source)
    bench.write([source.put(source.row(100, None, 1))])
    copy_of(source, bench.topic).all()
    continue_unit(bench)
    assert bench.target.state.superseded == [
        ("public.acct", 2**63 - 1, "by the copy from offset 1, after the topic had lost events")
    ]


@pytest.mark.parametrize("target", ["a database", "a topic", "whole batches", "no route"])
def test_only_databases_have_displaced_rows_to_supersede(target: str) -> None:
    """For the others the operation would report that a copy has ended."""
    topic = TopicOptions() if target == "a topic" else None
    routes = () if target == "no route" else (TableRoute("bank.*", "public.{table}", topic=topic),)
    spec = UnitSpec(
        unit=ApplyUnit("p", "t"), source="branch1", epoch=1, topic_id="id", routes=routes, lanes=1,
        batches=target == "whole batches",
    )  # fmt: skip
    operations = _forget_lost_offsets(spec, StoredDefinition(account_table()), 3)
    assert [each.table for each in operations if isinstance(each, SupersedeDisplaced)] == (
        ["public.acct"] if target == "a database" else []
    )


def test_no_offset_of_the_old_topic_stays_in_the_definition() -> None:
    """An event of the new topic at such an offset would be taken for the old one's."""
    bench, source = applied()
    stored = decode_stored(bench.target.state.unit.definition or "")
    offsets = {"emptied_at": 3, "columns_stable_since": 500, "sweep_since": 4}
    bench.target.state.unit = UnitState(replace(stored, **offsets).encode(), None, None)  # type: ignore[arg-type]
    replace_topic(bench, source)
    bench.write([source.put(source.row(100, None, 1))])
    copy_of(source, bench.topic).all()
    continue_unit(bench)
    moved = decode_stored(bench.target.state.unit.definition or "")
    assert {name: getattr(moved, name) for name in offsets} == {
        "emptied_at": None, "columns_stable_since": 1, "sweep_since": None,
    }  # fmt: skip
    apply_all(bench)
    assert bench.target.rows_of() == rows_of(source)


def test_a_zombies_copy_of_before_is_none() -> None:
    """A begin of a lower generation than the progress has was written by a replaced capture process."""
    bench, source = applied()
    replace_topic(bench, source)
    rows = bench.target.state.lanes
    bench.target.state.lanes = {n: structs.replace(row, gen=row.gen + 1) for n, row in rows.items()}
    copy_of(source, bench.topic).all()
    with pytest.raises(CopyNeededError):
        continue_unit(bench)
