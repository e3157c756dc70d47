"""The handlers of agents' messages at the leader: a chain of small classes, each with one task.

| handler | task | ends the chain |
|---|---|---|
| `CheckLeader` | refuses a claim that a later term has begun | for such a claim |
| `RegisterAgent` | `Hello`: gives a new incarnation an agent epoch and stores it | always, for a `Hello` |
| `CheckMember` | checks that the agent is registered | for an unknown agent, with `Superseded` |
| `CheckTerm` | answers messages to an earlier term | with an announcement |
| `KeepWithinBounds` | removes claims that cannot be true | if the message cannot be used |
| `RenewAgentLease` | incarnation, order, time of receipt, liveness | for late messages, and before the Sync |
| `CollectStatistics` | progress and rows a second of the replicas that may write | never |
| `ReportUnits` | replication sets, missing units, failures | never |
| `AnswerUnit` | one unit's answer to a dispatch | never |
| `GrantLeases` | grants the leases of the agent's units | never |

`RegisterAgent` and the replication sets return what has to be stored as `Persist` effects; no agent is
informed before it is stored. Each class is tested by itself, and the order is that of `CHAIN`. A stale
message (of another incarnation, or with an earlier number) changes nothing after `RenewAgentLease`,
which counts it in `dropped`.
"""

from __future__ import annotations

from coordinator.core.handlers.context import Context, Handler
from coordinator.core.handlers.entrance import CheckLeader, CheckMember, CheckTerm, RegisterAgent
from coordinator.core.handlers.leases import GrantLeases, RenewAgentLease
from coordinator.core.handlers.reports import AnswerUnit, CollectStatistics, KeepWithinBounds, ReportUnits
from coordinator.core.leader.state import LeaderDecision, LeaderState
from coordinator.core.messages import Up

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


def receive_agent_message(state: LeaderState, message: Up, now: float, out: list[LeaderDecision]) -> None:
    """Process one message. A message of another term or incarnation, or one out of order, is dropped and
    counted.
    """
    context = Context(state, message, now, out)
    for handler in CHAIN:
        if not handler.handle(context):
            return


__all__ = ["CHAIN", "Context", "Handler", "receive_agent_message"]
