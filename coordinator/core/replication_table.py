"""The transition tables of a replication set: what a report does to its replica, and what the set then
becomes.

A step has two parts. (1) The cell (state, role, seen) acts on the replica that the report is about. (2)
The set settles: the first rule that fits its composition names the next state and an action, until
nothing changes. Both tables are data, so the diagram in the documentation and the coverage count of the
simulation are made from what runs.

The design follows TiCDC's scheduler v3 (cdc/scheduler/internal/v3/replication, semantics only) without
its known defects: a stopping replica is *undetermined*, whatever it was before, and an undetermined one
blocks every start.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from itertools import product


class SetState(Enum):
    ABSENT = "absent"  # no replica
    RECOVERING = "recovering"  # a new leader has not yet heard from every agent that can hold the unit
    PREPARE = "prepare"  # a secondary gets ready; a primary may still replicate
    COMMIT = "commit"  # the secondary is ready: the primary stops, then the secondary starts
    REPLICATING = "replicating"  # one primary writes
    REMOVING = "removing"  # every replica is instructed to stop


class Role(Enum):
    PRIMARY = "primary"
    SECONDARY = "secondary"
    UNDETERMINED = "undetermined"  # it may still write, but must not


class ReplicaPhase(Enum):
    """The last reported phase of a replica, or `LOST` if its agent is lost."""

    ABSENT = "absent"
    PREPARING = "preparing"
    PREPARED = "prepared"
    REPLICATING = "replicating"
    STOPPING = "stopping"
    STOPPED = "stopped"
    LOST = "gone"


class ReplicaAction(Enum):
    KEEP = "keep"
    PREPARE = "prepare"  # instruct to prepare (again); if it was reported before, it is lost: drop
    START = "start"
    UNSTARTED = "unstarted"  # the start has not arrived; impossible for a replica that was seen writing
    STOP = "stop"  # instruct to stop
    FORGET = "forget"  # acknowledge its final report
    LEAVE = "leave"  # from now on undetermined
    DROP = "drop"  # no longer a replica
    ALARM = "alarm"  # a correct agent cannot report this
    PROMOTE = "promote"  # the secondary becomes the primary
    STOP_PRIMARY = "stop primary"
    CLASSIFY = "classify"  # all agents have been heard: give each replica its role


Cell = tuple[SetState, Role, ReplicaPhase]

_ENDED: dict[ReplicaPhase, tuple[ReplicaAction, ...]] = {
    ReplicaPhase.STOPPING: (ReplicaAction.LEAVE,),
    ReplicaPhase.STOPPED: (ReplicaAction.FORGET, ReplicaAction.DROP),
    ReplicaPhase.LOST: (ReplicaAction.DROP,),
}
#: The replica has reported a later phase before, in the same assignment. It is not trusted: it is stopped
#: and replaced.
IMPOSSIBLE = (ReplicaAction.ALARM, ReplicaAction.STOP, ReplicaAction.LEAVE)

_PRIMARY: dict[ReplicaPhase, tuple[ReplicaAction, ...]] = {
    ReplicaPhase.ABSENT: (ReplicaAction.DROP,),
    ReplicaPhase.PREPARING: IMPOSSIBLE,
    ReplicaPhase.PREPARED: IMPOSSIBLE,
    ReplicaPhase.REPLICATING: (ReplicaAction.KEEP,),
    **_ENDED,
}
_LEAVING: dict[ReplicaPhase, tuple[ReplicaAction, ...]] = {
    ReplicaPhase.ABSENT: (ReplicaAction.DROP,),
    ReplicaPhase.PREPARING: (ReplicaAction.STOP,),
    ReplicaPhase.PREPARED: (ReplicaAction.STOP,),
    ReplicaPhase.REPLICATING: (ReplicaAction.STOP,),
    **_ENDED,
    ReplicaPhase.STOPPING: (ReplicaAction.KEEP,),
}
_SECONDARY: dict[ReplicaPhase, tuple[ReplicaAction, ...]] = {
    ReplicaPhase.ABSENT: (ReplicaAction.PREPARE,),
    ReplicaPhase.PREPARING: (ReplicaAction.KEEP,),
    ReplicaPhase.PREPARED: (ReplicaAction.KEEP,),
    ReplicaPhase.REPLICATING: IMPOSSIBLE,
    **_ENDED,
}

_ROLES: dict[tuple[SetState, Role], dict[ReplicaPhase, tuple[ReplicaAction, ...]]] = {
    (SetState.PREPARE, Role.PRIMARY): _PRIMARY,
    (SetState.PREPARE, Role.SECONDARY): _SECONDARY,
    (SetState.PREPARE, Role.UNDETERMINED): _LEAVING,
    (SetState.COMMIT, Role.PRIMARY): {**_PRIMARY, ReplicaPhase.PREPARED: (ReplicaAction.UNSTARTED,)},
    (SetState.COMMIT, Role.SECONDARY): {
        **_SECONDARY,
        ReplicaPhase.ABSENT: (ReplicaAction.DROP,),
        ReplicaPhase.PREPARING: IMPOSSIBLE,
    },
    (SetState.COMMIT, Role.UNDETERMINED): _LEAVING,
    (SetState.REPLICATING, Role.PRIMARY): _PRIMARY,
    (SetState.REPLICATING, Role.UNDETERMINED): _LEAVING,
    (SetState.REMOVING, Role.UNDETERMINED): _LEAVING,
    (SetState.RECOVERING, Role.UNDETERMINED): {
        **_LEAVING,
        **dict.fromkeys(
            (ReplicaPhase.PREPARING, ReplicaPhase.PREPARED, ReplicaPhase.REPLICATING), (ReplicaAction.KEEP,)
        ),
    },
}

#: Every (state, role of the reporter, reported phase). Other combinations cannot exist (a test proves
#: it).
CELLS: dict[Cell, tuple[ReplicaAction, ...]] = {
    (state, role, seen): acts for (state, role), by_seen in _ROLES.items() for seen, acts in by_seen.items()
}


class Primary(Enum):
    NONE = "no"
    READY = "prepared"  # promoted, not yet seen to write
    WRITING = "replicating"


class Secondary(Enum):
    NONE = "no"
    PENDING = "preparing"
    READY = "prepared"


@dataclass(frozen=True, slots=True)
class Rule:
    """A settle rule. None matches any value."""

    state: SetState
    next: SetState
    primary: Primary | None = None
    secondary: Secondary | None = None
    leaving: bool | None = None
    """Whether undetermined replicas are present."""
    act: ReplicaAction = ReplicaAction.KEEP


_S, _P2, _S2 = SetState, Primary, Secondary
#: In order of priority: the first rule that matches applies.
RULES: tuple[Rule, ...] = (
    Rule(_S.PREPARE, _S.PREPARE, secondary=_S2.PENDING),
    Rule(_S.PREPARE, _S.COMMIT, secondary=_S2.READY),
    Rule(_S.PREPARE, _S.REPLICATING, primary=_P2.WRITING),
    Rule(_S.PREPARE, _S.REMOVING, leaving=True),
    Rule(_S.PREPARE, _S.ABSENT),
    Rule(_S.COMMIT, _S.COMMIT, primary=_P2.WRITING, secondary=_S2.READY, act=ReplicaAction.STOP_PRIMARY),
    Rule(_S.COMMIT, _S.COMMIT, primary=_P2.NONE, secondary=_S2.READY, leaving=True),
    Rule(
        _S.COMMIT, _S.COMMIT, primary=_P2.NONE, secondary=_S2.READY, leaving=False, act=ReplicaAction.PROMOTE
    ),
    Rule(_S.COMMIT, _S.REPLICATING, primary=_P2.WRITING),
    Rule(_S.COMMIT, _S.COMMIT, primary=_P2.READY, leaving=False, act=ReplicaAction.START),
    Rule(_S.COMMIT, _S.COMMIT, primary=_P2.READY),
    Rule(_S.COMMIT, _S.REMOVING, leaving=True),
    Rule(_S.COMMIT, _S.ABSENT),
    Rule(_S.REPLICATING, _S.REPLICATING, primary=_P2.WRITING),
    Rule(_S.REPLICATING, _S.REMOVING, leaving=True),
    Rule(_S.REPLICATING, _S.ABSENT),
    Rule(_S.REMOVING, _S.REMOVING, leaving=True),
    Rule(_S.REMOVING, _S.ABSENT),
    Rule(_S.RECOVERING, _S.RECOVERING, act=ReplicaAction.CLASSIFY),
    Rule(_S.ABSENT, _S.ABSENT),
)

Composition = tuple[SetState, Primary, Secondary, bool]


def _matches_rule(rule: Rule, key: Composition) -> bool:
    return all(
        expected is None or expected is have
        for expected, have in zip((rule.state, rule.primary, rule.secondary, rule.leaving), key, strict=True)
    )


#: The rules, expanded once: every composition has exactly one.
SETTLE: dict[Composition, Rule] = {
    key: next(rule for rule in RULES if _matches_rule(rule, key))
    for key in product(SetState, Primary, Secondary, (False, True))
}
