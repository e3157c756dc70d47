"""Reads from the source database what no event of a Debezium topic carries.

A table's definition is read once, when a unit without an active definition is taken over; it is then
stored beside the progress, and a restart reads the target only. The existing rows are looked up when a
snapshot does not show whether it was complete.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from consumer.errors import TargetConfigError, TransientError, UnitStoppedError
from consumer.ordering.model import TargetTable
from consumer.tables.router import build_key_table, make_key_function
from consumer.targets.dialect import open_session
from consumer.targets.shared.keyed_reads import find_under_keys
from schemas.config.model import SourceConfig, TargetConfig
from schemas.errors import SchemaError, ServerConnectError
from schemas.findings import add_exclusion
from schemas.io.mysql_catalog import list_tables, read_table
from schemas.io.mysql_connection import connect_source
from schemas.io.server_errors import choose_mysql_remedy, format_mysql_error
from schemas.table.model import Key, Table
from schemas.wire.debezium import format_debezium_topic


def read_definition(source: SourceConfig, name: str, prefix: str, topic: str) -> Table:
    """Return the present definition of the table with events that Debezium writes to `topic`.

    Raises TransientError if the source cannot be reached, TargetConfigError if it refuses the user,
    UnitStoppedError if there is no such table or it cannot be applied.
    """
    import pymysql

    try:
        with contextlib.closing(connect_source(source)) as conn:
            found = [
                place
                for place in list_tables(conn, source.tables)
                if format_debezium_topic(prefix, name, *place) == topic
            ]
            place = _require_one_table(found, source, name, topic)
            try:
                return read_table(conn, *place)
            except SchemaError as error:
                problem = error.problem
                raise UnitStoppedError(
                    f"source {name}: {problem.what}", add_exclusion(problem.remedy, *place), problem.statement
                ) from error
    except ServerConnectError as error:
        kind = TransientError if error.transient else TargetConfigError
        raise kind.wrap_error(f"source {name}", error) from error
    except SchemaError as error:
        raise UnitStoppedError.wrap_error(f"source {name}", error) from error
    except (pymysql.MySQLError, OSError) as error:
        raise TransientError(
            f"source {name}: the definition of {topic}'s table cannot be read: {format_mysql_error(error)}",
            choose_mysql_remedy(error),
        ) from error


def _require_one_table(
    found: list[tuple[str, str]], source: SourceConfig, name: str, topic: str
) -> tuple[str, str]:
    if len(found) == 1:
        return found[0]
    if found:
        tables = ", ".join(f"{db}.{table}" for db, table in found)
        raise UnitStoppedError(
            f"{topic}: {tables} of source {name} all go to this topic, because Debezium replaces characters "
            "that Kafka does not allow by '_'",
            "leave only one of them in `tables`",
        )
    raise UnitStoppedError(
        f"{topic}: source {name} has no table of that name, or user {source.user} may not see it",
        f"GRANT SELECT on it to {source.user}, or take it out of `tables`",
    )


def find_source_keys(source: SourceConfig, name: str, table: Table, keys: Sequence[Key]) -> list[Key]:
    """Return the keys of the rows of `table` that the source finds under `keys`, as it compares and
    shows them.

    Raises TransientError if the source cannot be reached, TargetConfigError if it refuses the user or
    lacks the table or a column.
    """
    columns = build_key_table(TargetTable(table, table.find_ordinals(table.key.columns), ()))
    try:
        with contextlib.closing(open_session(as_target(source, table.db), name="rowlock source")) as session:
            rows = find_under_keys(lambda some: session.fetch_keys(columns, some), keys)
    except (TransientError, TargetConfigError) as error:
        kind = TransientError if isinstance(error, TransientError) else TargetConfigError
        raise kind.wrap_error(f"source {name}", error) from error
    return [*map(make_key_function(columns), rows)]


def as_target(source: SourceConfig, database: str) -> TargetConfig:
    """Return a source as a target, for the code that reads rows of targets."""
    fields = {field: getattr(source, field) for field in ("type", "host", "port", "user", "password", "tls")}
    # Validation would make the password a new one, which does not know its file.
    return TargetConfig(database=database, **fields).model_copy(update={"password": source.password})
