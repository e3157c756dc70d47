"""Copies of single tables that are asked for: which one waits, which runs, and what became of each. Pure (docs/adr/0025).

`CopyBook` is told what was asked, and what happened to tables; the loop asks it what is due, and carries out its effects. Its
states stand in the position record, and go there with the position that they are of.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from msgspec.structs import replace

from producer.copies.limits import refusal, satisfied
from producer.copies.states import CopyStates, is_open, recent, table_of
from producer.tables import Begun
from schemas.findings import copy_again
from schemas.table.names import table_text
from schemas.wire.copies import CopyRequest, CopyState

#: How often a copy begins anew because of what happened to its table.
RESTARTS = 3
#: Causes of stops in the middle of a copy that a copy from the beginning may get around.
_PASSING = frozenset({"dropped", "rows-replaced", "statement", "definition", "unfit", "xa"})


class TableSeen(NamedTuple):
    """A table as capture knows it when a copy of it is requested.

    `stopped`: the cause of its stop, "": it is not stopped. `estimate`: rows, about; None: not known. `begun`: the last copy that began
    in its topic. `refusal`: why it cannot be copied, "…seen…: remedy".
    """

    stopped: str = ""
    estimate: int | None = None
    begun: Begun | None = None
    refusal: str = ""


class Forget(NamedTuple):
    """The chunks read of the table are discarded, not sent."""

    table: str


class StopAgain(NamedTuple):
    """The table, whose stop the copy had ended, is stopped again."""

    table: str
    cause: str
    reason: str


class Ask(NamedTuple):
    """The request is to be judged now."""

    request: CopyRequest


Effect = Forget | StopAgain | Ask


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

    def asked(self, request: CopyRequest, seen: TableSeen, now: int) -> list[Effect]:
        """Take a request in; returns what follows at once."""
        name = table_text(request.db, request.table)
        state = self.states.all.get(name)
        if request.cancel:
            return self._cancel(state, request, now)
        if request.rate_only:
            self.states.set_rate(name, request.max_rows_per_second or None)
            return []
        if state is not None and (state.id == request.id or satisfied(state, request)):
            return []
        if state is not None and state.phase == "running" and request.limits is not None:
            self.states.put(replace(state, behind=request))
            return []
        stopped = seen.stopped or (state.ended_stop if state is not None and is_open(state) else "")
        reason = seen.refusal or refusal(request, stopped, self.states, seen.estimate, now)
        if reason:
            return self._refuse_request(request, state, reason, now)
        return self._accept(request, seen, state, stopped, now)

    def _refuse_request(
        self, request: CopyRequest, state: CopyState | None, reason: str, now: int
    ) -> list[Effect]:
        """A refused request takes nothing away from a copy that waits or runs."""
        if state is None or not is_open(state):
            self.states.put(
                replace(_of(request, state, now, self._rate), phase="refused", ended_ms=now, reason=reason)
            )
        return []

    def _accept(
        self, request: CopyRequest, seen: TableSeen, state: CopyState | None, stopped: str, now: int
    ) -> list[Effect]:
        new = replace(
            _of(request, state, now, self._rate),
            estimate=seen.estimate,
            behind=state.behind if state else None,
        )
        if not seen.stopped:
            new = replace(new, ended_stop=stopped)
        forget: list[Effect] = (
            [Forget(table_of(new))] if state is not None and state.phase == "running" else []
        )
        self.states.all.pop(table_of(new), None)  # it is the last in the row
        self.states.put(new)
        if seen.begun is not None and seen.begun.mark.id == request.id:
            self.states.begun(table_of(new), seen.begun, now)
        return forget

    def _cancel(self, state: CopyState | None, request: CopyRequest, now: int) -> list[Effect]:
        if state is None or not is_open(state):
            return []
        reason = f"{request.by} took the copy of {table_of(state)} back: {copy_again(state.db, state.table)}"
        return self._give_up(state, "cancelled", reason, now)

    # --- what happens

    def ended(self, table: str, copy: str, now: int) -> None:
        """The last chunk's marker is in the topic."""
        if (state := self.states.running_as(table, copy)) is None:
            return
        self.states.put(_ended(state, now))
        self._ask_behind(state)

    def stopped(self, table: str, cause: str, reason: str, now: int) -> None:
        """The table was stopped. A copy that runs begins anew, which ends that stop, too; or it is refused, and the stop stays."""
        state = self.states.all.get(table)
        if state is None or not is_open(state):
            return
        state = replace(state, ended_stop="")
        if state.phase == "running" and (cause not in _PASSING or state.restarts >= RESTARTS):
            why = f"{reason}, in the middle of copy number {state.restarts + 1}: {copy_again(state.db, state.table)}"
            self.states.put(replace(state, phase="refused", ended_ms=now, reason=why))
            self._ask_behind(state)
        elif state.phase == "running":
            self.states.put(replace(state, phase="waiting", restarts=state.restarts + 1))
        else:
            self.states.put(state)

    def altered(self, table: str) -> None:
        """The table is another one behind a statement; `settle` says what becomes of its copy."""
        self._altered.append(table)

    @property
    def pending(self) -> bool:
        """Tell whether there is something to `settle`."""
        return bool(self._altered or self._behind)

    def settle(self, now: int) -> list[Effect]:
        """Deal with what has happened to tables, between two transactions: what follows is in one record with it."""
        altered, self._altered = self._altered, []
        behind, self._behind = self._behind, []
        for request in behind:
            self.states.put(replace(self.states.all[table_text(request.db, request.table)], behind=None))
        return [*(effect for table in altered for effect in self._begin_anew(table, now)), *map(Ask, behind)]

    def _begin_anew(self, table: str, now: int) -> list[Effect]:
        state = self.states.all.get(table)
        if state is None or state.phase != "running":
            return []
        if state.restarts >= RESTARTS:
            why = (
                f"{table} was altered in the middle of {RESTARTS + 1} copies, one after the other: {copy_again(state.db, state.table)}, once nobody "
                "alters it"
            )
            return self._give_up(state, "refused", why, now)
        self.states.put(replace(state, phase="waiting", restarts=state.restarts + 1))
        return [Forget(table)]

    def refuse(self, table: str, reason: str, now: int) -> list[Effect]:
        """The copy that waits or runs cannot be made. `reason`: "…seen…: remedy"."""
        state = self.states.all.get(table)
        return [] if state is None or not is_open(state) else self._give_up(state, "refused", reason, now)

    def _give_up(
        self, state: CopyState, phase: Literal["refused", "cancelled"], reason: str, now: int
    ) -> list[Effect]:
        effects: list[Effect] = [Forget(table_of(state))] if state.phase == "running" else []
        if state.ended_stop:
            seen = f"the copy of {table_of(state)} that had ended its stop ({state.ended_stop}) was given up"
            effects.append(StopAgain(table_of(state), state.ended_stop, seen))
        self.states.put(replace(state, phase=phase, ended_ms=now, reason=reason, ended_stop=""))
        self._ask_behind(state)
        return effects

    def _ask_behind(self, state: CopyState) -> None:
        """Judge the request that came meanwhile. It stays in the state until then: a record may be stored in between."""
        if state.behind is not None:
            self._behind.append(state.behind)

    # --- at a start

    def found(self, table: str, begun: Begun, now: int, *, altered: bool) -> None:
        """A start found `begun` in the table's topic. A begin that the record knows already says nothing new.

        `altered`: the table's definition is another one since.
        """
        state = self.states.all.get(table)
        if state is not None and state.behind is not None and state.behind.id == begun.mark.id:
            # A predecessor ended the copy and began the one that was asked for behind it, and did not come to store that.
            self._behind = [request for request in self._behind if request.id != begun.mark.id]
            before = _ended(state, now) if is_open(state) else state
            state = _of(state.behind, before, now, self._rate)
            self.states.put(state)
        if state is None or state.id != begun.mark.id or not is_open(state):
            return
        if state.begin != begun.position:
            again = state.begin is not None and state.phase == "running"
            self.states.put(replace(state, restarts=state.restarts + again))
            self.states.begun(table, begun, now)
        if altered:
            self.altered(table)


def _ended(state: CopyState, now: int) -> CopyState:
    ended = (*recent(state.ended, now), (now, state.cause))
    return replace(state, phase="done", ended_ms=now, ended=ended, ended_stop="")


def _of(request: CopyRequest, before: CopyState | None, now: int, default: int | None) -> CopyState:
    rate = default if request.max_rows_per_second is None else request.max_rows_per_second
    return CopyState(
        id=request.id, db=request.db, table=request.table, by=request.by, phase="waiting", requested_ms=request.requested_ms,
        where=request.where, cause=request.cause, max_rows_per_second=rate or None,
        ended=recent(before.ended if before else (), now),
        begin=before.begin if before else None, offset=before.offset if before else None,
    )  # fmt: skip
