"""The thin thread shell around dispatch and lanes: one daemon thread a lane, joined before `close` returns.

```python
with LaneThreads(dispatcher, locks, apply, limits=Limits(), held=held) as lanes:
    for chunk in chunks:                       # a few hundred accepted events
        lanes.submit([(plan, change, origin), ...])
    idle = lanes.drain(mark)                   # batch end or barrier: all lanes stand at mark, but for `idle`
    # the caller writes `mark` for the lanes in `idle` in one transaction
```
`apply(lane, batch)` runs in that lane's thread, with a connection of that lane: open `Session.transaction(unit, [row])`,
`tx.apply(net, displacing=batch.displacing)` for each net, `tx.hold(batch.held)`, `tx.write_progress([advanced(row, batch.mark)])`.
It raises consumer.errors; TransientError is retried here with backoff. The first error of any lane stops the others after the
transaction they are in, and is raised by `submit`, `drain` or leaving the `with` block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Protocol

from consumer.dispatch import Dispatcher, Routed
from consumer.lanes import Batch, Limits
from consumer.locks import LockTable
from consumer.model import Held
from consumer.progress import Mark

ApplyBatch = Callable[[int, Batch], None]


class Scheduler(Protocol):
    """Test hook: called by a lane's thread before each step ("apply", "applied", "wait", "resume"); may block."""

    def turn(self, lane: int, step: str, batch: Batch | None) -> None: ...


class LaneThreads:
    def __init__(
        self,
        dispatcher: Dispatcher,
        locks: LockTable,
        apply: ApplyBatch,
        *,
        limits: Limits,
        held: Sequence[Held] = (),
        replace: bool = True,
        max_pending: int = 50_000,
        scheduler: Scheduler | None = None,
    ) -> None: ...

    def __enter__(self) -> LaneThreads:
        raise NotImplementedError

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None: ...

    def submit(self, changes: Sequence[Routed]) -> None:
        """Dispatch `changes` and hand them to the lanes; blocks while more than `max_pending` events are queued."""

    def drain(self, mark: Mark) -> list[int]:
        """Let every lane apply all it was given. Returns the lanes that had nothing and so did not write `mark`."""
        raise NotImplementedError
