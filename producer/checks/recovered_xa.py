"""The XA transactions that a source's server knows as prepared, for `check`."""

from __future__ import annotations

from contextlib import closing

import pymysql

from producer.errors import CaptureError
from producer.sources.binlog.hosts import select_server
from producer.sources.binlog.xa_recover import list_recovered
from producer.sources.catalog import open_catalog
from schemas.config.model import SourceConfig
from schemas.errors import ServerConnectError


def read_prepared_xids(source: SourceConfig) -> frozenset[str] | None:
    """Return their XIDs; None: the server does not answer, not to this user, or has an unsupported version,
    which other checks report, or it logs XA transactions at their COMMIT, so that the log has none of these.
    """
    try:
        with closing(open_catalog(select_server(source))) as catalog:
            logs_at_commit = catalog.session.flavour.logs_xa_at_commit(catalog.server.version)
            return None if logs_at_commit else list_recovered(catalog.session)
    except (pymysql.MySQLError, OSError, CaptureError, ServerConnectError):
        return None
