"""A lane as a pure state machine: what to gather, when to commit, when to wait, what to do after an error.

```
          feed / drain                 released
 ┌──────┐ ──────────▶ ┌───────────┐ ◀────────── ┌─────────┐
 │ IDLE │             │ GATHERING │ ──────────▶ │ WAITING │   (it has committed all it gathered before)
 └──────┘ ◀────────── └───────────┘    wait     └─────────┘
    ▲   drained      commit │ ▲ applied, failed
    │                       ▼ │
    │                  ┌──────────┐
    └───────────────── │ APPLYING │  failed: pause and again, halves by event order, quarantine of a single event
                       └──────────┘
```
The shell (lane_threads.py, the model) asks `next()` for the effect, carries it out, and says how it went.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from consumer.dispatch import Item
from consumer.locks import LockTable, Wait
from consumer.model import EventId, Held, NetChange
from consumer.progress import Mark


@dataclass(frozen=True, slots=True)
class Limits:
    """`max_gather`: events a transaction (1: row-at-a-time replay); `max_bytes`: of their wire JSON."""

    max_gather: int = 20_000
    max_bytes: int = 16 * 2**20
    tries: int = 6  # failures of one gather, halves included, before its transient error is raised
    pause: float = 0.05  # seconds before the second try; doubles up to max_pause
    max_pause: float = 2.0


@dataclass(slots=True)
class Batch:
    """What one target transaction applies, with `mark` as the lane's new progress (written last).

    `displacing`: None, or JSON to hand to `Transaction.apply(displacing=…)`. `held`: for `Transaction.hold`.
    `events`: (first, last) ids of what is applied; None for a pure progress write. `count`: events in it.
    """

    nets: list[NetChange]
    mark: Mark
    held: list[Held] = field(default_factory=list)
    displacing: str | None = None
    events: tuple[EventId, EventId] | None = None
    count: int = 0


@dataclass(frozen=True, slots=True)
class Apply:
    """Effect: after `pause` seconds, apply `batch` in one transaction; then say `applied()` or `failed(error)`."""

    batch: Batch
    pause: float = 0.0


@dataclass(frozen=True, slots=True)
class WaitFor:
    """Effect: block until `waits` are released (asking the holders to commit); then ask `next()` again."""

    waits: tuple[Wait, ...]


@dataclass(frozen=True, slots=True)
class Idle:
    """Effect: nothing to do until fed. `drained`: the drain mark is reached; `wrote`: and written by this lane."""

    drained: bool = False
    wrote: bool = False


Effect = Apply | WaitFor | Idle


class Lane:
    """The state of lane `number`."""

    def __init__(
        self,
        number: int,
        locks: LockTable,
        limits: Limits,
        held: Sequence[Held] = (),
        *,
        replace: bool = True,
    ) -> None:
        """`held`: quarantine entries of the unit. `replace`: `conflicts: replace`, else quarantine."""

    def feed(self, items: list[Item]) -> None:
        """Queue items (event order)."""

    def drain(self, mark: Mark) -> None:
        """Apply all that was fed and stand at `mark`."""

    def ask(self, event: EventId) -> None:
        """Another lane waits for `event`: commit as soon as it is gathered."""

    def next(self) -> Effect:
        raise NotImplementedError

    def applied(self) -> None:
        """The batch is committed: its tickets are released."""

    def failed(self, error: Exception) -> None:
        """The batch was rolled back. Raises `error` when the lane cannot go on (fenced, tries used up)."""
