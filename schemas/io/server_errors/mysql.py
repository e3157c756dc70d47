"""Messages for PyMySQL's errors: what was read, what the server answered, and the remedy. The errors
stay unchanged.

Every connection of schemas.io.mysql_connection notes on an error what its statement read (`note_read`),
so that any code that translates the error can name it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from schemas.io.server_errors.catalog_reads import UNKNOWN_THERE, name_catalog_read

if TYPE_CHECKING:
    import pymysql

_NOTE = "reading "
#: Characters of a statement that are inspected: catalog reads are shorter, and statements on rows may
#: have millions.
_LOOKED_AT = 4000
#: The server does not know a column, a view, a statement, a setting or a function.
UNKNOWN_OBJECT_CODES = frozenset({1054, 1064, 1109, 1193, 1235, 1305})
_LOST = frozenset({1053, 1927, 2002, 2003, 2006, 2013, 2055})
_DENIED = frozenset({1044, 1142, 1143, 1227, 1370})


def note_read(error: pymysql.MySQLError, statement: str | bytes) -> None:
    """Note on an error what `statement` reads."""
    text = statement if isinstance(statement, str) else bytes(statement[:_LOOKED_AT]).decode(errors="replace")
    if (read := name_catalog_read(text[:_LOOKED_AT])) is not None:
        error.add_note(f"{_NOTE}{read}")


def get_noted_read(error: Exception) -> str | None:
    """Return what was read when `error` occurred; None: rows, or nothing."""
    notes = (note.removeprefix(_NOTE) for note in getattr(error, "__notes__", ()) if note.startswith(_NOTE))
    return next(notes, None)


def format_mysql_error(error: Exception) -> str:
    """Return "reading …: the server's message (number)"."""
    words = " ".join(str(error.args[1] if len(error.args) > 1 else error).split())
    text = f"{words} ({error.args[0] if error.args else type(error).__name__})"
    read = get_noted_read(error)
    return f"{_NOTE}{read}: {text}" if read else text


def choose_mysql_remedy(error: Exception) -> str:
    """Return what a person should do about an error of a source's catalog."""
    code = error.args[0] if error.args else 0
    if code in _DENIED:
        return "`rowlock check` prints the GRANT that is missing (docs/how-to/source-setup.md)"
    if code in _LOST:
        return "see whether the server still runs, and try again"
    return UNKNOWN_THERE if code in UNKNOWN_OBJECT_CODES else "see the server's log"
