"""XA transactions that a server commits without logging their rows: MariaDB before 10.5.

Such a server logs the rows of an XA transaction at its COMMIT, from the memory of the session. After a crash
it recovers the prepared ones from its engine, without that memory: their XA COMMIT changes tables, and the
log has nothing of it. So capture looks for them when it connects to a server that may have been started
since.

A start begins a new file of the log. So as long as capture is in the file that the server writes, the server
has run since capture asked the last time.
"""

from __future__ import annotations

from producer.errors import SourceRefusedError
from producer.sources.binlog.xa_recover import list_recovered
from producer.sources.catalog import Catalog
from producer.sources.grants import Grants

_SHOWN = 10
#: Transactions without a session: those that the server has recovered, not those that a session has prepared.
_RECOVERED = "SELECT COUNT(*) AS found FROM information_schema.innodb_trx WHERE trx_mysql_thread_id = 0"


def require_logged_xa(catalog: Catalog, version: str, captured_file: str | None) -> None:
    """Raise SourceRefusedError if the server may commit XA transactions without logging them.

    `version`: the server's. `captured_file`: the file of the log that capture has reached; None: it begins.
    Raises pymysql errors.
    """
    if not catalog.session.flavour.logs_xa_at_commit(version):
        return
    end = catalog.server.log_end()
    if end is not None and end[0] == captured_file:
        return
    xids = list_recovered(catalog.session)
    if xids and _may_be_recovered(catalog):
        raise SourceRefusedError(
            f"the server has prepared XA transactions ({_list_shown(xids)}), perhaps from before it was "
            "started: this version does not log what their XA COMMIT changes",
            "end them (XA RECOVER lists them), and copy the tables that they changed once capture runs "
            "(`rowlock copy`); with GRANT PROCESS rowlock sees which of them a session has prepared, and "
            "does not wait for these",
        )


def _may_be_recovered(catalog: Catalog) -> bool:
    """Return whether a prepared transaction may be from before the server's start.

    Without the right to see sessions some versions answer with an error, and others with nothing.
    """
    if not Grants.parse_grants(catalog.server.read_grants()).has_everywhere("PROCESS"):
        return True
    return bool(catalog.session.run_query(_RECOVERED)[0]["found"])


def _list_shown(xids: frozenset[str]) -> str:
    more = f" and {len(xids) - _SHOWN} more" if len(xids) > _SHOWN else ""
    return ", ".join(sorted(xids)[:_SHOWN]) + more
