"""Definitions that no event carries: those of tables whose topics Debezium writes, read from the source database.

Read once, when a unit is taken over that has none in force; it is then stored beside the progress, and a restart asks
the target only.
"""

from __future__ import annotations

import contextlib

from consumer.errors import TargetConfigError, TransientError, UnitStoppedError
from schemas.config.model import SourceConfig
from schemas.errors import SchemaError, ServerConnectError
from schemas.io.mysql_catalog import list_tables, read_table
from schemas.io.mysql_connection import connect_source
from schemas.table.model import Table
from schemas.wire.debezium import debezium_topic


def read_definition(source: SourceConfig, name: str, prefix: str, topic: str) -> Table:
    """Return the definition, as it is now, of the table whose events Debezium writes to `topic`.

    Raises TransientError (the source cannot be reached just now), TargetConfigError (it refuses the user), UnitStoppedError
    (there is no such table, or it cannot be applied).
    """
    import pymysql

    try:
        with contextlib.closing(connect_source(source)) as conn:
            found = [
                place
                for place in list_tables(conn, source.tables)
                if debezium_topic(prefix, name, *place) == topic
            ]
            return read_table(conn, *_only(found, source, name, topic))
    except ServerConnectError as error:
        kind = TransientError if error.transient else TargetConfigError
        raise kind(f"source {name}: {error}") from error
    except SchemaError as error:
        raise UnitStoppedError(f"source {name}: {error}") from error
    except (pymysql.MySQLError, OSError) as error:
        raise TransientError(
            f"source {name}: the definition of {topic}'s table cannot be read: {error}"
        ) from error


def _only(found: list[tuple[str, str]], source: SourceConfig, name: str, topic: str) -> tuple[str, str]:
    if len(found) == 1:
        return found[0]
    if found:
        tables = ", ".join(f"{db}.{table}" for db, table in found)
        raise UnitStoppedError(
            f"{topic}: {tables} of source {name} all go to this topic, for Debezium writes '_' for what Kafka refuses in a "
            "name: take all but one out of `tables`"
        )
    raise UnitStoppedError(
        f"{topic}: source {name} has no table of that name, or user {source.user} may not see it: "
        f"GRANT SELECT on it to {source.user}, or take it out of `tables`"
    )
