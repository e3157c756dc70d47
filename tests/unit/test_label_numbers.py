"""ENUM and SET columns with an empty label are carried as numbers, and readers that do not know this stop."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from consumer.tables.evolution.decisions import AdoptDefinition, NeedsCopy, judge_table_event
from consumer.tables.stored import StoredDefinition
from consumer.targets.checks.column_fit import can_hold_all_values
from consumer.targets.checks.table_facts import TableFacts
from consumer.targets.checks.table_findings import check_table
from consumer.targets.oracle.values import from_oracle
from producer.binlog_format import types as log_types
from producer.binlog_format.row_events import ColumnMap
from producer.decoders.columns import _build_enum_number_format
from producer.decoders.envelope import SourceContext, TopicTail, TransactionContext
from producer.kafka.control_events import encode_definition
from producer.stops import build_ambiguous_label_stop
from rowlock.inspect.checks.debezium_check import UNNAMED_LABEL_REMEDY, yield_empty_label_findings
from rowlock.inspect.checks.label_check import yield_ambiguous_row_findings
from schemas.errors import UnsupportedTypeError
from schemas.io.mysql_columns import CatalogColumn, build_column
from schemas.table.keys import require_comparable_keys
from schemas.table.model import (
    Column,
    ColumnType,
    IndexPart,
    Kind,
    Table,
    UniqueIndex,
    convert_labels_to_numbers,
)
from schemas.table.names import EXACT
from schemas.values.mysql import select_list, to_mysql
from schemas.values.postgres import to_postgres
from schemas.values.postgres_rows import make_postgres_row_converter
from schemas.wire.codec import decode_event
from schemas.wire.debezium_values import CONVERSION_ERRORS, make_debezium_converter
from schemas.wire.event import ColumnChanges
from tests.kits.apply import FakeSource, account_table
from tests.kits.catalog_forms import MARIADB

MEMBERS = ("", "a", "b", "c")
SET = ColumnType(kind=Kind.SET, members=MEMBERS, charset="utf8mb4", collation="utf8mb4_bin")
SET_NUMBER = convert_labels_to_numbers(SET)
ENUM_NUMBER = replace(SET, kind=Kind.ENUM_NUMBER)


def of_catalog(declared: str, default: str | None = None) -> Column:
    kind = declared.partition("(")[0]
    row = CatalogColumn(
        "s", default, "YES", kind, declared, None, None, None, None, None, "utf8mb4", "utf8mb4_bin", "", None
    )
    return build_column(row, MARIADB)


def with_column(type_: ColumnType) -> Table:
    table = account_table()
    return replace(table, columns=(*table.columns, Column(name="s", type=type_)))


def defined(table: Table) -> bytes:
    source = SourceContext(connector="mysql", name="north", epoch=0, gen=5)
    transaction = TransactionContext(
        id="t", gtid=None, file="binlog.000001", file_number=1, pos=4, ts_ms=1, server_id=7, made_ms=2
    )
    return encode_definition(table, source, TopicTail(), transaction, row=0)[1]


@pytest.mark.parametrize(
    ("declared", "kind"),
    [
        ("set('','a','b','c')", Kind.SET_NUMBER),
        ("set('a','')", Kind.SET_NUMBER),
        ("set('a','b')", Kind.SET),
        ("enum('x','')", Kind.ENUM_NUMBER),
        ("enum('x',' ')", Kind.ENUM),
    ],
)
def test_a_column_with_an_empty_label_is_one_of_numbers(declared: str, kind: Kind) -> None:
    assert of_catalog(declared).type.kind is kind


def test_the_default_of_a_column_of_numbers_is_not_taken_for_its_value() -> None:
    found = of_catalog("set('','a')", "'a'")
    assert (found.default, found.default_expression) == (None, "'a'")


def test_readers_of_the_first_version_refuse_a_definition_with_numbers() -> None:
    raw = defined(with_column(SET_NUMBER))
    assert b'"version":"2.0"' in raw
    assert b'"kind":"set_number"' in raw  # a stored definition has no version: its kind is what they refuse
    assert decode_event(raw).definition == with_column(SET_NUMBER)


def test_other_definitions_stay_readable_by_the_first_version() -> None:
    assert b'"version":"1.0"' in defined(with_column(replace(SET, members=("a", "b"))))


@pytest.mark.parametrize(
    ("old", "new"), [(SET, SET_NUMBER), (replace(SET, members=("a", "b")), SET_NUMBER), (SET_NUMBER, SET)]
)
def test_rows_are_copied_when_labels_become_numbers_or_numbers_labels(
    old: ColumnType, new: ColumnType
) -> None:
    event = FakeSource().definition("ALTER TABLE acct MODIFY s SET('', 'a')", with_column(new))
    event.effect, event.columns = "kept", ColumnChanges(modified=("s",))
    verdict = judge_table_event(with_column(old), event, "evolve")
    assert isinstance(verdict, NeedsCopy)
    assert "values of column s change with its type" in verdict.why


def test_a_further_label_keeps_the_numbers() -> None:
    wider = replace(SET_NUMBER, members=(*MEMBERS, "d"))
    event = FakeSource().definition(
        "ALTER TABLE acct MODIFY s SET('', 'a', 'b', 'c', 'd')", with_column(wider)
    )
    event.effect, event.columns = "kept", ColumnChanges(modified=("s",))
    assert isinstance(judge_table_event(with_column(SET_NUMBER), event, "evolve"), AdoptDefinition)


@pytest.mark.parametrize(
    ("real", "fit"),
    [
        (SET_NUMBER, True),
        (replace(SET_NUMBER, members=(*MEMBERS, "d")), True),
        (replace(SET_NUMBER, members=("a", "", "b", "c")), False),
        (replace(SET_NUMBER, members=("", "a")), False),
        (replace(SET, members=("a", "b", "c")), False),
        (ENUM_NUMBER, False),
        (ColumnType(kind=Kind.TEXT), True),
        (ColumnType(kind=Kind.VARCHAR, length=2), True),
        (ColumnType(kind=Kind.VARCHAR, length=1), False),
        (ColumnType(kind=Kind.INT, bits=64), False),
    ],
)
def test_numbers_fit_columns_whose_labels_have_the_same_places(real: ColumnType, fit: bool) -> None:
    assert can_hold_all_values(SET_NUMBER, real) is fit


class Inspected:
    """A target whose table of accounts has a column `s` of a type."""

    column_names = EXACT
    table_names = EXACT

    def __init__(self, type_: ColumnType) -> None:
        self._table = with_column(type_)

    def read_table(self, _schema: str, _name: str) -> Table:
        return self._table

    def read_table_facts(self, _schema: str, _name: str) -> TableFacts:
        return TableFacts()


@pytest.mark.parametrize(
    ("members", "found"),
    [
        (MEMBERS, []),
        ((*MEMBERS, "d"), []),
        (("", "a"), ["cannot store every value"]),  # its server refuses the others
        (("a", "", "b", "c"), ["has other labels in the target than at the source, or in another order"]),
        (("", "b"), ["has other labels in the target than at the source, or in another order"]),
    ],
)
def test_a_target_with_labels_at_other_places_is_refused(members: tuple[str, ...], found: list[str]) -> None:
    """Its server would take each number for another label, without an error."""
    session: Any = Inspected(replace(SET_NUMBER, members=members))
    findings = check_table(session, with_column(SET_NUMBER))
    assert len(findings) == len(found)
    assert all(text in each.message for text, each in zip(found, findings, strict=True))
    assert all(each.level == ("warning" if "cannot store" in each.message else "error") for each in findings)


def test_a_table_whose_topic_has_labels_is_stopped_for_a_copy() -> None:
    error = build_ambiguous_label_stop(with_column(SET))
    assert error is not None
    assert error.cause == "definition"
    assert "column s of bank.acct has an empty label" in error.reason
    assert error.remedy == "rowlock copy bank.acct"
    assert build_ambiguous_label_stop(with_column(SET_NUMBER)) is None
    assert build_ambiguous_label_stop(with_column(replace(SET, members=("a", "b")))) is None


@pytest.mark.parametrize("number", [0, 14, 15, str(2**63), str(2**64 - 1)])
def test_numbers_are_written_and_read_as_they_are(number: int | str) -> None:
    many = replace(SET_NUMBER, members=tuple(f"{n or ''}" for n in range(64)))
    table = Table(db="d", name="t", columns=(Column(name="s", type=many),), key=account_table().key)
    assert to_mysql(table)((number,)) == (int(number),)
    written = to_postgres(table)((number,))
    assert written == (str(number),)
    assert make_postgres_row_converter(table)(written) == (number,)
    assert select_list(table) == ["CAST(`s` AS UNSIGNED)"]


LAST = replace(SET_NUMBER, members=("a", "b", ""))
"""A SET whose empty label is the last one."""


@pytest.mark.parametrize(
    ("type_", "text", "number"),
    [
        (SET_NUMBER, ",a,b,c", 15),
        (SET_NUMBER, ",a", 3),
        (LAST, "a,b", 3),
        (LAST, "b,", 6),
        (ENUM_NUMBER, "c", 4),
    ],
)
def test_labels_of_debezium_become_numbers(type_: ColumnType, text: str, number: int) -> None:
    assert make_debezium_converter(type_, decimal_strings=False)(text) == number


@pytest.mark.parametrize("kind", [Kind.SET, Kind.SET_NUMBER])
@pytest.mark.parametrize("text", ["a,b,c", "c"])
def test_a_text_of_debezium_is_refused_that_may_hide_the_empty_label(kind: Kind, text: str) -> None:
    """The servers show 14 and 15 of SET('', 'a', 'b', 'c') as "a,b,c", and a connector's snapshot has what
    they show."""
    with pytest.raises(CONVERSION_ERRORS, match="does not show whether the empty label precedes it"):
        make_debezium_converter(replace(SET, kind=kind), decimal_strings=False)(text)


def test_texts_of_debezium_stay_texts_under_a_definition_of_an_earlier_version() -> None:
    """The rows that it wrote are texts. Those that mean two values are refused all the same."""
    read = make_debezium_converter(replace(SET, members=LAST.members), decimal_strings=False)
    assert read("a,b") == "a,b"
    with pytest.raises(CONVERSION_ERRORS, match="it is either the empty label or no label"):
        read("")
    with pytest.raises(CONVERSION_ERRORS, match="it is either the empty label or the error value"):
        make_debezium_converter(replace(SET, kind=Kind.ENUM), decimal_strings=False)("")
    assert (
        make_debezium_converter(ColumnType(kind=Kind.ENUM, members=("a",)), decimal_strings=False)("") == ""
    )


def test_check_names_tables_of_debezium_with_an_empty_label() -> None:
    (found,) = yield_empty_label_findings("north", [with_column(SET_NUMBER), account_table()])
    assert (found.level, found.place) == ("warning", "source north, table bank.acct")
    assert found.remedy.startswith(UNNAMED_LABEL_REMEDY)
    assert '(append "!' in found.remedy
    assert list(yield_empty_label_findings("north", [account_table()])) == []


@pytest.mark.parametrize("type_", [SET_NUMBER, LAST, ENUM_NUMBER])
def test_an_empty_text_of_debezium_could_be_two_values(type_: ColumnType) -> None:
    with pytest.raises(CONVERSION_ERRORS, match="it is either the empty label or"):
        make_debezium_converter(type_, decimal_strings=False)("")


def test_a_label_of_debezium_that_the_definition_lacks_is_refused() -> None:
    for type_ in (SET_NUMBER, ENUM_NUMBER):
        with pytest.raises(CONVERSION_ERRORS):
            make_debezium_converter(type_, decimal_strings=False)("x")


def test_a_definition_with_numbers_round_trips() -> None:
    raw = msgspec.json.encode(SET_NUMBER)
    assert msgspec.json.decode(raw, type=ColumnType) == SET_NUMBER


def test_check_names_tables_that_earlier_versions_wrote_with_the_copy_command() -> None:
    (found,) = yield_ambiguous_row_findings([StoredDefinition(with_column(SET))])
    assert (found.level, found.place) == ("warning", "table bank.acct")
    assert "column s has an empty label" in found.message
    assert "rowlock copy bank.acct" in found.remedy


def test_check_does_not_offer_to_copy_a_table_of_debezium() -> None:
    (found,) = yield_ambiguous_row_findings([StoredDefinition(with_column(SET))], {("bank", "acct")})
    assert found.remedy.startswith(UNNAMED_LABEL_REMEDY)
    assert '(append "!' in found.remedy


@pytest.mark.parametrize("type_", [SET_NUMBER, replace(SET, members=("a", "b"))])
def test_check_is_silent_where_rows_cannot_be_wrong(type_: ColumnType) -> None:
    assert list(yield_ambiguous_row_findings([StoredDefinition(with_column(type_))])) == []


@pytest.mark.parametrize("text", ["a,b", "", "14x", "014", "true", "1.0"])
def test_a_text_that_is_no_number_differs_from_every_number(text: str) -> None:
    """`verify` compares such rows before the copy has come."""
    table = Table(db="d", name="t", columns=(Column(name="s", type=SET_NUMBER),), key=account_table().key)
    assert make_postgres_row_converter(table)((text,)) == (text,)
    assert from_oracle(table)((text,)) == (text,)


@pytest.mark.parametrize("unique", [False, True])
def test_a_key_of_a_set_is_refused_whose_numbers_servers_do_not_compare_exactly(unique: bool) -> None:
    """They compare a SET with a number as a signed number, or as a double."""

    def table(labels: int) -> Table:
        type_ = replace(SET_NUMBER, members=tuple(f"{n or ''}" for n in range(labels)))
        index = UniqueIndex(name="s", parts=(IndexPart(column="s"),))
        whole = replace(account_table(), columns=(*account_table().columns, Column(name="s", type=type_)))
        return replace(whole, unique=(index,)) if unique else replace(whole, key=index, unique=())

    require_comparable_keys(table(53))
    with pytest.raises(
        UnsupportedTypeError, match=r"column s of bank\.acct .*54 labels.*rename the empty label, or exclude"
    ):
        require_comparable_keys(table(54))


def test_an_ordinal_above_the_last_label_has_no_number() -> None:
    logged = ColumnMap(type=log_types.ENUM, metadata=1, nullable=True)
    found = _build_enum_number_format(0, logged, ENUM_NUMBER)
    assert found is not None
    assert found.names["labels0"] == ("0", "1", "2", "3", "4")
