"""Translates errors of a source's driver to errors of capture. No other module does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pymysql

from producer.errors import CaptureError, SourceRefusedError, TransientSourceError
from schemas.errors import ServerConnectError
from schemas.findings import START_OVER
from schemas.io.server_errors.mysql import choose_mysql_remedy, format_mysql_error

_PURGED = 1236  # ER_MASTER_FATAL_ERROR_READING_BINLOG: purged, or the position is not in the file
_TRANSIENT = frozenset(
    {1040, 1053, 1077, 1079, 1152, 1158, 1159, 1160, 1161, 1203, 1205, 1927, 2003, 2006, 2013, 2055, 4031}
)


@contextmanager
def source_errors() -> Iterator[None]:
    """Translate driver errors and refused connections to TransientSourceError or SourceRefusedError."""
    try:
        yield
    except pymysql.MySQLError as error:
        raise translate_mysql_error(error) from error
    except ServerConnectError as error:
        kind = TransientSourceError if error.transient else SourceRefusedError
        raise kind.from_problem(error.problem) from error


def translate_mysql_error(error: pymysql.MySQLError) -> CaptureError:
    """Return the error of capture for a driver error: transient, or refused with a remedy."""
    code = error.args[0] if error.args else 0
    text = format_mysql_error(error)
    if code in _TRANSIENT or isinstance(error, pymysql.InterfaceError):
        return TransientSourceError(f"the source cannot be reached at the moment: {text}")
    if code == _PURGED:
        return SourceRefusedError(
            f"the source cannot continue the log at capture's position: {text}",
            f"if the log was purged, keep it longer (binlog_expire_logs_seconds), and {START_OVER}",
        )
    return SourceRefusedError(f"the source refuses capture: {text}", choose_mysql_remedy(error))
