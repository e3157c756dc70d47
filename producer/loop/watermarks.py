"""Sends watermarks: they report, about once a second, how far Kafka has followed the source, and the
current problems.
"""

from __future__ import annotations

from producer.loop.table_stops import TableStops
from producer.ports import Ports
from producer.sources.changes import Boundary
from producer.start.started import StartedCapture
from schemas.problems import encode_problem
from schemas.wire.codec import encode_watermark
from schemas.wire.position import parse_binlog_file_number
from schemas.wire.records import Watermark, format_watermark_topic


class WatermarkSender:
    """Sends watermarks. `ended`: why the next one is the last.

    `restarts`: whether another run follows at once.
    """

    def __init__(
        self,
        started: StartedCapture,
        ports: Ports,
        *,
        stops: TableStops,
    ) -> None:
        self.ended: str | None = None
        self.restarts = False
        self._context = started.context
        self._captured = started.captured
        self._topic = format_watermark_topic(started.captured.prefix, started.captured.source)
        self._stops = stops
        self._copies = started.copies
        self._writer = ports.writer
        self._clock = ports.clock
        self._on_watermark = ports.on_watermark
        self._reported: dict[str, int] = {}

    def send_watermark(self, boundary: Boundary, pending: frozenset[str], *, idle: bool, events: int) -> None:
        """Send a watermark: everything before `boundary` is in Kafka.

        `pending`: tables with a snapshot that is not completely in Kafka. `idle`: the source has nothing
        after it. `events`: rows so far.
        """
        source, now, left_out = (
            self._captured.source,
            self._clock.now_ms(),
            self._stops.explain_left_out_tables(),
        )
        watermark = Watermark(
            source=source, gen=self._context.gen,
            position=(self._context.epoch, parse_binlog_file_number(boundary.file), boundary.pos, -1),
            file=boundary.file, commit_ts_ms=now if idle else boundary.header.ts_ms, ts_ms=now, idle=idle,
            snapshot_pending=tuple(sorted(pending)), topics=self._list_new_offsets(), events=events,
            error="; ".join(f"{name}: {problem}" for name, problem in left_out.items()) or None,
            stops=self._stops.select_visible_stops(), left_out={name: encode_problem(problem) for name, problem in left_out.items()}, ended=self.ended, restarts=self.restarts,
            copies=self._copies.states.select_visible(now),
        )  # fmt: skip
        self._writer.send(self._topic, source.encode(), encode_watermark(watermark))
        if self._on_watermark is not None:
            self._on_watermark(watermark)

    def _list_new_offsets(self) -> dict[str, int]:
        """Return the last acknowledged offset of every topic where it has changed since the last
        watermark.
        """
        offsets = self._writer.offsets
        topics = {
            t: o
            for t in self._captured.topics
            if (o := offsets.get(t)) is not None and self._reported.get(t) != o
        }
        self._reported.update(topics)
        return topics
