"""Copies of single tables that are asked for: which one waits, which runs, and what became of each. Pure (docs/adr/0025).

`CopyBook` is told what was asked, and what happened to tables; the loop asks it what is due, and carries out its effects. Its
states stand in the position record, and go there with the position that they are of.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from msgspec.structs import replace

from producer.copies.limits import explain_copy_refusal, is_copy_satisfied
from producer.copies.states import CopyStates, format_copied_table, is_open, select_recent_ends
from producer.tables import BegunCopy
from schemas.findings import format_copy_remedy
from schemas.table.names import format_table_text
from schemas.wire.copies import CopyRequest, CopyState

#: How often a copy begins anew because of what happened to its table.
MAX_COPY_RESTARTS = 3
#: Causes of stops in the middle of a copy that a copy from the beginning may get around.
_PASSING = frozenset({"dropped", "rows-replaced", "statement", "definition", "unfit", "xa"})


class KnownTable(NamedTuple):
    """A table as capture knows it when a copy of it is requested.

    `stopped`: the cause of its stop, "": it is not stopped. `estimate`: rows, about; None: not known. `begun`: the last copy that began
    in its topic. `refusal`: why it cannot be copied, "…seen…: remedy".
    """

    stopped: str = ""
    estimate: int | None = None
    begun: BegunCopy | None = None
    refusal: str = ""


class DiscardChunks(NamedTuple):
    """The chunks read of the table are discarded, not sent."""

    table: str


class RestoreStop(NamedTuple):
    """The table, whose stop the copy had ended, is stopped again."""

    table: str
    cause: str
    reason: str


class JudgeRequest(NamedTuple):
    """The request is to be judged now."""

    request: CopyRequest


CopyEffect = DiscardChunks | RestoreStop | JudgeRequest


class CopyBook:
    """Takes requests in, and what happens to tables whose copies wait or run. `requests`: offset of the next one to read.

    `rate`: most rows a second of a copy that was asked for without a rate; None, 0: no limit. Times in ms since 1970.
    """

    def __init__(
        self, states: Mapping[str, CopyState] | None = None, requests: int = 0, rate: int | None = None
    ) -> None:
        self.states = CopyStates(states)
        self._rate = rate
        self.requests = requests
        self._altered: list[str] = []
        self._behind = [
            state.behind
            for state in self.states.all.values()
            if state.behind is not None and not is_open(state)
        ]

    # --- what is asked

    def accept_request(self, request: CopyRequest, seen: KnownTable, now: int) -> list[CopyEffect]:
        """Take a request in; returns what follows at once."""
        name = format_table_text(request.db, request.table)
        state = self.states.all.get(name)
        if request.cancel:
            return self._cancel_copy(state, request, now)
        if request.rate_only:
            self.states.set_rate(name, request.max_rows_per_second or None)
            return []
        if state is not None and (state.id == request.id or is_copy_satisfied(state, request)):
            return []
        if state is not None and state.phase == "running" and request.limits is not None:
            self.states.put_state(replace(state, behind=request))
            return []
        stopped = seen.stopped or (state.ended_stop if state is not None and is_open(state) else "")
        reason = seen.refusal or explain_copy_refusal(request, stopped, self.states, seen.estimate, now)
        if reason:
            return self._refuse_request(request, state, reason, now)
        return self._accept_copy(request, seen, state, stopped, now)

    def _refuse_request(
        self, request: CopyRequest, state: CopyState | None, reason: str, now: int
    ) -> list[CopyEffect]:
        """A refused request takes nothing away from a copy that waits or runs."""
        if state is None or not is_open(state):
            self.states.put_state(
                replace(
                    _make_copy_state(request, state, now, self._rate),
                    phase="refused",
                    ended_ms=now,
                    reason=reason,
                )
            )
        return []

    def _accept_copy(
        self, request: CopyRequest, seen: KnownTable, state: CopyState | None, stopped: str, now: int
    ) -> list[CopyEffect]:
        new = replace(
            _make_copy_state(request, state, now, self._rate),
            estimate=seen.estimate,
            behind=state.behind if state else None,
        )
        if not seen.stopped:
            new = replace(new, ended_stop=stopped)
        forget: list[CopyEffect] = (
            [DiscardChunks(format_copied_table(new))]
            if state is not None and state.phase == "running"
            else []
        )
        self.states.all.pop(format_copied_table(new), None)  # it is the last in the row
        self.states.put_state(new)
        if seen.begun is not None and seen.begun.mark.id == request.id:
            self.states.mark_begun(format_copied_table(new), seen.begun, now)
        return forget

    def _cancel_copy(self, state: CopyState | None, request: CopyRequest, now: int) -> list[CopyEffect]:
        if state is None or not is_open(state):
            return []
        reason = f"{request.by} took the copy of {format_copied_table(state)} back: {format_copy_remedy(state.db, state.table)}"
        return self._give_up(state, "cancelled", reason, now)

    # --- what happens

    def mark_copy_ended(self, table: str, copy: str, now: int) -> None:
        """The last chunk's marker is in the topic."""
        if (state := self.states.find_running(table, copy)) is None:
            return
        self.states.put_state(_end_copy(state, now))
        self._ask_behind(state)

    def handle_table_stop(self, table: str, cause: str, reason: str, now: int) -> None:
        """The table was stopped. A copy that runs begins anew, which ends that stop, too; or it is refused, and the stop stays."""
        state = self.states.all.get(table)
        if state is None or not is_open(state):
            return
        state = replace(state, ended_stop="")
        if state.phase == "running" and (cause not in _PASSING or state.restarts >= MAX_COPY_RESTARTS):
            why = f"{reason}, in the middle of copy number {state.restarts + 1}: {format_copy_remedy(state.db, state.table)}"
            self.states.put_state(replace(state, phase="refused", ended_ms=now, reason=why))
            self._ask_behind(state)
        elif state.phase == "running":
            self.states.put_state(replace(state, phase="waiting", restarts=state.restarts + 1))
        else:
            self.states.put_state(state)

    def mark_table_altered(self, table: str) -> None:
        """The table is another one behind a statement; `settle` says what becomes of its copy."""
        self._altered.append(table)

    @property
    def pending(self) -> bool:
        """Tell whether there is something to `settle`."""
        return bool(self._altered or self._behind)

    def settle_changes(self, now: int) -> list[CopyEffect]:
        """Deal with what has happened to tables, between two transactions: what follows is in one record with it."""
        altered, self._altered = self._altered, []
        behind, self._behind = self._behind, []
        for request in behind:
            self.states.put_state(
                replace(self.states.all[format_table_text(request.db, request.table)], behind=None)
            )
        return [
            *(effect for table in altered for effect in self._begin_anew(table, now)),
            *map(JudgeRequest, behind),
        ]

    def _begin_anew(self, table: str, now: int) -> list[CopyEffect]:
        state = self.states.all.get(table)
        if state is None or state.phase != "running":
            return []
        if state.restarts >= MAX_COPY_RESTARTS:
            why = (
                f"{table} was altered in the middle of {MAX_COPY_RESTARTS + 1} copies, one after the other: {format_copy_remedy(state.db, state.table)}, once nobody "
                "alters it"
            )
            return self._give_up(state, "refused", why, now)
        self.states.put_state(replace(state, phase="waiting", restarts=state.restarts + 1))
        return [DiscardChunks(table)]

    def refuse_copy(self, table: str, reason: str, now: int) -> list[CopyEffect]:
        """The copy that waits or runs cannot be made. `reason`: "…seen…: remedy"."""
        state = self.states.all.get(table)
        return [] if state is None or not is_open(state) else self._give_up(state, "refused", reason, now)

    def _give_up(
        self, state: CopyState, phase: Literal["refused", "cancelled"], reason: str, now: int
    ) -> list[CopyEffect]:
        effects: list[CopyEffect] = (
            [DiscardChunks(format_copied_table(state))] if state.phase == "running" else []
        )
        if state.ended_stop:
            seen = f"the copy of {format_copied_table(state)} that had ended its stop ({state.ended_stop}) was given up"
            effects.append(RestoreStop(format_copied_table(state), state.ended_stop, seen))
        self.states.put_state(replace(state, phase=phase, ended_ms=now, reason=reason, ended_stop=""))
        self._ask_behind(state)
        return effects

    def _ask_behind(self, state: CopyState) -> None:
        """Judge the request that came meanwhile. It stays in the state until then: a record may be stored in between."""
        if state.behind is not None:
            self._behind.append(state.behind)

    # --- at a start

    def recover_copy(self, table: str, begun: BegunCopy, now: int, *, altered: bool) -> None:
        """A start found `begun` in the table's topic. A begin that the record knows already says nothing new.

        `altered`: the table's definition is another one since.
        """
        state = self.states.all.get(table)
        if state is not None and state.behind is not None and state.behind.id == begun.mark.id:
            # A predecessor ended the copy and began the one that was asked for behind it, and did not come to store that.
            self._behind = [request for request in self._behind if request.id != begun.mark.id]
            before = _end_copy(state, now) if is_open(state) else state
            state = _make_copy_state(state.behind, before, now, self._rate)
            self.states.put_state(state)
        if state is None or state.id != begun.mark.id or not is_open(state):
            return
        if state.begin != begun.position:
            again = state.begin is not None and state.phase == "running"
            self.states.put_state(replace(state, restarts=state.restarts + again))
            self.states.mark_begun(table, begun, now)
        if altered:
            self.mark_table_altered(table)


def _end_copy(state: CopyState, now: int) -> CopyState:
    ended = (*select_recent_ends(state.ended, now), (now, state.cause))
    return replace(state, phase="done", ended_ms=now, ended=ended, ended_stop="")


def _make_copy_state(
    request: CopyRequest, before: CopyState | None, now: int, default: int | None
) -> CopyState:
    rate = default if request.max_rows_per_second is None else request.max_rows_per_second
    return CopyState(
        id=request.id, db=request.db, table=request.table, by=request.by, phase="waiting", requested_ms=request.requested_ms,
        where=request.where, cause=request.cause, max_rows_per_second=rate or None,
        ended=select_recent_ends(before.ended if before else (), now),
        begin=before.begin if before else None, offset=before.offset if before else None,
    )  # fmt: skip
