"""The errors with which a command may end, as messages for people.

Expected failures of a command are CommandErrors long before they could arrive here as a server's error. Any
other error is a fault of rowlock, and keeps its traceback.
"""

from __future__ import annotations

from consumer.errors import ConsumerError
from producer.errors import CaptureError
from rowlock.errors import CommandError
from schemas.config.errors import ConfigErrors
from schemas.errors import SchemaError
from schemas.io.server_errors import choose_mysql_remedy, format_mysql_error

#: Packages with exceptions that are answers of a server.
_DRIVERS = frozenset({"pymysql", "psycopg", "oracledb", "sqlalchemy", "confluent_kafka", "cimpl"})


def explain_expected_error(error: Exception) -> str | None:
    """Return the message for a person; None: the error is a fault of rowlock itself."""
    if isinstance(error, (ConfigErrors, CommandError, ConsumerError, CaptureError, SchemaError)):
        return str(error)
    packages = {kind.__module__.partition(".")[0] for kind in type(error).__mro__}
    if packages.isdisjoint(_DRIVERS):
        return None
    if "pymysql" in packages:
        return (
            f"a database refuses what rowlock asks: {format_mysql_error(error)}: {choose_mysql_remedy(error)}"
        )
    words = " ".join(str(error).split())
    return f"a server refuses what rowlock asks: {words} ({type(error).__name__}): see the server's log"
