"""A state machine as the batch system sees it, and its states of ownership.

```
            notify (a message arrived)                close
   IDLE ────────────────────────────▶ NOTIFIED ─────────────────▶ DROP
    ▲        the ready queue has it,  │  the poller frees it
    └──────  then exactly one poller ────┘  when it releases
                release
```
`IDLE`: the mailbox owns the machine. `NOTIFIED`: the machine is in the ready queue or in one
poller's batch; further messages only join the mailbox. `DROP`: the mailbox is closed.
"""

from __future__ import annotations

from enum import Enum
from typing import Protocol


class FsmState(Enum):
    IDLE = "idle"
    NOTIFIED = "notified"
    DROP = "drop"


class Fsm(Protocol):
    """A machine as the batch system sees it. It gets its mailbox with each call of its handler."""

    def is_stopped(self) -> bool:
        """Return whether the machine is finished. The poller then removes it, once its mailbox is empty."""
