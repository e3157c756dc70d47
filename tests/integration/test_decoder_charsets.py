"""Every character that a server can store in a charset is decoded from the charset's bytes as the server
itself does."""

from __future__ import annotations

from typing import Any

import pytest

from producer.binlog_format.charsets import _CODECS, find_code_check, find_decoder
from producer.binlog_format.tabled_charsets import TABLED_CHARSETS
from tests.charset_tables import FILE, read_tables, render_file

#: Extensions that Python's euc_jp lacks (user-defined characters): refused when met, never guessed.
_STRICT = {"ujis"}


@pytest.fixture(scope="module")
def characters(mariadb: Any) -> Any:
    """A table with all of the basic plane but U+FFFD (servers map undefined bytes to it), and a connection to
    it."""
    mariadb.execute("CREATE OR REPLACE DATABASE charsets")
    connection = mariadb.connect("charsets", charset="utf8mb4")
    codes = [*range(1, 0xD800), *range(0xE000, 0xFFFD)]
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE c (c VARCHAR(1) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)")
        cursor.executemany("INSERT INTO c VALUES (%s)", [(chr(code),) for code in codes])
        yield cursor
    connection.close()
    mariadb.drop_database("charsets")


@pytest.mark.parametrize(
    "charset", ["latin1", *sorted({*_CODECS, *TABLED_CHARSETS} - {"gb18030"})]
)  # MariaDB has no gb18030
def test_decoded_as_the_server_does(characters: Any, charset: str) -> None:
    characters.execute(
        f"SELECT DISTINCT CAST(CONVERT(c USING {charset}) AS BINARY), "
        f"CAST(CONVERT(CONVERT(c USING {charset}) USING utf8mb4) AS BINARY) FROM c"
    )
    decode = find_decoder(charset)
    assert decode is not None
    wrong = []
    for stored, shown in characters.fetchall():
        try:
            found = decode(stored).encode("latin-1")
        except UnicodeDecodeError:
            found = shown if charset in _STRICT else b"refused"
        if found != shown and shown != b"\xef\xbf\xbd":
            wrong.append((stored, shown.decode(), found))
    assert wrong == []


def test_gb18030_on_mysql(mysql: Any) -> None:
    decode = find_decoder("gb18030")
    assert decode is not None
    for character in ("ḿ", "\ue7c7", "漢", "😀", "€", "a"):
        [(stored,)] = mysql.execute(
            f"SELECT CAST(CONVERT(_utf8mb4 x'{character.encode().hex()}' USING gb18030) AS BINARY)"
        )
        assert decode(stored).encode("latin-1").decode() == character


@pytest.mark.parametrize("server", ["mariadb", "mysql"])
def test_tables_are_those_of_the_servers(request: pytest.FixtureRequest, server: str) -> None:
    with request.getfixturevalue(server).connect(charset="utf8mb4") as connection:
        with connection.cursor() as cursor:

            def execute(statement: str) -> Any:
                cursor.execute(statement)
                return cursor.fetchall()

            assert render_file(read_tables(execute)) == FILE.read_text(encoding="utf-8")


def test_in_an_index_the_code_is_the_one_that_the_server_chooses(characters: Any) -> None:
    """A chunk begins after the text of a key, which the server makes bytes again."""
    characters.execute("SELECT DISTINCT CAST(CONVERT(c USING cp932) AS BINARY) FROM c")
    check = find_code_check("cp932")
    assert check is not None
    for (stored,) in characters.fetchall():
        check(stored)
