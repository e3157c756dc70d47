"""Watches the servers of a source with `hosts` while one of them is read: a thread asks each for its role."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import structlog

from producer.errors import CaptureError, SourceRefusedError, TransientSourceError
from producer.sources.binlog.hosts import HostAnswers, HostRole, find_other_server

_log = structlog.get_logger("capture")

ROLE_INTERVAL_S = 10.0
"""Seconds between two rounds of questions."""
CONFIRMED_S = 30.0
"""The role of the server that is read counts as confirmed this long after it was."""


class HostWatch:
    """Asks (`ask`) until it is closed. `reading`: the identity of the server that is read."""

    def __init__(
        self,
        ask: Callable[[], HostAnswers],
        reading: str,
        interval_s: float = ROLE_INTERVAL_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask, self._reading, self._interval_s = ask, reading, interval_s
        self._clock, self._confirmed_at = clock, clock()
        self._closed = threading.Event()
        self._found: CaptureError | None = None
        self._unread: dict[str, str] = {}
        self._thread = threading.Thread(target=self._run, name="hosts", daemon=True)
        self._thread.start()

    def require_same_server(self) -> None:
        """Raise TransientSourceError if another server accepts writes, and SourceRefusedError if several
        do.
        """
        if self._found is not None:
            raise self._found

    def has_confirmed_role(self) -> bool:
        """Return whether the server that is read has lately said that it accepts writes. If not, another one
        may have taken its place, and that its log has no more shows nothing.
        """
        return self._clock() - self._confirmed_at <= CONFIRMED_S

    def close(self) -> None:
        """Ask no more. The round at hand ends by itself."""
        self._closed.set()

    def judge_answers(self, answers: HostAnswers) -> None:
        """Note what follows from the answers of a round."""
        unread = {address: each for address, each in answers.items() if isinstance(each, str)}
        for address in unread.keys() - self._unread.keys():
            _log.warning("server of the source does not answer", server=address, reason=unread[address])
        self._unread = unread
        own = (each for each in answers.values() if isinstance(each, HostRole) and each.own == self._reading)
        if any(each.is_writable for each in own):
            self._confirmed_at = self._clock()
        try:
            other = find_other_server(answers, self._reading)
        except SourceRefusedError as error:
            self._found = error
            return
        if other is not None:
            self._found = TransientSourceError(
                f"{other} accepts writes now, and the server that is read does not: capture continues there"
            )

    def _run(self) -> None:
        while self._found is None and not self._closed.wait(self._interval_s):
            try:
                self.judge_answers(self._ask())
            except Exception as error:  # noqa: BLE001  # the thread that captures raises it
                self._found = TransientSourceError(
                    f"the servers of the source cannot be asked for their roles: {type(error).__name__}: "
                    f"{error}"
                )
