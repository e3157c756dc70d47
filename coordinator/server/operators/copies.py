"""Copies of one table, as operators request and see them. Capture carries them out
(schemas/wire/copies.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from schemas.problems import ProblemError


@dataclass(frozen=True, slots=True)
class CopyRequested:
    """A request to copy a table, to cancel its copy (`cancel`), or to change the rate (`rate_only`)."""

    table: str
    """"database.table", with backticks around unusual names."""
    source: str | None = None
    """None: the source that has the table."""
    where: str | None = None
    max_rows_per_second: int | None = None
    cancel: bool = False
    rate_only: bool = False


class DebtRow(msgspec.Struct, frozen=True):
    """Rows that statements removed at the source, and that targets may still have until a key sweep or a copy
    has ended.
    """

    statement: str = msgspec.field(name="statement")
    """The last statement; a long one is cut."""
    statements: int = msgspec.field(name="statements")
    """Number of statements."""
    at: str | None = msgspec.field(name="at")
    """"file:position" of the last statement in the source's log; None: not known."""
    since_ms: int = msgspec.field(name="since_ms")
    """Time of the first statement at the source, in ms since 1970."""


class CopyRow(msgspec.Struct, frozen=True):
    """The state of the last copy that was requested of a table. Times are in ms since 1970."""

    source: str = msgspec.field(name="source")
    table: str = msgspec.field(name="table")
    id: str = msgspec.field(name="id")
    phase: str = msgspec.field(name="phase")
    by: str = msgspec.field(name="by")
    cause: str = msgspec.field(name="cause")
    """"waiting", "running", "done", "refused" or "cancelled"."""
    where: str | None = msgspec.field(name="where")
    rows: int = msgspec.field(name="rows")
    estimate: int | None = msgspec.field(name="estimate")
    requested_ms: int = msgspec.field(name="requested_ms")
    began_ms: int | None = msgspec.field(name="began_ms")
    ended_ms: int | None = msgspec.field(name="ended_ms")
    restarts: int = msgspec.field(name="restarts")
    reason: str = msgspec.field(name="reason")
    eta_s: float | None = msgspec.field(name="eta_s", default=None)
    """Seconds until all rows are read, by the rate so far; None: not known."""
    max_rows_per_second: int | None = msgspec.field(name="max_rows_per_second", default=None)
    retry_ms: int | None = msgspec.field(name="retry_ms", default=None)
    """Time at which a postponed copy, which is `refused` until then, begins by itself; None: it does not."""
    debt: DebtRow | None = msgspec.field(name="debt", default=None)
    """Set until the copy or key sweep has ended that removes these rows."""


@dataclass(frozen=True, slots=True)
class CopyRequestStored:
    """The request is stored in Kafka."""

    id: str
    """The identifier under which the listing shows the request."""
    source: str
    table: str


class CopyRefusedError(ProblemError):
    """The request cannot be executed."""


class CopyRequests(Protocol):
    """Stores requests and reads their state. May be called from any thread; waits for Kafka."""

    def request_copy(self, asked: CopyRequested, *, by: str) -> CopyRequestStored:
        """Store the request where capture reads it. Raises CopyRefusedError."""

    def list_copies(self) -> Sequence[CopyRow]:
        """Return the copies of all sources, by source and table. Raises CopyRefusedError if Kafka does
        not answer.
        """
