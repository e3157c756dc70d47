"""The requested copies of single tables: which one waits, which one runs, and the result of each.

Pure (docs/adr/0025).

`CopyBook` is notified of requests and of what happens to tables. The loop asks it what is due, and
carries out its effects. Its states are stored in the position record, together with the position to
which they belong.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from msgspec.structs import replace

from producer.copies.limits import (
    CopyRefusal,
    find_copy_refusal,
    format_ended_cause,
    is_copy_satisfied,
)
from producer.copies.states import CopyStates, format_copied_table, is_open, select_recent_ends
from producer.tables import BegunCopy, TableName
from schemas.findings import format_copy_remedy
from schemas.problems import Problem, encode_problem
from schemas.table.names import format_table_text
from schemas.wire.copies import CopyOutcome, CopyRequest, CopyState, RemovedRows, select_copy

#: How often a copy begins again because of events on its table.
MAX_COPY_RESTARTS = 3
#: Causes of stops after which only a copy of the whole table continues, so nothing is left to remove.
_WITHOUT_DEBT = frozenset({"dropped", "deselected"})
#: Causes of stops in the middle of a copy that a copy from the beginning may avoid.
_PASSING = frozenset(
    {
        "dropped",
        "unseen",
        "rows-replaced",
        "statement",
        "definition",
        "unfit",
        "columns",
        "xa",
        "topic-lost",
        "failover",
    }
)


class KnownTable(NamedTuple):
    """A table as capture knows it when a copy of it is requested.

    `stopped`: the cause of its stop, "": it is not stopped. `estimate`: the approximate number of rows;
    None: not known. `begun`: the last copy that began in its topic. `refusal`: why it cannot be copied.
    """

    stopped: str = ""
    estimate: int | None = None
    begun: BegunCopy | None = None
    refusal: Problem | None = None


class DiscardChunks(NamedTuple):
    """The chunks that were read of the table must be discarded."""

    table: str


class RestoreStop(NamedTuple):
    """The table must be stopped again: the copy that ended its stop was given up."""

    table: str
    cause: str
    reason: str


class JudgeRequest(NamedTuple):
    """The request must be judged now."""

    request: CopyRequest


CopyEffect = DiscardChunks | RestoreStop | JudgeRequest


class CopyBook:
    """Processes requests, and events of tables with a waiting or running copy.

    `requests`: offset of the next request to read. `rate`: the limit in rows a second of a copy that is
    requested without one; None, 0: no limit. `altered`, `next_requests`: what `settle_changes` has to
    process. Times are in ms since 1970.
    """

    def __init__(
        self, states: Mapping[str, CopyState] | None = None, requests: int = 0, rate: int | None = None
    ) -> None:
        self.states = CopyStates(
            {name: _retry_refused_sweep(state) for name, state in (states or {}).items()}
        )
        self._rate = rate
        self.requests = requests
        self.altered: list[str] = []
        self.next_requests = [
            state.next_request
            for state in self.states.all.values()
            if state.next_request is not None and (state.keys or not is_open(state))
        ]

    # --- requests

    def record_read_request(self, offset: int) -> None:
        """Record that the request at `offset` is processed."""
        self.requests = offset + 1

    def accept_request(self, request: CopyRequest, seen: KnownTable, now: int) -> list[CopyEffect]:
        """Process a request. Return its immediate effects."""
        name = format_table_text(request.db, request.table)
        state = self.states.all.get(name)
        if request.cancel:
            return self._cancel_copy(state, request, now)
        if request.rate_only:
            self.states.set_rate(name, request.max_rows_per_second or None)
            return []
        copy = select_copy(state)
        if copy is not None and (_is_answered(copy, state, request) or is_copy_satisfied(copy, request)):
            return []
        runs = state is not None and state.phase == "running" and not state.keys
        if state is not None and runs and request.limits is not None:
            self.states.put_state(replace(state, next_request=request))
            return []
        stopped = seen.stopped or (state.ended_stop if state is not None and is_open(state) else "")
        refusal = (
            CopyRefusal(seen.refusal)
            if seen.refusal is not None
            else find_copy_refusal(request, stopped, self.states, seen.estimate, now)
        )
        if refusal is not None:
            return self._refuse_request(request, state, refusal, now)
        return self._accept_copy(request, seen, state, stopped, now)

    def _refuse_request(
        self, request: CopyRequest, state: CopyState | None, refusal: CopyRefusal, now: int
    ) -> list[CopyEffect]:
        """Refuse a request, or postpone it. A copy or key sweep that waits or runs is not affected.

        Of several requests that are postponed, the one that may be made first is kept: its copy begins after
        the causes of all.
        """
        retry = refusal.retry_ms
        if state is not None and _is_postponed(state) and (retry is None or retry >= (state.retry_ms or 0)):
            return []
        later = None if retry is None else request
        refused = replace(
            _make_copy_state(request, state, now, self._rate),
            phase="refused",
            ended_ms=now,
            reason=encode_problem(refusal.problem),
            next_request=later,
            retry_ms=retry,
        )
        if state is not None and state.keys and state.removed is not None:
            self.states.put_state(
                replace(
                    state, last_copy=_build_outcome(refused),
                    next_request=later or state.next_request, retry_ms=retry,
                )
            )  # fmt: skip
        elif state is None or not is_open(state):
            self.states.put_state(refused)
        elif request.limits is not None:  # a unit or capture sends it once only: it is judged after this copy
            self.states.put_state(replace(state, next_request=state.next_request or request))
        return []

    def _accept_copy(
        self, request: CopyRequest, seen: KnownTable, state: CopyState | None, stopped: str, now: int
    ) -> list[CopyEffect]:
        new = replace(
            _make_copy_state(request, state, now, self._rate),
            estimate=seen.estimate,
            next_request=state.next_request if state else None,
        )
        if not seen.stopped:
            new = replace(new, ended_stop=stopped)
        forget: list[CopyEffect] = (
            [DiscardChunks(format_copied_table(new))]
            if state is not None and state.phase == "running"
            else []
        )
        self.states.all.pop(format_copied_table(new), None)  # moves it to the end of the queue
        self.states.put_state(new)
        if seen.begun is not None and seen.begun.mark.id == request.id:
            self.states.mark_begun(format_copied_table(new), seen.begun, now)
        return forget

    def _cancel_copy(self, state: CopyState | None, request: CopyRequest, now: int) -> list[CopyEffect]:
        if state is None or not (is_open(state) or _is_postponed(state)):
            return []
        problem = Problem(
            f"{request.by} cancelled the copy of {format_copied_table(state)}",
            format_copy_remedy(state.db, state.table),
        )
        if _is_postponed(state):
            state = replace(state, next_request=None, retry_ms=None)
        return self._give_up(state, "cancelled", problem, now)

    # --- events

    def mark_copy_ended(self, table: str, copy: str, now: int) -> None:
        """Record that the last chunk's marker is in the topic."""
        if (state := self.states.find_running(table, copy)) is None:
            return
        self.states.put_state(_end_copy(state, now))
        self._queue_next_request(state)
        self._queue_sweep(self.states.all[table])

    def note_removed_rows(self, name: TableName, removed: RemovedRows) -> None:
        """Record that a statement removed rows of a table: a key sweep has to follow.

        A copy that waits pays the debt, as does a key sweep that waits. After one that runs another key
        sweep follows, whatever number of statements comes meanwhile. So every one of them ends. A
        statement that the log brings again is the same debt.
        """
        state = self.states.all.get(format_table_text(*name))
        if state is not None and state.removed is not None and state.removed.id == removed.id:
            return
        debt = removed.add_statement(state.removed if state is not None else None)
        if state is not None and is_open(state):
            self.states.put_state(replace(state, removed=debt))
        else:
            self.states.put_state(_make_sweep_state(name, debt, state))

    def handle_table_stop(self, table: str, cause: str, reason: str, now: int) -> None:
        """Record that the table was stopped.

        A running copy begins again, which also ends that stop, or it is refused and the stop remains.
        """
        if cause in _WITHOUT_DEBT:
            self._end_debt(table, reason, now)
        state = self.states.all.get(table)
        if state is None or not is_open(state):
            return
        state = replace(state, ended_stop="")
        if state.keys:  # it waits for the copy that ends the stop, which pays its debt, too
            self.states.put_state(replace(state, phase="waiting"))
        elif state.phase == "running" and (cause not in _PASSING or state.restarts >= MAX_COPY_RESTARTS):
            problem = Problem(
                f"{reason}, in the middle of copy number {state.restarts + 1}",
                format_copy_remedy(state.db, state.table),
            )
            self.states.put_state(
                replace(state, phase="refused", ended_ms=now, reason=encode_problem(problem))
            )
            self._queue_next_request(state)
        elif state.phase == "running":
            self.states.put_state(replace(state, phase="waiting", restarts=state.restarts + 1))
        else:
            self.states.put_state(state)

    def _end_debt(self, table: str, reason: str, now: int) -> None:
        """End the debt of a table that is dropped or no longer selected, and the key sweep for it."""
        state = self.states.all.get(table)
        if state is None or state.removed is None:
            return
        state = replace(state, removed=None)
        if state.keys and is_open(state):
            ended = encode_problem(Problem(reason, "nothing to do: no key sweep is needed any more"))
            state = replace(state, phase="cancelled", ended_ms=now, reason=ended)
        self.states.put_state(state)

    def mark_table_altered(self, table: str) -> None:
        """Record that a statement changed the table; `settle_changes` decides on its copy."""
        self.altered.append(table)

    def settle_changes(self, now: int) -> list[CopyEffect]:
        """Process the changes of tables, between two transactions.

        The effects are stored in one record with them.
        """
        altered, self.altered = self.altered, []
        next_requests, self.next_requests = self.next_requests, []
        for request in next_requests:
            state = self.states.all[format_table_text(request.db, request.table)]
            self.states.put_state(replace(state, next_request=None))
        return [
            *(effect for table in altered for effect in self._begin_anew(table, now)),
            *map(JudgeRequest, next_requests),
        ]

    def _begin_anew(self, table: str, now: int) -> list[CopyEffect]:
        state = self.states.all.get(table)
        if state is None or state.phase != "running":
            return []
        if state.restarts >= MAX_COPY_RESTARTS and not state.keys:
            problem = Problem(
                f"{table} was altered during {MAX_COPY_RESTARTS + 1} copies in a row",
                f"{format_copy_remedy(state.db, state.table)}, once it is no longer altered",
            )
            return self._give_up(state, "refused", problem, now)
        self.states.put_state(replace(state, phase="waiting", restarts=state.restarts + 1))
        return [DiscardChunks(table)]

    def refuse_copy(self, table: str, problem: Problem, now: int) -> list[CopyEffect]:
        """Refuse the waiting or running copy, which cannot be made."""
        state = self.states.all.get(table)
        return [] if state is None or not is_open(state) else self._give_up(state, "refused", problem, now)

    def _give_up(
        self, state: CopyState, phase: Literal["refused", "cancelled"], problem: Problem, now: int
    ) -> list[CopyEffect]:
        effects: list[CopyEffect] = (
            [DiscardChunks(format_copied_table(state))] if state.phase == "running" else []
        )
        if state.ended_stop:
            seen = (
                f"{format_copied_table(state)} is stopped again ({state.ended_stop}): the copy that had "
                f"ended this stop was {phase}"
            )
            effects.append(RestoreStop(format_copied_table(state), state.ended_stop, seen))
        self.states.put_state(
            replace(state, phase=phase, ended_ms=now, reason=encode_problem(problem), ended_stop="")
        )
        self._queue_next_request(state)
        if not state.ended_stop and not state.keys:
            self._queue_sweep(self.states.all[format_copied_table(state)])
        return effects

    def _queue_next_request(self, state: CopyState) -> None:
        """Schedule the request that came meanwhile.

        It stays in the state until it is judged: a record may be stored before.
        """
        if state.next_request is not None:
            self.next_requests.append(state.next_request)

    def _queue_sweep(self, ended: CopyState) -> None:
        """Let a key sweep wait if a copy has ended that did not pay the table's debt."""
        if ended.removed is not None:
            name = (ended.db, ended.table)
            self.states.put_state(_make_sweep_state(name, ended.removed, ended))

    def queue_postponed(self, now: int) -> None:
        """Let `settle_changes` judge the requests that limits have postponed until now."""
        for state in self.states.all.values():
            is_due = state.retry_ms is not None and state.retry_ms <= now
            if is_due and state.next_request not in self.next_requests:
                self._queue_next_request(state)

    # --- at a start

    def forget_begin(self, table: str) -> None:
        """Forget where the last copy began: its topic has lost events, so that it satisfies no request."""
        state = self.states.all.get(table)
        if state is None:
            return
        last = state.last_copy and replace(state.last_copy, begin=None, offset=None)
        self.states.put_state(replace(state, begin=None, offset=None, last_copy=last))

    def recover_copy(self, table: str, begun: BegunCopy, now: int, *, altered: bool) -> None:
        """Process `begun`, which a start found in the table's topic.

        A begin that the record already has changes nothing.

        `altered`: the table's definition has changed since.
        """
        state = self.states.all.get(table)
        if state is not None and state.next_request is not None and state.next_request.id == begun.mark.id:
            # An earlier process ended the copy and began the one that was requested after it, without
            # storing that.
            self.next_requests = [request for request in self.next_requests if request.id != begun.mark.id]
            before = _end_copy(state, now) if is_open(state) else state
            state = _make_copy_state(state.next_request, before, now, self._rate)
            self.states.put_state(state)
        if state is not None and begun.mark.keys and state.id != begun.mark.id:
            state = self._recover_sweep(state, begun, now)
        if state is None or state.id != begun.mark.id or not is_open(state):
            return
        if state.begin != begun.position:
            is_restart = state.begin is not None and state.phase == "running"
            self.states.put_state(replace(state, restarts=state.restarts + is_restart))
            self.states.mark_begun(table, begun, now)
        if altered:
            self.mark_table_altered(table)

    def _recover_sweep(self, state: CopyState, begun: BegunCopy, now: int) -> CopyState:
        """Return the state of a table with a key sweep that an earlier process began without storing that.

        What ran before had ended then. If the record has no such debt, the log brings the statement again.
        """
        debt, runs = state.removed, state.phase == "running"
        is_known = state.begin is not None and begun.position <= state.begin
        if is_known or (not runs and (debt is None or debt.id != begun.mark.id)):
            return state
        ended = _end_copy(state, now) if runs else state
        if debt is not None and debt.id == begun.mark.id:
            waits = is_open(ended)  # a copy that waited was refused, and may be requested again
            ended = _make_sweep_state((state.db, state.table), debt, ended)
            ended = replace(ended, last_copy=None) if waits else ended
        self.states.put_state(ended)
        if runs and not state.keys:
            self._queue_next_request(state)
        return ended


def _is_postponed(state: CopyState) -> bool:
    """Return whether a request waits for the moment at which a limit allows it."""
    return state.retry_ms is not None and state.next_request is not None


def _is_answered(copy: CopyOutcome, state: CopyState | None, request: CopyRequest) -> bool:
    """Return whether the table's last copy is that of the request, which is not to be judged again."""
    return copy.id == request.id and (copy.phase != "refused" or state is None or state.retry_ms is None)


def _end_copy(state: CopyState, now: int) -> CopyState:
    """Return the state of a complete copy, without the debt that it pays. Limits do not count key sweeps."""
    ended = select_recent_ends(state.ended, now)
    if not state.keys:
        ended = (*ended, (now, format_ended_cause(state)))
    debt = state.removed
    paid = debt is not None and state.where is None and _has_begun_after(state, debt)
    return replace(
        state, phase="done", ended_ms=now, ended=ended, ended_stop="", removed=None if paid else debt
    )


def _has_begun_after(state: CopyState, debt: RemovedRows) -> bool:
    """Return whether a copy or key sweep began after the last statement that removed rows."""
    if debt.position is not None:
        return state.begin is not None and state.begin > debt.position
    return state.offset is not None and state.offset > debt.offset


def _make_sweep_state(name: TableName, debt: RemovedRows, before: CopyState | None) -> CopyState:
    """Return a key sweep that waits. It has no rate: keys are few bytes, so other tables hardly wait."""
    return CopyState(
        id=debt.id, db=name[0], table=name[1], by="capture", phase="waiting", requested_ms=debt.since_ms,
        cause="rows-removed", ended=before.ended if before else (),
        begin=before.begin if before else None, offset=before.offset if before else None,
        next_request=before.next_request if before else None, keys=True, removed=debt,
        retry_ms=before.retry_ms if before else None,
        last_copy=_build_outcome(select_copy(before)),
    )  # fmt: skip


def _retry_refused_sweep(state: CopyState) -> CopyState:
    """Return the state at a start: limits may have changed, so a refused key sweep is judged again."""
    if not state.keys or state.phase != "refused" or state.removed is None:
        return state
    return replace(state, phase="waiting", reason="", ended_ms=None)


def _build_outcome(copy: CopyOutcome | None) -> CopyOutcome | None:
    """Return what of a copy's state is kept beside a key sweep."""
    if copy is None:
        return None
    return CopyOutcome(**{name: getattr(copy, name) for name in CopyOutcome.__struct_fields__})


def _make_copy_state(
    request: CopyRequest, before: CopyState | None, now: int, default: int | None
) -> CopyState:
    rate = default if request.max_rows_per_second is None else request.max_rows_per_second
    copy = select_copy(before)  # the offset of a key sweep would be no copy's begin to a unit
    return CopyState(
        id=request.id, db=request.db, table=request.table, by=request.by, phase="waiting",
        requested_ms=request.requested_ms, where=request.where, cause=request.cause,
        max_rows_per_second=rate or None, ended=select_recent_ends(before.ended if before else (), now),
        begin=before.begin if before else None, offset=copy.offset if copy else None,
        removed=before.removed if before else None,
    )  # fmt: skip
