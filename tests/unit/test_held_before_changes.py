"""`rowlock quarantine retry` of rows that were held before columns of their table were renamed or dropped:
the source's values, or a refusal."""

from __future__ import annotations

from typing import Any

import pytest

from consumer.errors import RefusedError
from consumer.ordering.model import NetChange, QuarantineEntry, UnitState
from consumer.tables.definition import ActiveDefinition, prepare_definition
from consumer.tables.held_events import build_final_change
from consumer.tables.stored import StoredDefinition, compute_stable_since, decode_stored
from schemas.table.model import Row, Table
from schemas.wire.copies import CopyMark
from schemas.wire.event import ColumnChanges
from tests.kits.changed_definitions import FOLLOWED, TABLE, added, column, renamed, text, without
from tests.kits.evolving import FILLS, KINDS, Story, kill_at, story
from tests.stands.fake_target import FakeSession

CHANGES = ColumnChanges
POISON = "poison"
RENAMED = FOLLOWED["rename"]
BARE = without(TABLE, "note")
NOTE = column("note", text(200))
ANEW = added(BARE, NOTE)

#: Statements in turn, each with the definition after it: after the last, a name of the held image is not that
#: of its column.
OTHER_COLUMNS: dict[str, list[tuple[Table, ColumnChanges]]] = {
    "rename": [RENAMED],
    "rename, and something else": [
        RENAMED, (added(RENAMED[0], column("n")), CHANGES(added=("n",))),
    ],
    "rename, and add under the old name": [
        RENAMED, (added(RENAMED[0], NOTE), CHANGES(added=("note",))),
    ],
    "drop and add in one": [(ANEW, CHANGES(dropped=("note",), added=("note",)))],
    "drop, then add": [(BARE, CHANGES(dropped=("note",))), (ANEW, CHANGES(added=("note",)))],
}  # fmt: skip


def held_story(*, transactional: bool = True) -> Story:
    """Row 1 is refused by the target, also after the source's table has changed."""
    tale = story(transactional=transactional, rows=1)
    tale.bench.target.refuse = lambda row: RefusedError("too long") if POISON in row else None
    tale.put(1, note=POISON)
    assert tale.bench.apply().state == "ok"
    assert len(tale.bench.target.state.held) == 1
    return tale


def alter(tale: Story, steps: list[tuple[Table, ColumnChanges]]) -> None:
    for table, columns in steps:
        tale.statement(table, columns, dict.fromkeys(columns.added))
    report = tale.bench.apply()
    assert report.state == "ok", report.message


def in_force(tale: Story, stored: StoredDefinition | None = None) -> ActiveDefinition:
    found = stored or decode_stored(tale.bench.target.state.unit.definition or "")
    session: Any = FakeSession(tale.bench.target)
    return prepare_definition(session, found, source_name="branch1", routes=tale.bench.routes, create=False)


def retried(tale: Story, stored: StoredDefinition | None = None) -> NetChange:
    entries: list[QuarantineEntry] = list(tale.bench.target.state.held.values())
    return build_final_change(in_force(tale, stored), entries)


def rows_of(net: NetChange) -> list[Row]:
    return [*net.replaces, *net.snapshot]


@KINDS
@pytest.mark.parametrize("steps", OTHER_COLUMNS.values(), ids=OTHER_COLUMNS)
def test_what_was_held_under_other_names_is_refused_not_written_without_its_values(
    steps: list[tuple[Table, ColumnChanges]], transactional: bool
) -> None:
    tale = held_story(transactional=transactional)
    alter(tale, steps)
    with pytest.raises(RefusedError, match=r"renamed or dropped.*`rowlock copy bank\.acct`"):
        retried(tale)


def test_a_row_whose_columns_were_renamed_recovers_with_its_next_change() -> None:
    tale = held_story()
    alter(tale, OTHER_COLUMNS["rename"])
    tale.put(1, remark="mended")
    assert tale.bench.apply().state == "ok"
    assert tale.bench.target.state.held == {}
    (row,) = [row for row in tale.bench.target.rows_of() if row[0] == 1]
    assert row[TABLE.column_names.index("note")] == "mended", "the last image counts"


def test_a_row_that_is_gone_at_the_source_is_deleted_whatever_its_columns_were() -> None:
    """A delete is held only where the target refuses it, or where an earlier revision queued it."""
    tale = held_story()
    before = tale.rows.pop(1)
    tale.bench.write([tale.source.event("d", before, None)])
    tale.bench.target.refuse_delete = lambda _key: RefusedError("referenced")
    alter(tale, OTHER_COLUMNS["rename"])
    assert retried(tale).deletes == [(1,)]


@pytest.mark.parametrize("name", ["add", "add with a default", "widen", "order", "new unique index"])
def test_changes_that_leave_the_names_alone_refuse_nothing(name: str) -> None:
    tale = held_story()
    tale.statement(*FOLLOWED[name], FILLS.get(name))
    assert tale.bench.apply().state == "ok"
    (row,) = rows_of(retried(tale))
    names = in_force(tale).target.table.column_names
    assert dict(zip(names, row, strict=True)) == {name: tale.rows[1].get(name) for name in names}


def test_a_copy_that_has_begun_brings_the_row_itself() -> None:
    """Why a table was copied may be columns of which nobody knows."""
    tale = held_story()
    begin = tale.source.event("m", definition=RENAMED[0], copy=CopyMark(id="1"))
    tale.bench.write([begin])
    assert tale.bench.apply().state == "ok"
    with pytest.raises(RefusedError, match="or the table was copied, after the event was quarantined"):
        retried(tale)


def test_a_change_that_was_interrupted_says_it_as_well() -> None:
    moment = 0
    while True:
        moment += 1
        tale = held_story(transactional=False)
        tale.statement(*RENAMED)
        killed = kill_at(tale, moment)
        tale.bench.take_over()
        assert tale.bench.apply().state == "ok"
        with pytest.raises(RefusedError, match="renamed or dropped"):
            retried(tale)
        if not killed:
            break
    assert moment > 3


def test_a_record_of_an_older_version_refuses_the_names_that_are_gone() -> None:
    tale = held_story()
    definition = decode_stored(tale.bench.target.state.unit.definition or "")
    tale.bench.target.state.unit = UnitState(StoredDefinition(definition.table).encode(), None, None)
    assert rows_of(retried(tale)), "nobody knows since when, and all names are there"
    alter(tale, [(added(TABLE, column("n")), CHANGES(added=("n",)))])
    assert decode_stored(tale.bench.target.state.unit.definition or "").columns_stable_since is None
    assert rows_of(retried(tale))
    there = in_force(tale)
    unknown = StoredDefinition(renamed(there.source, "note", "remark"), {"remark": "note"})
    with pytest.raises(RefusedError, match="it has no column note now"):
        retried(tale, unknown)
    alter(tale, [(added(RENAMED[0], column("n")), RENAMED[1])])
    assert decode_stored(tale.bench.target.state.unit.definition or "").columns_stable_since is not None


def test_since_when_the_names_hold_is_carried_and_stored() -> None:
    stored = StoredDefinition(TABLE, columns_stable_since=4)
    assert decode_stored(stored.encode()) == stored
    assert decode_stored(StoredDefinition(TABLE, columns_stable_since=0).encode()).columns_stable_since == 0
    assert decode_stored(StoredDefinition(TABLE).encode()).columns_stable_since is None
    assert compute_stable_since(stored, CHANGES(added=("n",), modified=("note",)), 9) == 4
    assert compute_stable_since(stored, CHANGES(renamed={"note": "remark"}), 9) == 9
    assert compute_stable_since(stored, CHANGES(dropped=("note",)), 9) == 9
    assert compute_stable_since(stored, CHANGES(modified=tuple(TABLE.key.columns)), 9) == 9
    assert compute_stable_since(stored, CHANGES(), 9, rewrite=True) == 9
    assert compute_stable_since(StoredDefinition(TABLE), CHANGES(added=("n",)), 9) is None
