"""The text of statements in the character set of their client: names and strings end where the server ends
them."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pymysql.charset import _charsets, charset_by_id
from pymysql.constants import FIELD_TYPE

from producer.binlog_format import log_event as log
from producer.binlog_format import types as log_types
from producer.binlog_format.log_event import (
    BinlogEvent,
    LoggedStatement,
    parse_statement_event,
    parse_status_variables,
)
from producer.binlog_format.statement_text import _CHARSETS, UNDECODED, decode_statement_text
from producer.statements.ddl import TableDdl, UnknownStatement
from producer.statements.statement import parse_statement
from producer.statements.tokens import tokenize_sql

#: Collation id of a client, its codec, and a character of it whose second byte is a backslash, or a backtick.
CLIENTS = [(28, "gbk", "昞昤"), (87, "gbk", "昞"), (1052, "gbk", "昞"), (248, "gb18030", "昞昤"), (1, "big5", "功"),  # noqa: E501
           (13, "shift_jis", "表"), (95, "cp932", "表")]  # fmt: skip


def _query(sql: bytes, variables: bytes, flags: int = 0, db: bytes = b"bank") -> LoggedStatement:
    head = struct.pack("<IIBHH", 1, 0, len(db), 0, len(variables))
    body = head + variables + db + b"\0" + sql
    return parse_statement_event(
        BinlogEvent(log.QUERY, 1_700_000_000, 1, flags, "binlog.000009", 4, 99, body)
    )


def _variables(client: int, sql_mode: int = 0) -> bytes:
    return (
        b"\0"
        + bytes(4)
        + b"\1"
        + struct.pack("<Q", sql_mode)
        + b"\6\3std\4"
        + struct.pack("<HHH", client, 8, 8)
    )


@pytest.mark.parametrize(("client", "codec", "characters"), CLIENTS)
def test_a_string_ends_where_the_server_ends_it(client: int, codec: str, characters: str) -> None:
    for character in characters:
        for sql in (
            f"RENAME TABLE t TO `o{character}`, s TO t",
            f"ALTER TABLE t COMMENT='{character}', RENAME TO u",
        ):
            query = _query(sql.encode(codec), _variables(client))
            assert query.sql == sql
            found = parse_statement(query).kind
            assert isinstance(found, TableDdl)
            assert found.action == "rename"
            assert ("bank", "t") in found.tables


@pytest.mark.parametrize(
    ("client", "codec", "name"),
    [(28, "gbk", "客户"), (8, "latin1", "é"), (51, "cp1251", "счёт"), (33, "utf8", "客户"), (45, "utf8", "ü"), (24, "gb2312", "客户"),  # noqa: E501
     (19, "euc_kr", "계좌"), (12, "euc_jp", "表"), (304, "utf8", "é"), (2304, "utf8", "é")],
)  # fmt: skip
def test_a_name_is_the_one_that_the_client_wrote(client: int, codec: str, name: str) -> None:
    query = _query(f"DROP TABLE {name}".encode(codec), _variables(client))
    assert parse_statement(query).kind == TableDdl("drop", (("bank", name),))


def test_a_name_that_cannot_be_decoded_is_none_that_is_known() -> None:
    for client, data in ((28, b"\xff"), (3, b"\xa4"), (63, b"\xc4"), (28, b"\xfe\x7c")):
        query = _query(b"DROP TABLE `" + data + b"`", _variables(client))
        assert parse_statement(query).kind == UnknownStatement("bank")


@given(
    st.binary(max_size=40),
    st.sampled_from([client for client, _, _ in CLIENTS] + [None, 8, 3, 12, 33, 97, 63]),
)
def test_any_bytes_give_a_text_without_new_quotes(data: bytes, client: int | None) -> None:
    text = decode_statement_text(b"'" + data, client)
    assert all(text.count(chr(mark)) <= data.count(mark) + 1 for mark in b"'\"`\\")
    tokenize_sql(text)


@given(st.text(st.characters(codec="gbk"), max_size=30))
def test_what_python_encodes_comes_back(text: str) -> None:
    assert decode_statement_text(text.encode("gbk"), 28) == text
    assert UNDECODED not in text


def test_status_variables_end_where_they_are_not_known() -> None:
    known = _variables(28) + b"\5\3UTC" + b"\x0b\1a\1b" + b"\x0c\2one\0two\0"
    found, whole = parse_status_variables(known)
    assert whole
    assert (found[4][:2], found[12]) == (b"\x1c\0", b"\2one\0two\0")
    for rest in (b"\xf0\1", b"\x0c", b"\x0c\2one\0", b"\4\1", b"\5\x09U", b"\x0b\1a", b"\x0b\1a\4b"):
        found, whole = parse_status_variables(known[:14] + rest)
        assert not whole


def test_a_marked_statement_may_be_on_a_temporary_table() -> None:
    """MySQL marks TRUNCATE of a base table, too, behind another statement of the same routine."""
    ddl = b"\x11" + bytes(8)
    temporary = b"\x0c\1bank\0"
    marked = 4
    assert not _query(b"TRUNCATE TABLE t", _variables(45)).temporary
    assert _query(b"TRUNCATE TABLE t", _variables(45), marked).temporary
    assert _query(b"TRUNCATE TABLE t", _variables(45) + temporary + ddl, marked).temporary
    assert not _query(b"TRUNCATE TABLE t", _variables(45) + ddl, marked).temporary
    assert _query(b"TRUNCATE TABLE t", _variables(45) + ddl + b"\xf0", marked).temporary


def test_collations_have_the_ids_of_the_servers() -> None:
    """PyMySQL has a table of its own."""
    theirs = {number: charset_by_id(number).name for number in range(1, 251) if number in _charsets._by_id}
    ours = {number: name for number, name in _CHARSETS.items() if number in theirs}
    assert ours == {number: name for number, name in theirs.items() if name in set(_CHARSETS.values())}
    assert len(ours) > 60


def test_types_of_columns_have_the_numbers_of_the_servers() -> None:
    names = [name for name in vars(FIELD_TYPE) if name.isupper() and hasattr(log_types, name)]
    assert len(names) > 20
    assert {name: getattr(log_types, name) for name in names} == {
        name: getattr(FIELD_TYPE, name) for name in names
    }


@pytest.mark.parametrize(("sql_mode", "escapes"), [(0, True), (1 << 20, False), (1 << 21, True)])
def test_a_backslash_escapes_unless_the_session_s_sql_mode_forbids_it(sql_mode: int, escapes: bool) -> None:
    """NO_BACKSLASH_ESCAPES is bit 20 on both servers; with it, the next quote ends the string."""
    assert _query(b"DROP TABLE t", _variables(45, sql_mode)).escapes is escapes
