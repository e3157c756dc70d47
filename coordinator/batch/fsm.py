"""A state machine as the batch system sees it, and the life of its ownership.

```
            notify (a message came)                    close
   IDLE ────────────────────────────▶ NOTIFIED ─────────────────▶ DROP
    ▲        the scheduler owns it,      │  the poller frees it
    └──────  then exactly one poller ────┘  when it releases
                release
```
`IDLE`: the mailbox owns the machine. `NOTIFIED`: it is in the scheduler's queue or in one poller's batch; further
messages only join the mailbox. `DROP`: the mailbox is closed.
"""

from __future__ import annotations

from enum import Enum
from typing import Protocol


class FsmState(Enum):
    IDLE = "idle"
    NOTIFIED = "notified"
    DROP = "drop"


class Fsm(Protocol):
    """A machine as the batch system sees it. It keeps its own mailbox to read from, given to it at registration."""

    def is_stopped(self) -> bool:
        """Tell whether the machine is finished: the poller then removes it, once its mailbox is empty."""
