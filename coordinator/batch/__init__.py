"""A batch system: many small state machines, few threads, and no machine ever in two threads at once.

The semantics are those of TiKV's batch-system (components/batch-system; read, not copied): one *control*
machine and any number of *normal* ones, each with a mailbox. A message to an idle machine schedules it.
A poller takes a batch of scheduled machines, handles them, and does its I/O once for the whole batch in
`end_round`.
"""

from coordinator.batch.mailbox import Fsm, FsmState, Mailbox, MailboxClosedError, MailboxFullError, SendError
from coordinator.batch.poller import HandleResult, KeepMachine, PollHandler, ReleaseMachine
from coordinator.batch.router import NoMailboxError, Router
from coordinator.batch.system import BatchConfig, BatchSystem

__all__ = [
    "BatchConfig",
    "BatchSystem",
    "Fsm",
    "FsmState",
    "HandleResult",
    "KeepMachine",
    "Mailbox",
    "MailboxClosedError",
    "MailboxFullError",
    "NoMailboxError",
    "PollHandler",
    "ReleaseMachine",
    "Router",
    "SendError",
]
