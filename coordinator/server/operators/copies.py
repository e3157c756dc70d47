"""Copies of one table, as operators ask for them and see them. What carries them out is capture (schemas/wire/copies.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec


@dataclass(frozen=True, slots=True)
class CopyRequested:
    """A copy that somebody asks for, or takes back (`cancel`), or gives another rate (`rate_only`). `table`: "database.table", odd names in backticks. `source`: None: the one that has the
    table."""

    table: str
    source: str | None = None
    where: str | None = None
    max_rows_per_second: int | None = None
    cancel: bool = False
    rate_only: bool = False


class CopyRow(msgspec.Struct, frozen=True):
    """State of the last request for a table. `phase`: waiting, running, done, refused, cancelled. `eta_s`: seconds until it has read all rows, by
    its rate so far; None: not known. Times in ms since 1970."""

    source: str = msgspec.field(name="source")
    table: str = msgspec.field(name="table")
    id: str = msgspec.field(name="id")
    phase: str = msgspec.field(name="phase")
    by: str = msgspec.field(name="by")
    cause: str = msgspec.field(name="cause")
    where: str | None = msgspec.field(name="where")
    rows: int = msgspec.field(name="rows")
    estimate: int | None = msgspec.field(name="estimate")
    requested_ms: int = msgspec.field(name="requested_ms")
    began_ms: int | None = msgspec.field(name="began_ms")
    ended_ms: int | None = msgspec.field(name="ended_ms")
    restarts: int = msgspec.field(name="restarts")
    reason: str = msgspec.field(name="reason")
    eta_s: float | None = msgspec.field(name="eta_s", default=None)
    max_rows_per_second: int | None = msgspec.field(name="max_rows_per_second", default=None)


@dataclass(frozen=True, slots=True)
class CopyRequestStored:
    """The request is in Kafka. `id`: by which the listing shows what becomes of it."""

    id: str
    source: str
    table: str


class CopyRefusedError(Exception):
    """The request cannot be carried out; the message is for the one who asked."""


class CopyRequests(Protocol):
    """The place where requests go, and where their state is read. May be called from any thread, and waits for Kafka."""

    def request_copy(self, asked: CopyRequested, *, by: str) -> CopyRequestStored:
        """Put the request where capture reads it. Raises CopyRefusedError."""

    def list_copies(self) -> Sequence[CopyRow]:
        """Return the copies of all sources, by source and table. Raises CopyRefusedError when Kafka does not answer."""
