"""The search for the leading coordinator: it asks every coordinator at once, within a limited time."""

from __future__ import annotations

import queue
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import grpc
import structlog

from coordinator.transport.access import build_call_metadata
from coordinator.transport.channel import ASK_LEADER, open_channel
from coordinator.transport.events import LeaderInfo
from coordinator.transport.security import Security
from coordinator.transport.wire import NotLeader, WireError, get_leader, put_question

_log = structlog.get_logger(__name__)

_REFUSALS = {grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.UNAUTHENTICATED}
#: Seconds that the others still have after a coordinator has claimed to lead: it may not have noticed
#: the end of its term.
GRACE = 0.1
UNLED_S = 15.0
"""Seconds between two warnings that no coordinator serves this agent."""
OUTDATED_S = 60.0
"""A coordinator that was replaced notices it sooner. One that leads an earlier term for so long, while no
coordinator leads a later one, leads by a control topic that has begun anew."""


def ask_leader(
    peers: Sequence[str],
    known_rev: int = 0,
    security: Security | None = None,
    timeout: float = 1.0,
    *,
    system: str = "",
    token: str = "",
    refused: Callable[[str, str], None] = lambda _peer, _why: None,
    undecided: Callable[[str], None] = lambda _peer: None,
    outdated: Callable[[str, int], None] = lambda _peer, _rev: None,
) -> LeaderInfo | None:
    """Return the leader of the highest term that a peer knows, or None if no peer knows one of
    `known_rev` or later.

    Blocks for at most `timeout` seconds, and less if a leader itself answers. Peers that do not answer
    are skipped. `system`: the Kafka prefix. `token`: authenticates the caller.

    `refused(peer, why)` is called for a coordinator of another system or another version of the
    protocol, and for one that does not accept the token. `undecided(peer)` is called for a coordinator
    that answers and knows no leader, because an election is under way. `outdated(peer, rev)` is called for
    a coordinator that leads an earlier term than `known_rev`.
    """
    answers: queue.SimpleQueue[tuple[str, grpc.Future]] = queue.SimpleQueue()
    channels = [open_channel(peer, security) for peer in peers]
    deadline = time.monotonic() + timeout
    best: LeaderInfo | None = None
    try:
        for peer, channel in zip(peers, channels, strict=True):
            asked = channel.unary_unary(ASK_LEADER).future(
                put_question(), timeout=timeout, metadata=build_call_metadata(system, token)
            )
            asked.add_done_callback(lambda done, peer=peer: answers.put((peer, done)))
        for _ in peers:
            try:
                peer, done = answers.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                break
            info = _read_answer(peer, done, refused)
            if info is None or info.rev < max(1, known_rev) or not info.address:
                if info is not None and not info.address:
                    undecided(peer)
                elif info is not None and info.mine:
                    outdated(peer, info.rev)
                continue
            if info.mine:
                deadline = min(deadline, time.monotonic() + GRACE)
            if best is None or (info.rev, info.mine) > (best.rev, best.mine):
                best = info
    finally:
        for channel in channels:
            channel.close()
    return best


def describe_call_error(error: BaseException) -> str:
    """Return the error in one line."""
    if isinstance(error, grpc.Call):
        return f"{error.code().name}: {error.details()}"
    return f"{type(error).__name__}: {error}"


def _read_answer(peer: str, done: grpc.Future, refused: Callable[[str, str], None]) -> LeaderInfo | None:
    error = done.exception()
    if error is None:
        try:
            return get_leader(done.result())
        except WireError as unreadable:
            refused(peer, str(unreadable))
            error = unreadable
    if isinstance(error, grpc.Call) and error.code() in _REFUSALS:
        refused(peer, str(error.details()))
    _log.debug("coordinator did not answer", peer=peer, error=describe_call_error(error))
    return None


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
        self._outdated_since: float | None = None
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
            outdated=self._note_outdated,
        )

    @property
    def terms_began_anew(self) -> bool:
        """True if a coordinator leads that counts its terms from a control topic that has begun anew."""
        since = self._outdated_since
        return since is not None and time.monotonic() - since >= OUTDATED_S

    def _note_outdated(self, peer: str, rev: int) -> None:
        if self._outdated_since is None:
            self._outdated_since = time.monotonic()
            _log.warning(
                "coordinator leads an earlier term",
                agent=self._caller.agent,
                peer=peer,
                term=rev,
                known=self.known_rev,
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
            self._unled_since, self._outdated_since = now, None
        elif now - self._unled_since >= UNLED_S:
            self._unled_since = now
            _log.warning("no leading coordinator found", agent=self._caller.agent, peers=self._peers)

    def _log_refusal(self, peer: str, why: str) -> None:
        if (peer, why) not in self._refusals:  # the peer is asked again and again
            self._refusals.add((peer, why))
            _log.error("agent refused by a coordinator", agent=self._caller.agent, peer=peer, reason=why)
