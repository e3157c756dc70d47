"""The paths of copies: request, cancel, change the rate, list."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from coordinator.rest.access import Asker
from coordinator.rest.models import Answer
from coordinator.server.coordinator import Coordinator
from coordinator.server.operators.api import CommandRefusedError, NotLeaderError
from coordinator.server.operators.copies import CopyRefusedError, CopyRequested, CopyRequests


class _NamedTable(BaseModel):
    model_config = ConfigDict(extra="forbid")

    table: str = Field(
        alias="table",
        min_length=3,
        description="`database.table` at the source; names with special characters in backticks.",
    )
    source: str | None = Field(
        alias="source",
        default=None,
        description="Name of the source; not needed if only one source has such a table.",
    )


class CopyTable(_NamedTable):
    """The table to copy again."""

    where: str | None = Field(
        alias="where",
        default=None,
        min_length=1,
        description="An SQL condition of the source: only rows that match are copied, and no row is deleted.",
    )
    max_rows_per_second: int | None = Field(
        alias="max_rows_per_second",
        default=None,
        ge=0,
        description="Maximum of rows a second that are read; 0: as many as the source gives; null: the "
        "source's `copy_rows_per_second`.",
    )


class CancelCopy(_NamedTable):
    """The copy to take back."""


class CopyRate(_NamedTable):
    """The rate of a copy that waits or runs."""

    max_rows_per_second: int | None = Field(
        alias="max_rows_per_second",
        ge=0,
        description="Maximum of rows a second that are read from now on; null or 0: "
        "as many as the source gives.",
    )


class CopyAccepted(Answer):
    """The request is durable; the listing shows what becomes of it."""

    id: str = Field(serialization_alias="id", description="Identifier of the request.")
    source: str = Field(serialization_alias="source", description="The source that copies.")
    table: str = Field(serialization_alias="table", description="The table.")


class Debt(Answer):
    """Rows that statements removed at the source, and that targets may still have."""

    statement: str = Field(
        serialization_alias="statement", description="The last statement; a long one is cut."
    )
    statements: int = Field(serialization_alias="statements", description="Number of statements.")
    at: str | None = Field(
        serialization_alias="at",
        description="`file:position` of the last statement in the source's log; null: not known.",
    )
    since_ms: int = Field(
        serialization_alias="since_ms",
        description="Time of the first statement at the source, in ms since 1970.",
    )


class Copy(Answer):
    """State of the last request to copy a table again."""

    source: str = Field(serialization_alias="source", description="The source.")
    table: str = Field(serialization_alias="table", description="The table.")
    id: str = Field(serialization_alias="id", description="Identifier of the request.")
    phase: str = Field(
        serialization_alias="phase",
        description="`waiting`, `running`, `done`, `refused` (see `reason`) or `cancelled`.",
    )
    by: str = Field(
        serialization_alias="by",
        description="Origin of the request: `operator`, `pipeline NAME` (a unit that "
        "cannot continue), `capture`.",
    )
    cause: str = Field(
        serialization_alias="cause", description="Reason for which a unit needs it; empty for an operator's."
    )
    where: str | None = Field(
        serialization_alias="where", description="The condition that its rows match; null: all rows."
    )
    rows: int = Field(serialization_alias="rows", description="Rows published so far.")
    estimate: int | None = Field(
        serialization_alias="estimate", description="Estimated number of rows; null: not known."
    )
    eta_s: float | None = Field(
        serialization_alias="eta_s",
        description="Seconds until all are read, by the rate so far; null: not known.",
    )
    max_rows_per_second: int | None = Field(
        serialization_alias="max_rows_per_second",
        description="Maximum of rows a second that it reads; null: no limit.",
    )
    requested_ms: int = Field(
        serialization_alias="requested_ms", description="Time of the request, in ms since 1970."
    )
    began_ms: int | None = Field(
        serialization_alias="began_ms", description="Time of its beginning; null: not yet."
    )
    ended_ms: int | None = Field(
        serialization_alias="ended_ms", description="Time of its end; null: not yet."
    )
    restarts: int = Field(
        serialization_alias="restarts", description="Number of restarts because the table was altered."
    )
    reason: str = Field(
        serialization_alias="reason",
        description="Cause and remedy of a copy that is refused or cancelled; before the end of a key sweep "
        "(cause `rows-removed`), `debt` in words.",
    )
    retry_ms: int | None = Field(
        serialization_alias="retry_ms",
        description="Time at which a postponed copy begins by itself, in ms since 1970; null: it is not "
        "postponed.",
    )
    debt: Debt | None = Field(
        serialization_alias="debt",
        description="Rows that this copy or key sweep, or the next one, removes from targets; null: none.",
    )


class CopyList(Answer):
    """Copies, by source and table."""

    copies: list[Copy] = Field(
        serialization_alias="copies", description="The last request of each table, for a day after its end."
    )


def add_copy_paths(router: APIRouter, coordinator: Coordinator, desk: CopyRequests) -> None:
    """Add the paths. Only the leader answers."""

    def require_leader() -> None:
        leader = coordinator.get_leader()
        if leader is None or not leader.am_i:
            raise NotLeaderError(leader)

    def request_copy(asked: CopyRequested, by: str) -> CopyAccepted:
        require_leader()
        try:
            taken = desk.request_copy(asked, by=by)
        except CopyRefusedError as refused:
            raise CommandRefusedError(refused.problem) from refused
        what = (
            "copy taken back"
            if asked.cancel
            else "copy's rate changed"
            if asked.rate_only
            else "copy asked for"
        )
        coordinator.record_event(
            what, {"source": taken.source, "table": taken.table, "by": by, "id": taken.id}
        )
        return CopyAccepted.model_validate(taken)

    @router.post("/copies", tags=["copies"], status_code=202)
    def ask(request: CopyTable, by: Asker) -> CopyAccepted:
        """Copy one table again while everything runs."""
        return request_copy(CopyRequested(**request.model_dump()), by)

    @router.post("/copies/cancel", tags=["copies"], status_code=202)
    def cancel(request: CancelCopy, by: Asker) -> CopyAccepted:
        """Take a copy back that waits or runs."""
        return request_copy(CopyRequested(**request.model_dump(), cancel=True), by)

    @router.post("/copies/rate", tags=["copies"], status_code=202)
    def rate(request: CopyRate, by: Asker) -> CopyAccepted:
        """Have a copy that waits or runs go on faster or slower; it does not begin anew."""
        return request_copy(CopyRequested(**request.model_dump(), rate_only=True), by)

    @router.get("/copies", tags=["copies"])
    def copies() -> CopyList:
        """Show how far copies are."""
        require_leader()
        try:
            return CopyList(copies=[Copy.model_validate(row) for row in desk.list_copies()])
        except CopyRefusedError as refused:
            raise CommandRefusedError(refused.problem) from refused
