"""The pure parts of reading MySQL's catalog: patterns, labels, the choice of the key."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import NoKeyError, UnsupportedTypeError
from schemas.io import mysql_catalog
from schemas.io.catalog_form import READ_FORM, build_catalog_form
from schemas.io.mysql_catalog import CatalogEntry, is_selected
from schemas.io.mysql_columns import CatalogColumn, build_column, build_column_type, parse_members
from schemas.io.uuid_order import COMPARES_AS_STORED
from schemas.table.keys import choose_key
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Table, UniqueIndex, is_same_definition
from schemas.table.typemap import MYSQL_CATALOG
from tests.kits.catalog_forms import MARIADB, MYSQL


@pytest.mark.parametrize(
    ("patterns", "db", "table", "selected"),
    [
        (["bank.*"], "bank", "acct", True),
        (["bank.*"], "bank2", "acct", False),
        (["*.*"], "a", "b", True),
        (["bank.*", "!bank.tmp_*"], "bank", "tmp_1", False),
        (["bank.*", "!bank.tmp_*", "bank.tmp_keep"], "bank", "tmp_keep", True),
        (["!bank.tmp_*", "bank.*"], "bank", "tmp_1", True),
        (["bank.acct_??"], "bank", "acct_07", True),
        (["bank.acct_??"], "bank", "acct_7", False),
        (["bank.[a]"], "bank", "[a]", True),
        (["bank.[a]"], "bank", "a", False),
        (["bank.*"], "bank.old", "acct", False),
        (["bank.customers3.0"], "bank", "customers3.0", True),
        (["`bank.old`.*"], "bank.old", "acct", True),
        (["bank.`a*`"], "bank", "a*", True),
        (["bank.`a*`"], "bank", "ab", False),
        (["bank.`a.b`_??"], "bank", "a.b_07", True),
        (["bank.`it``s`"], "bank", "it`s", True),
        (["bank.*", "!bank.`a.b`"], "bank", "a.b", False),
        ([], "bank", "acct", False),
        (["*.*"], "MySQL", "user", False),
        (["sys.*"], "sys", "x", False),
        (["*.*"], "performance_schema", "x", False),
    ],
)
def test_patterns(patterns: list[str], db: str, table: str, selected: bool) -> None:
    assert is_selected(patterns, db, table) is selected


_LABEL = st.text(st.characters(codec="utf-8"), max_size=8)


def _declared(labels: list[str]) -> str:
    """What both servers show: quotes doubled, backslash and line ends escaped (seen on MySQL 9.7 and MariaDB
    11.4)."""
    table = str.maketrans({"'": "''", "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\0": "\\0"})
    return "enum(" + ",".join(f"'{label.translate(table)}'" for label in labels) + ")"


@given(st.lists(_LABEL, min_size=1, max_size=6))
def test_labels_are_read_back(labels: list[str]) -> None:
    assert parse_members(_declared(labels)) == tuple(labels)


def _row(data_type: str, declared: str, charset: str | None = None) -> CatalogColumn:
    return CatalogColumn(
        "c", None, "YES", data_type, declared, None, None, None, None, None, charset, None, "", None
    )


def test_a_label_that_the_catalogue_cannot_show_is_refused() -> None:
    with pytest.raises(UnsupportedTypeError, match="rename the label"):
        build_column_type(_row("enum", "enum('a','?')", "utf8mb4"))
    assert build_column_type(_row("enum", "enum('a','?')", "latin1")).members == ("a", "?")


def test_an_unknown_type_is_refused() -> None:
    with pytest.raises(UnsupportedTypeError, match=r"column c: type xmltype is not supported"):
        build_column_type(_row("xmltype", "xmltype"))


def test_zerofill_is_unsigned() -> None:
    assert build_column_type(_row("int", "int(5) zerofill")).unsigned
    assert not build_column_type(_row("int", "int(5)")).unsigned


def _index(name: str, *columns: str) -> UniqueIndex:
    return UniqueIndex(name=name, parts=tuple(IndexPart(column=column) for column in columns))


def _columns(**nullable: bool) -> list[Column]:
    return [
        Column(name=n, type=ColumnType(kind=Kind.INT, bits=32), nullable=null) for n, null in nullable.items()
    ]


def test_the_primary_key_is_the_key() -> None:
    indexes = [_index("a", "a"), _index("PRIMARY", "b")]
    assert choose_key(_columns(a=False, b=False), indexes, "d.t") is indexes[1]


def test_without_one_the_first_not_null_unique_index_by_columns_then_name() -> None:
    indexes = [
        _index("z", "b"),
        _index("y", "b"),
        _index("x", "b", "c"),
        _index("w", "a"),
        _index("v", "a", "b"),
    ]
    assert choose_key(_columns(a=True, b=False, c=False), indexes, "d.t").name == "y"
    assert choose_key(_columns(a=True, b=False, c=False), list(reversed(indexes)), "d.t").name == "y"


def test_no_key_at_all_is_refused() -> None:
    with pytest.raises(NoKeyError, match=r"d\.t has neither a primary key.*add a primary key"):
        choose_key(_columns(a=True), [_index("a", "a")], "d.t")


@pytest.mark.parametrize(
    ("data_type", "shown", "extra", "quoted", "default", "computed"),
    [
        ("int", "5", "", False, "5", None),
        ("int", "5", "", True, "5", None),
        ("varchar", "'x'", "", True, "x", None),
        ("varchar", "NULL", "", True, None, None),
        ("varchar", "'NULL'", "", True, "NULL", None),
        ("varchar", "NULL", "", False, "NULL", None),
        ("varchar", None, "", False, None, None),
        ("varchar", "uuid()", "", True, None, "uuid()"),
        ("varchar", "uuid()", "DEFAULT_GENERATED", False, None, "uuid()"),
        ("datetime", "CURRENT_TIMESTAMP", "on update CURRENT_TIMESTAMP", False, None, "CURRENT_TIMESTAMP"),
        ("datetime", None, "on update CURRENT_TIMESTAMP", False, None, None),
        ("int", "`a` + `b`", "", True, None, "`a` + `b`"),
        ("binary", "0x4142", "", False, None, "0x4142"),
        ("binary", "'AB'", "", True, None, "'AB'"),
        ("bit", "b'101'", "", True, "5", None),
    ],
)
def test_a_default_is_a_literal_or_an_expression(
    data_type: str, shown: str | None, extra: str, quoted: bool, default: str | None, computed: str | None
) -> None:
    row = _row(data_type, data_type)._replace(default=shown, extra=extra)
    found = build_column(row, MARIADB if quoted else MYSQL)
    assert (found.default, found.default_expression) == (default, computed)


@pytest.mark.parametrize("extra", ["VIRTUAL", "PERSISTENT", "STORED GENERATED"])
def test_a_computed_column_is_refused_where_the_catalog_hides_its_expression(extra: str) -> None:
    row = _row("int", "int(11)")._replace(extra=extra)
    with pytest.raises(UnsupportedTypeError, match="does not show how"):
        build_column(row, build_catalog_form("10.1.23-MariaDB", ()))
    assert build_column(row._replace(expression="`a` + 1"), MARIADB).expression == "`a` + 1"


@pytest.mark.parametrize(
    ("version", "quoted"),
    [("10.1.23-MariaDB", False), ("10.2.6-MariaDB", False), ("10.2.11-MariaDB", True), ("5.7.22", False)],
)
def test_defaults_are_literals_since_a_version(version: str, quoted: bool) -> None:
    assert build_catalog_form(version, ()).has_quoted_defaults is quoted


def test_a_default_that_an_older_topic_lacks_may_be_any() -> None:
    def table(computed: str | None) -> Table:
        columns = (Column(name="a", type=ColumnType(kind=Kind.INT, bits=32), default_expression=computed),)
        return Table(db="d", name="t", columns=columns, key=UniqueIndex(name="u", parts=()))

    assert is_same_definition(table(None), table("rand()"))
    assert not is_same_definition(table("rand()"), table("uuid()"))
    assert not is_same_definition(table("rand()"), table(None))


@pytest.mark.parametrize(
    ("version", "shown", "view"),
    [
        (
            "11.8.3-MariaDB",
            "collation_character_set_applicability.id,columns.generation_expression",
            "collation_character_set_applicability",
        ),
        ("10.1.23-MariaDB", None, "collations"),
        ("9.7.0", "columns.srs_id,statistics.expression", "collations"),
    ],
)
def test_ids_of_collations_are_read_where_the_server_has_them(
    monkeypatch: pytest.MonkeyPatch, version: str, shown: str | None, view: str
) -> None:
    def fetch(_connection: object, query: str) -> list[tuple[Any, ...]]:
        if query == READ_FORM:
            return [(version, shown)]
        assert query.endswith(f"FROM information_schema.{view}")
        return [(45, "utf8mb4"), (None, "utf8mb4")]

    monkeypatch.setattr(mysql_catalog, "_fetch_rows", fetch)
    connection: Any = None
    assert mysql_catalog.read_charset_ids(connection) == {45: "utf8mb4"}


@pytest.mark.parametrize("ordered", [0, 1])
def test_a_uuid_in_the_key_is_refused_on_a_server_that_orders_uuids_otherwise_than_its_indexes(
    monkeypatch: pytest.MonkeyPatch, ordered: int
) -> None:
    answers = {
        READ_FORM: ("10.11.5-MariaDB", "columns.generation_expression"),
        "SELECT @@lower_case_table_names": (0,),
        COMPARES_AS_STORED: (ordered,),
    }
    entries = {
        ("d", name): CatalogEntry(_table_with_key(name, MYSQL_CATALOG[name])) for name in ("uuid", "inet6")
    }
    monkeypatch.setattr(mysql_catalog, "_fetch_rows", lambda _connection, query: [answers[query]])
    monkeypatch.setattr(mysql_catalog, "_read_entries", lambda *_: entries)
    connection: Any = None
    found = mysql_catalog.read_tables(connection, entries)
    assert found["d", "inet6"] == entries["d", "inet6"]
    refused = found["d", "uuid"].table
    assert isinstance(refused, UnsupportedTypeError) is not bool(ordered)
    assert bool(ordered) or str(refused).startswith("the key of d.uuid has a UUID, and this server compares")


def _table_with_key(name: str, type_: dict[str, Any]) -> Table:
    columns = (Column(name="id", type=ColumnType(**type_), nullable=False), *_columns(a=True))
    return Table(db="d", name=name, columns=columns, key=_index("PRIMARY", "id"))
