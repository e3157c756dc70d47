"""The search of an agent for the leading coordinator."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field

import structlog

from coordinator.transport.access import build_call_metadata
from coordinator.transport.ask import ask_leader
from coordinator.transport.events import LeaderInfo
from coordinator.transport.security import Security
from coordinator.transport.wire import NotLeader

_log = structlog.get_logger(__name__)

UNLED_S = 15.0
"""Seconds between two warnings that no coordinator serves this agent."""


@dataclass(frozen=True, slots=True)
class Caller:
    """An agent as it introduces itself to coordinators."""

    agent: str
    security: Security | None = None
    system: str = ""
    """The Kafka prefix."""
    token: str = ""
    """Authenticates the agent; "": a certificate or the loopback interface does."""
    instance: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Names this client. A new stream of it replaces its earlier ones."""

    def build_metadata(self) -> tuple[tuple[str, str], ...]:
        return build_call_metadata(self.system, self.token)


class LeaderSearch:
    """The search for the leader: the coordinators to ask, and what their answers have shown so far. One
    thread uses it.
    """

    def __init__(self, caller: Caller, peers: Sequence[str], timeout: float) -> None:
        """`peers`: every coordinator's "host:port". `timeout`: seconds for all peers together."""
        self._caller, self._peers, self._timeout = caller, tuple(peers), timeout
        self._hint = ""
        self._refusals: set[tuple[str, str]] = set()
        self._unled_since = time.monotonic()
        self.known_rev = 0
        """The highest term that is known."""

    def ask_peers(self) -> LeaderInfo | None:
        """Return the leader of the highest known term; None: no coordinator names one."""
        peers = tuple(dict.fromkeys([*self._peers, *([self._hint] if self._hint else [])]))
        caller = self._caller
        return ask_leader(
            peers,
            self.known_rev,
            caller.security,
            self._timeout,
            system=caller.system,
            token=caller.token,
            refused=self._log_refusal,
        )

    def note_rev(self, rev: int) -> None:
        """Note that this term has begun."""
        self.known_rev = max(self.known_rev, rev)

    def follow_hint(self, answer: NotLeader) -> None:
        """Ask the leader that a coordinator without a term has named, too."""
        self.note_rev(answer.known_rev)
        self._hint = answer.address

    def note_round(self, *, served: bool) -> None:
        """Note whether a coordinator has served this agent, and warn regularly while none does."""
        now = time.monotonic()
        if served:
            self._unled_since = now
        elif now - self._unled_since >= UNLED_S:
            self._unled_since = now
            _log.warning("no leading coordinator found", agent=self._caller.agent, peers=self._peers)

    def _log_refusal(self, peer: str, why: str) -> None:
        if (peer, why) not in self._refusals:  # the peer is asked again and again
            self._refusals.add((peer, why))
            _log.error("agent refused by a coordinator", agent=self._caller.agent, peer=peer, reason=why)
