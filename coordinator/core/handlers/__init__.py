"""Handlers of agents' messages at an owner: a chain, each a small class with one duty.

| handler | duty | ends the chain |
|---|---|---|
| `CheckLeader` | whether a later owner is obeyed there | by stepping down |
| `RegisterAgent` | `Hello`: incarnations get an agent epoch, which is stored | always, for a `Hello` |
| `CheckMember` | whether the agent is registered | for a stranger, who is told |
| `CheckTerm` | messages to an earlier term | with an announcement |
| `RenewAgentLease` | incarnation, order, when it was heard; liveness | for stale and late ones, and before its Sync |
| `CollectStatistics` | marks and rows a second of the replicas that may speak | never |
| `ReportUnits` | replication sets, what is missing, failures | never |
| `AnswerUnit` | one unit's answer to a dispatch | never |
| `GrantLeases` | what the agent may go on writing | never |

What has to be stored comes out of `RegisterAgent` and of the replication sets as `Persist` effects, before anybody is told.
Each class is tested by itself; the order is this tuple. A stale message (another incarnation, an earlier number) changes
nothing behind `RenewAgentLease`, which counts it in `dropped`.
"""

from __future__ import annotations

from coordinator.core.handlers.context import Context, Handler
from coordinator.core.handlers.entrance import CheckLeader, CheckMember, CheckTerm, RegisterAgent
from coordinator.core.handlers.leases import GrantLeases, RenewAgentLease
from coordinator.core.handlers.reports import AnswerUnit, CollectStatistics, KeepWithinBounds, ReportUnits
from coordinator.core.messages import Up
from coordinator.core.owner.state import OwnerDecision, OwnerState

CHAIN: tuple[Handler, ...] = (
    CheckLeader(),
    RegisterAgent(),
    CheckMember(),
    CheckTerm(),
    KeepWithinBounds(),
    RenewAgentLease(),
    CollectStatistics(),
    ReportUnits(),
    AnswerUnit(),
    GrantLeases(),
)


def receive_agent_message(state: OwnerState, message: Up, now: float, out: list[OwnerDecision]) -> None:
    """Take in one message; what is of another term, incarnation or order is dropped and counted."""
    context = Context(state, message, now, out)
    for handler in CHAIN:
        if not handler.handle(context):
            return


__all__ = ["CHAIN", "Context", "Handler", "receive_agent_message"]
