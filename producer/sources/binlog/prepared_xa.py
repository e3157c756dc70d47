"""XA transactions that are prepared and have not ended, and the effect of their end on the tables that
they change. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from producer.errors import TableStoppedError
from producer.sources.changes import TableName, TableNames
from schemas.findings import COPY_EACH


class PreparedXaTransactions:
    """The tables that each prepared XA transaction changes, by its xid.

    They are stored with the position, because XA COMMIT does not repeat the rows. `tables` is replaced
    at each change: a mapping that was handed out stays as it is.
    """

    def __init__(self, tables: Mapping[str, TableNames]) -> None:
        self.tables = tables

    def add_prepared(self, xid: str, changed: Iterable[TableName]) -> None:
        self.tables = {**self.tables, xid: tuple(sorted(changed))}

    def commit_prepared(self, xid: str, captured: Callable[[str, str], bool]) -> TableStoppedError | None:
        """End a transaction by XA COMMIT. Return the stop of captured tables, or None.

        The tables that it changes cannot be followed, because the rows that it publishes are far back in
        the log. For an unknown xid every captured table is stopped, as the changed rows are unknown.
        """
        changed = self.tables.get(xid)
        self.roll_back_prepared(xid)
        if changed is None:
            return TableStoppedError(
                None, "xa",
                f"XA COMMIT of a transaction that was prepared before capture began ({xid}): "
                "which rows it changed is unknown",
                COPY_EACH,
            )  # fmt: skip
        tables = frozenset(name for name in changed if captured(*name))
        if not tables:
            return None
        listed = ", ".join(sorted(f"{db}.{table}" for db, table in tables))
        return TableStoppedError(
            tables, "xa", f"an XA transaction ({xid}) changes {listed}; XA is not supported yet",
            f"exclude the table, or stop using XA transactions on it, and {COPY_EACH}",
        )  # fmt: skip

    def roll_back_prepared(self, xid: str) -> None:
        """End a transaction by XA ROLLBACK: its rows were never committed."""
        self.tables = {other: tables for other, tables in self.tables.items() if other != xid}
