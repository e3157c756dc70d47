"""The addresses of machines: which mailbox a message goes to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

from coordinator.batch.mailbox import F, Fsm, M, Mailbox, MailboxClosedError, SendError

C = TypeVar("C")
"""Messages of the control machine."""


class NoMailboxError(SendError):
    """No machine is registered under the address."""


class Router(Generic[F, M, C]):
    """The mailboxes by address, and that of the control machine. All methods may be called from any
    thread.
    """

    def __init__(
        self,
        control: Mailbox[Fsm, C],
        schedule: Callable[[Mailbox[F, M], F], None],
        capacity: int,
    ) -> None:
        self.control = control
        self._schedule = schedule
        self._capacity = capacity
        self._mailboxes: dict[Hashable, Mailbox[F, M]] = {}
        self._lock = threading.Lock()
        self._down = False

    def __len__(self) -> int:
        return len(self._mailboxes)

    def __iter__(self) -> Iterator[Hashable]:
        with self._lock:
            return iter(list(self._mailboxes))

    def register_machine(self, address: Hashable, make: Callable[[], F] | F) -> Mailbox[F, M]:
        """Register a machine, and close an existing mailbox of the address. Raises MailboxClosedError
        after shutdown.
        """
        fsm = make() if callable(make) else make
        mailbox: Mailbox[F, M] = Mailbox(address, fsm, self._capacity, self._schedule)
        with self._lock:
            if self._down:
                raise MailboxClosedError("the batch system is shut down")
            old = self._mailboxes.get(address)
            self._mailboxes[address] = mailbox
        if old is not None:
            old.close()
        return mailbox

    def send(self, address: Hashable, message: M) -> None:
        """Send a message if there is room. Raises NoMailboxError, MailboxFullError, MailboxClosedError."""
        self._find_mailbox(address).try_send(message)

    def force_send(self, address: Hashable, message: M) -> None:
        """Send a message regardless of the capacity. Does nothing after shutdown, because everything
        ends then.
        """
        if not self._down:
            self._find_mailbox(address).force_send(message)

    def send_control(self, message: C) -> None:
        """Send to the control machine, which never refuses while the system runs."""
        if not self._down:
            self.control.force_send(message)

    def _find_mailbox(self, address: Hashable) -> Mailbox[F, M]:
        mailbox = self._mailboxes.get(address)
        if mailbox is None:
            raise NoMailboxError(f"no machine is registered as {address!r}")
        return mailbox

    def close_mailbox(self, address: Hashable) -> list[M]:
        """Remove a machine, and return its unhandled messages. A machine that a poller holds ends when
        it is released.
        """
        with self._lock:
            mailbox = self._mailboxes.pop(address, None)
        return mailbox.close() if mailbox is not None else []

    def forget_mailbox(self, mailbox: Mailbox[F, M]) -> bool:
        """Remove the mailbox of a stopped machine if it is empty. False: messages wait, and the machine
        must be polled again.
        """
        with self._lock:
            if not mailbox.remove_if_empty():
                return False
            if self._mailboxes.get(mailbox.address) is mailbox:
                del self._mailboxes[mailbox.address]
            return True

    def shut_down(self) -> None:
        """Refuse all messages from now on and close all mailboxes. The flag is set first, so that no
        machine is registered meanwhile.
        """
        with self._lock:
            self._down = True
            boxes = list(self._mailboxes.values())
            self._mailboxes.clear()
        for mailbox in boxes:
            mailbox.close()
        self.control.close()
