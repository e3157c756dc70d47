"""Copies of single tables while capture runs: requests are taken in, and copies begin where the log stands between transactions.

The rules are in producer/copies; the order of things is in docs/adr/0025.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog
from msgspec.structs import replace

from producer.copies.again import made_again
from producer.copies.book import Ask, Effect, Forget, StopAgain, TableSeen
from producer.copies.limits import unbalanced
from producer.copies.states import mark_of
from producer.errors import TableStoppedError
from producer.loop.choice import TableChoice
from producer.loop.copy_begins import CopyBegins
from producer.loop.position import CapturePosition
from producer.loop.table_stops import TableStops
from producer.ports import Ports
from producer.resume.started import Started
from producer.resume.table_topics import TableTopics
from producer.snapshot.scheduler import Snapshots
from producer.sources.changes import Barrier, LogMoment
from producer.tables import TableName, dotted
from schemas.findings import copy_again
from schemas.io.mysql_catalog import missing_table
from schemas.wire.copies import CopyMark, CopyRequest, CopyState

_log = structlog.get_logger("capture")


class TableCopies:
    """Drives the book of copies (`Started.copies`) between the transactions of the stream."""

    def __init__(
        self,
        started: Started,
        ports: Ports,
        *,
        choice: TableChoice,
        snapshots: Snapshots,
        stops: TableStops,
        position: CapturePosition,
        topics: TableTopics,
    ) -> None:
        self._book = started.copies
        self._captured = started.captured
        self._ports = ports
        self._now_ms: Callable[[], int] = ports.clock.now_ms
        self._choice = choice
        self._snapshots = snapshots
        self._stops = stops
        self._begins = CopyBegins(started, ports, snapshots=snapshots, position=position, topics=topics)
        self._asked: list[tuple[int, CopyRequest | None]] = []

    @property
    def busy(self) -> bool:
        """Tell whether a copy is asked for, waits or runs."""
        return bool(self._asked) or self._book.states.busy

    @property
    def due(self) -> bool:
        """Tell whether `advance` has something to do."""
        return bool(
            self._asked or self._book.pending or self._snapshots.tables.unbegun or self._snapshots.refused or self._book.states.waiting
        )  # fmt: skip

    def poll(self) -> None:
        """See what was asked since the last time."""
        self._asked += self._ports.requests.poll()
        self._book.states.prune(self._now_ms())

    def advance(self, file: str, pos: int) -> None:
        """The stream stands between transactions at `file`, `pos`. What stops a table again is not said yet."""
        moment = LogMoment(file, pos - 1, self._now_ms())
        asked, self._asked = self._asked, []
        for offset, request in asked:
            if request is not None:
                self._ask(request, moment)
            self._book.requests = offset + 1
        refused, self._snapshots.refused = self._snapshots.refused, []
        for name, reason in refused:
            self._refuse(name, f"the source does not take the condition of the copy: {reason}", moment)
        self._carry_out(self._book.settle(self._now_ms()), moment)
        for name, state in list(self._snapshots.tables.unbegun.items()):
            mark = CopyMark(id=f"snapshot of {dotted(name)} at {file}:{pos}")
            if self._begins.passed(name, file, pos):
                try:
                    self._begins.begin(state.name, state.table, mark, file, pos)
                except TableStoppedError as error:
                    self._stops.stop(error, moment)
        for waiting in self._book.states.waiting:
            if self._begun(waiting, moment, file, pos):
                break

    # --- requests

    def made_again(self, name: TableName, barrier: Barrier) -> None:
        """Judge whether a table is copied that was stopped because it was dropped, and that a statement has made again (R30)."""
        at_ms, place = barrier.header.ts_ms, f"{barrier.header.file}:{barrier.start}"
        request = CopyRequest(
            id=f"made again at {place}", db=name[0], table=name[1], by="capture", cause="dropped", requested_ms=at_ms,
            limits=self._ports.repair(name),
        )  # fmt: skip
        estimate = None if request.limits is None else self._ports.server().rows_about(name)
        reason = made_again(
            self._book, request, TableSeen(stopped="dropped", estimate=estimate), self._now_ms()
        )
        if reason:
            _log.warning(
                "a table that is there again is not copied by itself", source=self._captured.source, table=dotted(name), reason=reason
            )  # fmt: skip

    def _ask(self, request: CopyRequest, moment: LogMoment) -> None:
        db, table = self._ports.names.same((request.db, request.table))
        request = replace(request, db=db, table=table)
        self._carry_out(self._book.asked(request, self._seen(request), self._now_ms()), moment)
        running, state = self._book.states.running, self._captured.tables.get((db, table))
        if running is None or running.id != request.id or state is None:
            return
        if not self._snapshots.tables.goes_on((db, table)):  # it had begun before its request was read
            self._snapshots.add(state)

    def _seen(self, request: CopyRequest) -> TableSeen:
        name = (request.db, request.table)
        stopped, state = self._captured.stopped.get(name), self._captured.tables.get(name)
        return TableSeen(
            stopped=stopped.stop.cause if stopped is not None else "",
            estimate=None if request.cancel or request.rate_only else self._ports.server().rows_about(name),
            begun=state.begun if state is not None and stopped is None else None,
            refusal=self._refusal(name, request),
        )

    def _refusal(self, name: TableName, request: CopyRequest) -> str:
        """Return why a table cannot be copied, as far as that is known before its definition is; "": it may be."""
        if not self._choice.selected(*name):
            return f"{dotted(name)} is not selected by `tables:`: add it there, then {copy_again(*name)}"
        return unbalanced(request.where) if request.where is not None else ""

    def _carry_out(self, effects: list[Effect], moment: LogMoment) -> None:
        for effect in effects:
            match effect:
                case Forget():
                    self._snapshots.tables.forget(self._named(effect.table))
                case StopAgain():
                    name = self._named(effect.table)
                    error = TableStoppedError(
                        frozenset([name]), effect.cause, effect.reason, copy_again(*name)
                    )
                    self._stops.stop(error, moment)
                case Ask():
                    self._ask(effect.request, moment)

    def _named(self, table: str) -> TableName:
        state = self._book.states.all[table]
        return state.db, state.table

    def _refuse(self, name: TableName, reason: str, moment: LogMoment) -> None:
        _log.error("copy refused", source=self._captured.source, table=dotted(name), reason=reason)
        self._carry_out(self._book.refuse(dotted(name), reason, self._now_ms()), moment)

    def _begun(self, state: CopyState, moment: LogMoment, file: str, pos: int) -> bool:
        """Begin a copy that was asked for, if it can be: its definition is proven here. Returns whether it has begun."""
        name = (state.db, state.table)
        proof = self._begins.proof(name, file, pos)
        if proof is None:
            return False
        if proof.table is None:
            self._refuse(name, proof.reason or missing_table(name), moment)
            return False
        try:
            self._begins.begin(name, proof.table, mark_of(state), file, pos)
        except TableStoppedError as error:  # Kafka has no topic for it
            self._refuse(name, str(error), moment)
            return False
        return True
