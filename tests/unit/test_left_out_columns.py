"""Columns that the source's `columns:` leaves out: which they are, and what a statement about one is."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from producer.binlog_format.log_event import LoggedStatement
from producer.decoders.row_codec import TopicTail
from producer.kafka.control_events import encode_definition
from producer.sources.survey import judge_catalog_table
from producer.statements.columns import compute_column_changes
from producer.statements.statement import parse_statement
from producer.stops import CAUSES, build_columns_stop
from schemas.config.model import ConfigErrors, load_config
from schemas.io.mysql_catalog import CatalogEntry
from schemas.table.left_out import NOTHING_LEFT_OUT, LeftOutColumns, explain_needed_column, leave_columns_out
from schemas.table.model import Column, ColumnType, IndexPart, Kind, LeftOutColumn, Table, UniqueIndex
from schemas.table.names import NameRules
from schemas.wire.codec import decode_event
from schemas.wire.event import ColumnChanges
from schemas.wire.position import DEFINITION_ROW
from tests.kits.barriers import CONTEXT, Stage, T
from tests.kits.decoder_support import transaction
from tests.kits.start import ACCT, Start, event

INT = ColumnType(kind=Kind.INT, bits=32)
BLOB = ColumnType(kind=Kind.BLOB, length=4_294_967_295)


def column(name: str, type_: ColumnType = INT, **more: object) -> Column:
    return msgspec.structs.replace(Column(name=name, type=type_), **more)


def doc(*columns: Column, name: str = "doc", unique: str | None = None) -> Table:
    """A table with the key `id`, its last column."""
    index = UniqueIndex(name="u", parts=(IndexPart(column=unique),)) if unique else None
    return Table(
        db="bank", name=name, columns=(*columns, column("id", nullable=False)),
        key=UniqueIndex(name="PRIMARY", parts=(IndexPart(column="id"),)), unique=(index,) if index else (),
    )  # fmt: skip


SCAN, NOTE = column("Scan", BLOB), column("note")


def option(**patterns: list[str]) -> LeftOutColumns:
    found = {pattern.replace("_", "."): columns for pattern, columns in patterns.items()}
    return LeftOutColumns(found, NameRules())


def test_last_pattern_that_matches_decides() -> None:
    left_out = LeftOutColumns({"bank.*": ["a", "b"], "bank.doc": ["C"]}, NameRules())
    assert left_out.list_columns(("bank", "acct")) == {"a", "b"}
    assert left_out.list_columns(("bank", "doc")) == {"c"}
    assert left_out.list_columns(("other", "doc")) == frozenset()


def test_patterns_compare_as_the_server_compares_names() -> None:
    assert LeftOutColumns({"Bank.Doc": ["a"]}, NameRules(folds=True)).list_columns(("bank", "doc")) == {"a"}
    assert LeftOutColumns({"Bank.Doc": ["a"]}, NameRules()).list_columns(("bank", "doc")) == frozenset()


def test_columns_are_left_out_in_any_case_and_keep_their_places() -> None:
    table = leave_columns_out(doc(SCAN, NOTE, column("pdf", BLOB)), {"scan", "pdf", "none"})
    assert table.column_names == ("note", "id")
    assert table.left_out == (LeftOutColumn(name="Scan", place=0), LeftOutColumn(name="pdf", place=2))
    assert table.places == (1, 3)
    assert table.logged_names == ("Scan", "note", "pdf", "id")
    assert leave_columns_out(doc(NOTE), {"scan"}) == doc(NOTE)


def test_columns_of_keys_and_unique_indexes_are_needed() -> None:
    table = doc(NOTE, SCAN, unique="note")
    assert explain_needed_column(table, {"scan"}) is None
    for name, what in (("id", "its key"), ("note", "its unique index u")):
        problem = explain_needed_column(table, {name})
        assert problem is not None
        assert (f"column {name} belongs to {what}" in problem.what, f"take {name} out" in problem.action) == (
            True,
            True,
        )


def test_table_with_a_needed_column_left_out_is_refused() -> None:
    found = judge_catalog_table(ACCT, CatalogEntry(doc(NOTE)), lambda _: False, left_out={"id"})
    assert found.table is None
    assert found.problem is not None
    assert "`columns:` leaves it out" in found.problem.what
    kept = judge_catalog_table(ACCT, CatalogEntry(doc(NOTE)), lambda _: False, left_out={"note"})
    assert kept.table == leave_columns_out(doc(NOTE), {"note"})


def test_unknown_columns_and_patterns_are_found() -> None:
    left_out = LeftOutColumns({"bank.*": ["scan", "typo"], "bank.doc": ["NOTE"], "x.y": ["z"]}, NameRules())
    tables = [leave_columns_out(doc(SCAN, NOTE), {"note"}), doc(SCAN, name="other")]
    assert list(left_out.yield_unknown(tables)) == [("bank.*", "typo"), ("x.y", "")]
    assert list(NOTHING_LEFT_OUT.yield_unknown(tables)) == []


def test_table_that_cannot_be_read_hides_no_misspelt_column_of_another_pattern() -> None:
    left_out = LeftOutColumns({"bank.*": ["typo"], "old.*": ["gone"]}, NameRules())
    assert list(left_out.yield_unknown([doc(SCAN)], [("old", "t")])) == [("bank.*", "typo")]
    assert list(left_out.yield_unknown([doc(SCAN)], [("bank", "t")])) == [("old.*", "")]


def test_definition_event_has_no_column_that_is_left_out() -> None:
    table = leave_columns_out(doc(SCAN, NOTE), {"scan"})
    _, value = encode_definition(table, CONTEXT, TopicTail(), transaction(), row=1)
    found = decode_event(value)
    assert found.definition == msgspec.structs.replace(table, left_out=())
    assert found.left_out == table.left_out
    _, plain = encode_definition(doc(NOTE), CONTEXT, TopicTail(), transaction(), row=1)
    assert b"left_out" not in plain, "as older versions wrote it"


@pytest.mark.parametrize(
    ("topic", "now", "words"),
    [
        ({"scan"}, {"scan"}, None),
        ((), {"scan"}, "leaves out Scan, which the topic has"),
        ({"scan"}, (), "publishes Scan, whose earlier values the topic lacks"),
        ({"scan"}, {"note"}, "leaves out note, which the topic has and publishes Scan, whose earlier"),
        ((), {"none"}, None),
    ],
)
def test_changed_option_stops_the_table(topic: set[str], now: set[str], words: str | None) -> None:
    table = leave_columns_out(doc(SCAN, NOTE), topic)
    found = build_columns_stop(("bank", "doc"), table, LeftOutColumns({"*.*": [*now]}, NameRules()))
    assert (found is None) == (words is None)
    if found is not None and words is not None:
        assert words in found.reason
        assert found.remedy == "rowlock copy bank.doc"
        assert found.cause in CAUSES


def defined(table: Table) -> bytes:
    content: dict[str, object] = {"definition": msgspec.structs.replace(table, left_out=())}
    return event((0, 3, 100, DEFINITION_ROW), 4, **content, left_out=table.left_out)  # type: ignore[arg-type]


def test_start_takes_the_places_of_left_out_columns_from_the_topic() -> None:
    table = leave_columns_out(doc(SCAN, NOTE, name="acct"), {"scan"})
    start = Start(columns={"bank.*": {"leave_out": ["scan"]}})
    start.tables[ACCT] = table
    start.stored()
    start.has(defined(table))
    start.begin()
    assert start.captured.tables[ACCT].table == table
    assert start.captured.stopped == {}
    (repeated,) = start.sent()
    assert repeated.left_out == table.left_out


@pytest.mark.parametrize("before", [(), ("scan",)])
def test_start_stops_a_table_whose_columns_are_published_otherwise(before: tuple[str, ...]) -> None:
    whole = doc(SCAN, NOTE, name="acct")
    after = [] if before else ["scan"]
    start = Start(columns={"bank.*": {"leave_out": after}} if after else {})
    start.tables[ACCT] = leave_columns_out(whole, after)
    start.stored()
    start.has(defined(leave_columns_out(whole, before)))
    start.begin()
    assert start.captured.stopped[ACCT].stop.cause == "columns"


# --- statements

_OLD = doc(SCAN, NOTE, name="t")


def changes(sql: str, before: Table, after: Table) -> ColumnChanges | None:
    return compute_column_changes([parse_statement(LoggedStatement("bank", sql))], before, after)


@pytest.mark.parametrize(
    ("sql", "after", "left_out"),
    [
        ("ADD COLUMN pdf BLOB", doc(SCAN, NOTE, column("pdf", BLOB), name="t"), ("scan", "pdf")),
        ("ADD COLUMN pdf BLOB FIRST", doc(column("pdf", BLOB), SCAN, NOTE, name="t"), ("scan", "pdf")),
        ("DROP COLUMN scan", doc(NOTE, name="t"), ("scan",)),
        ("MODIFY scan MEDIUMBLOB", doc(column("Scan", INT), NOTE, name="t"), ("scan",)),
        ("MODIFY scan LONGBLOB AFTER note", doc(NOTE, SCAN, name="t"), ("scan",)),
        ("RENAME COLUMN scan TO pdf", doc(column("pdf", BLOB), NOTE, name="t"), ("scan", "pdf")),
        ("CHANGE scan pdf MEDIUMBLOB", doc(column("pdf", INT), NOTE, name="t"), ("scan", "pdf")),
    ],
)
def test_statement_on_a_left_out_column_keeps_every_published_value(
    sql: str, after: Table, left_out: tuple[str, ...]
) -> None:
    before, now = leave_columns_out(_OLD, {"scan"}), leave_columns_out(after, left_out)
    stage = Stage(now={T: now})
    stage.captured.tables[T].table = before
    assert stage.carry_out(f"ALTER TABLE t {sql}") == {}
    assert stage.effects == [("m", "kept")]
    (sent,) = stage.writer.events()
    assert (sent.columns, sent.left_out or ()) == (ColumnChanges(), now.left_out)
    assert stage.captured.tables[T].table == now


def test_published_columns_are_followed_beside_left_out_ones() -> None:
    before = leave_columns_out(_OLD, {"scan"})
    wider = leave_columns_out(doc(SCAN, NOTE, column("more"), name="t"), {"scan"})
    assert changes("ALTER TABLE t ADD COLUMN more INT", before, wider) == ColumnChanges(added=("more",))
    both = leave_columns_out(doc(column("more"), name="t"), {"scan"})
    found = changes("ALTER TABLE t DROP COLUMN scan, RENAME COLUMN note TO more", before, both)
    assert found == ColumnChanges(renamed={"note": "more"})


def test_column_renamed_into_the_option_is_dropped() -> None:
    after = leave_columns_out(doc(SCAN, column("pdf"), name="t"), {"scan", "pdf"})
    before = leave_columns_out(_OLD, {"scan", "pdf"})
    found = changes("ALTER TABLE t RENAME COLUMN note TO pdf", before, after)
    assert found == ColumnChanges(dropped=("note",))


@pytest.mark.parametrize(
    "sql", ["ALTER TABLE t RENAME COLUMN scan TO pdf", "ALTER TABLE t CHANGE scan pdf LONGBLOB"]
)
def test_column_renamed_out_of_the_option_has_unknown_values(sql: str) -> None:
    """No event had them, so a reader must not take the column for an added one with its default."""
    before, after = leave_columns_out(_OLD, {"scan"}), doc(column("pdf", BLOB), NOTE, name="t")
    assert changes(sql, before, after) is None


def test_names_that_change_places_are_unknown() -> None:
    before, after = leave_columns_out(_OLD, {"scan"}), leave_columns_out(doc(NOTE, SCAN, name="t"), {"scan"})
    swap = "ALTER TABLE t RENAME COLUMN scan TO note, RENAME COLUMN note TO scan"
    assert changes(swap, before, after) is None


def test_published_column_computed_from_a_left_out_one_may_change_with_it() -> None:
    computed = column("size", generated=True, expression="length(`Scan`)")
    before = leave_columns_out(doc(SCAN, computed, name="t"), {"scan"})
    after = leave_columns_out(doc(column("Scan", INT), computed, name="t"), {"scan"})
    assert changes("ALTER TABLE t MODIFY scan TINYBLOB", before, after) is None
    stage = Stage(now={T: after})
    stage.captured.tables[T].table = before
    assert stage.carry_out("ALTER TABLE t MODIFY scan TINYBLOB") == {}
    assert stage.effects == [("m", None)], "a reader must copy the table"


# --- the configuration


def load(folder: Path, **source: object) -> list[str]:
    """Return the problems of a source with these settings."""
    import yaml

    file = folder / "rowlock.yaml"
    section = {"type": "mysql", "host": "h", "user": "u", "password": "p", "tables": ["bank.*"], **source}
    file.write_text(yaml.safe_dump({"kafka": {"bootstrap": "k:1"}, "sources": {"s": section}}))
    try:
        load_config(file, {})
    except ConfigErrors as error:
        return [str(problem) for problem in error.problems]
    return []


LEAVES = {"bank.doc": {"leave_out": ["scan"]}}


def test_configuration_with_left_out_columns_is_accepted(tmp_path: Path) -> None:
    assert load(tmp_path, columns=LEAVES) == []


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({"columns": {"!bank.doc": {"leave_out": ["a"]}}}, "would exclude tables"),
        ({"columns": {"bank": {"leave_out": ["a"]}}}, "is no table pattern"),
        ({"columns": {"bank.doc": {"leave_out": []}}}, "at least one entry"),
        ({"columns": {"bank.doc": {"leave_out": ["a", "A"]}}}, "a column is named twice"),
        ({"columns": {"bank.doc": {"leaveout": ["a"]}}}, "did you mean 'leave_out'?"),
        ({"columns": LEAVES, "events": "debezium"}, "column.exclude.list"),
        ({"columns": LEAVES, "type": "oracle", "database": "X"}, "only MySQL and MariaDB"),
    ],
)
def test_configuration_of_left_out_columns_is_checked(
    source: dict[str, object], words: str, tmp_path: Path
) -> None:
    problems = load(tmp_path, **source)
    assert any(words in problem for problem in problems), problems
