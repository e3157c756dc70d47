"""The check of callers that have no stream yet, at the coordinator."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

import grpc
import structlog

from coordinator.transport.access import explain_other_caller_system, explain_unknown_caller
from coordinator.transport.wire import WireError

_log = structlog.get_logger(__name__)

#: Seconds between two log lines about unreadable callers; all are counted.
LOG_EVERY = 60.0


class CallerCheck:
    """The check whether a caller is served, and the number of those that are not."""

    def __init__(self, system: str, token: str) -> None:
        self._system, self._token = system, token
        self._logged = float("-inf")
        self.counts = Counter({"strangers": 0, "unreadable": 0})

    def explain_refusal(self, metadata: Iterable[Any]) -> tuple[grpc.StatusCode, str] | None:
        """Return why a caller with this metadata is refused; None: it is served.

        It is refused if it is not authenticated, or belongs to another system, because the units of
        another system and the databases of these names are not those of this one.
        """
        why = explain_unknown_caller(self._token, metadata)
        if why is not None:
            self.counts["strangers"] += 1
            return grpc.StatusCode.UNAUTHENTICATED, why
        why = explain_other_caller_system(self._system, metadata)
        return None if why is None else (grpc.StatusCode.FAILED_PRECONDITION, why)

    def count_unreadable(self, error: WireError, peer: str) -> None:
        """Count a caller that cannot be understood, such as one of another version.

        It calls again and again, so the log has at most one line in `LOG_EVERY` seconds.
        """
        self.counts["unreadable"] += 1
        now = time.monotonic()
        if now >= self._logged + LOG_EVERY:
            self._logged = now
            _log.error("request of a caller not readable", peer=peer, error=str(error))
