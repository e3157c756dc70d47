"""Columns to which a route gives another name (`rename: {columns: …}`): the configuration, routing, changes
of the table and of the route, and what `check` reports."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec import structs

from consumer.attempt.spec import UnitSpec, load_active_definition
from consumer.errors import CopyNeededError, TargetConfigError, UnitStoppedError
from consumer.ordering.model import ApplyUnit, EveryChange, RowChange
from consumer.tables.definition import prepare_definition
from consumer.tables.evolution.plans import ChangePlan, TableChange, find_sharers, plan_change
from consumer.tables.router import (
    ResolvedRoute,
    SchemaChangePolicy,
    TableRoute,
    build_desired_table,
    build_topic_options,
    build_topic_table,
    find_duplicate_columns,
    name_columns,
    resolve_route,
)
from consumer.tables.shared_topics import explain_key_clash
from consumer.tables.stored import StoredDefinition, decode_stored
from consumer.tables.target_checks import explain_changed_route
from consumer.targets.alterations import AddColumn, DropColumn, RenameColumn
from consumer.targets.checks.table_facts import TableFacts
from consumer.targets.kafka.formats.model import Place
from consumer.targets.kafka.records import TableRecords
from consumer.targets.kafka.topics import TopicFacts
from consumer.targets.mysql import limits as mysql_limits
from consumer.targets.oracle import sql as oracle_sql
from consumer.targets.postgres import catalog as postgres_catalog
from consumer.targets.shared.name_limits import require_column_names, require_table_names
from rowlock.inspect.checks.flows import TableFlow, yield_rename_findings
from rowlock.inspect.pairs import TablePair
from rowlock.inspect.table_sides import find_target_names
from schemas.config.errors import ConfigErrors
from schemas.config.kinds.topics import TopicConfig
from schemas.config.model import load_config
from schemas.table.model import Column, ColumnType, Kind, Table
from schemas.table.names import EXACT, NameRules
from schemas.wire.event import ColumnChanges
from schemas.wire.position import ZERO
from tests.kits.apply import FakeSource, account_table

SOURCE = account_table()
INT = ColumnType(kind=Kind.INT, bits=32)
FOLDING = NameRules(folds=True)


def route(**renames: str) -> TableRoute:
    return TableRoute("bank.*", "public.{table}", renames=tuple(renames.items()))


def routed(**renames: str) -> ResolvedRoute:
    found = resolve_route((route(**renames),), "b1", "bank", "acct")
    assert found is not None
    return found


def named(table: Table = SOURCE, **renames: str) -> StoredDefinition:
    return name_columns(StoredDefinition(table), routed(**renames))


def renamed(table: Table, old: str, new: str) -> Table:
    return table.with_renamed_columns({old: new})


def added(table: Table, name: str) -> Table:
    return structs.replace(table, columns=(*table.columns, Column(name=name, type=INT)))


def without(table: Table, name: str) -> Table:
    return structs.replace(table, columns=tuple(each for each in table.columns if each.name != name))


def session(real: Table | None, names: NameRules = EXACT) -> Any:
    return SimpleNamespace(
        read_table=lambda *_: real, read_table_facts=lambda *_: TableFacts(), judge_new_table=lambda _: [],
        column_names=names,
    )  # fmt: skip


def planned(
    after: Table,
    columns: ColumnChanges,
    to: ResolvedRoute,
    *,
    before: StoredDefinition,
    policy: SchemaChangePolicy = "lenient",
    there: Table | None = None,
    same: NameRules = EXACT,
    **more: Any,
) -> ChangePlan:
    real = there or build_desired_table(before.table, to, before.names)
    return plan_change(TableChange(before, after, policy, columns, **more), real, to, (), same)


def steps(plan: ChangePlan) -> list[Any]:
    return [] if plan.alter is None else list(plan.alter.steps)


# --- routing


def test_the_route_names_columns_keys_and_unique_indexes() -> None:
    there = build_desired_table(SOURCE, routed(id="id_", email="mail", missing="x", note="note"))
    assert there.column_names == tuple({"id": "id_", "email": "mail"}.get(n, n) for n in SOURCE.column_names)
    assert (there.key.columns, [each.columns for each in there.unique]) == (("id_",), [("mail",)])


def test_the_map_has_only_columns_of_the_table_with_other_names() -> None:
    found = named(id="id_", note="note", missing="x")
    assert (found.names, found.route_names) == ({"id": "id_"}, {"id": "id_"})
    assert decode_stored(found.encode()) == found


@pytest.mark.parametrize("same", [EXACT, FOLDING])
def test_two_columns_that_the_target_would_have_as_one_are_refused(same: NameRules) -> None:
    both = find_duplicate_columns(named(id="x", note="X"), routed(id="x", note="X"), same)
    assert len(both) == (same is FOLDING)
    taken = find_duplicate_columns(named(id="note"), routed(id="note"), same)
    assert "the columns id and note of bank.acct would both be written to its column note" in taken[0].message
    assert "rename: {columns: {note: …}}" in taken[0].remedy


def test_names_that_differ_only_in_case_at_the_source_are_refused_where_they_are_one() -> None:
    two = added(SOURCE, "NOTE")
    assert find_duplicate_columns(StoredDefinition(two), routed(), EXACT) == []
    [found] = find_duplicate_columns(StoredDefinition(two), routed(), FOLDING)
    assert "the columns note and NOTE" in found.message
    assert find_duplicate_columns(named(two, NOTE="note_2"), routed(NOTE="note_2"), FOLDING) == []


def test_the_options_of_a_topic_name_columns_as_the_source_does() -> None:
    config = TopicConfig(
        key=["owner"], columns=["id", "owner", "note"], where={"owner": ["a"]}, masks={"note": "sha256"}
    )
    options = build_topic_options(config, {"b1": "mysql"})
    each = TableRoute("*.*", "t.{table}", topic=options, renames=(("owner", "holder"), ("note", "remark")))
    to = resolve_route((each,), "b1", "bank", "acct")
    assert to is not None
    assert to.topic is not None
    assert (to.topic.key, to.topic.columns) == (("holder",), ("id", "holder", "remark"))
    assert (to.topic.where, to.topic.masks) == ((("holder", ("a",)),), (("remark", "sha256"),))
    table = build_topic_table(build_desired_table(SOURCE, to), to, "b1", SOURCE)
    assert {"holder", "remark"} < {*table.table.column_names}


@pytest.mark.parametrize("format_", ["plain", "rowlock", "debezium", "canal-json"])
def test_records_have_the_names_of_the_route(format_: str) -> None:
    config = TopicConfig.model_validate({"format": format_, "key": ["owner"], "masks": {"note": "***"}})
    options = build_topic_options(config, {"b1": "mysql"})
    each = TableRoute("*.*", "t.{table}", topic=options, renames=(("id", "id_"), ("owner", "holder")))
    to = resolve_route((each,), "b1", "bank", "acct")
    assert to is not None
    table = build_topic_table(build_desired_table(SOURCE, to), to, "b1", SOURCE)
    row = tuple({"id": 1, "owner": "me", "note": "a"}.get(name) for name in SOURCE.column_names)
    records = TableRecords(table, TopicFacts("t.acct", 1, 1_000_000, compacted=False))
    changes: Any = EveryChange(table, [RowChange(1, None, row)])
    [found] = records.yield_records(changes, Place(ZERO, 0, 0), lambda: pytest.fail("no rows are read"))
    assert found.key == b'{"holder":"me"}'
    assert found.value is not None
    assert {b'"id_":', b'"holder":', b'"note":"***"'} <= {*_WORDS.findall(found.value)}
    assert b'"owner"' not in found.value


_WORDS = re.compile(rb'"(?:id_|holder)":|"note":"[^"]*"')


def test_two_tables_of_a_topic_are_compared_by_the_names_of_their_keys_there() -> None:
    options = build_topic_options(TopicConfig(), {"b1": "mysql"})
    one = ResolvedRoute("t", "acct", topic=options)
    other = ResolvedRoute("t", "acct", topic=options, renames=(("id", "number"),))
    assert "the same key" in explain_key_clash(SOURCE, one, one, SOURCE)
    assert explain_key_clash(SOURCE, one, other, SOURCE) == ""
    assert "the same key" in explain_key_clash(SOURCE, other, other, SOURCE)


# --- the active definition


@pytest.mark.parametrize("names", [{"id": "id_", "email": "mail"}, {"id": "ID"}])
def test_a_before_image_is_decoded_by_the_names_of_the_source(names: Mapping[str, str]) -> None:
    """Under other names its key and unique values were missing, so lanes and locks had none."""
    to = route() if "email" not in names else route(**names)
    real = build_desired_table(SOURCE, routed(), names)
    found = prepare_definition(
        session(real, FOLDING), StoredDefinition(SOURCE), source_name="b1", routes=(to,), create=False
    )
    assert found.stored.names == names
    row: dict[str, Any] = dict.fromkeys(SOURCE.column_names) | {"id": 7, "email": "a@b"}
    source = FakeSource(table=SOURCE, name="b1")
    event = found.decode_row(msgspec.json.encode(source.event("u", row, row)))
    before = dict(zip(found.target.table.column_names, found.row(event.before), strict=True))
    assert before[names["id"]] == 7
    assert before[names.get("email", "email")] == "a@b"


def test_a_range_of_a_key_with_exchanged_names_is_not_compared_alone() -> None:
    columns = (Column(name="a", type=INT, nullable=False), Column(name="b", type=INT, nullable=False))
    key = structs.replace(
        SOURCE.key, parts=tuple(structs.replace(SOURCE.key.parts[0], column=n) for n in "ab")
    )
    source = structs.replace(SOURCE, columns=columns, key=key, unique=())
    real = structs.replace(source, db="public")  # with the key (a, b): the source's b comes first
    for names, ordered in (({}, True), ({"a": "b", "b": "a"}, False)):
        found = prepare_definition(
            session(real), StoredDefinition(source), source_name="b1", routes=(route(**names),), create=False
        )
        assert found.ordered == ordered, names


# --- statements


def test_a_rename_out_of_and_into_a_name_of_the_route_renames_the_target_column() -> None:
    """Cases b: `note` to `x`, and back."""
    to, before = routed(note="note_"), named(note="note_")
    out = planned(renamed(SOURCE, "note", "x"), ColumnChanges(renamed={"note": "x"}), to, before=before)
    assert steps(out) == [RenameColumn("note_", "x")]
    assert (out.stored.names, out.stored.route_names) == ({}, {})
    back = planned(SOURCE, ColumnChanges(renamed={"x": "note"}), to, before=out.stored)
    assert steps(back) == [RenameColumn("x", "note_")]
    assert back.stored.names == back.stored.route_names == {"note": "note_"}
    again = plan_change(
        TableChange(out.stored, SOURCE, "lenient", ColumnChanges(renamed={"x": "note"})),
        build_desired_table(SOURCE, to), to, (), EXACT,
    )  # fmt: skip
    assert again.alter is None, "a step that is done is not planned again"


def test_a_new_column_with_the_name_that_another_one_has_in_the_target_stops_the_table() -> None:
    """Case a."""
    with pytest.raises(UnitStoppedError, match="columns note and note_ of"):
        planned(
            added(SOURCE, "note_"), ColumnChanges(added=("note_",)), routed(note="note_"),
            before=named(note="note_"),
        )  # fmt: skip


def test_a_column_that_is_dropped_and_added_is_another_one_under_its_name_in_the_target() -> None:
    """Case c, in one statement under `evolve`, and in two under `lenient`, which keeps the dropped one."""
    to, before = routed(note="note_"), named(note="note_")
    columns = ColumnChanges(added=("note",), dropped=("note",))
    first, second = steps(planned(SOURCE, columns, to, before=before, policy="evolve"))
    assert isinstance(first, DropColumn)
    assert isinstance(second, AddColumn)
    assert (first.name, second.column.name) == ("note_", "note_")
    dropped = planned(without(SOURCE, "note"), ColumnChanges(dropped=("note",)), to, before=before)
    assert (dropped.stored.retained_columns, dropped.stored.names) == (("note_",), {})
    there = build_desired_table(SOURCE, to)
    with pytest.raises(CopyNeededError, match="already has a column note_"):
        planned(SOURCE, ColumnChanges(added=("note",)), to, before=dropped.stored, there=there)


@pytest.mark.parametrize("policy", ["ignore", "lenient", "evolve"])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("spelled", ["n_", "N_"])
def test_a_column_that_takes_the_place_of_a_dropped_one_in_the_target_needs_a_copy(
    policy: SchemaChangePolicy, shared: bool, spelled: str
) -> None:
    """`note` is dropped and `n_` is added, and the route gives `note` the name `n_`: a column with values of
    others, or of `lenient`, is not dropped."""
    to, before = routed(note="n_"), StoredDefinition(SOURCE, {"note": spelled}, route_names={"note": "n_"})
    real = build_desired_table(SOURCE, to, before.names)
    after = structs.replace(
        SOURCE,
        columns=tuple(structs.replace(c, name="n_") if c.name == "note" else c for c in SOURCE.columns),
    )
    columns = ColumnChanges(added=("n_",), dropped=("note",))
    change = TableChange(before, after, policy, columns)
    others = (real,) if shared else ()
    same = EXACT if spelled == "n_" else FOLDING
    if policy == "evolve" and not shared:
        first, second = steps(plan_change(change, real, to, others, same))
        assert isinstance(first, DropColumn | AddColumn)
        assert isinstance(second, DropColumn | AddColumn)
        return
    with pytest.raises(CopyNeededError, match=f"column {spelled}"):
        plan_change(change, real, to, others, same)
    copied = plan_change(replace(change, rewrite=True), real, to, others, same)
    assert not [step for step in steps(copied) if isinstance(step, DropColumn | AddColumn)]


def test_an_unfinished_change_does_not_drop_a_column_that_another_source_now_writes() -> None:
    to, before = routed(note="note_"), named(note="note_")
    change = TableChange(before, SOURCE, "evolve", ColumnChanges(added=("note",), dropped=("note",)))
    real = build_desired_table(SOURCE, to)
    begun = replace(change, planned=plan_change(change, real, to, (), EXACT).stored)
    assert steps(plan_change(begun, real, to, (), EXACT))
    with pytest.raises(CopyNeededError, match="other sources write it"):
        plan_change(begun, real, to, (real,), EXACT)
    assert steps(plan_change(replace(begun, statements_done=True), real, to, (real,), EXACT)) == []


def test_a_name_that_the_target_spells_otherwise_is_kept_in_every_later_change() -> None:
    to, real = routed(note="NOTE_"), build_desired_table(SOURCE, routed(note="note_"))
    found = prepare_definition(
        session(real, FOLDING), StoredDefinition(SOURCE), source_name="b1", routes=(route(note="NOTE_"),),
        create=False,
    ).stored  # fmt: skip
    assert (found.names, found.route_names) == ({"note": "note_"}, {"note": "NOTE_"})
    later = planned(
        added(SOURCE, "w"), ColumnChanges(added=("w",)), to, before=found, there=real, same=FOLDING
    )
    assert [step.column.name for step in steps(later)] == ["w"]
    assert later.stored.names == {"note": "note_"}
    assert explain_changed_route(later.stored, to) == ""


def test_a_name_that_the_target_spells_as_the_source_does_needs_no_copy() -> None:
    """The target has `note`, and does not distinguish it from the route's `NOTE`."""
    real, to = build_desired_table(SOURCE, routed()), routed(note="NOTE")
    first = prepare_definition(
        session(real, FOLDING), StoredDefinition(SOURCE), source_name="b1", routes=(route(note="NOTE"),),
        create=False,
    )  # fmt: skip
    before = StoredDefinition(SOURCE, target_place=("public", "acct"))
    copied = planned(SOURCE, ColumnChanges(), to, before=before, rewrite=True, there=real, same=FOLDING)
    assert steps(copied) == []
    for stored in (first.stored, copied.stored):
        assert (stored.names, stored.route_names) == ({"note": "note"}, {"note": "NOTE"})
        assert explain_changed_route(stored, to) == ""
        again = load(stored, route(note="NOTE"), real, FOLDING)
        assert (again.stored, again.text) == (stored, stored.encode())
    later = planned(
        added(SOURCE, "w"), ColumnChanges(added=("w",)), to, before=first.stored, there=real, same=FOLDING
    )
    assert explain_changed_route(later.stored, to) == ""
    dropped = planned(renamed(SOURCE, "note", "x"), ColumnChanges(renamed={"note": "x"}), to,
                   before=first.stored, there=real, same=FOLDING)  # fmt: skip
    assert (steps(dropped), dropped.stored.names) == ([RenameColumn("note", "x")], {})


# --- a changed route


def load(stored: StoredDefinition, to: TableRoute, real: Table, same: NameRules = EXACT) -> Any:
    spec = UnitSpec(ApplyUnit("p", "rl.b1.bank.acct"), "b1", 1, "id", (to,), 1)
    return load_active_definition(spec, session(real, same), stored.encode(), {})


@pytest.mark.parametrize(
    ("old", "new"), [({}, {"note": "x"}), ({"note": "x"}, {}), ({"note": "x"}, {"note": "y"})]
)
def test_a_changed_name_over_a_filled_table_needs_a_copy(
    old: Mapping[str, str], new: Mapping[str, str]
) -> None:
    """Case d."""
    before, real = named(**old), build_desired_table(SOURCE, routed(**old))
    assert load(before, route(**old), real).stored == before
    with pytest.raises(
        CopyNeededError, match=r"`rename` changed the target's name of column note from"
    ) as found:
        load(before, route(**new), real)
    assert found.value.cause == "definition"
    plan = planned(SOURCE, ColumnChanges(), routed(**new), before=before, rewrite=True)
    assert steps(plan) == [RenameColumn(old.get("note", "note"), new.get("note", "note"))]
    assert explain_changed_route(plan.stored, routed(**new)) == ""


def test_an_entry_with_the_name_of_an_earlier_version_needs_no_copy() -> None:
    before = StoredDefinition(SOURCE, {"note": "note_2"})
    real = build_desired_table(SOURCE, routed(), before.names)
    found = load(before, route(note="note_2"), real).stored
    assert (found.names, found.route_names) == ({"note": "note_2"}, {"note": "note_2"})


def test_names_of_absent_columns_change_nothing() -> None:
    assert explain_changed_route(named(), routed(later="x")) == ""


def test_another_name_than_that_of_a_column_of_the_target_adds_a_column() -> None:
    before, to = named(note="x"), routed(note="y")
    old = build_desired_table(SOURCE, routed(note="x"))
    y = structs.replace(old.get_column("x"), name="y")
    there = structs.replace(old, columns=(*old.columns, y))
    for policy, expected in (("evolve", [DropColumn("x")]), ("lenient", [])):
        plan = planned(
            SOURCE,
            ColumnChanges(),
            to,
            before=before,
            rewrite=True,
            there=there,
            policy=policy,  # type: ignore[arg-type]
        )
        assert [step for step in steps(plan) if isinstance(step, DropColumn)] == expected


def test_other_units_of_the_table_are_asked_for_it_by_the_present_names() -> None:
    units: Any = {
        f"rl.{source}.bank.acct": SimpleNamespace(definition=named(id="old").encode())
        for source in ("b1", "b2")
    }
    found = find_sharers(units, "rl.b1.bank.acct", (route(id="new"),), ("public", "acct"), same=EXACT)
    assert [table.key.columns for table in found.values()] == [("new",)]


# --- verify and cutover


def test_both_ends_are_compared_by_the_names_that_the_unit_has_stored() -> None:
    table = added(SOURCE, "w")
    pair = TablePair("p", "b1", table, "hq", routed(note="new", w="w_"))
    assert find_target_names(pair, {}) == {"note": "new", "w": "w_"}
    unit: Any = SimpleNamespace(definition=named(note="old").encode())
    assert find_target_names(pair, {"rl.b1.bank.acct": unit}) == {"note": "old", "w": "w_"}


# --- names that a server cannot have


@pytest.mark.parametrize(
    ("explain", "good", "bad"),
    [
        (postgres_catalog.explain_column_name, ("a" * 63, "ä" * 31, "CTID", "oid"),
         ("a" * 64, "ä" * 32, "ctid", "xmin", "xmax", "cmin", "cmax", "tableoid")),
        (mysql_limits.explain_column_name, ("ä" * 64, "ctid", "db row_id"),
         ("a" * 65, "x ", "\U0001f600", "a\0", "DB_ROW_ID", "db_trx_id", "Db_Roll_Ptr")),
        (oracle_sql.explain_column_name, ("a" * 128, "é" * 64, "RowId", "ctid"),
         ("a" * 129, "é" * 65, 'a"b', "", "rowid", "ROWID")),
    ],
)  # fmt: skip
def test_a_name_that_the_server_cannot_have_is_refused_with_the_key_that_changes_it(
    explain: Any, good: tuple[str, ...], bad: tuple[str, ...]
) -> None:
    require_column_names("p.t", good, explain)
    for name in bad:
        with pytest.raises(TargetConfigError, match=r"target table p\.t: column") as found:
            require_column_names("p.t", [name], explain)
        assert "rename: {columns" in found.value.problem.action


def test_a_name_of_a_table_that_the_server_cannot_have_is_changed_by_a_route() -> None:
    with pytest.raises(TargetConfigError) as found:
        require_table_names("p.t", ["p", "t" * 64], postgres_catalog.explain_name)
    assert "a route of its own (`to`)" in found.value.problem.action


# --- the configuration

CONFIG = """
kafka: {{bootstrap: "k:9092"}}
sources: {{b1: {{type: mysql, host: h, user: u, password: p, tables: [bank.*]}}}}
targets:
  hq: {{type: postgres, host: h, user: u, password: p, database: hq}}
  topics: {{type: kafka, bootstrap: "o:9092"}}
pipelines:
  p:
    sources: [b1]
    target: {target}
    routes:
      - from: bank.*
        to: public.{{table}}
        add: {{branch: "{{source}}"}}
        {route}
"""


def parse(tmp_path: Any, route: str, target: str = "hq") -> Any:
    path = tmp_path / "rowlock.yaml"
    path.write_text(CONFIG.format(target=target, route=route))
    return load_config(path)


def test_a_route_has_names_for_columns(tmp_path: Any) -> None:
    config = parse(tmp_path, "rename: {columns: {ctid: ctid_}}")
    [found] = TableRoute.build_routes(config.pipelines["p"])
    assert found.renames == (("ctid", "ctid_"),)


@pytest.mark.parametrize(
    ("route", "target", "expected"),
    [
        ("rename: {columns: {a: x, b: x}}", "hq", "'a' has that name, too"),
        ("rename: {columns: {a: branch}}", "hq", "the route adds a column of that name"),
        ("rename: {columns: {a: ''}}", "hq", "it is empty"),
        ("rename: {colums: {a: b}}", "hq", "did you mean 'columns'?"),
        ("rename: {columns: {a: x}}\n        kafka: {key: [x]}", "topics", "write the source's name, 'a'"),
        (
            "rename: {columns: {branch: b}}\n        kafka: {key: [branch]}",
            "topics",
            "another name under `add`",
        ),
        (
            "rename: {columns: {a: x}}\n        kafka: {where: {x: [v]}}",
            "topics",
            "write the source's name, 'a'",
        ),
    ],
)
def test_names_that_cannot_work_are_refused(tmp_path: Any, route: str, target: str, expected: str) -> None:
    with pytest.raises(ConfigErrors, match=expected):
        parse(tmp_path, route, target)


def test_a_name_that_no_table_has_is_reported_with_the_nearest_one(tmp_path: Any) -> None:
    config = parse(tmp_path, "rename: {columns: {noet: x, Note: y, zzz: z, id: id_}}")
    flow = TableFlow("p", "b1", SOURCE, "hq", routed())
    found = {each.message.split("'")[1]: each for each in yield_rename_findings(config, "p", [flow])}
    assert found.keys() == {"noet", "Note", "zzz"}
    assert {each.level for each in found.values()} == {"warning"}, "its column may come later"
    keep = "keep the entry for a column that comes later"
    assert found["noet"].remedy == found["Note"].remedy == f"write 'note', or {keep}"
    assert found["zzz"].remedy == f"remove the entry, or {keep}"
    assert found["noet"].place.endswith(":15")
    assert list(yield_rename_findings(config, "p", [])) == []
