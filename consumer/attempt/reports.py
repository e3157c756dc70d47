"""Sends the workers' reports to the driver outside Spark: one datagram for each task, with a report for
each topic.

The datagrams go over loopback UDP with a token of the run, so that the query need not return rows. A
lost datagram loses figures and never events: the valid progress is in the target, and the driver
compares it with Spark's offsets regularly.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import msgspec

from schemas.problems import shorten_problem
from schemas.wire.position import Position

MAX_REPORTS = 50
"""Maximum number of reports in one datagram."""
MAX_BYTES = 65_507
"""Maximum number of bytes in one datagram, the limit of UDP. 50 reports of 1,200 bytes fit; messages of
three-byte characters may not."""
MAX_MESSAGE_CHARS = 600
"""Characters of a long message that are sent."""

AttemptOutcome = Literal["ok", "behind", "stopped", "fenced"]
ReportState = AttemptOutcome | Literal["waiting"]


class CopyNeed(msgspec.Struct, frozen=True):
    """The copy that a unit needs; see consumer.errors.CopyNeededError.

    `after`: the copy must begin after this offset of the topic.
    """

    after: int = msgspec.field(name="after")
    cause: str = msgspec.field(name="cause")


class LaneFigures(msgspec.Struct, frozen=True, omit_defaults=True):
    """Figures of lanes: what they have written, and how they waited for each other's commits."""

    upserted: int = msgspec.field(name="upserted", default=0)
    """Rows written; several events of one key in a transaction are one row."""
    deleted: int = msgspec.field(name="deleted", default=0)
    """Rows deleted by events."""
    lock_waits: int = msgspec.field(name="lock_waits", default=0)
    lock_wait_ms: int = msgspec.field(name="lock_wait_ms", default=0)
    """Lanes that wait at the same time count each."""
    lock_chain: int = msgspec.field(name="lock_chain", default=0)
    """The most lanes that have waited one for the next."""
    open_quarantine: int | None = msgspec.field(name="open_quarantine", default=None)
    """Events in quarantine at the end; None: not known."""
    resolved: int = msgspec.field(name="resolved", default=0)
    """Events that have left the quarantine because their row was written, or is deleted at the source."""

    def merge(self, later: LaneFigures) -> LaneFigures:
        """Return these figures and `later` ones together."""
        return LaneFigures(
            self.upserted + later.upserted,
            self.deleted + later.deleted,
            self.lock_waits + later.lock_waits,
            self.lock_wait_ms + later.lock_wait_ms,
            max(self.lock_chain, later.lock_chain),
            self.open_quarantine if later.open_quarantine is None else later.open_quarantine,
            self.resolved + later.resolved,
        )


NO_FIGURES = LaneFigures()
"""Of lanes that have done nothing."""


class Report(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of one attempt at a unit, or its state meanwhile.

    `state`: "ok"; "behind": a transient error outlasted the task's retries, and the progress is at the
    last commit; "stopped": a person must act; "fenced": another attempt or fencing token owns the unit;
    "waiting": the attempt goes on, and waits for what `message` names; without a message it no longer does.
    `epoch`: the attempt's fencing token. `offset`: of the lowest lane. `applied`, `dropped`, `held`:
    events of this attempt, the last ones quarantined. `displaced`: rows of other keys that made room for
    them (drift). `commit_ts_ms`: source commit time of the last applied event (0: unknown). `position`:
    source position of the lowest lane. `query`: the query that ran the attempt. `copy`: the copy that
    would resolve a stop. `long`: the unit is "behind" because its next step takes long and would delay
    other units. `lanes`: of this attempt. `trial_in_s`: seconds after which quarantined keys are to be tried
    although no further record has come, or passed ranges of a key sweep compared; 0: none waits for that.
    `sweeping`: a key sweep is under way, whose ranges tasks of Spark do not compare.
    """

    topic: str = msgspec.field(name="topic")
    state: ReportState = msgspec.field(name="state")
    epoch: int = msgspec.field(name="epoch")
    offset: int = msgspec.field(name="offset")
    applied: int = msgspec.field(name="applied", default=0)
    dropped: int = msgspec.field(name="dropped", default=0)
    held: int = msgspec.field(name="held", default=0)
    displaced: int = msgspec.field(name="displaced", default=0)
    commit_ts_ms: int = msgspec.field(name="commit_ts_ms", default=0)
    position: Position | None = msgspec.field(name="position", default=None)
    query: str = msgspec.field(name="query", default="")
    message: str = msgspec.field(name="message", default="")
    copy: CopyNeed | None = msgspec.field(name="copy", default=None)
    long: bool = msgspec.field(name="long", default=False)
    lanes: LaneFigures = msgspec.field(name="lanes", default=NO_FIGURES)
    trial_in_s: float = msgspec.field(name="trial_in_s", default=0.0)
    sweeping: bool = msgspec.field(name="sweeping", default=False)


def clear_figures(report: Report) -> Report:
    """Return `report` without its figures, for a later batch: figures are added up, so they are sent once."""
    lanes = LaneFigures(open_quarantine=report.lanes.open_quarantine)
    return msgspec.structs.replace(report, applied=0, dropped=0, held=0, displaced=0, lanes=lanes)


class _Datagram(msgspec.Struct):
    token: str = msgspec.field(name="token")
    reports: list[Report] = msgspec.field(name="reports")


_ENCODE = msgspec.json.Encoder().encode
_DECODE = msgspec.json.Decoder(_Datagram).decode


class ReportSender:
    """Sends reports from a worker. Never blocks and never fails a task."""

    def __init__(self, port: int, token: str) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._address = ("127.0.0.1", port)
        self._token = token

    def send(self, reports: Sequence[Report]) -> None:
        for at in range(0, len(reports), MAX_REPORTS):
            self._send_datagram([_shorten_message(report) for report in reports[at : at + MAX_REPORTS]])

    def _send_datagram(self, reports: Sequence[Report]) -> None:
        raw = _ENCODE(_Datagram(self._token, list(reports)))
        if len(raw) <= MAX_BYTES or len(reports) == 1:
            self._socket.sendto(raw, self._address)
            return
        half = len(reports) // 2
        self._send_datagram(reports[:half])
        self._send_datagram(reports[half:])

    def close(self) -> None:
        self._socket.close()


def _shorten_message(report: Report) -> Report:
    return msgspec.structs.replace(report, message=shorten_problem(report.message, MAX_MESSAGE_CHARS))


class ReportReceiver:
    """Receives reports in the driver, on a free loopback port."""

    def __init__(self) -> None:
        self.token = secrets.token_hex(8)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self._socket.bind(("127.0.0.1", 0))

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    def receive(self, timeout: float) -> list[Report]:
        """Wait up to `timeout` seconds for the first datagram, and return all reports that have arrived."""
        return list(self._drain_socket(timeout))

    def _drain_socket(self, timeout: float) -> Iterator[Report]:
        self._socket.settimeout(timeout)
        try:
            while True:
                yield from self._decode_datagram(self._socket.recv(1 << 16))
                self._socket.settimeout(0)
        except (TimeoutError, BlockingIOError):
            return

    def _decode_datagram(self, raw: bytes) -> Iterable[Report]:
        try:
            datagram = _DECODE(raw)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return ()
        return datagram.reports if datagram.token == self.token else ()

    def close(self) -> None:
        self._socket.close()
