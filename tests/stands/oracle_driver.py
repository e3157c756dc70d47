"""Replaces the module `oracledb` in the processes of a whole run whose source is Oracle's stand (a).

Tests put a package of that name before the real one (`installed`), so that the product takes its own way to
its driver: it opens a connection by `schemas.io.oracle_connection`, and reaches a PostgreSQL. No setting of
the product leads here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg

from tests.stands.oracle_source import Connection, StandError

Error = StandError
_NOTHING_ANSWERS = "DPY-6005"


def connect(*, user: str, host: str, port: int, service_name: str, **_: object) -> Any:
    """Open a connection to the stand's database. Raises Error."""
    try:
        made = psycopg.connect(host=host, port=port, user=user, dbname=service_name, connect_timeout=60)
    except psycopg.Error as error:
        raise StandError(error, _NOTHING_ANSWERS) from error
    return Connection(made)


def installed(place: Path) -> Path:
    """Make the package in `place`, which is to be first in PYTHONPATH; returns `place`."""
    package = place / "oracledb"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from tests.stands.oracle_driver import Error, connect\n")
    return place
