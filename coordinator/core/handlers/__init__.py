"""The handlers of agents' messages at the leader: a chain of functions, each with one task.

| handler | task | ends the chain |
|---|---|---|
| `check_leader` | refuses a claim that a later term has begun | for such a claim |
| `register_agent` | `Hello`: gives a new incarnation an agent epoch and stores it | always, for a `Hello` |
| `check_member` | checks that the agent is registered | for an unknown agent, with `Superseded` |
| `check_term` | answers messages to an earlier term | with an announcement |
| `keep_within_bounds` | removes claims that cannot be true | if the message cannot be used |
| `renew_agent_lease` | incarnation, order, time of receipt, liveness | for late messages, before the Sync |
| `collect_statistics` | progress and rows a second of the replicas that may write | never |
| `report_units` | replication sets, missing units, failures | never |
| `answer_unit` | one unit's answer to a dispatch | never |
| `grant_leases` | grants the leases of the agent's units | never |

`register_agent` and the replication sets return what has to be stored as `Persist` effects; no agent is
informed before it is stored. Each function is tested by itself, and the order is that of `CHAIN`. A stale
message (of another incarnation, or with an earlier number) changes nothing after `renew_agent_lease`,
which counts it in `dropped`.
"""

from __future__ import annotations

from collections.abc import Callable

from coordinator.core.handlers.context import Context
from coordinator.core.handlers.entrance import check_leader, check_member, check_term, register_agent
from coordinator.core.handlers.leases import grant_leases, renew_agent_lease
from coordinator.core.handlers.reports import (
    answer_unit,
    collect_statistics,
    keep_within_bounds,
    report_units,
)
from coordinator.core.leader.state import LeaderDecision, LeaderState
from coordinator.core.messages import Up

CHAIN: tuple[Callable[[Context], bool], ...] = (
    check_leader,
    register_agent,
    check_member,
    check_term,
    keep_within_bounds,
    renew_agent_lease,
    collect_statistics,
    report_units,
    answer_unit,
    grant_leases,
)
"""Each handles the message, and returns whether it goes on to the next one."""


def receive_agent_message(state: LeaderState, message: Up, now: float, out: list[LeaderDecision]) -> None:
    """Process one message. A message of another term or incarnation, or one out of order, is dropped and
    counted.
    """
    context = Context(state, message, now, out)
    for handler in CHAIN:
        if not handler(context):
            return


__all__ = ["CHAIN", "Context", "receive_agent_message"]
