"""The statements after which MySQL or MariaDB numbers the new rows of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from consumer.targets.mysql.sql import bare
from consumer.targets.mysql.values import render_literal
from consumer.targets.sql import qualify_table
from schemas.io.mysql_connection import SQL_MODE
from schemas.table.model import Table

if TYPE_CHECKING:
    from consumer.targets.mysql.connection import MySqlLink

_COLUMN = """
SELECT column_type, column_comment, extra, (SELECT COUNT(*) FROM information_schema.statistics s
  WHERE s.table_schema = c.table_schema AND s.table_name = c.table_name AND s.column_name = c.column_name
  AND s.seq_in_index = 1)
FROM information_schema.columns c WHERE table_schema = %s AND table_name = %s AND column_name = %s"""
#: That of rowlock's sessions: a row with the number 0 keeps it, and zero dates that were replicated stay.
_SET_MODE = f"SET SESSION sql_mode = '{SQL_MODE}'"


def render_numbering(link: MySqlLink, table: Table, column: str, first: int) -> list[str]:
    """Return the statements after which the first new row has the number `first` in `column`."""
    name = qualify_table(bare, table.db, table.name)
    [(type_, comment, extra, indexes)] = link.execute(_COLUMN, [table.db, table.name, column])
    begin = f"AUTO_INCREMENT = {first}"
    if "auto_increment" in str(extra):
        return [f"ALTER TABLE {name} {begin}"]
    own = bare(column)
    about = f" COMMENT {render_literal(comment)}" if comment else ""
    actions = [f"MODIFY COLUMN {own} {type_} NOT NULL AUTO_INCREMENT{about}", begin]
    if not int(str(indexes)):  # the server requires that an index begins with the column
        actions.insert(0, f"ADD INDEX ({own})")
    return [_SET_MODE, f"ALTER TABLE {name} {', '.join(actions)}"]
