"""Copies of single tables that are asked for: which one waits, which runs, and what became of each. Pure (docs/adr/0025).

`CopyBook` is told what was asked, and what happened to tables; the loop asks it what is due, and carries out its effects. Its
states stand in the position record, and go there with the position that they are of.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from msgspec.structs import replace

from producer.statements.ddl import tokenize
from producer.tables import Begun
from schemas.wire.copies import CopyMark, CopyRequest, CopyState

DAY_MS, HOUR_MS, MINUTE_MS = 24 * 3600 * 1000, 3600 * 1000, 60 * 1000
#: How often a copy begins anew because of what happened to its table.
RESTARTS = 3
#: Tables that units may have copied at once, of one source.
AT_ONCE = 3
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
    """`states`: "db.table" → of the last request, in the order of the requests. `requests`: offset of the next one to read.

    `revision` grows with each change. Times in ms since 1970.
    """

    def __init__(self, states: Mapping[str, CopyState] | None = None, requests: int = 0) -> None:
        self.states = dict(states or {})
        self.requests = requests
        self.revision = 0
        self._waiting: list[CopyState] = []
        self._waiting_at = -1
        self._altered: list[str] = []
        self._behind = [
            state.behind for state in self.states.values() if state.behind is not None and not _open(state)
        ]

    # --- what is asked

    def asked(self, request: CopyRequest, seen: TableSeen, now: int) -> list[Effect]:
        """Take a request in; returns what follows at once."""
        name = f"{request.db}.{request.table}"
        state = self.states.get(name)
        if request.cancel:
            return self._cancel(state, request, now)
        if state is not None and (state.id == request.id or satisfied(state, request)):
            return []
        if state is not None and state.phase == "running" and request.limits is not None:
            self._set(replace(state, behind=request))
            return []
        stopped = seen.stopped or (state.ended_stop if state is not None and _open(state) else "")
        reason = seen.refusal or self._refusal(request, stopped, state, seen.estimate, now)
        if reason:
            return self._refuse_request(request, state, reason, now)
        return self._accept(request, seen, state, stopped, now)

    def _refusal(
        self, request: CopyRequest, stopped: str, state: CopyState | None, estimate: int | None, now: int
    ) -> str:
        if request.where is not None and stopped:
            return (
                f"{request.db}.{request.table} is stopped ({stopped}), and a copy of a part of it does not end that: "
                f"rowlock copy {request.db}.{request.table}"
            )
        return over_limits(request, state, self.states.values(), estimate, now)

    def _refuse_request(
        self, request: CopyRequest, state: CopyState | None, reason: str, now: int
    ) -> list[Effect]:
        """A refused request takes nothing away from a copy that waits or runs."""
        if state is None or not _open(state):
            self._set(replace(_of(request, state, now), phase="refused", ended_ms=now, reason=reason))
        return []

    def _accept(
        self, request: CopyRequest, seen: TableSeen, state: CopyState | None, stopped: str, now: int
    ) -> list[Effect]:
        new = replace(
            _of(request, state, now), estimate=seen.estimate, behind=state.behind if state else None
        )
        if not seen.stopped:
            new = replace(new, ended_stop=stopped)
        forget: list[Effect] = [Forget(_name(new))] if state is not None and state.phase == "running" else []
        self.states.pop(_name(new), None)  # it is the last in the row
        self._set(new)
        if seen.begun is not None and seen.begun.mark.id == request.id:
            self.begun(_name(new), seen.begun, now)
        return forget

    def _cancel(self, state: CopyState | None, request: CopyRequest, now: int) -> list[Effect]:
        if state is None or not _open(state):
            return []
        reason = f"{request.by} took the copy of {_name(state)} back: rowlock copy {_name(state)}"
        return self._give_up(state, "cancelled", reason, now)

    # --- what happens

    @property
    def running(self) -> CopyState | None:
        return next((state for state in self.states.values() if state.phase == "running"), None)

    @property
    def waiting(self) -> list[CopyState]:
        """Those that may begin, the oldest first; none as long as one runs. It is asked for each transaction."""
        if self._waiting_at != self.revision:
            self._waiting_at = self.revision
            states = self.states.values() if self.running is None else ()
            self._waiting = [state for state in states if state.phase == "waiting"]
        return self._waiting

    @property
    def busy(self) -> bool:
        """Tell whether a copy waits or runs."""
        return any(map(_open, self.states.values()))

    def begun(self, table: str, begun: Begun, now: int) -> None:
        """The copy has begun in the table's topic."""
        state = self.states[table]
        self._set(
            replace(
                state, phase="running", began_ms=now, begin=begun.position, offset=begun.offset, rows=0,
                ended_stop=begun.ended or state.ended_stop,
            )
        )  # fmt: skip

    def sent(self, table: str, copy: str, rows: int) -> None:
        """A chunk of the copy with this id was sent."""
        if (state := self._running(table, copy)) is not None:
            self._set(replace(state, rows=state.rows + rows))

    def ended(self, table: str, copy: str, now: int) -> None:
        """The last chunk's marker is in the topic."""
        if (state := self._running(table, copy)) is None:
            return
        ended = (*_recent(state.ended, now), (now, state.cause))
        self._set(replace(state, phase="done", ended_ms=now, ended=ended, ended_stop=""))
        self._ask_behind(state)

    def stopped(self, table: str, cause: str, reason: str, now: int) -> None:
        """The table was stopped. A copy that runs begins anew, which ends that stop, too; or it is refused, and the stop stays."""
        state = self.states.get(table)
        if state is None or not _open(state):
            return
        state = replace(state, ended_stop="")
        if state.phase == "running" and (cause not in _PASSING or state.restarts >= RESTARTS):
            why = f"{reason}, in the middle of copy number {state.restarts + 1}: rowlock copy {table}"
            self._set(replace(state, phase="refused", ended_ms=now, reason=why))
            self._ask_behind(state)
        elif state.phase == "running":
            self._set(replace(state, phase="waiting", restarts=state.restarts + 1))
        else:
            self._set(state)

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
            self._set(replace(self.states[f"{request.db}.{request.table}"], behind=None))
        return [*(effect for table in altered for effect in self._begin_anew(table, now)), *map(Ask, behind)]

    def _begin_anew(self, table: str, now: int) -> list[Effect]:
        state = self.states.get(table)
        if state is None or state.phase != "running":
            return []
        if state.restarts >= RESTARTS:
            why = (
                f"{table} was altered in the middle of {RESTARTS + 1} copies, one after the other: rowlock copy {table}, once nobody "
                "alters it"
            )
            return self._give_up(state, "refused", why, now)
        self._set(replace(state, phase="waiting", restarts=state.restarts + 1))
        return [Forget(table)]

    def refuse(self, table: str, reason: str, now: int) -> list[Effect]:
        """The copy that waits or runs cannot be made. `reason`: "…seen…: remedy"."""
        state = self.states.get(table)
        return [] if state is None or not _open(state) else self._give_up(state, "refused", reason, now)

    def _give_up(
        self, state: CopyState, phase: Literal["refused", "cancelled"], reason: str, now: int
    ) -> list[Effect]:
        effects: list[Effect] = [Forget(_name(state))] if state.phase == "running" else []
        if state.ended_stop:
            seen = f"the copy of {_name(state)} that had ended its stop ({state.ended_stop}) was given up"
            effects.append(StopAgain(_name(state), state.ended_stop, seen))
        self._set(replace(state, phase=phase, ended_ms=now, reason=reason, ended_stop=""))
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
        state = self.states.get(table)
        if state is None or state.id != begun.mark.id or not _open(state):
            return
        if state.begin != begun.position:
            again = state.begin is not None and state.phase == "running"
            self._set(replace(state, restarts=state.restarts + again))
            self.begun(table, begun, now)
        if altered:
            self.altered(table)

    def resumes(self, table: str, begun: Begun) -> bool:
        """Tell whether the copy that began in the table's topic goes on where its markers say: unless it was given up, or is to begin anew.

        One that nobody knows here goes on: its request is read soon, and of a new snapshot there is none.
        """
        state = self.states.get(table)
        return state is None or state.begin != begun.position or state.phase in ("running", "done")

    # --- what is stored and shown

    def visible(self, now: int) -> dict[str, CopyState]:
        """Return the copies that wait or run, or came to an end within a day."""
        return {
            name: state
            for name, state in self.states.items()
            if _open(state) or (state.ended_ms or 0) > now - DAY_MS
        }

    def prune(self, now: int) -> None:
        """Forget what ended more than a day ago. What was given up is kept: its topic says that it began, and not that it ended."""
        for name in self.states.keys() - self.visible(now).keys():
            state = self.states[name]
            if state.phase == "done" or state.begin is None:
                del self.states[name]
                self.revision += 1

    # --- inside

    def _running(self, table: str, copy: str) -> CopyState | None:
        state = self.states.get(table)
        return state if state is not None and state.phase == "running" and state.id == copy else None

    def _set(self, state: CopyState) -> None:
        self.states[_name(state)] = state
        self.revision += 1


def mark_of(state: CopyState) -> CopyMark:
    """Return how the copy is told in its begin event."""
    return CopyMark(id=state.id, partial=state.where is not None)


_NOT_WHOLE = frozenset([";", "'", '"', "`"])
"""What stands in no condition: the end of a statement, and what has no end."""


def unbalanced(where: str) -> str:
    """Return why a text is no condition that is whole in itself, "…seen…: remedy"; "": it may be one.

    What it means the source says: it gets the text in parentheses, and what opens a comment without an end opens them for good.
    """
    texts, depth = [token.upper for token in tokenize(where)], 0
    for text in texts:
        depth += {"(": 1, ")": -1}.get(text, 0)
        if depth < 0:
            break
    if texts and depth == 0 and not _NOT_WHOLE & set(texts):
        return ""
    return f"the condition {where[:200]!r} is not whole: give one SQL condition of the source, with all its parentheses"


def satisfied(state: CopyState, request: CopyRequest) -> bool:
    """Tell whether what is asked is done already, or will be: a copy of the whole table begins behind `after`."""
    if request.after is None or state.where is not None:
        return False
    if state.phase == "waiting":
        return True
    return state.phase in ("running", "done") and state.offset is not None and state.offset > request.after


def over_limits(
    request: CopyRequest,
    state: CopyState | None,
    others: Iterable[CopyState],
    estimate: int | None,
    now: int,
) -> str:
    """Return why a copy that no person asked for is not made (R30); "": it is made."""
    limits = request.limits
    if limits is None:
        return ""
    table, ended = f"{request.db}.{request.table}", _recent(state.ended if state else (), now)
    about = "" if estimate is None else f" (about {estimate} rows)"
    by_hand = f"rowlock copy {table}{about}"
    if estimate is not None and estimate > limits.max_rows:
        return f"{table} has about {estimate} rows, and `repair` copies up to {limits.max_rows} by itself: {by_hand}"
    if len(ended) >= limits.max_per_day:
        return f"{table} was copied {len(ended)} times within a day, and `repair` allows {limits.max_per_day}: {by_hand}"
    if any(cause == request.cause and now - at < HOUR_MS for at, cause in ended):
        return (
            f"{table} needs a copy for the same cause ({request.cause}) within an hour after one: {by_hand}"
        )
    at_once = [
        other
        for other in others
        if _open(other)
        and other.by not in ("operator", "capture")
        and (other.db, other.table) != (request.db, request.table)
        and abs(request.requested_ms - other.requested_ms) < MINUTE_MS
    ]
    if len(at_once) >= AT_ONCE:
        return (
            f"more than {AT_ONCE} tables of the source need a copy at once, {table} is one of them: {by_hand}"
        )
    return ""


def _of(request: CopyRequest, before: CopyState | None, now: int) -> CopyState:
    return CopyState(
        id=request.id, db=request.db, table=request.table, by=request.by, phase="waiting", requested_ms=request.requested_ms,
        where=request.where, cause=request.cause, max_rows_per_second=request.max_rows_per_second,
        ended=_recent(before.ended if before else (), now),
        begin=before.begin if before else None, offset=before.offset if before else None,
    )  # fmt: skip


def _open(state: CopyState) -> bool:
    return state.phase in ("waiting", "running")


def _recent(ended: Iterable[tuple[int, str]], now: int) -> tuple[tuple[int, str], ...]:
    return tuple(each for each in ended if each[0] > now - DAY_MS)


def _name(state: CopyState) -> str:
    return f"{state.db}.{state.table}"
