"""XA transactions that are prepared and not ended, and what their end does to the tables that they change. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from producer.errors import TableStoppedError
from producer.sources.changes import TableName, TableNames
from schemas.findings import COPY_EACH


class PreparedXaTransactions:
    """`tables`: of each XA transaction, by its xid. It has to be stored with the position: at XA COMMIT the rows are known to nobody else.

    A mapping that was given out stays as it is.
    """

    def __init__(self, tables: Mapping[str, TableNames]) -> None:
        self.tables = tables

    def add_prepared(self, xid: str, changed: Iterable[TableName]) -> None:
        self.tables = {**self.tables, xid: tuple(sorted(changed))}

    def commit_prepared(self, xid: str, captured: Callable[[str, str], bool]) -> TableStoppedError | None:
        """End one; return which captured tables cannot be followed: it publishes rows that stand far back in the log."""
        changed = self.tables.get(xid)
        self.roll_back_prepared(xid)
        if changed is None:
            return TableStoppedError(
                None, "xa",
                f"XA COMMIT of a transaction that was prepared before capture began ({xid}): which rows it changed is unknown",
                COPY_EACH,
            )  # fmt: skip
        tables = frozenset(name for name in changed if captured(*name))
        if not tables:
            return None
        listed = ", ".join(sorted(f"{db}.{table}" for db, table in tables))
        return TableStoppedError(
            tables, "xa", f"an XA transaction ({xid}) changes {listed}; XA is not supported yet",
            f"exclude the table, or end the use of XA on it, and {COPY_EACH}",
        )  # fmt: skip

    def roll_back_prepared(self, xid: str) -> None:
        """End one: its rows never came to be."""
        self.tables = {other: tables for other, tables in self.tables.items() if other != xid}
