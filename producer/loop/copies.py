"""Copies single tables while capture runs: processes requests, and begins copies between transactions of
the log.

The rules are in producer/copies, the order of the steps in docs/adr/0025.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import structlog
from msgspec.structs import replace

from producer.copies.book import CopyEffect, DiscardChunks, JudgeRequest, KnownTable, RestoreStop
from producer.copies.limits import explain_sweep_refusal, explain_unbalanced_condition
from producer.copies.recreated_tables import judge_recreated_table
from producer.copies.states import build_copy_mark, is_open
from producer.errors import TableStoppedError
from producer.loop.copy_begins import CopyStarter
from producer.loop.position import CapturePosition
from producer.loop.table_stops import TableChoice, TableStops
from producer.ports import Ports
from producer.snapshot.scheduler import SnapshotScheduler
from producer.sources.changes import Barrier, LogMoment
from producer.start.started import StartedCapture
from producer.start.table_topics import TableTopics
from producer.tables import TableName, format_table_name
from schemas.findings import add_exclusion, format_copy_remedy
from schemas.io.mysql_catalog import describe_missing_table
from schemas.problems import Problem
from schemas.table.model import Table
from schemas.wire.copies import CopyMark, CopyRequest, CopyState

_log = structlog.get_logger("capture")


class TableCopies:
    """Advances the copies that `StartedCapture.copies` records, between the transactions of the stream."""

    def __init__(
        self,
        started: StartedCapture,
        ports: Ports,
        *,
        choice: TableChoice,
        snapshots: SnapshotScheduler,
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
        self._begins = CopyStarter(started, ports, snapshots=snapshots, position=position, topics=topics)
        self._asked: list[tuple[int, CopyRequest | None]] = []

    @property
    def busy(self) -> bool:
        """True if a copy or key sweep is requested, waits or runs.

        A key sweep of a stopped table does not count: it waits for the copy that ends the stop.
        """
        stopped, states = self._captured.stopped, self._book.states.all.values()
        return bool(self._asked) or any(
            is_open(each) and not (each.keys and (each.db, each.table) in stopped) for each in states
        )

    @property
    def due(self) -> bool:
        """True if `advance_copies` has something to do. It is read for each transaction."""
        book, snapshots = self._book, self._snapshots
        return bool(
            self._asked
            or book.altered
            or book.next_requests
            or book.states.waiting
            or snapshots.tables.unbegun
            or snapshots.refused
        )

    def poll_requests(self) -> None:
        """Read the requests that have arrived since the last call, and take those that were postponed."""
        now = self._now_ms()
        self._asked += self._ports.poll_requests()
        self._book.queue_postponed(now)
        self._book.states.prune_ended(now)

    def advance_copies(self, file: str, pos: int) -> None:
        """Process requests and begin copies, between transactions at `file`, `pos`.

        New stops are not in the topics afterwards.
        """
        moment = LogMoment(file, pos - 1, self._now_ms())
        asked, self._asked = self._asked, []
        for offset, request in asked:
            if request is not None:
                self._judge_request(request, moment)
            self._book.record_read_request(offset)
        for name, reason in self._snapshots.take_refused():
            problem = Problem(
                f"the source does not take the condition of the copy: {reason}",
                "give a condition that the source can evaluate",
            )
            self._refuse_copy(name, problem, moment)
        self._carry_out(self._book.settle_changes(self._now_ms()), moment)
        for name, state in list(self._snapshots.tables.unbegun.items()):
            mark = CopyMark(id=f"snapshot of {format_table_name(name)} at {file}:{pos}")
            if self._begins.has_passed_topic(name, file, pos):
                try:
                    self._begins.begin_copy(state.name, state.table, mark, file, pos)
                except TableStoppedError as error:
                    self._stops.stop_tables(error, moment)
        for waiting in self._book.states.waiting:
            begin = self._begin_sweep if waiting.keys else self._begin_copy
            if begin(waiting, moment, file, pos):
                break

    # --- requests

    def handle_recreated_table(self, name: TableName, barrier: Barrier) -> None:
        """Decide whether to copy a table that had stopped because it was dropped, and that a statement
        has created again.
        """
        at_ms, place = barrier.header.ts_ms, f"{barrier.header.file}:{barrier.start}"
        request = CopyRequest(
            id=f"made again at {place}", db=name[0], table=name[1], by="capture", cause="dropped",
            requested_ms=at_ms, limits=self._ports.repair(name),
        )  # fmt: skip
        estimate = None if request.limits is None else self._ports.server().estimate_rows(name)
        problem = judge_recreated_table(
            self._book, request, KnownTable(stopped="dropped", estimate=estimate), self._now_ms()
        )
        if problem is not None:
            _log.warning(
                "recreated table not copied", source=self._captured.source, table=format_table_name(name),
                reason=problem.what, remedy=problem.action,
            )  # fmt: skip

    def _judge_request(self, request: CopyRequest, moment: LogMoment) -> None:
        db, table = self._ports.names.normalize_table((request.db, request.table))
        request = replace(request, db=db, table=table)
        self._carry_out(
            self._book.accept_request(request, self._describe_known_table(request), self._now_ms()), moment
        )
        running, state = self._book.states.running, self._captured.tables.get((db, table))
        if running is None or running.id != request.id or state is None:
            return
        if not self._snapshots.tables.goes_on((db, table)):  # it had begun before its request was read
            self._snapshots.add_table(state)

    def _describe_known_table(self, request: CopyRequest) -> KnownTable:
        name = (request.db, request.table)
        stopped, state = self._captured.stopped.get(name), self._captured.tables.get(name)
        return KnownTable(
            stopped=stopped.stop.cause if stopped is not None else "",
            estimate=None
            if request.cancel or request.rate_only
            else self._ports.server().estimate_rows(name),
            begun=state.begun if state is not None and stopped is None else None,
            refusal=self._explain_refusal(name, request),
        )

    def _explain_refusal(self, name: TableName, request: CopyRequest) -> Problem | None:
        """Return why a table cannot be copied, as far as that is known before its definition.

        None: it can be copied.
        """
        if not self._choice.is_selected(*name):
            return Problem(
                f"{format_table_name(name)} is not selected by `tables:`",
                f"add it there, then {format_copy_remedy(*name)}",
            )
        return None if request.where is None else explain_unbalanced_condition(request.where)

    def _carry_out(self, effects: list[CopyEffect], moment: LogMoment) -> None:
        for effect in effects:
            match effect:
                case DiscardChunks():
                    self._snapshots.tables.forget_table(self._find_named_table(effect.table))
                case RestoreStop():
                    name = self._find_named_table(effect.table)
                    error = TableStoppedError(
                        frozenset([name]), effect.cause, effect.reason, format_copy_remedy(*name)
                    )
                    self._stops.stop_tables(error, moment)
                case JudgeRequest():
                    self._judge_request(effect.request, moment)

    def _find_named_table(self, table: str) -> TableName:
        state = self._book.states.all[table]
        return state.db, state.table

    def _refuse_copy(self, name: TableName, problem: Problem, moment: LogMoment) -> None:
        _log.error(
            "copy refused", source=self._captured.source, table=format_table_name(name),
            reason=problem.what, remedy=problem.action,
        )  # fmt: skip
        self._carry_out(self._book.refuse_copy(format_table_name(name), problem, self._now_ms()), moment)

    def _begin_sweep(self, state: CopyState, moment: LogMoment, file: str, pos: int) -> bool:
        """Begin a key sweep with the active definition, unless the table is stopped: the copy that ends the
        stop pays the debt. Return whether it has begun.
        """
        name = (state.db, state.table)
        table = self._captured.tables.get(name)
        if table is None or name in self._captured.stopped or not self._begins.can_begin(name, file, pos):
            return False
        estimate = self._ports.server().estimate_rows(name)
        problem = explain_sweep_refusal(name, self._ports.repair(name), estimate)
        if problem is not None:
            self._refuse_copy(name, problem, moment)
            return False
        self._book.states.put_state(replace(state, estimate=estimate))
        return self._begin_or_refuse(state, table.table, moment, file, pos)

    def _begin_copy(self, state: CopyState, moment: LogMoment, file: str, pos: int) -> bool:
        """Begin a requested copy if its definition can be proven. Return whether it has begun."""
        name = (state.db, state.table)
        proof = self._begins.find_proven_definition(name, file, pos)
        if proof is None:
            return False
        if proof.table is None:
            problem = proof.problem or describe_missing_table(name)
            problem = dataclasses.replace(problem, remedy=add_exclusion(problem.remedy, *name))
            self._refuse_copy(name, problem, moment)
            return False
        return self._begin_or_refuse(state, proof.table, moment, file, pos)

    def _begin_or_refuse(
        self, state: CopyState, table: Table, moment: LogMoment, file: str, pos: int
    ) -> bool:
        """Begin a copy or key sweep with a definition. Return whether it has begun."""
        name = (state.db, state.table)
        try:
            self._begins.begin_copy(name, table, build_copy_mark(state), file, pos)
        except TableStoppedError as error:  # Kafka has no topic for it
            self._refuse_copy(name, error.problem, moment)
            return False
        return True
