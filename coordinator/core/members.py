"""The agents an owner knows: which incarnation, heard when, synced or not. Pure; times are the owner's monotonic seconds.

```
  Registered ──Sync──▶ Synced ──lease + margin without a word──▶ Expired ──Sync──▶ Synced
      └───────────────── lease + margin without a word ─────────────▲
```
Each agent goes its way alone: nothing here waits for all of them. A member is expired when every lease that this or an
earlier owner can have granted to it has run out by this owner's clock. A paused agent does not know that; the fencing token
that the target guards is what stops it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from coordinator.core.messages import ConfigVersion, FileAnswer, Heartbeat, Liveness, Sync

LONGEST_VERSION = 64
"""Characters of an agent's version that are kept: what an agent reports is not trusted to be short."""


class MemberState(Enum):
    REGISTERED = "registered"  # durable, not yet synced in this term
    SYNCED = "synced"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class Member:
    """`seq`: op_seq of the last message applied. `echo`: agent's time of it. `heard_at`: ours. `durable`: registered.

    `draining`: somebody wants its units gone; `liveness` is what it says itself. `config`: what it runs new units under, None: it is of a
    version that does not say; `file`: what its file held when it was last asked. `version`: its version of rowlock, "": not heard yet, or
    older than 0.1.0.
    """

    name: str
    incarnation: str
    agent_epoch: int
    heard_at: float
    durable: bool = True
    state: MemberState = MemberState.REGISTERED
    seq: int = 0
    echo: float = 0.0
    liveness: Liveness = Liveness.ALIVE
    draining: bool = False
    config: ConfigVersion | None = None
    file: FileAnswer | None = None
    version: str = ""

    @property
    def leaving(self) -> bool:
        return self.draining or self.liveness is Liveness.STOPPING

    @property
    def accepts(self) -> bool:
        """Tell whether it can be given units."""
        return self.state is MemberState.SYNCED and not self.leaving


class MessageVerdict(Enum):
    """The verdict on a message of an agent: whether it counts."""

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
    """Return the member with what its heartbeat says; liveness never becomes better."""
    worse = message.liveness if member.liveness is Liveness.ALIVE else member.liveness
    echo = max(message.sent, member.echo)
    member = replace(member, echo=echo, liveness=worse, config=message.config)
    if isinstance(message, Heartbeat):
        return replace(member, file=message.file)
    return replace(member, version=message.version[:LONGEST_VERSION])


def expire_member(member: Member, now: float, silence: float) -> Member | None:
    """Return the expired member if it has just expired, else None. `silence`: lease + margin, in seconds."""
    if member.state is MemberState.EXPIRED or now < member.heard_at + silence:
        return None
    return replace(member, state=MemberState.EXPIRED)
