"""Log lines while a Kafka broker is away: the first line of Kafka's client, then a line a minute, and
one when the broker answers again.

The client itself repeats the same line several times a second for each connection. Only lines about a broker
that cannot be reached are left out; all others are logged as they are.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

log = structlog.get_logger("kafka")

REPEAT_S = 60.0
"""Seconds between two lines about the same outage."""
BROKER_PROBE_S = 2.0
"""Seconds between two requests to a broker that is away."""
_UNREACHABLE = re.compile(
    r"Connect to \S+ failed|Failed to resolve|Connection setup timed out|Disconnected|Connection closed|"
    r"(?:Receive|Send) failed|Timed out .*(?:in.flight|request)|request\(s\) timed out|brokers are down"
)
_BROKER = re.compile(
    r"\]: (?:\w+: )?(?P<broker>[^\s/]+:\d+)(?:/(?:bootstrap|-?\d+))?: (?P<error>.+)", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class OutageNote:
    """A line for the log about a broker that is away, or answers again."""

    broker: str
    away_s: float
    error: str
    """Why it cannot be reached; "": it answers again."""


class _Outage:
    """A broker that is away since a line of the client at `now`. Times are in monotonic seconds."""

    def __init__(self, broker: str, error: str, now: float) -> None:
        self._broker, self._error = broker, error
        self._since = self._logged_at = now
        self._is_confirmed = False
        """Whether anything after the first line has shown that the broker is away."""

    def record_line(self, error: str) -> None:
        """Record a further line of the client, without the broker's name."""
        self._error, self._is_confirmed = error, True

    def record_silence(self, now: float) -> OutageNote | None:
        """Record that the broker does not answer, and return the line to be logged."""
        self._is_confirmed = True
        if now - self._logged_at < REPEAT_S:
            return None
        self._logged_at = now
        return OutageNote(self._broker, round(now - self._since, 1), self._error)

    def build_last_note(self, now: float) -> OutageNote | None:
        """Return the line to be logged when the broker answers. None: a connection was closed, and is opened
        again at once.
        """
        return OutageNote(self._broker, round(now - self._since, 1), "") if self._is_confirmed else None


class BrokerOutages:
    """The brokers of a Kafka that are away. Pure; one thread at a time."""

    def __init__(self) -> None:
        self._outages: dict[str, _Outage] = {}

    def list_brokers(self) -> list[str]:
        return list(self._outages)

    def record_line(self, line: str, now: float) -> bool:
        """Record a line of a client, and return whether it is to be logged."""
        if not _UNREACHABLE.search(line):
            return True
        named = _BROKER.search(line)
        if named is None:  # it is about all brokers
            return not self._outages
        broker, error = named["broker"], named["error"]
        if broker in self._outages:
            self._outages[broker].record_line(error)
            return False
        self._outages[broker] = _Outage(broker, error, now)
        return True

    def record_answer(self, broker: str, now: float, *, answers: bool) -> OutageNote | None:
        """Record whether a broker that is away has answered a request, and return the line to be logged."""
        if answers:
            return self._outages.pop(broker).build_last_note(now)
        return self._outages[broker].record_silence(now)

    def forget_broker(self, broker: str) -> None:
        """Forget an outage: the next line about the broker is logged."""
        del self._outages[broker]


class OutageWatch:
    """Watches the outages of one Kafka's brokers, for all clients of this process. While a broker is away, a
    thread asks it again and again.
    """

    def __init__(self, probe: Callable[[str], bool], pause_s: float = BROKER_PROBE_S) -> None:
        """`probe(broker)` returns whether the broker at "host:port" answers a request."""
        self._probe, self._pause_s = probe, pause_s
        self._outages = BrokerOutages()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        """Runs while a broker is away."""

    def record_line(self, line: str) -> bool:
        """Record a line of a client, and return whether it is to be logged."""
        with self._lock:
            is_logged = self._outages.record_line(line, time.monotonic())
            if self._outages.list_brokers() and self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="kafka-outage", daemon=True)
                self._thread.start()
        return is_logged

    def _watch(self) -> None:
        while True:
            time.sleep(self._pause_s)
            with self._lock:
                brokers = self._outages.list_brokers()
                if not brokers:
                    self._thread = None
                    return
            for broker in brokers:
                self._ask_broker(broker)

    def _ask_broker(self, broker: str) -> None:
        try:
            answers = self._probe(broker)
        except Exception:  # the client's lines are then all that is known
            log.exception("kafka broker cannot be asked", broker=broker)
            with self._lock:
                self._outages.forget_broker(broker)
            return
        with self._lock:
            note = self._outages.record_answer(broker, time.monotonic(), answers=answers)
        if note is not None:
            _log_note(note)


def _log_note(note: OutageNote) -> None:
    if note.error:
        log.warning("kafka broker does not answer", broker=note.broker, away_s=note.away_s, error=note.error)
    else:
        log.info("kafka broker answers again", broker=note.broker, away_s=note.away_s)
