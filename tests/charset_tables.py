"""The tables of character sets that Python has no codec for, read from a server.

`python -m tests.charset_tables` writes producer/binlog_format/charset_tables.json from a MariaDB that it
starts. tests/integration/test_decoder_charsets.py compares the file with MariaDB and MySQL, which agree.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from producer.binlog_format import tabled_charsets
from producer.binlog_format.tabled_charsets import UNDEFINED

FILE = Path(tabled_charsets.__file__).with_name("charset_tables.json")
EIGHT_BIT = ("armscii8", "dec8", "geostd8", "hp8", "keybcs2", "swe7")
_SINGLE = [bytes([code]) for code in range(256)]
_UPPER = range(0xA1, 0xFF)
_PAIRS = [bytes([first, second]) for first in _UPPER for second in _UPPER]
_EUCJPMS = [
    *_SINGLE[:128],
    *(bytes([0x8E, second]) for second in range(0xA1, 0xE0)),
    *_PAIRS,
    *(b"\x8f" + pair for pair in _PAIRS),
]
CODES: dict[str, list[bytes]] = {**dict.fromkeys(EIGHT_BIT, _SINGLE), "eucjpms": _EUCJPMS}
"""Character set → the codes that a server takes for a character of it."""
_AT_ONCE = 400

Execute = Callable[[str], Any]
"""Runs a statement on a connection with utf8mb4, and returns its rows."""


def read_tables(execute: Execute) -> dict[str, Any]:
    """Return the content of the file."""
    return {charset: _read_table(execute, charset, codes) for charset, codes in CODES.items()}


def _read_table(execute: Execute, charset: str, codes: list[bytes]) -> dict[str, Any]:
    """Return the characters of a set: rows of codes that differ in the last byte, and the codes of
    characters that the server itself gives another code.
    """
    shown = f"CONVERT(CONVERT(x'{{}}' USING {charset}) USING utf8mb4)"
    meanings = dict(zip(codes, _convert(execute, shown, codes), strict=True))
    back = f"CAST(CONVERT({shown} USING {charset}) AS BINARY)"
    returned = dict(zip(codes, _convert(execute, back, codes), strict=True))
    found = {
        code: text for code, text in meanings.items() if len(text) == 1 and (text != "?" or code == b"?")
    }
    rows = []
    for _, group in itertools.groupby(codes, lambda code: code[:-1]):
        row = list(group)
        text = "".join(found.get(code, UNDEFINED) for code in row)
        if text.strip(UNDEFINED):
            rows.append([row[0].hex(), text])
    return {"rows": rows, "repeated": [code.hex() for code in found if returned[code] != code]}


def _convert(execute: Execute, expression: str, codes: list[bytes]) -> Iterator[Any]:
    for at in range(0, len(codes), _AT_ONCE):
        part = codes[at : at + _AT_ONCE]
        [values] = execute("SELECT " + ", ".join(expression.format(code.hex()) for code in part))
        yield from values


def render_file(tables: dict[str, Any]) -> str:
    """Return the file's text: one line for each row, characters that cannot be seen escaped."""
    parts = []
    for charset, table in tables.items():
        rows = ",\n".join(f"  {_render_json(row)}" for row in table["rows"])
        parts.append(f'"{charset}": {{"repeated": {_render_json(table["repeated"])}, "rows": [\n{rows}\n]}}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _render_json(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return re.sub(r"[^\x20-\x7e]", lambda found: _render_character(found[0]), text)


def _render_character(character: str) -> str:
    return character if character.isprintable() else f"\\u{ord(character):04x}"


def main() -> None:
    from deploy.embedded.services import MariaDB

    with MariaDB() as server, server.connect(charset="utf8mb4") as connection:
        with connection.cursor() as cursor:

            def execute(statement: str) -> Any:
                cursor.execute(statement)
                return cursor.fetchall()

            FILE.write_text(render_file(read_tables(execute)), encoding="utf-8")


if __name__ == "__main__":
    main()
