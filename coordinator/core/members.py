"""The agents that a leader knows: incarnation, time of the last message, and whether they have synced.
Pure.

```
  Registered ──Sync──▶ Synced ──lease + margin without a message──▶ Expired ──Sync──▶ Synced
      └───────────────── lease + margin without a message ─────────────▲
```
Each agent is treated by itself: no step waits for all of them. A member expires when every lease that
this or an earlier leader can have granted to it has run out by this leader's clock. A paused agent does
not know that; the fencing token in the target stops it. Times are seconds of the leader's monotonic
clock.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import Enum

import msgspec

from coordinator.core.messages import ConfigVersion, FileAnswer, Heartbeat, Liveness, Sync
from schemas.slots import SlotReport, limit_failures
from schemas.units import OldestAgents
from schemas.versions import parse_version

LONGEST_VERSION = 64
"""Characters of an agent's version that are kept, because an agent may report a long one."""
_NAMED_AGENTS = 5
"""The most agents that `OldestAgents` names."""


class MemberState(Enum):
    REGISTERED = "registered"  # durable, not yet synced in this term
    SYNCED = "synced"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class Member:
    """An agent as the leader knows it."""

    name: str
    incarnation: str
    agent_epoch: int
    heard_at: float
    """When the last message arrived, by the leader's clock."""
    durable: bool = True
    """Whether the registration is stored."""
    state: MemberState = MemberState.REGISTERED
    seq: int = 0
    """The `op_seq` of the last message that was applied."""
    echo: float = 0.0
    """The agent's time in its last Sync or heartbeat."""
    liveness: Liveness = Liveness.ALIVE
    """What the agent itself reports."""
    draining: bool = False
    """Whether an operator wants its units to be moved away."""
    config: ConfigVersion | None = None
    """The configuration under which it runs new units; None: its version does not report one."""
    file: FileAnswer | None = None
    """The content of its configuration file when it was last asked."""
    version: str = ""
    """Its version of rowlock; "": not reported yet, or older than 0.1.0."""
    slots: SlotReport | None = None
    """The slots of its apply process in Spark; None: not known."""

    @property
    def leaving(self) -> bool:
        return self.draining or self.liveness is Liveness.STOPPING

    @property
    def accepts(self) -> bool:
        """True if the agent can be given units."""
        return self.state is MemberState.SYNCED and not self.leaving


class MessageVerdict(Enum):
    """The judgement of an agent's message: whether it counts."""

    APPLY = "apply"
    UNSYNCED = "unsynced"  # alive, but its state counts only from its Sync on
    LATE = "late"  # overtaken by a later one of the same incarnation
    OTHER = "other incarnation"


def judge_message(
    member: Member, agent_epoch: int, seq: int, now: float, *, is_sync: bool
) -> tuple[Member, MessageVerdict]:
    """Return the member after a message of its current term, and whether the message is to be applied."""
    if agent_epoch != member.agent_epoch:
        return member, MessageVerdict.OTHER
    if seq <= member.seq:
        return member, MessageVerdict.LATE
    member = replace(member, seq=seq, heard_at=max(now, member.heard_at))
    if is_sync:
        return replace(member, state=MemberState.SYNCED), MessageVerdict.APPLY
    return member, MessageVerdict.APPLY if member.state is MemberState.SYNCED else MessageVerdict.UNSYNCED


def update_from_heartbeat(member: Member, message: Sync | Heartbeat) -> Member:
    """Return the member with the content of its heartbeat; liveness never improves."""
    worse = message.liveness if member.liveness is Liveness.ALIVE else member.liveness
    echo = max(message.sent, member.echo)
    member = replace(member, echo=echo, liveness=worse, config=message.config)
    if isinstance(message, Heartbeat):
        return replace(member, file=message.file, slots=_limit_slots(message.slots))
    return replace(member, version=message.version[:LONGEST_VERSION])


def _limit_slots(slots: SlotReport | None) -> SlotReport | None:
    """Return what is kept of an agent's slots, because an agent may report long texts."""
    if slots is None or not slots.failures:
        return slots
    return msgspec.structs.replace(slots, failures=limit_failures(slots.failures))


def expire_member(member: Member, now: float, silence: float) -> Member | None:
    """Return the expired member if it has just expired, else None. `silence`: lease + margin, in seconds."""
    if member.state is MemberState.EXPIRED or now < member.heard_at + silence:
        return None
    return replace(member, state=MemberState.EXPIRED)


def list_oldest_agents(members: Collection[Member]) -> OldestAgents | None:
    """Return the agents of the lowest version. An expired one does not count: it has no unit, and joins
    again with its version. None: there is no agent, or one has not reported its version in this term.
    """
    versions = {each.name: each.version for each in members if each.state is not MemberState.EXPIRED}
    pending = any(each.state is MemberState.REGISTERED for each in members)
    if pending or not versions:
        return None
    lowest = min(versions.values(), key=parse_version)
    names = sorted(name for name, version in versions.items() if version == lowest)
    return OldestAgents(lowest, tuple(names[:_NAMED_AGENTS]))
