"""Reports of workers to the driver, beside Spark: one datagram a task with what became of each of its topics.

Over loopback UDP with a token of the run, so that the plan needs no rows back. A lost datagram loses figures only,
never events: what counts is in the target, and the driver compares it with Spark's offsets now and then.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import msgspec

from schemas.wire.position import Position

MAX_REPORTS = 50
"""Reports in one datagram."""
MAX_BYTES = 65_507
"""Bytes in one datagram: what UDP takes. 50 reports of 1,200 bytes stay below; a message of characters of three bytes does not."""
MESSAGE_HEAD, MESSAGE_TAIL = 300, 300
"""Characters of a long message that are sent: what was seen stands at its beginning, what to do at its end."""

AttemptOutcome = Literal["ok", "behind", "stopped", "fenced"]


class CopyNeed(msgspec.Struct, frozen=True):
    """See consumer.errors.CopyNeededError. `after`: a copy that begins behind this offset of the topic will do."""

    after: int = msgspec.field(name="after")
    cause: str = msgspec.field(name="cause")


class Report(msgspec.Struct, omit_defaults=True):
    """One topic in one task attempt.

    state: "ok"; "behind": a transient error outlasted the task's retries, progress is where it is; "stopped": it
    waits for a person; "fenced": another attempt or epoch owns the unit. `offset`: lowest lane; `applied`, `dropped`,
    `held`: events of this attempt; `displaced`: rows of other keys that made room for them (drift);
    `commit_ts_ms`: source commit time of the last applied event (0: unknown);
    `position`: source position of the lowest lane; `query`: in which query. `copy`: what the unit waits for, where a copy of its
    table heals it; `long`: it is behind because what comes next takes long, and would keep other units waiting.
    """

    topic: str = msgspec.field(name="topic")
    state: AttemptOutcome = msgspec.field(name="state")
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


def clear_figures(report: Report) -> Report:
    """Return what a later batch is told of an attempt that was the last one: figures add up, so they are said once."""
    return msgspec.structs.replace(report, applied=0, dropped=0, held=0, displaced=0)


class _Datagram(msgspec.Struct):
    token: str = msgspec.field(name="token")
    reports: list[Report] = msgspec.field(name="reports")


_ENCODE = msgspec.json.Encoder().encode
_DECODE = msgspec.json.Decoder(_Datagram).decode


class ReportSender:
    """Sends from a worker. Never blocks and never fails a task."""

    def __init__(self, port: int, token: str) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._address = ("127.0.0.1", port)
        self._token = token

    def send(self, reports: Sequence[Report]) -> None:
        for at in range(0, len(reports), MAX_REPORTS):
            short = [_shorten_message(report) for report in reports[at : at + MAX_REPORTS]]
            self._send_datagram(short)

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
    said = report.message
    if len(said) > MESSAGE_HEAD + MESSAGE_TAIL:
        report.message = f"{said[:MESSAGE_HEAD]} … {said[-MESSAGE_TAIL:]}"
    return report


class ReportReceiver:
    """Receives at the driver, on a free loopback port."""

    def __init__(self) -> None:
        self.token = secrets.token_hex(8)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self._socket.bind(("127.0.0.1", 0))

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    def receive(self, timeout: float) -> list[Report]:
        """Wait up to `timeout` seconds for the first datagram and return everything that has arrived."""
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
