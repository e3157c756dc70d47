"""The XA transactions that a source's server knows as prepared, for `check`."""

from __future__ import annotations

from contextlib import closing

import pymysql

from producer.errors import CaptureError, TransientSourceError
from producer.sources.binlog.hosts import select_server
from producer.sources.binlog.xa_recover import list_recovered
from producer.sources.catalog import open_catalog
from schemas.config.model import SourceConfig
from schemas.errors import ServerConnectError
from schemas.io.server_errors import choose_mysql_remedy, format_mysql_error


def read_prepared_xids(source: SourceConfig) -> frozenset[str] | None:
    """Return their XIDs. None: the server does not answer or is refused, which other checks report; or its
    user may not ask (an optional right), or it logs XA transactions at their COMMIT, so that the log has none
    of these.

    Raises TransientSourceError if the server answers the question with an error.
    """
    try:
        catalog = open_catalog(select_server(source))
    except (pymysql.MySQLError, OSError, CaptureError, ServerConnectError):
        return None
    with closing(catalog):
        try:
            logs_at_commit = catalog.session.flavour.logs_xa_at_commit(catalog.server.version)
            return None if logs_at_commit else list_recovered(catalog.session)
        except (pymysql.MySQLError, OSError) as error:
            seen = f"the prepared XA transactions cannot be listed: {format_mysql_error(error)}"
            raise TransientSourceError(seen, choose_mysql_remedy(error)) from error
