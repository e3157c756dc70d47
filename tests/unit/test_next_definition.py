"""How a definition comes into force, as rules: what is written with it, for whom rows are lost, and what a
mark of another target does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from consumer.attempt.effects import PrepareDefinition, Transact
from consumer.attempt.evolution.in_target import follow_definition, require_table_unchanged
from consumer.attempt.evolution.next_definition import DefinitionSwitch
from consumer.attempt.operations import (
    FollowDefinition,
    MarkSharersIncomplete,
    Operation,
    PublishDefinition,
    ReplaceLaneRows,
    RequireRowsPresent,
    RequireTableUnchanged,
    WriteUnit,
)
from consumer.attempt.spec import UnitSpec
from consumer.attempt.transactions import AttemptProgress
from consumer.errors import TableChangedError, TransientError
from consumer.ordering.model import ApplyUnit, LaneProgress, TargetTable, UnitState
from consumer.tables.evolution.plans import ChangeMark, TableChange
from consumer.tables.router import TableRoute
from consumer.tables.stored import StoredDefinition, decode_stored
from schemas.problems import decode_problem
from schemas.table.model import Table
from schemas.table.names import EXACT
from schemas.wire.event import ColumnChanges
from tests.kits.apply import FakeSource, account_table
from tests.kits.changed_definitions import FOLDED, TABLE, column, without
from tests.kits.changed_definitions import added as with_columns
from tests.kits.evolving import story
from tests.kits.unit_apply import Bench, with_generated
from tests.stands.fake_target import FakeSession

PLACE = LaneProgress(0, 1, 1, "id", 7, (0, 1, 90, 0), 1, "{}")
AT = (8, (0, 1, 100, 0), 1, 1)


REAL = with_columns(TABLE, column("branch"))


def routes(*, shared: bool) -> tuple[TableRoute, ...]:
    return (TableRoute("bank.*", "public.{table}", (("branch", "{source}"),) if shared else ()),)


class TestWhatIsWrittenWithADefinition:
    """A table that several units write may have been made anew by one of them: the others' rows are lost
    then."""

    def written(
        self, *, first: bool, shared: bool, batches: bool = False, topic: bool = False, moved: int = 0
    ) -> list[list[Operation]]:
        """Return the operations of the transactions, before and after the target table is created. `moved`:
        how many times the table has changed meanwhile."""
        tries = moved + 1
        spec = UnitSpec(
            unit=ApplyUnit("p", "t"), source="b1", epoch=1, topic_id="id", routes=routes(shared=shared),
            lanes=1, batches=batches,
        )  # fmt: skip
        begun: list[str] = []

        def say(what: str) -> Iterator[Any]:
            begun.append(what)
            yield from ()

        attempt: Any = SimpleNamespace(
            spec=spec,
            progress=AttemptProgress([PLACE]),
            close=lambda: say("closed"),
            begin_attempt=lambda: say("begun"),
        )
        name: Any = object() if topic else None
        in_force = SimpleNamespace(
            text="{}", source=TABLE, real=REAL, target=TargetTable(TABLE, (0,), (), topic=name)
        )
        found: list[list[Operation]] = []
        prepared: list[PrepareDefinition] = []
        machine = DefinitionSwitch(attempt).activate_definition(StoredDefinition(TABLE), [PLACE], first=first)
        effect: Any = next(machine)
        try:
            while True:
                if isinstance(effect, Transact):
                    assert (effect.number, list(effect.guards)) == (0, [PLACE])
                    found.append(list(effect.operations))
                    assert begun == ["closed"]
                    if moved and isinstance(effect.operations[-1], ReplaceLaneRows):
                        moved -= 1
                        effect = machine.throw(TableChangedError("changed"))
                        continue
                elif isinstance(effect, PrepareDefinition):
                    prepared.append(effect)
                effect = machine.send(in_force if isinstance(effect, PrepareDefinition) else None)
        except StopIteration:
            assert begun == ["closed", "begun"]
            assert prepared == [PrepareDefinition(StoredDefinition(TABLE), first)] * tries
            return found

    @pytest.mark.parametrize(
        ("options", "before", "with_it"),
        [
            ({"first": True, "shared": False}, [], []),
            ({"first": False, "shared": False}, [], []),
            (
                {"first": True, "shared": True},
                [MarkSharersIncomplete(TABLE)],
                [RequireTableUnchanged(TABLE, REAL)],
            ),
            ({"first": False, "shared": True}, [], [RequireRowsPresent()]),
            ({"first": True, "shared": True, "batches": True}, [], []),
            ({"first": False, "shared": True, "batches": True}, [], []),
            ({"first": False, "shared": False, "batches": True}, [], []),
        ],
        ids=str,
    )
    def test_others_lose_their_rows_with_the_first_one_and_a_later_one_is_of_rows_that_are_there(
        self, options: dict[str, bool], before: list[Operation], with_it: list[Operation]
    ) -> None:
        *first, last = self.written(**options)
        assert first == ([before] if before else [])
        *operations, state, relayout = last
        assert operations == with_it
        assert state == WriteUnit(UnitState(definition="{}", ddl=None, stopped=None))
        assert isinstance(relayout, ReplaceLaneRows)

    def test_of_a_table_that_another_unit_has_changed_meanwhile_all_is_worked_out_again(self) -> None:
        *once, lost, last = self.written(first=True, shared=True, moved=1)
        assert once == [lost, last]

    @pytest.mark.parametrize("first", [True, False])
    def test_readers_of_a_topic_are_told_and_whether_every_row_comes_anew(self, first: bool) -> None:
        ((_, notified, _),) = self.written(first=first, shared=False, batches=True, topic=True)
        assert isinstance(notified, PublishDefinition)
        assert (notified.source, notified.anew) == (TABLE, first)


@pytest.mark.parametrize(
    ("there", "mark", "why"),
    [
        (REAL, None, ""),
        (TABLE, None, "public.acct was altered while rowlock read its definition for rl.b1.bank.acct"),
        (None, None, "public.acct was altered while rowlock read its definition for rl.b1.bank.acct"),
        (
            REAL,
            "{}",
            "public.acct is being altered for rl.b2.bank.acct: rl.b1.bank.acct waits until that has ended",
        ),
    ],
)
def test_a_table_that_several_units_write_is_as_it_was_read_or_is_looked_at_again(
    there: Table | None, mark: str | None, why: str
) -> None:
    """The locks come first: a statement of another unit is over behind them, or its mark stands there."""
    reported: list[str] = []
    spec: Any = SimpleNamespace(
        unit=ApplyUnit("p", "rl.b1.bank.acct"), source="b1", routes=routes(shared=True)
    )
    units = {"rl.b2.bank.acct": UnitState(StoredDefinition(TABLE).encode(), mark, None)}
    session: Any = SimpleNamespace(
        read_table=lambda *place: (reported.append(f"{place}"), there)[1], table_names=EXACT
    )
    transaction: Any = SimpleNamespace(lock_units=lambda: (reported.append("locked"), units)[1])
    with pytest.raises(TransientError, match=why) if why else nullcontext():
        require_table_unchanged(spec, session, transaction, RequireTableUnchanged(TABLE, REAL))
    assert reported == ["locked", "('public', 'acct')"][: 1 if mark else 2]


@pytest.mark.parametrize(("lost", "rewrite", "followed"), [
    (False, False, True), (True, False, False), (True, True, True),
])  # fmt: skip
def test_a_unit_whose_rows_were_lost_meanwhile_follows_no_definition_but_that_of_a_copy(
    lost: bool, rewrite: bool, followed: bool
) -> None:
    """Another unit has recreated the table since the attempt began: the rows that this unit had applied are
    not in it."""
    spec: Any = SimpleNamespace(
        unit=ApplyUnit("p", "t"), source="b1", routes=routes(shared=True), debezium=None
    )
    branch = column("branch", TABLE.columns[2].type, nullable=False)
    real = with_columns(TABLE, branch)
    unit = UnitState(StoredDefinition(TABLE, rows_missing=lost).encode(), None, None)
    written: list[UnitState] = []
    session: Any = SimpleNamespace(read_table=lambda *_: real, column_names=EXACT, table_names=EXACT)
    transaction: Any = SimpleNamespace(
        lock_units=lambda: {"t": unit},
        write_unit=written.append,
        alter_table=lambda *_: None,
        truncate_table=lambda *_: None,
    )
    asked = FollowDefinition(
        TableChange(StoredDefinition(TABLE), TABLE, "lenient", rewrite=rewrite), "whole", AT
    )
    if followed:
        follow_definition(spec, session, transaction, asked)
    else:
        with pytest.raises(TransientError, match="has recreated the target table"):
            follow_definition(spec, session, transaction, asked)
    assert bool(written) == followed


@pytest.mark.parametrize(
    ("transactional", "mark", "words"),
    [
        # its statements commit with its transactions, so that none can be under way
        (
            True,
            ChangeMark(5, AT, None).encode(),
            "column ddl of rowlock_unit records an unfinished ALTER of another type of target",
        ),
        (False, "ALTER TABLE acct ADD x INT", "(ALTER TABLE acct ADD x INT): complete it by hand"),
    ],
)
def test_a_mark_that_cannot_be_taken_up_stops_the_unit(transactional: bool, mark: str, words: str) -> None:
    """One that another kind of target, or an older version, has left: a person finishes the statement."""
    tale = story(transactional=transactional)
    state = tale.bench.target.state
    state.unit = UnitState(state.unit.definition, mark, None)
    tale.put(1, version=3)
    before = tale.target_rows()
    report = tale.bench.apply()
    assert report.state == "stopped"
    assert words in str(decode_problem(report.message))
    assert (tale.target_rows(), tale.bench.target.ended) == (before, [])


def test_a_column_that_is_written_under_another_name_is_logged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The target keeps `note`, which the source dropped, and has no `Note` beside it."""
    monkeypatch.setattr(FakeSession, "column_names", FOLDED)
    tale = story("lenient")
    tale.statement(without(TABLE, "note"), ColumnChanges(dropped=("note",)))
    assert tale.bench.apply().state == "ok"
    tale.rows = {key: {**row, "Note": "new"} for key, row in tale.rows.items()}
    notified = []
    for change in ("another spelling", "a column more"):
        with capture_logs() as logs:
            if change == "another spelling":
                tale.copy(with_columns(tale.source.table, replace(TABLE.get_column("note"), name="Note")))
            else:
                new = with_columns(tale.source.table, column("more"))
                tale.statement(new, ColumnChanges(added=("more",)), {"more": None})
            assert tale.bench.apply(len(tale.bench.topic) - 1).state == "ok"
        notified.append(
            [(log["source"], log["target"]) for log in logs if "under another name" in log["event"]]
        )
    assert notified == [[("Note", "note")], []]
    assert tale.equal()


def test_what_a_definition_says_more_is_stored_and_an_equal_one_writes_nothing() -> None:
    """Expressions that an older topic lacks are compared from then on."""
    source = FakeSource(table=with_generated(account_table(), None))
    bench = Bench()
    bench.write([source.definition()])
    assert bench.apply().state == "ok"
    attempts = [lane.attempt for lane in bench.target.state.lanes.values()]
    bench.write([source.definition()])
    assert bench.apply(1).state == "ok"
    assert [lane.attempt for lane in bench.target.state.lanes.values()] == [number + 1 for number in attempts]
    now = with_generated(account_table(), "a + 1")
    bench.write([source.definition(None, now)])
    assert bench.apply(2).state == "ok"
    assert decode_stored(bench.target.state.unit.definition or "").table == now
