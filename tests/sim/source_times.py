"""The judge of the times up to which a source is captured and applied, as the product computes them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import msgspec

from consumer.reporting.source_times import SourceWatermarks
from schemas.wire.codec import decode_watermark
from schemas.wire.event import EventEnvelope
from schemas.wire.position import LogPoint, Position
from schemas.wire.records import decode_claim_key, format_watermark_topic
from tests.sim.capture import EVENTS, PREFIX
from tests.sim.kafka import Message
from tests.sim.source import Logged
from tests.sim.truth import Wrong
from tests.sim.wire import SOURCE

WATERMARKS = format_watermark_topic(PREFIX, SOURCE)
_decode = msgspec.json.Decoder(EventEnvelope).decode


class SourceTimesJudge:
    """Looks at every watermark of one source, and at the rows of `t` that a unit has not applied.

    `log`: the source's transactions. No time may be later than a commit, by the clock of the source's server,
    that is not captured (of a watermark) or not applied (of a unit).
    """

    def __init__(self, log: Sequence[Logged]) -> None:
        self._log = log
        self._marks = SourceWatermarks()
        self._gen, self._highest = 0, (-1, 0, 0, 0)
        self._claimed_ms = 0  # the latest time that the unit had reached
        self._rows: list[tuple[int, LogPoint]] = []
        """Rows that readers accept: offset, and start of the transaction."""

    def appended(self, topic: str, message: Message) -> None:
        value = message.value()
        if topic == WATERMARKS:
            self._take_mark(message.key(), value)
        elif topic == EVENTS and value is not None:
            self._take(_decode(value), message.offset())

    def _take_mark(self, key: bytes | None, value: bytes | None) -> None:
        if value is None:
            self._marks.fold_claim(decode_claim_key(key) or 0)
            return
        mark = decode_watermark(value)
        self._marks.fold_watermark(mark)
        if mark.gen == self._marks.gen:
            self._check_captured(mark.commit_ts_ms, mark.position)

    def _check_captured(self, source_ms: int, position: Position) -> None:
        for logged in reversed(self._log):
            if logged.end <= position[1:3]:
                return
            if logged.committed_ms < source_ms:
                raise Wrong(f"captured up to {source_ms}, it says at {position}, but without {logged}")

    def _take(self, event: EventEnvelope, offset: int) -> None:
        """Note a row, unless readers drop it: it comes again, or a zombie sent it."""
        place = event.source
        if place.gen < self._gen:
            return
        self._gen = place.gen  # also by an event that comes again
        if place.position <= self._highest:
            return
        self._highest = place.position
        if event.op in "cud":
            start = place.position[1:3]
            self._rows.append((offset, start))
            if self._committed_ms(start) < self._claimed_ms:
                raise Wrong(f"applied up to {self._claimed_ms}, and then comes the row at {start}")

    def _committed_ms(self, start: LogPoint) -> int:
        """Return when a transaction was committed, by the clock of the source's server."""
        return next(each.committed_ms for each in self._log if each.start == start)

    def check_applied(self, applied: int) -> None:
        """Judge the time of a unit that has applied `t`'s topic up to an offset."""
        source_ms = self._marks.compute_checkpoint(EVENTS, applied)
        self._claimed_ms = max(self._claimed_ms, source_ms)
        for offset, start in self._rows[bisect_left(self._rows, (applied + 1,)) :]:
            if self._committed_ms(start) < source_ms:
                raise Wrong(f"applied up to {source_ms}, but not the row at {start}, offset {offset}")
