"""The control topic as a model: one partition, transactions of one id that all candidates share, readers of
what is committed.

A claim's producer fences the older ones and aborts what they left open. An open transaction hides what it has
written until it is ended, fenced, or too old; nothing follows it, for the next writer has ended it by its
claim. What is before a snapshot may be deleted, even if a slow reader has not read it. What the messages mean
is coordinator/control/fold.py's business; it reads this topic in the simulation, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from coordinator.control.codec import Claim, Message

Wrote = Callable[[int], None]


@dataclass(slots=True, eq=False)
class Producer:
    """`busy`: one transaction is under way; `jobs` wait for it. `broken`: one failed, or its outcome is not
    known."""

    number: int = 0
    busy: bool = False
    broken: bool = False
    dying: bool = False  # its process died while it was busy: nobody will end what is under way
    jobs: list[tuple[tuple[Message, ...], Wrote]] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Open:
    """A transaction that nobody has ended yet."""

    producer: Producer
    owner: str
    since: float
    messages: tuple[Message, ...]


@dataclass(slots=True)
class ControlTopic:
    """`claims`: every owner_rev in order, with its owner. `log`: what is committed. `start`: what is before
    it is deleted; `end`: the next offset. `fencing` off is a mutation: older producers still write."""

    fencing: bool = True
    timeout: float = 4.0
    start: int = 0
    end: int = 0
    producers: int = 0
    claims: list[tuple[int, str]] = field(default_factory=list)
    log: list[tuple[int, Message]] = field(default_factory=list)
    open: Open | None = None

    def begin(self, producer: Producer) -> None:
        """A new producer: older ones are fenced, and what they left open is aborted."""
        self.producers += 1
        producer.number = self.producers
        if self.open is not None:
            self.abort()

    def write(self, producer: Producer, owner: str, messages: tuple[Message, ...]) -> int | None:
        """Append one transaction; returns the offset of its first message, None: it is fenced."""
        if self._fenced(producer):
            return None
        if (
            self.open is not None and self.open.producer is producer
        ):  # used on after a commit that hangs: it becomes part of that
            self.open.messages += messages
            return self.end
        return self._append(owner, messages)

    def _append(self, owner: str, messages: tuple[Message, ...]) -> int:
        first = self.end
        for message in messages:
            if isinstance(message, Claim):
                self.claims.append((self.end, owner))
            self.log.append((self.end, message))
            self.end += 1
        self.end += 1  # the marker of the commit takes an offset, too
        return first

    def hang(self, producer: Producer, owner: str, messages: tuple[Message, ...], now: float) -> Open | None:
        """Append a transaction that is not ended; None: it is fenced."""
        if self._fenced(producer) or self.open is not None:
            return None
        self.open = Open(producer, owner, now, messages)
        return self.open

    def commit(self, late: Open) -> bool:
        """The end of an open transaction arrives at last; False: it was aborted before."""
        if self.open is not late or self._fenced(late.producer):
            return False
        self.open = None
        self._append(late.owner, late.messages)
        return True

    def abort(self) -> None:
        if self.open is not None:
            self.end += len(self.open.messages) + 1
            self.open = None

    def expire(self, now: float) -> bool:
        """The broker ends what is open for too long."""
        old = self.open is not None and now - self.open.since > self.timeout
        if old:
            self.abort()
        return old

    def read(self, position: int) -> list[tuple[int, Message]]:
        """Return what is committed from `position` on; a reader before the topic's beginning goes on at the
        beginning."""
        return [entry for entry in self.log if entry[0] >= position]

    def trim(self, before: int) -> None:
        self.start = max(self.start, before)
        self.log = [entry for entry in self.log if entry[0] >= before]

    def _fenced(self, producer: Producer) -> bool:
        return self.fencing and producer.number != self.producers
