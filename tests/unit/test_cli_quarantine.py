"""A retry brings a key to the image of its last recorded event, whatever happened in between."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from msgspec import structs

from consumer.attempt.spec import build_initial_layout
from consumer.errors import RefusedError
from consumer.ordering.model import ApplyUnit, QuarantineEntry, ResolvedEntry, UnitState
from consumer.tables.definition import ActiveDefinition
from consumer.tables.event_decoder import make_event_decoder, make_image_converter, make_row_decoder
from consumer.tables.held_events import build_final_change, decode_quarantined_event
from consumer.tables.router import TableRoute, build_desired_table, build_target_table, resolve_route
from consumer.tables.stored import StoredDefinition
from rowlock.cli import main
from rowlock.errors import CommandError
from rowlock.inspect import quarantine
from rowlock.inspect.near_names import propose_names
from rowlock.inspect.quarantine import (
    EntrySelection,
    QuarantinedEvent,
    ResolvedEvent,
    ResolveOutcome,
    format_quarantine_lines,
    format_resolved_lines,
)
from schemas.config.model import load_config
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Table, UniqueIndex
from schemas.wire.codec import encode_event_value, encode_table
from schemas.wire.copies import RemovedRows
from tests.kits.apply import FakeSource, account_table
from tests.kits.debezium import Connector, Values
from tests.stands.fake_target import FakeSession, FakeTarget

SOURCE = Table(
    db="bank",
    name="acct",
    columns=(
        Column(name="id", type=ColumnType(kind=Kind.INT, bits=32), nullable=False),
        Column(name="name", type=ColumnType(kind=Kind.VARCHAR, length=20)),
    ),
    key=UniqueIndex(name="PRIMARY", parts=(IndexPart(column="id"),)),
)


def in_force(source: Table = SOURCE) -> ActiveDefinition:
    routed = resolve_route(
        [TableRoute("bank.*", "public.{table}", (("branch", "{source}"),))], "b1", "bank", "acct"
    )
    assert routed is not None
    desired = build_desired_table(source, routed)
    return ActiveDefinition(
        text="", stored=StoredDefinition(source), written=source, routed=routed, expected=desired,
        real=desired, target=build_target_table(desired, desired, ("branch",)),
        decode=make_event_decoder(source), decode_row=make_row_decoder(source, {"id"}),
        row=make_image_converter(source, routed.added),
    )  # fmt: skip


def held(offset: int, key: int, before: dict | None, after: dict | None, part: int = 0) -> QuarantineEntry:
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
    return QuarantineEntry(offset, part, "public.acct", text, text, event, "too long", 1)


def row(key: int, name: str) -> dict[str, object]:
    return {"id": key, "name": name}


# --- the selection


@pytest.fixture
def two_units(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A configuration, and a target with the units of two topics; one event is held."""
    file = tmp_path / "rowlock.yaml"
    file.write_text(
        "kafka: {bootstrap: 'h:1'}\n"
        "sources: {b1: {type: mariadb, host: h, user: u, password: p, tables: ['*.*']}}\n"
        "targets: {hq: {type: postgres, host: h, user: u, password: p, database: d}}\n"
        "pipelines: {to-hq: {sources: [b1], target: hq}}\n"
    )

    @contextlib.contextmanager
    def target_session(*_: object) -> Any:
        yield None

    event = QuarantinedEvent("to-hq", "hq", "rowlock.b1.bank.acct", held(5, 1, None, row(1, "a")))
    topics = {"rowlock.b1.bank.acct", "rowlock.b1.bank.card"}
    monkeypatch.setattr(quarantine, "target_session", target_session)
    monkeypatch.setattr(quarantine, "read_known_topics", lambda *_: topics)
    monkeypatch.setattr(quarantine, "list_quarantined_events", lambda _: [event])
    return file


@pytest.mark.parametrize("how", [("skip", "--yes"), ("retry",)])
@pytest.mark.parametrize(
    ("selected", "seen"),
    [
        (("--pipeline", "to-hp"), "there is no pipeline 'to-hp': did you mean 'to-hq'?"),
        (
            ("--topic", "bank.acct"),
            "no unit applies a topic 'bank.acct': did you mean 'rowlock.b1.bank.acct'?",
        ),
        (("--topic", "rowlock.b1.bank.cart"), "did you mean 'rowlock.b1.bank.card'"),
        (("--key", '["b1",2]'), """no held event has the key '["b1",2]': did you mean '["b1",1]'?"""),
        (("--topic", "rowlock.b1.bank.card", "--key", '["b1",1]'), "no held event has the key"),
    ],
)
def test_a_selection_of_what_does_not_exist_is_an_error_with_what_is_like_it(
    two_units: Path, how: tuple[str, ...], selected: tuple[str, ...], seen: str
) -> None:
    """Exit 0 would look as if the events had been dropped."""
    result = CliRunner().invoke(main, ["quarantine", *how, *selected, "-c", str(two_units)])
    assert result.exit_code == 2, result.output
    assert seen in result.stderr


def test_a_topic_without_held_events_is_no_error(two_units: Path) -> None:
    words = ["quarantine", "retry", "--topic", "rowlock.b1.bank.card", "-c", str(two_units)]
    result = CliRunner().invoke(main, words)
    assert (result.exit_code, result.stdout) == (0, "no held event matches this selection\n")


@pytest.mark.parametrize(
    ("name", "known", "proposed"),
    [
        ("x", [], "known: none"),
        ("zzz", ["a", "b", "c", "d", "e"], "known: a, b, c and 2 more"),
        ("acct", ["rl.b1.bank.acct", "rl.b2.bank.acct", "rl.b3.bank.acct", "rl.b4.bank.acct"],
         "did you mean 'rl.b1.bank.acct' or 'rl.b2.bank.acct' or 'rl.b3.bank.acct'?"),
        ("Branch", ["branch1", "office"], "did you mean 'branch1'?"),
    ],
)  # fmt: skip
def test_names_that_are_like_another_one_are_proposed(name: str, known: list[str], proposed: str) -> None:
    assert propose_names(name, known) == proposed


def test_the_last_image_counts() -> None:
    entries = [held(7, 1, row(1, "a"), row(1, "b")), held(5, 1, None, row(1, "a"))]
    net = build_final_change(in_force(), entries)
    assert (net.deletes, net.replaces, net.updates) == ([], [(1, "b", "b1")], [])


def test_entries_of_a_key_belong_together_whichever_version_wrote_them() -> None:
    """Else a retry of the older entries would bring back an image that is outdated, and leave the other
    entries in the quarantine."""
    first, last, other = (
        held(1, 1, None, row(1, "a")),
        held(3, 1, row(1, "a"), row(1, "b")),
        held(4, 2, None, row(2, "c")),
    )
    table = f"{in_force().target.schema}.{in_force().target.name}"
    first, last, other = (structs.replace(each, table=table) for each in (first, last, other))
    entries = [structs.replace(first, folded="3f3f"), last, other]
    [found] = quarantine.group_by_target_key(in_force().target, [entries[0]], entries)
    assert [entry.offset for entry in found] == [1, 3]


def test_a_delete_at_the_end_deletes() -> None:
    net = build_final_change(in_force(), [held(5, 1, None, row(1, "a")), held(9, 1, row(1, "a"), None)])
    assert (net.deletes, net.replaces) == ([("b1", 1)], [])


def test_a_key_that_moved_away_is_deleted_and_the_new_one_has_its_row() -> None:
    move = (row(1, "a"), row(2, "a"))
    net = build_final_change(in_force(), [held(5, 1, *move, part=0)])
    assert (net.deletes, net.replaces) == ([("b1", 1)], [])
    net = build_final_change(in_force(), [held(5, 2, *move, part=1)])
    assert (net.deletes, net.replaces) == ([], [(2, "a", "b1")])


def test_a_row_that_is_there_is_changed_in_place_unless_it_is_a_new_one() -> None:
    """So columns that only the target has keep their values."""
    update = held(5, 1, row(1, "a"), row(1, "b"))
    net = build_final_change(in_force(), [update, held(6, 1, row(1, "b"), row(1, "c"))])
    assert (net.deletes, net.replaces, net.snapshot) == ([], [], [(1, "c", "b1")])
    again = [update, held(6, 1, row(1, "b"), None), held(7, 1, None, row(1, "d"))]
    assert build_final_change(in_force(), again).replaces == [(1, "d", "b1")]
    back = [update, held(6, 1, row(1, "b"), row(2, "b")), held(7, 1, row(2, "b"), row(1, "e"), part=1)]
    assert build_final_change(in_force(), back).replaces == [(1, "e", "b1")]
    old = structs.replace(held(4, 1, row(1, "x"), row(1, "a")), event='{"op":"u","source":{}}')
    assert build_final_change(in_force(), [old, update]).replaces == [(1, "b", "b1")], "nobody knows"


def test_a_value_that_cannot_be_decoded_is_held_on_until_the_source_has_mended_it() -> None:
    odd = held(5, 1, None, {"id": 1, "name": {"undecodable": "qqE="}})
    marked = json.loads(odd.event) | {"undecodable": {"after": ["name"]}}
    odd = structs.replace(odd, event=json.dumps(marked))
    with pytest.raises(RefusedError, match="column name: its bytes at the source are no"):
        build_final_change(in_force(), [odd])
    net = build_final_change(in_force(), [odd, held(9, 1, row(1, "?"), row(1, "mended"))])
    assert net.replaces == [(1, "mended", "b1")]


def test_the_listing_shows_no_values() -> None:
    entry = QuarantinedEvent("p", "hq", "t.b1.bank.acct", held(5, 1, None, row(1, "secret name")))
    queued = dataclasses.replace(
        entry, held=structs.replace(entry.held, offset=9, part=2, error="held behind offset 5")
    )
    waits = "waits for the earlier event of its key"
    *lines, last = format_quarantine_lines([entry, queued])
    assert lines == [
        'p t.b1.bank.acct offset 5 public.acct key ["b1",1]: too long',
        f'p t.b1.bank.acct offset 9, part 2 public.acct key ["b1",1]: {waits} at offset 5',
    ]
    for way in ("correct the row at the source", "`rowlock quarantine retry`", "`rowlock quarantine skip`"):
        assert way in last
    assert format_quarantine_lines([]) == ["nothing is held"]


def test_selection() -> None:
    entry = QuarantinedEvent("p", "hq", "t", held(5, 1, None, row(1, "x")))
    assert EntrySelection().matches_entry(entry)
    assert EntrySelection(pipeline="p", topic="t", key='["b1",1]').matches_entry(entry)
    assert not EntrySelection(key='["b1",2]').matches_entry(entry)


def test_what_debezium_wrote_is_read_as_its_unit_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entry holds its record as it came; how its connector is set says the configuration."""
    table, topic = account_table(), "rowlock.b1.bank.acct"
    values: Values = {
        "id": 5, "email": "a", "owner": "o", "balance": "10.50", "version": 1,
        "opened": "2026-11-21 10:00:00.000001", "note": None,
    }  # fmt: skip
    connector = Connector(table)
    connector.insert(values)
    target = FakeTarget()
    FakeSession(target).take_over(ApplyUnit("p", topic), "id", build_initial_layout((), 1).encode(), 1)
    FakeSession(target).create_table(structs.replace(table, db="public"))
    target.state.unit = UnitState(encode_table(table).decode(), None, None)
    file = tmp_path / "c.yaml"
    file.write_text(CONFIG)
    taken = quarantine._OwnedUnit.take_over(load_config(file), FakeSession(target), ApplyUnit("p", topic))  # type: ignore[arg-type]
    event = (connector.records[0] or b"").decode()
    net = build_final_change(
        taken.active, [QuarantineEntry(0, 0, "public.acct", "[5]", "[5]", event, "no", 0)]
    )
    assert net.replaces == [tuple(values.values())]


@pytest.mark.parametrize("stopped", ["a column is missing: add it", None])
def test_a_unit_that_waits_for_a_person_goes_on_waiting(tmp_path: Path, stopped: str | None) -> None:
    """To resolve its quarantine does not mend it, and status must still show why it waits."""
    table, unit = account_table(), ApplyUnit("p", "rowlock.b1.bank.acct")
    target = FakeTarget()
    FakeSession(target).take_over(unit, "id", build_initial_layout((), 1).encode(), 1)
    FakeSession(target).create_table(structs.replace(table, db="public"))
    target.state.unit = UnitState(encode_table(table).decode(), None, stopped)
    file = tmp_path / "c.yaml"
    file.write_text(CONFIG)
    quarantine._OwnedUnit.take_over(load_config(file), FakeSession(target), unit)  # type: ignore[arg-type]
    assert target.state.unit.stopped == stopped


@pytest.mark.parametrize("how", ["retry", "skip"])
def test_no_row_is_written_under_names_that_the_target_gets_with_a_copy(tmp_path: Path, how: str) -> None:
    """The exchanged names of a changed route would put each value into the other column."""
    table, unit = account_table(), ApplyUnit("p", "rowlock.b1.bank.acct")
    target = FakeTarget()
    session: Any = FakeSession(target)
    session.take_over(unit, "id", build_initial_layout((), 1).encode(), 1)
    session.create_table(structs.replace(table, db="public"))
    target.state.unit = UnitState(encode_table(table).decode(), None, None)
    file = tmp_path / "c.yaml"
    file.write_text(CONFIG.replace('"public.{table}"', RENAMING).replace("events: debezium, ", ""))
    before = session.read_progress(unit)
    take = partial(quarantine._OwnedUnit.take_over, load_config(file), session, unit)
    with pytest.raises(CommandError, match=r"`rename` changed .* note from note to owner") as found:
        quarantine._resolve_owned(take, how, [], ResolveOutcome())
    assert found.value.problem.action.startswith("rowlock copy bank.acct")
    assert session.read_progress(unit) == before, "the running unit is not fenced"


@pytest.mark.parametrize(
    ("how", "newest", "applied"),
    [("retry", 5, False), ("retry", 7, False), ("retry", 9, True), ("skip", 5, True)],
)
@pytest.mark.parametrize("other", [False, True], ids=["", "beside another key of its fold"])
def test_a_row_that_a_statement_may_have_removed_is_not_retried_before_the_key_sweep_has_ended(
    how: str, newest: int, applied: bool, other: bool
) -> None:
    """The sweep may have passed its key, and would leave the row in the target for ever."""
    debt = RemovedRows(id="d", offset=7, ddl="ALTER TABLE acct DROP PARTITION p0", since_ms=1)
    active = dataclasses.replace(in_force(), stored=StoredDefinition(SOURCE, removed=debt))
    closed: list[Any] = []
    taken: Any = SimpleNamespace(
        unit=ApplyUnit("p", "t"), active=active, close_entries=lambda *each: closed.append(each)
    )
    outcome = ResolveOutcome()
    entries = [held(3, 1, None, row(1, "a")), held(newest, 1, row(1, "a"), row(1, "b"))]
    entries += [held(20, 2, None, row(2, "c"))] if other else []
    quarantine._resolve_key(taken, how, entries, outcome)
    assert (outcome.complete, bool(closed)) == (applied, applied)
    assert applied or "the key sweep that finds out has not ended" in outcome.lines[0]


def test_the_listing_marks_what_a_key_sweep_decides_on() -> None:
    entry = QuarantinedEvent("p", "hq", "t", held(5, 1, None, row(1, "x")), uncertain=True)
    assert format_quarantine_lines([entry])[0].endswith("too long (a key sweep decides on it)")
    assert entry.as_dict()["uncertain"] is True


def test_only_events_in_quarantine_have_the_mark_uncertain() -> None:
    event = QuarantinedEvent("p", "hq", "t", held(5, 1, None, row(1, "x")))
    assert event.as_dict()["uncertain"] is False
    resolved = ResolvedEvent(event, ResolvedEntry(event.held, "by an event", 1, 2))
    assert "uncertain" not in resolved.as_dict()


def test_what_the_target_refuses_again_is_reported_as_held() -> None:
    def refuse(*_: object) -> None:
        raise RefusedError("still too long")

    taken: Any = SimpleNamespace(unit=ApplyUnit("p", "t"), close_entries=refuse)
    entry, outcome = QuarantineEntry(0, 0, "public.acct", "[5]", "[5]", "{}", "no", 0), ResolveOutcome()
    quarantine._resolve_key(taken, "skip", [entry], outcome)
    assert (outcome.complete, outcome.lines) == (
        False,
        ["still held t public.acct key [5]: still too long"],
    )


CONFIG = """\
kafka: {bootstrap: "127.0.0.1:1"}
sources:
  b1: {type: mariadb, events: debezium, host: h, port: 1, user: u, password: p, tables: [bank.*]}
targets:
  hq: {type: postgres, host: 127.0.0.1, port: 1, user: u, password: p, database: d}
pipelines:
  p: {sources: [b1], target: hq, routes: [{from: bank.*, to: "public.{table}"}]}
"""
RENAMING = '"public.{table}", rename: {columns: {note: owner, owner: note}}'


def test_an_event_that_was_held_before_a_column_came_has_there_what_the_source_gave_to_its_row() -> None:
    """ADD COLUMN gives the rows that are there a value without a row event; a retry that left it out would
    crash, or lose it."""
    raw = encode_event_value(FakeSource(table=SOURCE).event("c", None, {"id": 1, "name": "old"}))
    extra = Column(name="w", type=ColumnType(kind=Kind.INT, bits=32), default="7", nullable=False)
    nullable = structs.replace(extra, default=None, nullable=True)
    for column, found in ((extra, 7), (nullable, None)):
        known = in_force(structs.replace(SOURCE, columns=(*SOURCE.columns, column)))
        assert known.row(decode_quarantined_event(known, raw).after) == (1, "old", found, "b1")
    unknown = structs.replace(nullable, default_expression="uuid()")
    known = in_force(structs.replace(SOURCE, columns=(*SOURCE.columns, unknown)))
    with pytest.raises(RefusedError, match="column w"):
        decode_quarantined_event(known, raw)
    with pytest.raises(RefusedError, match="can no longer be read"):
        decode_quarantined_event(known, b"{}")


def test_what_was_resolved_is_listed_without_values() -> None:
    entry = held(5, 1, None, row(1, "secret"))
    event = QuarantinedEvent("p", "hq", "t", entry)
    resolved = ResolvedEvent(event, ResolvedEntry(entry, "the target accepted it", 1_000, 1_790_000_000_000))
    (line,) = format_resolved_lines([resolved])
    assert line.startswith("2026-09-21 14:13:20Z the target accepted it: p t offset 5 ")
    assert line.endswith("(held since 1970-01-01 00:00:01Z)")
    assert "secret" not in line
    assert format_resolved_lines([]) == ["nothing was resolved"]
