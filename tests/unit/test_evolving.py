"""A target table that changes while its unit runs (consumer.attempt.evolution.machine): against a target in
memory whose statements commit with its transactions, and one where each commits by itself; killed at each
moment."""

from __future__ import annotations

from dataclasses import replace as replaced
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from consumer.attempt.effects import OwnConnection, ReadQuarantine, Transact
from consumer.attempt.evolution.in_target import build_unaltered_state, lose_others
from consumer.attempt.evolution.machine import MAX_ROUNDS, TableChanges, _describe_step
from consumer.attempt.operations import (
    CloseQuarantineBefore,
    FollowDefinition,
    MarkSharersIncomplete,
    TruncateTarget,
    WriteUnit,
)
from consumer.attempt.readers.reader import RecordSlice
from consumer.attempt.spec import UnitSpec, encode_known_table
from consumer.attempt.transactions import AttemptProgress
from consumer.errors import (
    AttemptLostError,
    CommitUnknownError,
    MissingGrantError,
    RefusedError,
    StepsLeftError,
    TargetConfigError,
    TransientError,
    UnitStoppedError,
)
from consumer.ordering.model import ApplyUnit, LaneProgress, UnitState
from consumer.tables.evolution.plans import ChangePlan, TableChange
from consumer.tables.router import ResolvedRoute, SchemaChangePolicy, TableRoute
from consumer.tables.stored import StoredDefinition, decode_stored
from consumer.tables.target_checks import is_target_changed
from consumer.targets.alterations import ChangeColumn, DropTable
from schemas.problems import decode_problem
from schemas.table.model import ColumnType, Kind, Table
from schemas.table.names import EXACT
from schemas.wire.event import ColumnChanges
from schemas.wire.position import ZERO
from tests.kits.apply import account_table
from tests.kits.changed_definitions import (
    BIG,
    FOLDED,
    FOLLOWED,
    TABLE,
    added,
    changed,
    column,
    renamed,
    text,
    unique,
    without,
)
from tests.kits.evolving import (
    FILLS,
    KINDS,
    Killed,
    Story,
    Values,
    dropped,
    kill_at,
    later_values,
    notify,
    story,
)
from tests.stands.fake_target import FakeSession


@KINDS
@pytest.mark.parametrize("policy", ["lenient", "evolve"])
@pytest.mark.parametrize("name", FOLLOWED)
def test_a_change_is_followed_and_rows_before_and_behind_it_are_equal(
    name: str, policy: SchemaChangePolicy, transactional: bool
) -> None:
    new, columns = FOLLOWED[name]
    tale = story(policy, transactional=transactional)
    tale.statement(new, columns, FILLS.get(name))
    key = next(iter(tale.rows))
    tale.bench.write([])
    after = {**tale.rows[key], **later_values(name)}
    moved: Values = {"number" if name == "rename the key" else "id": 9, "owner": "o9"}
    for row in (
        {**after, **moved, "email": None} if "email" in after else {**after, **moved},
        {**after, "version": 2},
    ):
        number = int(str(row.get("id", row.get("number"))))
        before = tale.rows.get(number)
        tale.rows[number] = row
        tale.bench.write([tale.source.event("c" if before is None else "u", before, row)])
    report = tale.bench.apply()
    assert report.state == "ok", report.message
    shown = by_key(tale, name)
    assert shown == tale.rows
    assert set(tale.bench.offsets()) == {len(tale.bench.topic) - 1}
    assert tale.bench.target.state.unit.ddl is None


def by_key(tale: Story, name: str) -> dict[int, Values]:
    if name != "rename the key":
        return tale.target_rows()
    table = tale.bench.target.tables["public.acct"]
    rows = tale.bench.target.state.rows["public.acct"].values()
    return {
        int(str(row["number"])): row
        for row in (dict(zip(table.column_names, each, strict=True)) for each in rows)
    }


def alterations(tale: Story) -> int:
    return len(tale.bench.target.altered)


@KINDS
def test_what_is_followed_twice_is_altered_once(transactional: bool) -> None:
    tale = story(transactional=transactional)
    tale.statement(*FOLLOWED["add"], {"n": None})
    with capture_logs() as reported:
        assert tale.bench.apply().state == "ok"
        assert tale.bench.apply().state == "ok"
    assert alterations(tale) == 1
    assert [line["steps"] for line in reported if "steps" in line] == [["AddColumn n int"]]


def test_a_target_of_whole_batches_whose_table_is_gone_stops_the_unit() -> None:
    change = TableChange(StoredDefinition(TABLE), TABLE, "evolve", ColumnChanges())
    asked = FollowDefinition(change, "end", (0, ZERO, 0, 0))
    routes = (TableRoute("bank.*", "public.{table}", (), "evolve"),)
    spec = UnitSpec(
        unit=ApplyUnit("p", "rl.b1.bank.acct"), source="b1", epoch=1, topic_id="id", routes=routes, lanes=1
    )
    session: Any = SimpleNamespace(read_table=lambda _schema, _table: None)
    with pytest.raises(TargetConfigError, match=r"public\.acct"):
        build_unaltered_state(spec, session, asked)


def test_a_target_of_whole_batches_is_not_altered_and_says_so() -> None:
    """Without the error the new definition was in force and the table the old one."""
    change = TableChange(
        StoredDefinition(TABLE), added(TABLE, column("n")), "evolve", ColumnChanges(added=("n",))
    )
    asked = FollowDefinition(change, "end", (0, ZERO, 0, 0))
    routes = (TableRoute("bank.*", "public.{table}", (), "evolve"),)
    spec = UnitSpec(
        unit=ApplyUnit("p", "rl.b1.bank.acct"), source="b1", epoch=1, topic_id="id", routes=routes, lanes=1
    )
    there = replace(TABLE, db="public")
    session: Any = SimpleNamespace(
        read_table=lambda _schema, _table: there, column_names=EXACT, table_names=EXACT
    )
    with pytest.raises(TargetConfigError, match=r"public\.acct of .* needs 1 alterations"):
        build_unaltered_state(spec, session, asked)


def test_a_target_of_whole_batches_that_needs_nothing_goes_on_with_what_was_planned() -> None:
    asked = FollowDefinition(TableChange(StoredDefinition(TABLE), TABLE, "evolve"), "end", (7, ZERO, 0, 0))
    routes = (TableRoute("bank.*", "public.{table}", (), "evolve"),)
    spec = UnitSpec(
        unit=ApplyUnit("p", "rl.b1.bank.acct"), source="b1", epoch=1, topic_id="id", routes=routes, lanes=1
    )
    session: Any = SimpleNamespace(
        read_table=lambda _schema, _table: replace(TABLE, db="public"), column_names=EXACT, table_names=EXACT
    )
    state = build_unaltered_state(spec, session, asked)
    assert [each.stored.encode() for each in asked.found] == [state.definition]


@pytest.mark.parametrize(
    ("was", "now", "null"), [(False, True, " NULL"), (True, True, ""), (False, False, "")]
)
def test_a_step_says_null_where_a_column_comes_to_allow_it(was: bool, now: bool, null: str) -> None:
    step = ChangeColumn(column("n", nullable=was), column("n", BIG, nullable=now), lossless=True)
    assert _describe_step(step) == f"ChangeColumn n int to int{null}"


@KINDS
@pytest.mark.parametrize("key", ["id", "owner"])
def test_a_copy_under_another_key_closes_what_is_held(key: str, transactional: bool) -> None:
    """What is held is of rows by their old key, and all of them come anew."""
    tale = story("evolve", transactional=transactional, rows=0)
    tale.bench.target.refuse = lambda row: RefusedError("too long") if "poison" in row else None
    tale.put(1, email="poison")
    assert tale.bench.apply().held == 1
    tale.rows.clear()  # gone at the source, by what nobody saw
    tale.copy(replace(TABLE, key=unique("PRIMARY", key)))
    assert tale.bench.apply().state == "ok"
    closed = [why for _, why in tale.bench.target.state.closed]
    assert closed == (["the table's key became another one"] if key == "owner" else [])


@KINDS
@pytest.mark.parametrize("shared", [True, False])
def test_a_change_that_would_change_rows_of_others_needs_a_copy_where_there_are_others(
    shared: bool, transactional: bool
) -> None:
    tale = (
        shared_story(transactional=transactional) if shared else story(add=True, transactional=transactional)
    )
    tale.statement(*FOLLOWED["add with a default"], {"n": 7})
    report = tale.bench.apply()
    assert (report.state, report.copy is not None) == (("stopped", True) if shared else ("ok", False)), (
        report.message
    )


def test_a_change_that_others_undo_again_and_again_is_left_to_a_person() -> None:
    routes = (TableRoute("bank.*", "public.{table}", (), "evolve"),)
    spec = UnitSpec(
        unit=ApplyUnit("p", "rl.b1.bank.acct"), source="b1", epoch=1, topic_id="id", routes=routes, lanes=1
    )
    lanes = [LaneProgress(0, 1, 1, "id", 7, (0, 1, 50, 0), 1, "{}")]
    change = TableChange(StoredDefinition(TABLE), TABLE, "evolve", ColumnChanges())
    machine = TableChanges(spec, AttemptProgress(lanes)).follow_change(change, (8, (0, 1, 90, 0), 1, 1))
    assert isinstance(next(machine), OwnConnection)
    effect: Any = machine.send(3)
    for _ in range(MAX_ROUNDS):
        if effect.operations[0].how == "mark":
            effect.operations[0].found.append(ChangePlan(None, StoredDefinition(TABLE)))
            assert isinstance(next(machine), ReadQuarantine)
            effect = machine.send([])
        assert effect.operations[0].how == "end"
        effect.operations[0].found.append(ChangePlan(None, StoredDefinition(TABLE)))
        effect = machine.throw(StepsLeftError("it is not as it is needed yet"))
    assert [type(each) for each in effect.operations] == [WriteUnit], "nobody waits for it any more"
    with pytest.raises(UnitStoppedError, match="leave the target table different from what is needed"):
        next(machine)


# --- killed


KILLED = [
    "add",
    "add with a default",
    "drop",
    "rename",
    "widen",
    "new unique index",
    "rename and add under the old name",
]


@KINDS
@pytest.mark.parametrize("policy", ["lenient", "evolve"])
@pytest.mark.parametrize("name", [*KILLED, "drop and add", "copy with another key", "copy with another type"])
def test_killed_at_any_moment_it_goes_on_from_there(
    name: str, policy: SchemaChangePolicy, transactional: bool
) -> None:
    if name in ("drop and add", "copy with another type") and policy == "lenient":
        return
    number = 0
    while True:
        number += 1
        tale = story(policy, transactional=transactional)
        notify(tale, name)
        killed = kill_at(tale, number)
        if killed:
            tale.bench.take_over()
            report = tale.bench.apply(len(tale.bench.topic) - 1)
            assert report.state == "ok", (number, report.message)
        assert tale.equal(), number
        assert tale.bench.target.state.unit.ddl is None
        if not killed:
            break
    assert number >= (3 if transactional else 6), "a mark, a statement, an end; each before and behind"


@KINDS
def test_killed_at_any_moment_a_change_under_ignore_needs_no_copy(transactional: bool) -> None:
    for number in range(1, 12):
        tale = story("ignore", transactional=transactional)
        notify(tale, "add")
        killed = kill_at(tale, number)
        tale.bench.take_over()
        report = tale.bench.apply(len(tale.bench.topic) - 1)
        assert (report.state, tale.bench.target.state.unit.ddl) == ("ok", None), (number, report.message)
        assert decode_stored(tale.bench.target.state.unit.definition or "").unmapped_columns == ("n",)
        if not killed:
            break


def test_killed_twice() -> None:
    for first in range(1, 7):
        for second in range(1, 9):
            tale = story(transactional=False)
            notify(tale, "rename and add under the old name")
            for number in (first, second):
                kill_at(tale, number)
                tale.bench.take_over()
            report = tale.bench.apply(len(tale.bench.topic) - 1)
            assert (report.state, tale.equal()) == ("ok", True), (first, second, report.message)


def test_who_finds_a_mark_ends_the_connection_that_it_names_before_anything_else() -> None:
    """A paused worker may be in front of its statement: it must never reach the server again."""
    tale = story(transactional=False)
    notify(tale, "add")
    assert kill_at(tale, 3), "the mark is committed"
    named = tale.bench.target.state.unit.ddl
    assert named is not None
    tale.bench.take_over()
    assert tale.bench.apply(len(tale.bench.topic) - 1).state == "ok"
    [ended] = tale.bench.target.ended
    assert f'"connection":{ended}' in named


def test_a_zombie_does_not_alter_the_table_over_a_connection_that_was_ended() -> None:
    tale = story(transactional=False)
    notify(tale, "add")
    target = tale.bench.target

    def at(moment: str) -> None:
        if moment == "alter" and not target.ended:
            target.at = lambda _moment: None
            target.sessions.clear()
            tale.bench.take_over()
            assert tale.bench.apply(len(tale.bench.topic) - 1).state == "ok"

    target.at = at
    zombie = tale.bench.apply()
    assert zombie.state != "ok"
    assert tale.equal()
    assert alterations(tale) == 1


# --- what the target says


@KINDS
def test_a_lock_is_waited_for_with_the_next_attempt(transactional: bool) -> None:
    tale = story(transactional=transactional)
    notify(tale, "add")
    tale.bench.target.alter_faults = [TransientError("waits for a lock held by connection 7 (report)")]
    report = tale.bench.apply()
    assert (report.state, "held by connection 7" in report.message) == ("behind", True)
    assert tale.bench.apply().state == "ok"
    assert tale.equal()


@KINDS
def test_what_the_target_will_not_be_altered_to_stops_the_unit_and_nothing_is_left_under_way(
    transactional: bool,
) -> None:
    tale = story(transactional=transactional)
    notify(tale, "add")
    tale.bench.target.alter_faults = [TargetConfigError("no right: GRANT ALTER")]
    report = tale.bench.apply()
    assert (report.state, str(decode_problem(report.message))) == ("stopped", "no right: GRANT ALTER")
    assert tale.bench.target.state.unit.ddl is None
    assert decode_stored(tale.bench.target.state.unit.definition or "").table == TABLE
    tale.bench.take_over()
    assert tale.bench.apply().state == "ok"
    assert tale.equal()


@KINDS
def test_what_cannot_be_followed_is_passed_over_once_it_is_taken_back_and_copied(transactional: bool) -> None:
    """A copy by itself would meet the same definition, so none is asked for; a person's begins behind it."""
    tale = story(transactional=transactional)
    notify(tale, "add")
    fault = TargetConfigError("no such column here")
    tale.bench.target.alter_faults = [fault]
    report = tale.bench.apply()
    assert (report.state, report.message, report.copy) == ("stopped", str(fault), None)
    tale.rows = {key: {name: row[name] for name in TABLE.column_names} for key, row in tale.rows.items()}
    tale.copy(TABLE)
    tale.bench.take_over()
    tale.bench.target.alter_faults = [fault]
    report = tale.bench.apply(len(tale.bench.topic) - 1)
    assert report.state == "ok", report.message
    assert tale.equal()
    assert "n" not in tale.bench.target.tables["public.acct"].column_names
    assert tale.bench.target.state.unit.ddl is None


@KINDS
def test_an_index_that_rows_do_not_allow_is_left_out_and_said(transactional: bool) -> None:
    tale = story(transactional=transactional)
    for key in (1, 2):
        tale.put(key, note="twice")
    new = added(replace(TABLE, unique=(*TABLE.unique, unique("u", "note"))), column("n"))
    tale.statement(new, ColumnChanges(added=("n",)), {"n": None})
    assert tale.bench.apply().state == "ok"
    assert tale.equal()
    assert [index.columns for index in tale.bench.target.tables["public.acct"].unique] == [("email",)]


@KINDS
def test_an_index_that_the_target_cannot_have_is_left_out_but_not_for_want_of_a_right(
    transactional: bool,
) -> None:
    """MariaDB has unique indexes over whole texts, MySQL has not."""
    new = replace(TABLE, unique=(*TABLE.unique, unique("u", "note")))
    for error, state in (
        (TargetConfigError("no such index here"), "ok"),
        (MissingGrantError("no", "GRANT"), "stopped"),
    ):
        tale = story(transactional=transactional)
        tale.statement(new, ColumnChanges(), effect="kept")
        tale.bench.target.alter_faults = [error]
        assert tale.bench.apply().state == state
        assert tale.equal()


@KINDS
def test_rows_that_cannot_have_the_new_key_make_room_for_those_of_the_copy(transactional: bool) -> None:
    tale = story(transactional=transactional)
    for key in (1, 2):
        tale.put(key, owner="same")
    assert tale.bench.apply().state == "ok"
    tale.rows = {key: {**row, "owner": f"own {key}"} for key, row in tale.rows.items()}
    tale.copy(replace(TABLE, key=unique("PRIMARY", "owner")))
    report = tale.bench.apply()
    assert report.state == "ok", report.message
    assert tale.equal()


def test_a_target_that_does_not_come_out_as_asked_stops_the_unit() -> None:
    tale = story(transactional=False)
    notify(tale, "widen")
    target = tale.bench.target
    before = target.tables["public.acct"]

    def at(moment: str) -> None:
        if moment == "altered":
            target.tables["public.acct"] = before

    target.at = at
    report = tale.bench.apply()
    assert (report.state, "leave the target table different from what is needed" in report.message) == (
        "stopped",
        True,
    )
    assert target.state.unit.ddl is None


# --- policies


def test_under_stop_a_change_waits_for_a_person() -> None:
    tale = story("stop")
    notify(tale, "add")
    report = tale.bench.apply()
    assert (report.state, alterations(tale)) == ("stopped", 0)
    assert report.message.endswith(
        "alter the target table by hand as the source's was, then rowlock copy bank.acct"
    )


@KINDS
def test_under_ignore_the_target_stays_and_takes_what_it_has(transactional: bool) -> None:
    tale = story("ignore", transactional=transactional)
    notify(tale, "add")
    tale.statement(without(tale.source.table, "note"), ColumnChanges(dropped=("note",)))
    tale.put(7, version=3, n=1)
    report = tale.bench.apply()
    assert (report.state, alterations(tale)) == ("ok", 0), report.message
    assert tale.target_rows() == {
        key: {name: value for name, value in row.items() if name != "n"} for key, row in tale.rows.items()
    }
    assert tale.bench.target.tables["public.acct"] == account_table_there()


@KINDS
@pytest.mark.parametrize("how", ["widen", "no longer required"])
def test_under_ignore_a_row_that_no_longer_fits_stops_the_table(how: str, transactional: bool) -> None:
    """Under `ignore` no statement changes the target. No row is quarantined: the table goes on with that row
    once a person has altered the target."""
    tale = story("ignore", transactional=transactional)
    column = {"widen": "version", "no longer required": "owner"}[how]
    value = {"widen": 2**31, "no longer required": None}[how]
    at = TABLE.column_names.index(column)
    refusal = RefusedError("out of range")
    tale.bench.target.refuse = lambda row: refusal if row[at] == value else None
    notify(tale, how)
    tale.put(1, **{column: value})
    tale.put(2, version=8)
    report = tale.bench.apply()
    assert (report.state, report.held, report.copy) == ("stopped", 0, None)
    problem = decode_problem(report.message)
    seen, remedy = problem.what, problem.action
    assert f"cannot store every value of the source's columns ({column})" in seen
    assert remedy == f"alter {column} in the target as at the source"
    assert alterations(tale) == 0
    tables = tale.bench.target.tables
    tables["public.acct"] = replace(tables["public.acct"], columns=tale.source.table.columns)
    tale.bench.target.refuse = lambda _: None
    tale.bench.tables.clear()
    tale.bench.take_over()
    assert tale.bench.apply().state == "ok"
    assert tale.equal()


def test_under_ignore_a_row_with_digits_that_the_target_would_round_stops_the_table() -> None:
    tale = story("ignore")
    finer = ColumnType(kind=Kind.DECIMAL, precision=14, scale=4)
    tale.statement(changed(TABLE, "balance", type=finer), ColumnChanges())
    tale.put(1, balance="1.2300")
    assert tale.bench.apply().state == "ok"
    tale.put(2, balance="1.2345")
    report = tale.bench.apply()
    assert (report.state, report.held, report.copy) == ("stopped", 0, None)
    assert decode_problem(report.message).remedy == "alter balance in the target as at the source"
    assert [row[3] for row in tale.bench.target.rows_of() if row[0] == 2] != ["1.2345"]


def test_under_ignore_what_a_wide_enough_target_refuses_is_held() -> None:
    """A NUL byte in PostgreSQL, a constraint of the user's: no ALTER of the source has to do with it."""
    tale = story("ignore")
    tale.bench.target.refuse = lambda row: RefusedError("no") if row[0] == 7 else None
    notify(tale, "add")
    tale.put(7, version=3, n=1)
    report = tale.bench.apply()
    assert (report.state, report.held) == ("ok", 1)


@pytest.mark.parametrize("policy", ["lenient", "evolve"])
def test_otherwise_what_the_target_refuses_is_held(policy: SchemaChangePolicy) -> None:
    tale = story(policy)
    tale.bench.target.refuse = lambda row: RefusedError("no") if row[0] == 7 else None
    notify(tale, "widen")
    tale.put(7, version=3)
    assert tale.bench.apply().held == 1


def account_table_there() -> Table:
    return replace(account_table(), db="public")


@KINDS
@pytest.mark.parametrize("how", ["renamed", "dropped", "dropped and another one renamed"])
def test_under_ignore_a_column_that_comes_back_has_old_values_and_needs_a_copy(
    how: str, transactional: bool
) -> None:
    tale = story("ignore", transactional=transactional)
    tale.put(1, note="old")
    note, missing = TABLE.get_column("note"), without(TABLE, "note")
    if how == "renamed":
        tale.statement(renamed(TABLE, "note", "w"), ColumnChanges(renamed={"note": "w"}))
        tale.put(1, w="new", version=2)
    else:
        tale.statement(missing, ColumnChanges(dropped=("note",)))
        tale.put(1, version=2)
    assert tale.bench.apply().state == "ok"
    if how == "dropped":
        tale.statement(added(missing, note), ColumnChanges(added=("note",)), {"note": None})
    else:
        if how != "renamed":
            other = replace(note, name="w")
            tale.statement(added(missing, other), ColumnChanges(added=("w",)), {"w": None})
        tale.statement(TABLE, ColumnChanges(renamed={"w": "note"}))
    tale.put(2, version=8)
    report = tale.bench.apply()
    assert (report.state, "already has a column note" in report.message) == ("stopped", True), report.message
    assert report.copy is not None
    assert report.copy.cause == "definition"
    assert tale.bench.target.state.unit.ddl is None
    copied(tale)
    assert tale.equal()
    assert alterations(tale) == 0


def copied(tale: Story) -> None:
    """A copy ends a stop."""
    tale.copy(tale.source.table)
    tale.bench.take_over()
    report = tale.bench.apply(len(tale.bench.topic) - 1)
    assert report.state == "ok", report.message


def has_now(tale: Story, name: str, *, running: bool = False) -> None:
    """A person adds a column to the target table by hand."""
    state = tale.bench.target.state
    there = state.tables["public.acct"]
    state.tables["public.acct"] = added(there, column(name))
    state.rows["public.acct"] = {key: (*row, None) for key, row in state.rows["public.acct"].items()}
    if not running:
        tale.bench.take_over()


def lacks_now(tale: Story, name: str) -> None:
    """A person drops the last column of the target table by hand."""
    state = tale.bench.target.state
    there = state.tables["public.acct"]
    assert there.column_names[-1] == name
    state.tables["public.acct"] = without(there, name)
    state.rows["public.acct"] = {key: row[:-1] for key, row in state.rows["public.acct"].items()}
    tale.bench.take_over()


@KINDS
@pytest.mark.parametrize("behind", ["nothing", "a row", "another statement"])
def test_a_column_that_was_left_out_and_that_a_person_adds_to_the_target_needs_a_copy(
    behind: str, transactional: bool
) -> None:
    tale = story("ignore", transactional=transactional)
    tale.statement(*FOLLOWED["add"], {"n": None})
    tale.put(1, n=1)
    assert tale.bench.apply().state == "ok"
    has_now(tale, "n")
    if behind == "a row":
        tale.put(2, n=2)
    elif behind == "another statement":
        tale.statement(added(tale.source.table, column("m")), ColumnChanges(added=("m",)), {"m": None})
    report = tale.bench.apply()
    assert (report.state, "column n was added to target table" in report.message) == ("stopped", True)
    assert report.copy is not None
    copied(tale)
    tale.put(0, n=5)
    tale.bench.take_over()
    assert tale.bench.apply().state == "ok"
    at = tale.bench.target.tables["public.acct"].column_names.index("n")
    assert {row[0]: row[at] for row in tale.bench.target.rows_of()} == {
        key: row["n"] for key, row in tale.rows.items()
    }
    assert decode_stored(tale.bench.target.state.unit.definition or "").unmapped_columns == (
        ("m",) if behind == "another statement" else ()
    )


def test_a_column_that_comes_to_the_target_while_the_unit_runs_needs_a_copy_at_the_next_statement() -> None:
    tale = story("ignore")
    tale.statement(*FOLLOWED["add"], {"n": None})
    tale.put(1, n=1)
    assert tale.bench.apply().state == "ok"
    has_now(tale, "n", running=True)
    tale.put(2, n=2)
    assert tale.bench.apply().state == "ok", "it writes what it wrote"
    tale.statement(added(tale.source.table, column("m")), ColumnChanges(added=("m",)), {"m": None})
    report = tale.bench.apply()
    assert (report.state, "already has a column n," in report.message) == ("stopped", True), report.message
    copied(tale)


@pytest.mark.parametrize("policy", ["lenient", "evolve"])
def test_a_column_that_was_left_out_needs_a_copy_whatever_the_policy_is_now(
    policy: SchemaChangePolicy,
) -> None:
    tale = story("ignore")
    tale.statement(*FOLLOWED["add"], {"n": None})
    tale.put(1, n=1)
    assert tale.bench.apply().state == "ok"
    tale.bench.routes = (TableRoute("bank.*", "public.{table}", (), policy),)
    tale.bench.take_over()
    report = tale.bench.apply()
    assert (report.state, "lacks the columns ['n']" in report.message) == ("stopped", True), report.message
    has_now(tale, "n")
    report = tale.bench.apply()
    assert (report.state, "column n was added to target table" in report.message) == ("stopped", True)
    copied(tale)
    assert tale.equal()


def test_a_column_that_a_person_takes_from_the_target_and_gives_back_needs_a_copy() -> None:
    """Older versions did not record what they left out: the first attempt that finds the column missing
    records it."""
    tale = story("ignore")
    lacks_now(tale, "note")
    tale.put(1, note="one")
    assert tale.bench.apply().state == "ok"
    has_now(tale, "note")
    report = tale.bench.apply()
    assert (report.state, "column note was added to target table" in report.message) == ("stopped", True)


@KINDS
@pytest.mark.parametrize("policy", ["lenient", "evolve", "ignore"])
def test_a_column_that_a_person_spells_anew_in_the_target_is_followed_by_that_name(
    policy: SchemaChangePolicy, transactional: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the stored name, a new name of the column at the source made a second one, full of NULL.

    Under `ignore` the new name is left out, as that of every column is.
    """
    monkeypatch.setattr(FakeSession, "column_names", FOLDED)
    tale = story(policy, transactional=transactional)
    tale.put(1, note="one")
    assert tale.bench.apply().state == "ok"
    tables = tale.bench.target.state.tables
    tables["public.acct"] = renamed(tables["public.acct"], "note", "NOTE")
    tale.bench.take_over()
    tale.put(2, note="two")
    assert tale.bench.apply().state == "ok"
    assert tale.equal()
    assert decode_stored(tale.bench.target.state.unit.definition or "").names == {"note": "NOTE"}
    tale.statement(renamed(TABLE, "note", "text"), ColumnChanges(renamed={"note": "text"}))
    tale.put(3, text="three")
    report = tale.bench.apply()
    assert report.state == "ok", report.message
    stored = decode_stored(tale.bench.target.state.unit.definition or "")
    assert (stored.names, stored.unmapped_columns) == ({}, ("text",) if policy == "ignore" else ())
    assert policy == "ignore" or tale.equal()


def test_a_restart_that_finds_the_target_as_it_was_needs_no_copy() -> None:
    tale = story("ignore")
    tale.statement(*FOLLOWED["add"], {"n": None})
    for turn in range(3):
        tale.put(1, version=turn, n=turn)
        tale.bench.take_over()
        assert tale.bench.apply().state == "ok"
    assert decode_stored(tale.bench.target.state.unit.definition or "").unmapped_columns == ("n",)
    tale.statement(without(tale.source.table, "n"), ColumnChanges(dropped=("n",)))
    tale.statement(*FOLLOWED["add"], {"n": None})  # it was never in the target
    assert tale.bench.apply().state == "ok"


def test_under_ignore_a_type_that_the_target_cannot_take_stops_the_unit() -> None:
    tale = story("ignore")
    tale.copy(changed(TABLE, "version", type=text(20)))
    report = tale.bench.apply()
    assert (report.state, "column version is int in the target and varchar" in report.message) == (
        "stopped",
        True,
    )


def test_under_lenient_a_dropped_column_stays_with_its_values_and_a_new_one_of_its_name_needs_a_copy() -> (
    None
):
    tale = story("lenient")
    tale.put(1, note="old")
    note = TABLE.get_column("note")
    tale.statement(without(TABLE, "note"), ColumnChanges(dropped=("note",)))
    tale.put(2, version=8)
    assert tale.bench.apply().state == "ok"
    assert tale.equal()
    table = tale.bench.target.tables["public.acct"]
    assert [row[table.column_names.index("note")] for row in tale.bench.target.rows_of()] == [
        None,
        "old",
        None,
    ]
    tale.statement(added(tale.source.table, note), ColumnChanges(added=("note",)), {"note": None})
    report = tale.bench.apply()
    assert (report.state, "values of an earlier column" in report.message) == ("stopped", True)


@KINDS
@pytest.mark.parametrize("remedy", ["by hand", "evolve", "back at the source"])
def test_under_lenient_a_type_that_does_not_fit_stops_the_table_until_its_remedy(
    remedy: str, transactional: bool
) -> None:
    """Nothing is written and no statement runs before; then the copy brings every row."""
    tale = story("lenient", transactional=transactional)
    before = tale.target_rows()
    notify(tale, "copy with another type")
    report = tale.bench.apply()
    assert report.state == "stopped"
    problem = decode_problem(report.message)
    evidence, todo = problem.what, problem.action
    assert evidence.endswith(
        "column version is int in the target and varchar at the source, and no type holds the values of both"
    )
    assert todo.startswith("set `schema_changes: evolve`, or change its type in the target by hand")
    assert (tale.target_rows(), alterations(tale), tale.bench.target.state.unit.ddl) == (before, 0, None)
    if remedy == "by hand":
        state = tale.bench.target.state
        state.tables["public.acct"] = changed(state.tables["public.acct"], "version", type=text(20))
    elif remedy == "evolve":
        tale.bench.routes = (TableRoute("bank.*", "public.{table}", (), "evolve"),)
    else:
        tale.rows = {key: {**row, "version": 3} for key, row in tale.rows.items()}
        tale.copy(TABLE)
    tale.bench.take_over()
    report = tale.bench.apply(len(tale.bench.topic) - 1)
    assert report.state == "ok", report.message
    assert tale.equal()


def write_to_second_column(tale: Story) -> None:
    """Make the target what an earlier version left: `version`, a text now, is written to `version_2`."""
    state, table = tale.bench.target.state, changed(tale.source.table, "version", type=text(20))
    tale.rows = {key: {**row, "version": "one"} for key, row in tale.rows.items()}
    there = state.tables["public.acct"]
    state.tables["public.acct"] = added(
        changed(there, "version", nullable=True), column("version_2", text(20))
    )
    state.rows["public.acct"] = {key: (*row, "one") for key, row in state.rows["public.acct"].items()}
    stored = replaced(
        decode_stored(state.unit.definition or ""),
        table=table,
        names={"version": "version_2"},
        retained_columns=("version",),
    )
    state.unit = UnitState(stored.encode(), None, None)
    tale.source.table = table
    tale.bench.take_over()


@KINDS
@pytest.mark.parametrize("policy", ["lenient", "evolve", "ignore"])
def test_a_second_column_of_an_earlier_version_takes_rows_and_copies(
    policy: SchemaChangePolicy, transactional: bool
) -> None:
    tale = story(policy, transactional=transactional)
    write_to_second_column(tale)
    tale.put(8, version="eight")
    assert tale.bench.apply().state == "ok"
    assert tale.equal()
    copied(tale)
    assert tale.equal()
    assert decode_stored(tale.bench.target.state.unit.definition or "").names == {"version": "version_2"}
    assert alterations(tale) == 0


@KINDS
def test_a_second_column_is_renamed_with_its_column_however_often_it_is_killed(transactional: bool) -> None:
    for number in range(1, 20):
        tale = story("lenient", transactional=transactional)
        write_to_second_column(tale)
        tale.statement(renamed(tale.source.table, "version", "v"), ColumnChanges(renamed={"version": "v"}))
        tale.put(9, v="nine")
        killed = kill_at(tale, number)
        tale.bench.take_over()
        report = tale.bench.apply(len(tale.bench.topic) - 1)
        assert report.state == "ok", (number, report.message)
        assert tale.equal(), number
        names = tale.bench.target.tables["public.acct"].column_names
        assert ("v" in names, "version_2" in names, "version" in names) == (True, False, True)
        if not killed:
            break
    assert number >= (3 if transactional else 6)


@pytest.mark.parametrize("policy", ["lenient", "evolve", "ignore"])
def test_a_source_column_with_the_name_of_a_second_one_stops_the_table_until_it_has_another(
    policy: SchemaChangePolicy,
) -> None:
    tale = story(policy)
    write_to_second_column(tale)
    tale.statement(
        added(tale.source.table, column("version_2")),
        ColumnChanges(added=("version_2",)),
        {"version_2": None},
    )
    tale.put(9, version="nine", version_2=9)
    report = tale.bench.apply()
    assert (report.state, "would both be written to its column version_2" in report.message) == (
        "stopped",
        True,
    )
    assert "rename: {columns: {version_2: …}}" in report.message
    other = renamed(tale.source.table, "version_2", "other")
    tale.statement(other, ColumnChanges(renamed={"version_2": "other"}))
    copied(tale)
    if policy != "ignore":
        assert tale.equal()


def test_a_new_unique_index_is_known_to_the_locks_before_its_first_row() -> None:
    tale = story(lanes=4, small_batch=0)
    tale.statement(
        replace(TABLE, unique=(*TABLE.unique, unique("u", "note"))), ColumnChanges(), effect="kept"
    )
    tale.put(0, note="x")
    for turn in range(40):
        one, other = turn % 3, (turn + 1) % 3
        tale.put(one, note=None)
        tale.put(other, note="x")
        tale.put(other, note="y")
        tale.put(other, note="x")
        for key in range(3):
            if key != other:
                tale.put(key, note=None)
    assert tale.bench.apply().state == "ok"
    assert tale.equal()
    assert not tale.bench.target.state.displaced


# --- a dropped table


@KINDS
@pytest.mark.parametrize("how", ["keep", "empty", "drop"])
def test_a_dropped_table_and_one_that_is_made_again(how: str, transactional: bool) -> None:
    tale = story(transactional=transactional, on_drop=how)
    before = tale.target_rows()
    dropped(tale)
    for _ in range(2):  # a restart meets it again
        report = tale.bench.apply()
        assert (report.state, "was dropped" in report.message) == ("stopped", True)
        state = tale.bench.target.state
        assert state.unit.ddl is None
        if how == "keep":
            assert tale.target_rows() == before
        elif how == "empty":
            assert state.rows["public.acct"] == {}
        else:
            assert "public.acct" not in state.tables
            assert state.unit.definition is None
        tale.bench.take_over()


def test_a_topic_is_emptied_once_for_a_dropped_table() -> None:
    """Each start reads the event again. Where the outcome of the commit is unknown, the next attempt reads
    whether the topic was emptied: the lanes, which stay, do not show it."""
    place = SimpleNamespace(offset=7, lane=0, epoch=1, attempt=1, layout="{}")
    target, routed = SimpleNamespace(topic="a topic"), ResolvedRoute("head", "acct")
    changes = TableChanges(UnitSpec.__new__(UnitSpec), AttemptProgress([place]))  # type: ignore[list-item]
    object.__setattr__(changes._spec, "on_drop", "empty")
    at = (8, (0, 1, 90, 0), 1, 1)

    def emptied(stored: StoredDefinition) -> Any:
        return changes.handle_dropped_table(SimpleNamespace(target=target, routed=routed, stored=stored), at)  # type: ignore[arg-type]

    machine = emptied(StoredDefinition(TABLE))
    asked = next(machine)
    assert isinstance(asked, Transact)
    (state,) = (each.state for each in asked.operations if isinstance(each, WriteUnit))
    assert [type(each) for each in asked.operations] == [TruncateTarget, CloseQuarantineBefore, WriteUnit]
    with pytest.raises(AttemptLostError):
        machine.throw(CommitUnknownError("lost"))
    assert list(emptied(decode_stored(state.definition or ""))) == [], "it happened"
    assert list(emptied(replaced(StoredDefinition(TABLE), emptied_at=3))) != [], "that was for another event"


@pytest.mark.parametrize("number", range(1, 12))
def test_a_drop_that_is_interrupted_is_finished(number: int) -> None:
    tale = story(transactional=False, on_drop="drop")
    dropped(tale)
    kill_at(tale, number)
    tale.bench.take_over()
    assert tale.bench.apply(len(tale.bench.topic) - 1).state == "stopped"
    assert "public.acct" not in tale.bench.target.state.tables
    assert tale.bench.target.state.unit.ddl is None
    assert [change for change in tale.bench.target.altered if isinstance(change, DropTable)]


@KINDS
@pytest.mark.parametrize(
    "fault",
    [TargetConfigError("a view needs it: drop the view"), MissingGrantError("may not drop", "GRANT DROP")],
)
def test_a_drop_that_the_target_refuses_leaves_nothing_under_way(
    transactional: bool, fault: Exception
) -> None:
    """The unit stops with the target's words; it tries again at each start, and what becomes of the table
    later is not in the drop's way."""
    tale = story(transactional=transactional, on_drop="drop")
    before = tale.target_rows()
    dropped(tale)
    for _ in range(2):
        tale.bench.target.alter_faults = [fault]
        report = tale.bench.apply(len(tale.bench.topic) - 1)
        message = str(decode_problem(report.message))
        assert (report.state, all(part in message for part in fault.args if part), report.copy) == (
            "stopped",
            True,
            None,
        )
        assert tale.bench.target.state.unit.ddl is None
        assert tale.target_rows() == before
        tale.bench.take_over()
    del tale.rows[0]
    tale.copy(TABLE)  # it was made again
    tale.bench.target.alter_faults = [fault]
    report = tale.bench.apply(len(tale.bench.topic) - 1)
    assert report.state == "ok", report.message
    assert set(tale.rows) <= set(tale.target_rows())
    assert tale.bench.target.state.unit.ddl is None


def test_the_mark_of_a_drop_that_the_target_refuses_goes() -> None:
    """A process died behind the mark, and whoever takes the unit over may not drop the table."""
    tale = story(transactional=False, on_drop="drop")
    dropped(tale)
    for number in range(1, 12):
        kill_at(tale, number)
        if tale.bench.target.state.unit.ddl is not None:
            break
        tale.bench.take_over()
    assert tale.bench.target.state.unit.ddl is not None
    fault = MissingGrantError("may not drop", "GRANT DROP")
    tale.bench.target.alter_faults = [fault, fault]
    tale.bench.take_over()
    report = tale.bench.apply(len(tale.bench.topic) - 1)
    assert (report.state, "may not drop" in report.message) == ("stopped", True)
    assert tale.bench.target.state.unit.ddl is None
    assert tale.bench.target.state.unit.definition is not None


# --- many to one


def shared_story(**more: Any) -> Story:
    """A unit of branch1; branch2 writes the same table."""
    tale = story(add=True, topic="rl.branch1.bank.acct", **more)
    tale.bench.target.state.others["rl.branch2.bank.acct"] = UnitState(
        StoredDefinition(TABLE).encode(), None, None
    )
    return tale


def branch2(tale: Story, table: Table, ddl: str | None = None) -> None:
    tale.bench.target.state.others["rl.branch2.bank.acct"] = UnitState(
        StoredDefinition(table).encode(), ddl, None
    )


@KINDS
def test_what_the_first_of_two_drops_the_last_takes_away(transactional: bool) -> None:
    new = without(TABLE, "owner")
    tale = shared_story(transactional=transactional)
    tale.statement(new, ColumnChanges(dropped=("owner",)))
    assert tale.bench.apply().state == "ok"
    assert tale.bench.target.tables["public.acct"].get_column("owner").nullable
    last = shared_story(transactional=transactional)
    branch2(last, new)
    last.statement(new, ColumnChanges(dropped=("owner",)))
    assert last.bench.apply().state == "ok"
    assert "owner" not in last.bench.target.tables["public.acct"].column_names


@KINDS
def test_another_unit_that_changes_the_table_is_waited_for(transactional: bool) -> None:
    tale = shared_story(transactional=transactional)
    branch2(tale, TABLE, '{"connection":1,"at":[1,[0,1,2,3],1,1],"after":null}')
    notify(tale, "widen")
    report = tale.bench.apply()
    assert (report.state, "is being altered for rl.branch2.bank.acct" in report.message) == ("behind", True)
    assert alterations(tale) == 0
    branch2(tale, TABLE)
    assert tale.bench.apply().state == "ok"


def test_what_others_come_to_need_while_the_statement_runs_is_done_before_the_end() -> None:
    """The definitions of others are read again, under lock, where the change ends."""
    new = without(TABLE, "owner")
    tale = shared_story(transactional=False)
    tale.statement(new, ColumnChanges(dropped=("owner",)))

    def at(moment: str) -> None:
        if moment == "altered":
            branch2(tale, new)

    tale.bench.target.at = at
    assert tale.bench.apply().state == "ok"
    assert "owner" not in tale.bench.target.tables["public.acct"].column_names
    assert alterations(tale) == 2


def test_a_table_that_others_write_is_emptied_instead_of_dropped() -> None:
    tale = shared_story(on_drop="drop")
    other = (1, "a@x", "o", "1.00", 1, "2026-01-01 00:00:00.000000", "", "branch2")
    tale.bench.target.state.rows["public.acct"]["branch2", 1] = other
    dropped(tale)
    assert tale.bench.apply().state == "stopped"
    assert list(tale.bench.target.state.rows["public.acct"].values()) == [other]


# --- a target that does not fit what is in force


def test_under_stop_the_unit_goes_on_at_a_copy_once_a_person_has_altered_the_target() -> None:
    tale = story("stop")
    new = renamed(without(TABLE, "note"), "owner", "holder")
    tale.statement(new, None)
    assert tale.bench.apply().state == "stopped"
    tale.rows = {key: {**row, "holder": f"h{key}"} for key, row in tale.rows.items()}
    tale.copy(new)
    tale.bench.take_over()
    report = tale.bench.apply()
    assert report.state == "stopped", "the target is as it was"
    assert "holder" in report.message
    there = replace(new, db="public")
    tale.bench.target.state.tables["public.acct"] = there
    tale.bench.target.state.rows["public.acct"] = {}
    tale.bench.take_over()
    tale.bench.tables.clear()
    report = tale.bench.apply(len(tale.bench.topic) - 1)
    assert report.state == "ok", report.message
    assert tale.equal()
    assert alterations(tale) == 0


def test_an_attempt_that_is_given_the_copy_goes_on_with_it_though_the_target_fits_what_comes_then_alone() -> (
    None
):
    tale = story("stop")
    tale.statement(renamed(without(TABLE, "note"), "owner", "holder"), None)
    assert tale.bench.apply().state == "stopped"
    tale.rows = {key: {**row, "holder": f"h{key}"} for key, row in tale.rows.items()}
    new = tale.source.table
    tale.copy(new)
    tale.bench.target.state.tables["public.acct"] = replace(new, db="public")
    tale.bench.target.state.rows["public.acct"] = {}
    tale.bench.take_over()
    tale.bench.tables.clear()
    report = tale.bench.apply()
    assert (report.state, report.offset) == ("ok", len(tale.bench.topic) - 1), report.message
    assert tale.equal()


@pytest.mark.timeout(120)
def test_an_attempt_that_is_given_nothing_of_the_copy_in_front_of_which_it_stands_ends() -> None:
    """It looked for the copy's begin again and again, and found it each time."""
    tale = story("stop")
    tale.statement(renamed(without(TABLE, "note"), "owner", "holder"), None)
    assert tale.bench.apply().state == "stopped"
    tale.rows = {key: {**row, "holder": f"h{key}"} for key, row in tale.rows.items()}
    end = len(tale.bench.topic)
    new = tale.source.table
    tale.copy(new)
    tale.bench.target.state.tables["public.acct"] = replace(new, db="public")
    tale.bench.target.state.rows["public.acct"] = {}
    whole = tale.bench.slices

    def given(start: int, upto: int, size: int) -> list[RecordSlice]:
        return whole(start, min(upto, end), size) if size == 50 else whole(start, upto, size)

    for _ in range(2):
        tale.bench.take_over()
        tale.bench.tables.clear()
        tale.bench.slices = given  # type: ignore[method-assign]
        report = tale.bench.apply()
        assert (report.state, report.offset) == ("ok", end - 1), report.message
    tale.bench.slices = whole  # type: ignore[method-assign]
    tale.bench.take_over()
    assert tale.bench.apply().state == "ok"
    assert tale.equal()


@KINDS
def test_a_target_table_that_somebody_dropped_is_made_by_a_copy(transactional: bool) -> None:
    tale = story(transactional=transactional)
    target = tale.bench.target
    del target.state.tables["public.acct"]
    target.state.rows.clear()
    tale.bench.take_over()
    tale.bench.tables.clear()
    tale.put(1, version=3)
    report = tale.bench.apply()
    assert (report.state, "no longer exists" in report.message) == ("stopped", True)
    tale.copy(FOLLOWED["widen"][0])
    tale.bench.take_over()
    report = tale.bench.apply()
    assert report.state == "ok", report.message
    assert tale.equal()


@pytest.mark.parametrize("how", ["drops", "kills and drops"])
def test_a_target_table_that_somebody_drops_during_a_change_leaves_no_mark_and_is_made_by_a_copy(
    how: str,
) -> None:
    """At each moment of the change, with the process still there or not. The unit reads the event again, so
    that a copy after it heals the unit."""
    number, found = 0, set()
    while True:
        number += 1
        tale = story(transactional=False)
        notify(tale, "add")
        reached = drop_at(tale, number, kill=how != "drops")
        if not reached:
            break
        tale.bench.tables.clear()
        tale.bench.take_over()
        report = tale.bench.apply(len(tale.bench.topic) - 1)
        assert (report.state, "no longer exists" in report.message) == ("stopped", True), (
            number,
            report,
        )
        assert "restore it, or rowlock copy bank.acct" in report.message
        assert tale.bench.target.state.unit.ddl is None, number
        found.add(decode_stored(tale.bench.target.state.unit.definition or "").table == TABLE)
        tale.copy(tale.source.table)
        tale.bench.take_over()
        report = tale.bench.apply(len(tale.bench.topic) - 1)
        assert report.state == "ok", (number, report.message)
        assert tale.equal(), number
    assert number > 4, "behind the mark, in front of the statement and behind it, behind the end"
    assert found == {True, False}, "before and behind the end"


def test_who_finds_a_mark_of_a_table_that_is_gone_goes_on_at_the_copy_that_is_there() -> None:
    tale = story(transactional=False)
    notify(tale, "add")
    assert drop_at(tale, 2, kill=True)
    assert tale.bench.target.state.unit.ddl is not None
    tale.copy(tale.source.table)
    tale.bench.tables.clear()
    tale.bench.take_over()
    report = tale.bench.apply(len(tale.bench.topic) - 1)
    assert report.state == "ok", report.message
    assert tale.equal()


def drop_at(tale: Story, number: int, *, kill: bool) -> bool:
    """Apply, and drop the target table at the moment `number` outside a transaction. Return whether there was
    such a moment."""
    target, moments = tale.bench.target, 0

    def at(moment: str) -> None:
        nonlocal moments
        moments += moment != "commit"
        if moments == number and moment != "commit":
            target.state.tables.pop("public.acct", None)
            target.state.rows.clear()
            if kill:
                raise Killed

    target.at = at
    try:
        tale.bench.apply()
    except Killed:
        pass
    finally:
        target.at = lambda _moment: None
        target.sessions.clear()
    return moments >= number


def test_nothing_is_applied_to_a_table_that_does_not_fit() -> None:
    tale = story()
    before = tale.target_rows()
    tale.bench.target.state.tables["public.acct"] = replace(without(TABLE, "note"), db="public")
    tale.bench.take_over()
    tale.bench.tables.clear()
    tale.put(1, version=3)
    report = tale.bench.apply()
    assert (report.state, "lacks the columns ['note']" in report.message) == ("stopped", True)
    tale.bench.target.state.tables["public.acct"] = account_table_there()
    tale.bench.tables.clear()
    assert tale.target_rows() == before
    tale.bench.take_over()
    assert tale.bench.apply().state == "ok"
    assert tale.equal()


def test_what_was_read_of_the_target_beside_another_definition_is_not_believed() -> None:
    """An assignment brings the table as it was then; another worker of it may meet the next definition
    first."""
    tale = story()
    there = tale.bench.target.tables["public.acct"]
    tale.bench.more["real"] = encode_known_table(tale.bench.target.state.unit.definition, there)
    notify(tale, "add")
    assert tale.bench.apply().state == "ok"
    tale.bench.tables.clear()  # of the worker that met it
    tale.put(2, n=4)
    report = tale.bench.apply()
    assert report.state == "ok", report.message
    assert tale.equal()


# --- a table that was gone


@KINDS
def test_who_makes_a_shared_table_anew_says_that_the_others_lost_their_rows(transactional: bool) -> None:
    tale = shared_story(transactional=transactional)
    state, other = tale.bench.target.state, "rl.branch2.bank.acct"
    state.others["rl.branch1.bank.another"] = UnitState(
        StoredDefinition(replace(TABLE, name="another")).encode(), None, None
    )
    untouched = dict(state.others)
    tale.copy(TABLE)
    assert tale.bench.apply().state == "ok"
    assert tale.bench.target.state.others == untouched, "the table was there"
    del tale.bench.target.tables["public.acct"]
    tale.copy(TABLE)
    tale.bench.take_over()
    report = tale.bench.apply(len(tale.bench.topic) - 1)
    assert report.state == "ok", report.message
    others = tale.bench.target.state.others
    lost = decode_stored(others.pop(other).definition or "")
    assert (lost.rows_missing, lost.table) == (True, TABLE)
    assert others == {name: each for name, each in untouched.items() if name != other}


@KINDS
def test_a_unit_whose_rows_are_lost_goes_on_at_a_copy_alone(transactional: bool) -> None:
    tale = shared_story(transactional=transactional)
    state = tale.bench.target.state
    state.unit = UnitState(StoredDefinition(TABLE, rows_missing=True).encode(), None, None)
    before = tale.target_rows()
    tale.put(0, version=2)
    for _ in range(2):
        tale.bench.take_over()
        report = tale.bench.apply(len(tale.bench.topic) - 1)
        assert (
            report.state,
            str(decode_problem(report.message)).endswith("not in it: rowlock copy bank.acct"),
        ) == (
            "stopped",
            True,
        )
        assert report.copy is not None
        assert report.copy.after < len(tale.bench.topic) - 1
        assert tale.target_rows() == before
    tale.copy(TABLE)
    tale.bench.take_over()
    assert tale.bench.apply(len(tale.bench.topic) - 1).state == "ok"
    assert not decode_stored(tale.bench.target.state.unit.definition or "").rows_missing
    tale.put(1, version=3)
    assert tale.bench.apply(len(tale.bench.topic) - 1).state == "ok"
    assert tale.equal()


@KINDS
def test_a_unit_whose_rows_are_lost_may_make_the_shared_table_anew_itself(transactional: bool) -> None:
    tale = shared_story(transactional=transactional)
    tale.bench.target.topic = tale.bench.unit.topic
    tale.bench.target.state.unit = UnitState(StoredDefinition(TABLE, rows_missing=True).encode(), None, None)
    del tale.bench.target.tables["public.acct"]
    tale.copy(TABLE)
    tale.bench.take_over()
    report = tale.bench.apply(len(tale.bench.topic) - 1)
    assert report.state == "ok", report.message
    assert not decode_stored(tale.bench.target.state.unit.definition or "").rows_missing
    assert tale.equal()


# --- a route that leads to another table


@KINDS
@pytest.mark.parametrize("there", [True, False], ids=["an empty table", "no table"])
def test_a_unit_with_another_target_table_continues_only_at_a_copy(transactional: bool, there: bool) -> None:
    """The rows that were applied before are in the table of the earlier route."""
    tale = story(transactional=transactional)
    state, before = tale.bench.target.state, tale.target_rows()
    if there:
        state.tables["public.other"] = replace(state.tables["public.acct"], name="other")
    reroute(tale, "public.other")
    tale.put(0, version=2)
    for _ in range(2):
        tale.bench.take_over()
        report = tale.bench.apply(len(tale.bench.topic) - 1)
        assert report.state == "stopped"
        assert "the route wrote to public.acct before" in str(decode_problem(report.message))
        assert report.copy is not None
        assert not state.rows.get("public.other")
    tale.copy(TABLE)
    tale.bench.take_over()
    report = tale.bench.apply(len(tale.bench.topic) - 1)
    assert report.state == "ok", report.message
    tale.put(1, version=3)
    assert tale.bench.apply(len(tale.bench.topic) - 1).state == "ok"
    assert (tale.target_rows("public.other"), tale.target_rows()) == (tale.rows, before)


def test_a_changed_route_to_the_same_table_needs_no_copy() -> None:
    tale = story()
    tale.bench.routes = (TableRoute("bank.acct", "public.acct", (), "lenient"), *tale.bench.routes)
    tale.bench.tables.clear()
    tale.put(0, version=2)
    tale.bench.take_over()
    report = tale.bench.apply(len(tale.bench.topic) - 1)
    assert report.state == "ok", report.message
    assert tale.equal()


def test_a_definition_of_an_older_version_gets_its_target_table_at_the_next_start() -> None:
    tale = story()
    unit = tale.bench.target.state.unit
    stored = decode_stored(unit.definition or "")
    assert stored.target_place == ("public", "acct")
    elsewhere = ResolvedRoute("public", "other")
    assert is_target_changed(stored, elsewhere)
    assert not is_target_changed(replaced(stored, target_place=None), elsewhere)
    older = replaced(stored, target_place=None).encode()
    tale.bench.target.state.unit = UnitState(older, None, None)
    tale.bench.tables.clear()
    tale.put(0, version=2)
    tale.bench.take_over()
    assert tale.bench.apply(len(tale.bench.topic) - 1).state == "ok"
    assert tale.bench.target.state.unit == unit


def test_an_unfinished_change_does_not_continue_in_another_target_table() -> None:
    tale = story(transactional=False)
    state = tale.bench.target.state
    state.tables["public.other"] = other = replace(state.tables["public.acct"], name="other")
    notify(tale, "add")
    assert kill_at(tale, 3)
    state = tale.bench.target.state
    assert state.unit.ddl is not None
    reroute(tale, "public.other")
    tale.bench.take_over()
    report = tale.bench.apply(len(tale.bench.topic) - 1)
    state = tale.bench.target.state
    assert "the route wrote to public.acct before" in str(decode_problem(report.message))
    assert (state.tables["public.other"], state.unit.ddl) == (other, None)


def reroute(tale: Story, to: str) -> None:
    tale.bench.routes = (TableRoute("bank.*", to, (), "evolve"),)
    tale.bench.tables.clear()


@pytest.mark.parametrize(
    ("looks", "reported"),
    [([TABLE], []), ([None, TABLE], ["locked"]), ([None, None], ["locked", "rl.branch2.bank.acct"])],
    ids=["it is there", "it has come", "it is away"],
)
def test_rows_are_lost_only_while_the_table_is_away(looks: list[Table | None], reported: list[str]) -> None:
    """Another unit may have created the table, and recorded that it has rows there, since this unit looked
    for it. Where the table exists, no other unit's row is locked."""
    did: list[str] = []
    left = iter(looks)
    routes = (TableRoute("bank.*", "public.{table}", (("branch", "{source}"),)),)
    spec: Any = SimpleNamespace(unit=ApplyUnit("p", "rl.branch1.bank.acct"), source="branch1", routes=routes)
    units = {"rl.branch2.bank.acct": UnitState(StoredDefinition(TABLE).encode(), None, None)}
    session: Any = SimpleNamespace(read_table=lambda *_: next(left), table_names=EXACT)
    transaction: Any = SimpleNamespace(
        lock_units=lambda: (did.append("locked"), units)[1], write_other=lambda topic, _: did.append(topic)
    )
    lose_others(spec, session, transaction, MarkSharersIncomplete(TABLE))
    assert (did, list(left)) == (reported, [])
