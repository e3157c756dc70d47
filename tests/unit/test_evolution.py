"""What an event means for a unit (consumer.tables.evolution), and what the target table gets of it
(target_steps): pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from consumer.errors import CopyNeededError, UnitStoppedError
from consumer.ordering.model import UnitState
from consumer.tables.evolution.decisions import (
    AdoptDefinition,
    KeepDefinition,
    NeedsCopy,
    SourceTableDropped,
    StopForPerson,
    judge_table_event,
)
from consumer.tables.evolution.plans import (
    ChangePlan,
    TableChange,
    build_change_mark,
    choose_after_refusal,
    decode_mark,
    find_sharers,
    plan_change,
)
from consumer.tables.router import ResolvedRoute, SchemaChangePolicy, TableRoute, build_desired_table
from consumer.tables.stored import StoredDefinition, decode_stored
from consumer.targets.alterations import (
    AddColumn,
    AddUnique,
    Alteration,
    AlterTable,
    ChangeColumn,
    ChangeKey,
    DropColumn,
    DropUnique,
    RenameColumn,
    apply_alterations,
)
from consumer.targets.oracle.sql import ORACLE_NAMES
from schemas.table.model import ColumnType, Kind, Table
from schemas.table.names import EXACT, NameRules
from schemas.table.typemap import MYSQL_CATALOG, convert_postgres_type
from schemas.wire.copies import CopyMark
from schemas.wire.event import ColumnChanges, EventEnvelope
from schemas.wire.records import TableStop
from tests.kits.apply import TEXT, FakeSource
from tests.kits.changed_definitions import (
    BIG,
    CHANGES,
    FOLDED,
    FOLLOWED,
    INT,
    TABLE,
    added,
    changed,
    column,
    renamed,
    text,
    unique,
    without,
)

ROUTED = ResolvedRoute("public", "acct")
SHARED = ResolvedRoute("public", "acct", (("branch", "b1"),))


def statement(
    table: Table | None, columns: ColumnChanges | None = None, effect: str | None = None, ddl: str = "ALTER …"
) -> EventEnvelope:
    return FakeSource().event("m", definition=table, ddl=ddl, columns=columns, effect=effect)


def verdict(
    new: Table,
    columns: ColumnChanges | None = None,
    policy: SchemaChangePolicy = "evolve",
    effect: str | None = None,
    before: Table = TABLE,
    **more: Any,
) -> Any:
    return judge_table_event(before, statement(new, columns, effect), policy, **more)


# --- decide

COPIED: dict[str, tuple[Table, ColumnChanges | None, str]] = {
    "narrower": (changed(TABLE, "note", type=text(20)), CHANGES(modified=("note",)),
     "note change with its type"),
    "another kind": (changed(TABLE, "version", type=text(20)), CHANGES(modified=("version",)),
     "version change"),
    "an expression as default": (
        added(TABLE, column("n", default_expression="uuid()")), CHANGES(added=("n",)),
        "only the source knows",
    ),
    "generated": (added(TABLE, column("n", generated=True, expression="1")), CHANGES(added=("n",)),
     "only the source knows"),
    "becomes generated": (
        changed(TABLE, "version", generated=True, expression="1"), CHANGES(modified=("version",)),
        "generated column version",
    ),
    "not null": (changed(TABLE, "note", nullable=False), CHANGES(modified=("note",)), "became NOT NULL"),
    "numbered": (changed(TABLE, "version", auto_increment=True), CHANGES(modified=("version",)),
     "AUTO_INCREMENT"),
    "another key": (replace(TABLE, key=unique("PRIMARY", "id", "owner")), CHANGES(), "the key of the table"),
    "a prefix of the key": (replace(TABLE, key=unique("PRIMARY", "id", prefix=3)), CHANGES(),
     "the key of the table"),
    "names change places": (
        TABLE, CHANGES(renamed={"note": "owner", "owner": "note"}), "was the name of another",
    ),
    "nothing is known": (added(TABLE, column("n")), None, "may have changed or removed rows"),
    "one is missing": (added(TABLE, column("n"), column("m")), CHANGES(added=("n",)),
     "do not explain the new columns"),
    "two at once": (without(TABLE, "note"), CHANGES(renamed={"note": "remark"}),
     "do not explain the new columns"),
}  # fmt: skip


@pytest.mark.parametrize("policy", ["ignore", "lenient", "evolve"])
@pytest.mark.parametrize("name", FOLLOWED)
def test_what_keeps_values_is_followed_under_every_policy_but_stop(
    name: str, policy: SchemaChangePolicy
) -> None:
    new, columns = FOLLOWED[name]
    assert verdict(new, columns, policy) == AdoptDefinition(columns)
    found = verdict(new, columns, "stop")
    assert isinstance(found, StopForPerson)


@pytest.mark.parametrize("name", COPIED)
def test_what_changes_values_needs_a_copy(name: str) -> None:
    new, columns, why = COPIED[name]
    found = verdict(new, columns)
    assert isinstance(found, NeedsCopy)
    assert why in found.why


def test_ignore_needs_no_copy_for_a_column_that_the_target_does_not_get() -> None:
    new = added(TABLE, column("n", default_expression="uuid()"))
    assert verdict(new, CHANGES(added=("n",)), "ignore") == AdoptDefinition(CHANGES(added=("n",)))


def test_a_column_that_is_dropped_and_added_is_another_one() -> None:
    columns = CHANGES(dropped=("note",), added=("note",))
    assert verdict(TABLE, columns) == AdoptDefinition(columns), "although the definition is the same"
    assert isinstance(verdict(TABLE, columns, "lenient"), NeedsCopy)
    assert isinstance(verdict(TABLE, columns, "ignore"), NeedsCopy)


def test_a_float_that_is_defined_anew_may_be_rounded() -> None:
    table = added(TABLE, column("f", ColumnType(kind=Kind.FLOAT)))
    event = statement(table, CHANGES(modified=("f",)))
    assert isinstance(judge_table_event(table, event, "evolve"), NeedsCopy)
    event.effect = "kept"
    assert judge_table_event(table, event, "evolve") == KeepDefinition()


def test_what_keeps_rows_and_names_is_followed_without_a_word_of_columns() -> None:
    """Events of older capture: they say that an index came or went, and nothing of columns."""
    new = replace(TABLE, unique=(*TABLE.unique, unique("u", "owner")))
    assert verdict(new, None, effect="kept") == AdoptDefinition()
    assert isinstance(verdict(added(TABLE, column("n")), None, effect="kept"), NeedsCopy)


def test_equal_definitions() -> None:
    assert judge_table_event(TABLE, FakeSource().definition(), "stop") == KeepDefinition()
    assert verdict(TABLE, effect="kept", policy="stop") == KeepDefinition()
    assert isinstance(verdict(TABLE, effect=None), NeedsCopy)


def test_the_first_definition_and_the_begin_of_a_copy_are_put_in_force_whatever_was_before() -> None:
    new = replace(without(TABLE, "note"), key=unique("PRIMARY", "owner"))
    assert judge_table_event(None, FakeSource().definition(), "stop") == AdoptDefinition()
    event = FakeSource().event("m", definition=new, copy=CopyMark(id="1"))
    for policy in ("ignore", "lenient", "evolve", "stop"):
        assert judge_table_event(TABLE, event, policy) == AdoptDefinition(rewrite=True)  # type: ignore[arg-type]


def test_stops() -> None:
    def stop(cause: str) -> EventEnvelope:
        reported = TableStop(
            cause=cause, at=(0, 1, 2, 3), file="f", pos=2, reason="seen", remedy="do", since_ms=1
        )
        return FakeSource().event("m", stop=reported)

    assert judge_table_event(TABLE, stop("dropped"), "evolve") == SourceTableDropped("seen", "do")
    hidden = judge_table_event(TABLE, stop("unseen"), "evolve")
    assert hidden == NeedsCopy("unseen", "seen", "do"), "`on_drop` does not apply to it"
    assert judge_table_event(TABLE, stop("value"), "evolve") == NeedsCopy("value", "seen", "do")
    assert isinstance(judge_table_event(TABLE, statement(None), "evolve"), NeedsCopy)


def test_where_other_sources_write_the_table_their_rows_must_not_change() -> None:
    for name in ("rename", "add with a default", "add not null"):
        assert isinstance(verdict(*FOLLOWED[name], many=True), NeedsCopy)
    assert verdict(*FOLLOWED["add"], many=True) == AdoptDefinition(CHANGES(added=("n",)))
    again = added(without(TABLE, "note"), TABLE.get_column("note"))
    assert isinstance(verdict(again, CHANGES(dropped=("note",), added=("note",)), many=True), NeedsCopy)


def test_a_column_that_the_target_has_still_is_not_new_there() -> None:
    assert isinstance(verdict(*FOLLOWED["add"], policy="lenient", left=("n",)), NeedsCopy)


# --- steps


def real(table: Table = TABLE, routed: ResolvedRoute = ROUTED) -> Table:
    return build_desired_table(table, routed)


def planned(
    new: Table,
    columns: ColumnChanges | None = None,
    policy: SchemaChangePolicy = "evolve",
    *,
    before: Table = TABLE,
    there: Table | None = None,
    routed: ResolvedRoute = ROUTED,
    others: Sequence[Table] = (),
    stored: StoredDefinition | None = None,
    same: NameRules = EXACT,
    **more: Any,
) -> ChangePlan:
    known = stored or StoredDefinition(before)
    change = TableChange(known, new, policy, columns or ColumnChanges(), **more)
    return plan_change(change, there or real(before, routed), routed, others, same)


def steps(*args: Any, **more: Any) -> list[Alteration]:
    found = planned(*args, **more).alter
    return [] if found is None else list(found.steps)


def test_followed_changes_come_out_as_the_source() -> None:
    for name, (new, columns) in FOLLOWED.items():
        found = planned(new, columns)
        after = real() if found.alter is None else apply_alterations(found.alter)
        want = real(new)
        assert set(after.column_names) == set(want.column_names), name
        assert {index.columns for index in after.unique} == {index.columns for index in want.unique}, name
        assert after.key.columns == want.key.columns, name
        for each in want.columns:
            assert after.get_column(each.name).type.kind is each.type.kind, name
            assert after.get_column(each.name).nullable or not each.nullable, name


@pytest.mark.parametrize("policy", ["lenient", "evolve"])
@pytest.mark.parametrize("rewrite", [False, True])
def test_steps_that_are_done_leave_nothing_to_do(policy: SchemaChangePolicy, rewrite: bool) -> None:
    """State is compared: an interrupted attempt's successor finds done what was done."""
    cases: dict[str, tuple[Table, ColumnChanges | None]] = {**FOLLOWED} | {
        name: (new, columns) for name, (new, columns, _) in COPIED.items() if rewrite
    }
    unfit = (
        {"another kind", "rename and add under the old name"} if rewrite and policy == "lenient" else set()
    )
    for new, reported in (case for name, case in cases.items() if name not in unfit):
        columns = None if rewrite else reported
        found = planned(new, columns, policy, rewrite=rewrite)
        after = real() if found.alter is None else apply_alterations(found.alter)
        assert (
            steps(
                new, columns, policy, rewrite=rewrite, there=after, planned=found.stored, statements_done=True
            )
            == []
        )


@pytest.mark.parametrize("name", FOLLOWED)
def test_half_of_the_steps_and_the_rest_later_come_to_the_same(name: str) -> None:
    new, columns = FOLLOWED[name]
    found = planned(new, columns)
    if found.alter is None:
        return
    whole = apply_alterations(found.alter)
    for done in range(len(found.alter.steps) + 1):
        half = apply_alterations(AlterTable(found.alter.table, found.alter.steps[:done]))
        rest = planned(new, columns, there=half, planned=found.stored).alter
        after = half if rest is None else apply_alterations(rest)
        assert set(after.columns) == set(whole.columns)
        assert {*after.unique} == {*whole.unique}


def test_ignore_and_stop_leave_the_target_alone() -> None:
    for policy in ("ignore", "stop"):
        for name, (new, columns) in FOLLOWED.items():
            if (policy, name) != ("ignore", "rename and add under the old name"):
                assert steps(new, columns, policy) == []
    with pytest.raises(
        CopyNeededError, match="already has a column note"
    ):  # the target's has values of the renamed one
        planned(*FOLLOWED["rename and add under the old name"], "ignore")


def test_what_is_added() -> None:
    assert steps(*FOLLOWED["add"]) == [AddColumn(column("n"))]
    assert steps(*FOLLOWED["add with a default"]) == [AddColumn(column("n", nullable=False), 7)]
    assert steps(*FOLLOWED["add not null"]) == [AddColumn(column("n", nullable=False), 0)]


def test_a_dropped_column_goes_or_stays() -> None:
    new, columns = FOLLOWED["drop"]
    assert steps(new, columns) == [DropColumn("note")]
    assert steps(new, columns, "lenient") == [], "it may be NULL already"
    assert planned(new, columns, "lenient").stored.retained_columns == ("note",)
    new, columns = without(TABLE, "owner"), CHANGES(dropped=("owner",))
    owner = TABLE.get_column("owner")
    assert steps(new, columns, "lenient") == [
        ChangeColumn(owner, replace(owner, nullable=True), lossless=True)
    ]
    assert steps(*FOLLOWED["drop a unique column"], "lenient") == [DropUnique(TABLE.unique[0])]


def test_columns_of_its_own_stay_in_the_target() -> None:
    there = added(real(), column("loaded_at", ColumnType(kind=Kind.DATETIME)))
    for new, columns in FOLLOWED.values():
        for policy in ("lenient", "evolve"):
            found = planned(new, columns, policy, there=there).alter  # type: ignore[arg-type]
            assert "loaded_at" in (there if found is None else apply_alterations(found)).column_names


def test_a_target_that_is_wider_by_itself_is_left_so() -> None:
    there = changed(changed(real(), "version", type=BIG), "note", type=text(65535, Kind.TEXT))
    new = changed(changed(TABLE, "version", type=BIG), "note", type=text(500))
    assert steps(new, CHANGES(modified=("version", "note")), there=there) == []


def test_an_index_is_followed_under_both_names() -> None:
    new = replace(TABLE, unique=(*TABLE.unique, unique("u", "owner")))
    assert steps(new) == [AddUnique(unique("u", "owner"))]
    made = replace(real(), unique=(*real().unique, unique("acct_u_key", "owner")))
    assert steps(new, there=made) == []
    assert steps(TABLE, before=new, there=made) == [DropUnique(unique("acct_u_key", "owner"))]


def test_indexes_of_its_own_stay_in_the_target_and_those_it_lacks_are_not_made() -> None:
    there = replace(real(), unique=(unique("own", "id", "owner"),))
    assert steps(*FOLLOWED["add"], there=there) == [AddColumn(column("n"))]


def test_a_longer_prefix_makes_the_index_anew() -> None:
    old = replace(TABLE, unique=(unique("u", "note", prefix=10),))
    new = replace(TABLE, unique=(unique("u", "note", prefix=20),))
    assert steps(new, before=old) == [DropUnique(old.unique[0]), AddUnique(new.unique[0])]
    assert steps(old, before=new) == [AddUnique(old.unique[0])] or steps(old, before=new) == []
    whole = replace(real(old), unique=(unique("u", "note"),))
    assert steps(new, before=old, there=whole) == [], "an index over the whole value is as good"


def test_a_column_of_a_new_unique_index_gets_a_collation_that_tells_apart_what_the_source_does() -> None:
    loose = changed(real(), "owner", type=text(40, collation="utf8mb4_general_ci"))
    new = replace(TABLE, unique=(*TABLE.unique, unique("u", "owner")))
    first, last = steps(new, there=loose)
    assert isinstance(first, ChangeColumn)
    assert first.desired.type.collation == "utf8mb4_bin"
    assert last == AddUnique(unique("u", "owner"))


def test_a_target_may_compare_more_of_a_compared_column_and_less_of_another() -> None:
    general = text(60, collation="utf8mb4_general_ci")
    assert steps(changed(TABLE, "email", type=general), CHANGES(converted=True)) == []
    assert steps(TABLE, there=changed(real(), "note", type=replace(general, length=200))) == []


def test_a_charset_that_cannot_hold_the_new_characters_is_widened() -> None:
    latin = text(40, charset="latin1", collation="latin1_bin")
    old = changed(TABLE, "owner", type=latin)
    [step] = steps(TABLE, CHANGES(converted=True), "lenient", before=old)
    assert isinstance(step, ChangeColumn)
    assert step.desired.type.charset == "utf8mb4"


def test_evolve_narrows_with_a_copy_and_lenient_never() -> None:
    new = changed(TABLE, "note", type=text(20))
    [step] = steps(new, rewrite=True)
    assert isinstance(step, ChangeColumn)
    assert (step.desired.type.length, step.lossless) == (20, False)
    assert steps(new, policy="lenient", rewrite=True) == []


def test_lenient_widens_what_can_hold_both() -> None:
    old = changed(TABLE, "note", type=ColumnType(kind=Kind.ENUM, members=("a", "b"), **TEXT))
    new = changed(TABLE, "note", type=ColumnType(kind=Kind.ENUM, members=("c", "b"), **TEXT))
    [step] = steps(new, policy="lenient", before=old, rewrite=True)
    assert isinstance(step, ChangeColumn)
    assert set(step.desired.type.members) == {"a", "b", "c"}


@pytest.mark.parametrize("name", ["version", "email"])
def test_under_lenient_a_type_that_does_not_fit_stops_the_table(name: str) -> None:
    """Of a plain column and of a unique one: `evolve` changes it, and so does a person."""
    new = changed(TABLE, name, type=ColumnType(kind=Kind.DATE))
    kind = TABLE.get_column(name).type.kind
    message = (
        f"public.acct: column {name} is {kind} in the target and date at the source, and no type holds the "
        "values of both: set `schema_changes: evolve`, or change its type in the target by hand, or change "
        "it back at the source and copy the table"
    )
    with pytest.raises(UnitStoppedError, match=f"^{re.escape(message)}$"):
        planned(new, policy="lenient", rewrite=True)
    assert ColumnType(kind=Kind.DATE) in [
        each.desired.type for each in steps(new, rewrite=True) if isinstance(each, ChangeColumn)
    ]
    by_hand = planned(
        new, policy="lenient", there=changed(real(), name, type=ColumnType(kind=Kind.DATE)), rewrite=True
    )
    assert by_hand == ChangePlan(None, StoredDefinition(new))


# --- a column that an earlier version gave another name in the target

MAPPED = StoredDefinition(changed(TABLE, "version", type=text(20)), {"version": "version_2"}, ("version",))
"""`version` became a text at the source, and an earlier version writes it to `version_2`."""


def mapped_target() -> Table:
    return added(changed(real(), "version", nullable=True), column("version_2", text(20)))


def test_a_mapped_column_keeps_its_target_column_in_a_copy() -> None:
    for policy in ("lenient", "evolve", "ignore"):
        found = planned(MAPPED.table, None, policy, stored=MAPPED, there=mapped_target(), rewrite=True)
        assert found == ChangePlan(None, MAPPED), policy


def test_a_new_type_of_a_mapped_column_is_one_of_its_target_column() -> None:
    wider, date = (changed(TABLE, "version", type=each) for each in (text(40), ColumnType(kind=Kind.DATE)))
    found = planned(wider, CHANGES(modified=("version",)), "lenient", stored=MAPPED, there=mapped_target())
    assert found.alter is not None
    [step] = found.alter.steps
    assert isinstance(step, ChangeColumn)
    assert (step.desired.name, step.desired.type) == ("version_2", text(40))
    with pytest.raises(
        UnitStoppedError, match="column version_2 is varchar in the target and date at the source"
    ):
        planned(date, None, "lenient", stored=MAPPED, there=mapped_target(), rewrite=True)


@pytest.mark.parametrize("policy", ["lenient", "evolve"])
def test_a_rename_out_of_a_mapped_name_renames_the_target_column(policy: SchemaChangePolicy) -> None:
    new, statement = renamed(MAPPED.table, "version", "v"), CHANGES(renamed={"version": "v"})
    found = planned(new, statement, policy, stored=MAPPED, there=mapped_target())
    assert found.alter is not None
    assert list(found.alter.steps) == [RenameColumn("version_2", "v")]
    assert found.stored == StoredDefinition(new, {}, ("version",))
    again = planned(
        new, statement, policy, stored=MAPPED, there=apply_alterations(found.alter), planned=found.stored
    )
    assert again == ChangePlan(None, found.stored)


def test_a_mapped_column_that_takes_the_name_of_its_target_column_changes_nothing_there() -> None:
    new, statement = renamed(MAPPED.table, "version", "version_2"), CHANGES(renamed={"version": "version_2"})
    for policy in ("lenient", "evolve"):
        found = planned(new, statement, policy, stored=MAPPED, there=mapped_target())
        assert found == ChangePlan(None, StoredDefinition(new, {}, ("version",))), policy


def test_under_ignore_a_rename_out_of_a_mapped_name_leaves_the_column_out() -> None:
    """As it leaves out every column that gets another name."""
    new, statement = renamed(MAPPED.table, "version", "v"), CHANGES(renamed={"version": "v"})
    found = planned(new, statement, "ignore", stored=MAPPED, there=mapped_target())
    assert (found.alter, found.stored.names, found.stored.unmapped_columns) == (None, {}, ("v",))


@pytest.mark.parametrize("policy", ["lenient", "evolve", "ignore"])
def test_a_rename_into_a_mapped_name_is_written_where_the_map_says_after_a_copy(
    policy: SchemaChangePolicy,
) -> None:
    """`version` becomes `v` and `note` becomes `version`, in one statement."""
    new = renamed(renamed(MAPPED.table, "version", "v"), "note", "version")
    statement = CHANGES(renamed={"version": "v", "note": "version"})
    assert isinstance(verdict(new, statement, policy, before=MAPPED.table), NeedsCopy)
    found = planned(new, None, policy, stored=MAPPED, there=mapped_target(), rewrite=True)
    assert found.stored.names == {"version": "version_2"}


@pytest.mark.parametrize("policy", ["lenient", "evolve", "ignore"])
@pytest.mark.parametrize("name", ["version_2", "Version_2"])
@pytest.mark.parametrize("rewrite", [False, True])
def test_a_column_with_the_target_name_of_a_mapped_one_stops_the_table(
    policy: SchemaChangePolicy, name: str, rewrite: bool
) -> None:
    new = added(MAPPED.table, column(name, text(20)))
    statement = None if rewrite else CHANGES(added=(name,))
    message = (
        rf"columns version and {name} of bank.acct would both be written to its column version_2: .*rename"
    )
    with pytest.raises(UnitStoppedError, match=message):
        planned(new, statement, policy, stored=MAPPED, there=mapped_target(), rewrite=rewrite, same=FOLDED)


@pytest.mark.parametrize("policy", ["lenient", "evolve", "ignore"])
@pytest.mark.parametrize("how", ["renamed", "dropped"])
def test_a_rename_into_the_target_name_that_a_mapped_column_leaves_needs_a_copy(
    policy: SchemaChangePolicy, how: str
) -> None:
    """In the names of the source nothing takes the name of another column. The simulation found rows without
    their values."""
    if how == "renamed":
        new = renamed(renamed(MAPPED.table, "version", "v"), "owner", "version_2")
        statement = CHANGES(renamed={"version": "v", "owner": "version_2"})
    else:
        new = renamed(without(MAPPED.table, "version"), "owner", "version_2")
        statement = CHANGES(renamed={"owner": "version_2"}, dropped=("version",))
    assert isinstance(verdict(new, statement, policy, before=MAPPED.table), AdoptDefinition)
    with pytest.raises(CopyNeededError, match="already has a column version_2"):
        planned(new, statement, policy, stored=MAPPED, there=mapped_target())


def test_a_mapped_column_is_dropped_by_its_name_in_the_target() -> None:
    missing, statement = without(MAPPED.table, "version"), CHANGES(dropped=("version",))
    found = planned(missing, statement, stored=MAPPED, there=mapped_target())
    assert found.alter is not None
    assert list(found.alter.steps) == [DropColumn("version_2")]
    assert found.stored.names == {}
    kept = planned(missing, statement, "lenient", stored=MAPPED, there=mapped_target())
    assert kept == ChangePlan(None, StoredDefinition(missing, {}, ("version", "version_2")))


def test_a_mapped_column_that_is_dropped_and_added_is_another_column() -> None:
    """In one statement: a copy, and the map names the column of the new one. In two: one without the map."""
    statement = CHANGES(dropped=("version",), added=("version",))
    for policy in ("lenient", "ignore"):
        found = verdict(MAPPED.table, statement, policy, before=MAPPED.table)  # type: ignore[arg-type]
        assert isinstance(found, NeedsCopy)
    with pytest.raises(CopyNeededError, match="already has a column version"):
        planned(MAPPED.table, statement, stored=MAPPED, there=mapped_target())
    copied = planned(MAPPED.table, None, "lenient", stored=MAPPED, there=mapped_target(), rewrite=True)
    assert copied == ChangePlan(None, MAPPED)
    dropped = StoredDefinition(without(TABLE, "version"), {}, ("version", "version_2"))
    fits, unfit = (added(dropped.table, column("version", each)) for each in (INT, text(20)))
    left, comes = dropped.retained_columns, CHANGES(added=("version",))
    assert isinstance(verdict(fits, comes, "lenient", before=dropped.table, left=left), NeedsCopy)
    back = planned(fits, None, "lenient", stored=dropped, there=mapped_target(), rewrite=True)
    assert back == ChangePlan(None, StoredDefinition(fits, {}, ("version_2",)))
    with pytest.raises(
        UnitStoppedError, match="column version is int in the target and varchar at the source"
    ):
        planned(unfit, None, "lenient", stored=dropped, there=mapped_target(), rewrite=True)


def test_an_index_over_a_column_that_is_dropped_and_added_comes_again() -> None:
    """MySQL's `DROP COLUMN v, ADD COLUMN v …` keeps the index, over the new column. A target's server drops
    it with the old one."""
    index = unique("u1", "version", "owner")
    both, statement = (
        replace(TABLE, unique=(*TABLE.unique, index)),
        CHANGES(dropped=("version",), added=("version",)),
    )
    new = replace(changed(both, "version", type=text(20)), unique=both.unique)
    found = planned(new, statement, before=both)
    assert found.alter is not None
    kinds = [type(step) for step in found.alter.steps]
    assert kinds == [DropUnique, DropColumn, AddColumn, AddUnique]
    more = {"before": both, "planned": found.stored, "statements_done": True}
    after = apply_alterations(found.alter)
    assert steps(new, statement, there=after, **more) == []
    lost = replace(after, unique=TABLE.unique)  # what an interrupted attempt left
    assert [type(step) for step in steps(new, statement, there=lost, **more)] == [AddUnique]


def test_an_index_over_a_mapped_column_is_over_its_target_column() -> None:
    stored, there = MAPPED, mapped_target()
    new = replace(stored.table, unique=(*stored.table.unique, unique("u1", "version", "owner")))
    found = planned(new, policy="lenient", stored=stored, there=there)
    assert found.alter is not None
    assert [step.index.columns for step in found.alter.steps if isinstance(step, AddUnique)] == [
        ("version_2", "owner")
    ]
    missing = planned(
        stored.table, policy="lenient", stored=found.stored, there=apply_alterations(found.alter)
    )
    assert missing.alter is not None
    assert [step.index.columns for step in missing.alter.steps if isinstance(step, DropUnique)] == [
        ("version_2", "owner")
    ]


def test_a_key_changes_at_the_begin_of_a_copy() -> None:
    new = replace(TABLE, key=unique("PRIMARY", "id", "owner"))
    for policy in ("lenient", "evolve"):
        assert steps(new, policy=policy, rewrite=True) == [ChangeKey(real().key, new.key)]


def test_a_column_that_is_there_already_is_not_taken_for_filled() -> None:
    there = added(real(), column("n"))
    new, columns = FOLLOWED["add"]
    with pytest.raises(CopyNeededError, match="already has a column n,"):
        planned(new, columns, there=there)
    assert steps(new, columns, there=there, rewrite=True) == []
    with pytest.raises(CopyNeededError, match="already has a column n,"):
        planned(new, columns, "ignore", there=there)
    assert steps(new, columns, "ignore", there=there, rewrite=True) == []
    left_out = planned(new, columns, "ignore")
    assert (left_out.alter, left_out.stored.unmapped_columns) == (None, ("n",))
    assert planned(new, columns, "lenient").stored.unmapped_columns == ()
    assert decode_stored(left_out.stored.encode()) == left_out.stored


def test_a_column_that_gets_the_name_of_one_that_was_kept_is_not_taken_for_renamed() -> None:
    """The target's rows have values of the former column of that name."""
    new, columns = FOLLOWED["rename"]
    with pytest.raises(CopyNeededError, match="already has a column remark"):
        planned(new, columns, "lenient", there=added(real(), column("remark")))
    with pytest.raises(CopyNeededError, match="already has a column remark"):
        planned(new, columns, "ignore", there=added(real(), column("remark")))
    assert steps(new, columns, "lenient", there=real(new)) == [], "the statement ran before a crash"


# --- many to one

OTHERS = build_desired_table(TABLE, ResolvedRoute("public", "acct", (("branch", "b2"),)))


def test_what_one_adds_the_others_may_lack() -> None:
    new = added(TABLE, column("n", nullable=False, default="7"))
    assert steps(new, CHANGES(added=("n",)), routed=SHARED, others=[OTHERS], rewrite=True) == [
        AddColumn(column("n"))
    ]
    required = added(TABLE, column("n", nullable=False))
    there = real(required, SHARED)
    [step] = steps(
        changed(required, "n", type=BIG), before=required, there=there, routed=SHARED, others=[OTHERS]
    )
    assert isinstance(step, ChangeColumn)
    assert step.desired.nullable, "the others give it no value"
    assert steps(*FOLLOWED["widen"], routed=SHARED, others=[OTHERS])[0].desired.type == BIG  # type: ignore[union-attr]
    assert steps(*FOLLOWED["no longer required"], routed=SHARED, others=[OTHERS])[0].desired.nullable  # type: ignore[union-attr]


@pytest.mark.parametrize("policy", ["lenient", "evolve"])
def test_addresses_of_other_sources_become_no_text(policy: SchemaChangePolicy) -> None:
    address, inet = ColumnType(**MYSQL_CATALOG["inet4"]), convert_postgres_type("inet")
    table, theirs = added(TABLE, column("n", address)), added(OTHERS, column("n", address))
    there = added(real(routed=SHARED), column("n", inet))
    new = changed(table, "n", type=text(39))
    with pytest.raises(UnitStoppedError, match=r"column n is inet in the target and varchar at the source\."):
        planned(new, policy=policy, before=table, there=there, routed=SHARED, others=[theirs], rewrite=True)
    if policy == "evolve":
        [step] = steps(new, before=table, there=added(real(), column("n", inet)), rewrite=True)
        assert isinstance(step, ChangeColumn)
        assert (step.desired.type, step.lossless) == (text(39), False)


@pytest.mark.parametrize("policy", ["ignore", "lenient", "evolve"])
def test_a_column_that_another_unit_brought_is_empty_in_the_rows_of_this_one_or_needs_a_copy(
    policy: SchemaChangePolicy,
) -> None:
    new, columns = FOLLOWED["add"]
    theirs = added(OTHERS, column("n"))
    there = added(real(routed=SHARED), column("n"))
    shared: dict[str, Any] = {"routed": SHARED, "others": [theirs]}
    assert steps(new, columns, policy, there=there, **shared) == [], "NULL in all rows of this unit"
    filled = [
        (added(real(routed=SHARED), column("n", default="7")), {}),  # somebody else made it
        (added(real(routed=SHARED), column("n", nullable=False)), {}),
        (there, {"stored": StoredDefinition(TABLE, retained_columns=("n",))}),
        (there, {"stored": StoredDefinition(TABLE, unmapped_columns=("n",))}),
        (there, {"others": [OTHERS]}),  # nobody knows who brought it
    ]
    for table, more in filled:
        with pytest.raises(CopyNeededError, match="already has a column n,"):
            planned(new, columns, policy, there=table, **{**shared, **more})
    if policy == "ignore":  # otherwise `decide` says so
        with pytest.raises(CopyNeededError, match="already has a column n,"):
            planned(added(TABLE, column("n", default="7")), columns, policy, there=there, **shared)


def test_what_one_drops_stays_until_the_last_has() -> None:
    new, columns = without(TABLE, "owner"), CHANGES(dropped=("owner",))
    there = build_desired_table(TABLE, SHARED)
    [step] = steps(new, columns, routed=SHARED, others=[OTHERS])
    assert isinstance(step, ChangeColumn)
    assert step.desired.nullable
    assert planned(new, columns, routed=SHARED, others=[OTHERS]).stored.retained_columns == ("owner",)
    last = build_desired_table(new, ResolvedRoute("public", "acct", (("branch", "b2"),)))
    assert steps(new, columns, routed=SHARED, others=[last], there=there) == [DropColumn("owner")]


def test_an_index_is_unique_once_all_say_so_and_no_more_once_one_does_not() -> None:
    more = replace(TABLE, unique=(*TABLE.unique, unique("u", "owner")))
    assert steps(more, routed=SHARED, others=[OTHERS]) == []
    both = build_desired_table(more, ResolvedRoute("public", "acct", (("branch", "b2"),)))
    [step] = steps(more, routed=SHARED, others=[both])
    assert isinstance(step, AddUnique)
    there = build_desired_table(more, SHARED)
    [step] = steps(TABLE, before=more, routed=SHARED, others=[both], there=there)  # type: ignore[assignment]
    assert isinstance(step, DropUnique)


def test_what_no_table_can_be_for_both_stops_the_unit() -> None:
    with pytest.raises(UnitStoppedError, match="this source's key is"):
        planned(replace(TABLE, key=unique("PRIMARY", "owner")), routed=SHARED, others=[OTHERS], rewrite=True)
    with pytest.raises(UnitStoppedError, match="version is varchar here and int"):
        planned(changed(TABLE, "version", type=text(9)), routed=SHARED, others=[OTHERS], rewrite=True)


def test_who_shares_a_target_table_is_told_by_definitions_and_routes() -> None:
    routes = (TableRoute("bank.*", "public.{table}", (("branch", "{source}"),)),)
    state = UnitState(StoredDefinition(TABLE).encode(), None, None)
    other = replace(TABLE, name="other")
    units = {
        "rl.b1.bank.acct": state, "rl.b2.bank.acct": state,
        "rl.b2.bank.other": UnitState(StoredDefinition(other).encode(), None, None),
        "rl.b3.bank.acct": UnitState(None, None, None), "elsewhere": state,
    }  # fmt: skip
    found = find_sharers(units, "rl.b1.bank.acct", routes, ("public", "acct"), same=EXACT)
    assert found == {"rl.b2.bank.acct": OTHERS}
    odd = {f"b1.b2.{topic}": each for topic, each in units.items()}  # a prefix may hold a source's name
    found = find_sharers(odd, "b1.b2.rl.b1.bank.acct", routes, ("public", "acct"), same=EXACT)
    assert found == {"b1.b2.rl.b2.bank.acct": OTHERS}


@pytest.mark.parametrize(
    ("same", "shared"), [(EXACT, False), (NameRules(folds=True), True), (ORACLE_NAMES, True)]
)
def test_a_target_table_is_shared_if_the_target_considers_its_names_equal(
    same: NameRules, shared: bool
) -> None:
    """A copy that creates the table again takes the rows of the others."""
    by_source = (("branch", "{source}"),)
    routes = (
        TableRoute("bank.acct", "public.acct", by_source),
        TableRoute("bank.other", "PUBLIC.ACCT", by_source),
    )
    units = {
        "rl.b1.bank.acct": UnitState(StoredDefinition(TABLE).encode(), None, None),
        "rl.b1.bank.other": UnitState(StoredDefinition(replace(TABLE, name="other")).encode(), None, None),
    }
    found = find_sharers(units, "rl.b1.bank.acct", routes, ("public", "acct"), same=same)
    assert bool(found) is shared


# --- what is stored


def test_what_stands_beside_the_definition_survives() -> None:
    stored = StoredDefinition(TABLE, {"a": "a_2"}, ("a",))
    assert decode_stored(stored.encode()) == stored
    assert decode_stored(StoredDefinition(TABLE).encode()) == StoredDefinition(TABLE)


def test_a_mark_gives_the_change_back() -> None:
    new = changed(TABLE, "version", type=text(20))
    change = TableChange(StoredDefinition(TABLE), new, "evolve", CHANGES(modified=("version",)), rewrite=True)
    found = plan_change(change, real(), ROUTED, (), EXACT)
    mark = build_change_mark(change, found, (7, (0, 1, 2, 3), 4, 5), 99)
    again = decode_mark(mark.encode())
    assert again == mark
    assert again is not None
    taken = again.restore_change(StoredDefinition(TABLE), again.after or "")
    assert taken == TableChange(
        StoredDefinition(TABLE),
        new,
        "evolve",
        CHANGES(modified=("version",)),
        rewrite=True,
        planned=found.stored,
    )
    assert decode_mark("RUNNING:[0,1,2,3]") is None


def test_an_index_that_a_long_column_cannot_have_is_left_out_once_the_target_refuses_it() -> None:
    """MySQL has no unique index over TEXT (1170), which MariaDB, PostgreSQL and a MariaDB source have."""

    def unit(type_: ColumnType) -> Table:
        return Table(db="bank", name="acct", columns=(column("id", nullable=False), column("v", type_)),
        key=unique("PRIMARY", "id"),
                     unique=(unique("u", "v"),))  # fmt: skip

    change = TableChange(StoredDefinition(unit(text(20))), unit(text(65535, Kind.TEXT)), "lenient")
    there = replace(unit(text(20)), db="public")
    first = plan_change(change, there, ROUTED, (), EXACT)
    assert first.alter is not None
    assert [type(step) for step in first.alter.steps] == [ChangeColumn]
    other = choose_after_refusal(change, first)
    assert other is not None
    second = plan_change(other, there, ROUTED, (), EXACT)
    assert second.alter is not None
    assert [type(step) for step in second.alter.steps] == [DropUnique, ChangeColumn]
    assert choose_after_refusal(other, second) is None, "it was something else"
    done = replace(unit(text(65535, Kind.TEXT)), db="public", unique=())
    assert plan_change(change, done, ROUTED, (), EXACT).alter is None, (
        "a crash behind the statement leaves nothing to do"
    )


def test_what_the_target_refuses_is_left_out_in_turn() -> None:
    new = replace(TABLE, unique=(*TABLE.unique, unique("u", "owner")))
    change = TableChange(StoredDefinition(TABLE), new, "evolve", rewrite=True)
    seen = []
    found: TableChange | None = change
    while found is not None:
        seen.append((found.with_unique_indexes, found.rows_deleted_first))
        found = choose_after_refusal(found, plan_change(found, real(), ROUTED, (), EXACT))
    assert seen == [(True, False), (False, False)], "without the index nothing is left to do"
    other = replace(new, key=unique("PRIMARY", "owner"))
    seen, found = [], TableChange(StoredDefinition(TABLE), other, "evolve", rewrite=True)
    while found is not None:
        seen.append((found.with_unique_indexes, found.rows_deleted_first))
        found = choose_after_refusal(found, plan_change(found, real(), ROUTED, (), EXACT))
    assert seen == [(True, False), (False, False), (True, True), (False, True)]


# --- names that the target takes for one


def test_a_new_column_that_the_target_has_in_another_spelling_takes_its_place_with_a_copy() -> None:
    """`note` was dropped and stays under `lenient`; MySQL has no `Note` beside it."""
    stored = StoredDefinition(without(TABLE, "note"), retained_columns=("note",))
    new = added(stored.table, column("Note", text(40)))
    with pytest.raises(CopyNeededError, match="does not distinguish from Note,"):
        planned(new, CHANGES(added=("Note",)), "lenient", stored=stored, there=real(), same=FOLDED)
    found = planned(new, None, "lenient", stored=stored, there=real(), rewrite=True, same=FOLDED)
    assert found == ChangePlan(None, StoredDefinition(new, {"Note": "note"}))
    exact = planned(new, CHANGES(added=("Note",)), "lenient", stored=stored, there=real())
    assert exact.alter is not None
    assert [type(step) for step in exact.alter.steps] == [AddColumn]


@pytest.mark.parametrize("policy", ["lenient", "ignore"])
def test_a_column_dropped_and_added_in_another_spelling_needs_a_copy_where_it_stays(
    policy: SchemaChangePolicy,
) -> None:
    new, statement = renamed(TABLE, "note", "Note"), CHANGES(dropped=("note",), added=("Note",))
    with pytest.raises(CopyNeededError, match="does not distinguish from Note,"):
        planned(new, statement, policy, same=FOLDED)
    assert planned(new, None, policy, rewrite=True, same=FOLDED) == ChangePlan(
        None, StoredDefinition(new, {"Note": "note"})
    )
    assert [type(step) for step in steps(new, statement, "evolve", same=FOLDED)] == [AddColumn, DropColumn]


def test_a_spelling_is_followed_where_names_are_and_else_the_column_is_written_as_it_is() -> None:
    new, statement = renamed(TABLE, "note", "Note"), CHANGES(renamed={"note": "Note"})
    for policy in ("lenient", "evolve"):
        assert steps(new, statement, policy, same=FOLDED) == [RenameColumn("note", "Note")]
    assert planned(new, statement, "ignore", same=FOLDED) == ChangePlan(
        None, StoredDefinition(new, {"Note": "note"})
    )
    assert planned(new, statement, "ignore").stored.unmapped_columns == ("Note",)


@pytest.mark.parametrize("policy", ["lenient", "evolve"])
def test_a_spelling_that_the_server_does_not_keep_is_no_change(policy: SchemaChangePolicy) -> None:
    """Oracle has `note` and `NOTE` as one name, and shows it in one way: a RENAME between them would be
    refused."""
    new = renamed(TABLE, "note", "NOTE")
    renames = CHANGES(renamed={"note": "NOTE"})
    assert planned(new, renames, policy, same=ORACLE_NAMES) == ChangePlan(
        None, StoredDefinition(new, {"NOTE": "note"})
    )
    assert steps(
        renamed(TABLE, "note", "Note"), CHANGES(renamed={"note": "Note"}), policy, same=ORACLE_NAMES
    ) == [RenameColumn("note", "Note")]
    anew = CHANGES(dropped=("note",), added=("NOTE",))
    with pytest.raises(CopyNeededError, match="does not distinguish from NOTE,"):
        planned(new, anew, policy, same=ORACLE_NAMES)
    assert planned(new, None, policy, rewrite=True, same=ORACLE_NAMES) == ChangePlan(
        None, StoredDefinition(new, {"NOTE": "note"})
    )


@pytest.mark.parametrize("name", ["note", "Note"])
def test_a_column_that_comes_with_the_name_of_one_that_the_route_gives_stops_the_table(name: str) -> None:
    """Before, MySQL's `Note` became the column that tells the sources apart."""
    routed = ResolvedRoute("public", "acct", (("note", "b1"),))
    before = without(TABLE, "note")
    new = added(before, column(name, text(40)))
    with pytest.raises(
        UnitStoppedError, match=r"adds the column note \(`add`\), but .* already has a column of that name: "
    ):
        planned(new, CHANGES(added=(name,)), before=before, routed=routed, same=FOLDED)


def test_a_new_name_that_a_column_left_behind_has_in_another_spelling_needs_a_copy() -> None:
    stored = StoredDefinition(without(TABLE, "note"), retained_columns=("note",))
    new, statement = renamed(stored.table, "version", "NOTE"), CHANGES(renamed={"version": "NOTE"})
    with pytest.raises(CopyNeededError, match="does not distinguish from NOTE,"):
        planned(new, statement, "lenient", stored=stored, there=real(), same=FOLDED)
    with pytest.raises(UnitStoppedError, match="column note is varchar in the target and int at the source"):
        planned(new, None, "lenient", stored=stored, there=real(), rewrite=True, same=FOLDED)
