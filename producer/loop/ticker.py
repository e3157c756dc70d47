"""Does the periodic work of capture once a second, with or without events in the log: reports progress,
and checks that log and topics have not changed.
"""

from __future__ import annotations

from collections.abc import Mapping

from producer.errors import SnapshotFinishedError, TransientSourceError
from producer.kafka.settings import RETENTION_MS
from producer.kafka.topics import explain_partition_count
from producer.loop.copies import TableCopies
from producer.loop.position import CapturePosition, Milestone
from producer.loop.rows import RowSender
from producer.loop.table_stops import TableStops
from producer.ports import Ports
from producer.snapshot.scheduler import SnapshotScheduler
from producer.sources.changes import LogMoment, select_oldest_places
from producer.sources.protocols import SourceLog
from producer.start.repeated_events import build_definition_context, send_definition
from producer.start.started import StartedCapture
from producer.start.table_topics import build_topic_stop
from schemas.problems import encode_problem
from schemas.wire.codec import encode_watermark
from schemas.wire.position import parse_binlog_file_number
from schemas.wire.records import Watermark, format_watermark_topic

#: Open XA transactions that a watermark names.
MAX_REPORTED_XA = 20


class WatermarkSender:
    """Sends watermarks."""

    def __init__(
        self,
        started: StartedCapture,
        ports: Ports,
        *,
        stops: TableStops,
    ) -> None:
        self._context = started.context
        self._captured = started.captured
        self._topic = format_watermark_topic(started.captured.prefix, started.captured.source)
        self._stops = stops
        self._copies = started.copies
        self._writer = ports.writer
        self._clock = ports.clock
        self._on_watermark = ports.on_watermark
        self._reported: dict[str, int] = {}

    def send_watermark(
        self,
        milestone: Milestone,
        *,
        idle: bool,
        events: int,
        ended: str | None = None,
        restarts: bool = False,
    ) -> None:
        """Send a watermark: everything before `milestone` is in Kafka.

        `idle`: the source has nothing after it. `events`: rows so far. `ended`: why it is the last
        watermark, None: it is not. `restarts`: another run follows at once.
        """
        boundary = milestone.boundary
        source, now, left_out = (
            self._captured.source,
            self._clock.now_ms(),
            self._stops.explain_left_out_tables(),
        )
        watermark = Watermark(
            source=source, gen=self._context.gen,
            position=(self._context.epoch, parse_binlog_file_number(boundary.file), boundary.pos, -1),
            file=boundary.file, commit_ts_ms=milestone.source_ms, ts_ms=now, idle=idle,
            snapshot_pending=tuple(sorted(milestone.pending)), topics=self._list_new_offsets(), events=events,
            error="; ".join(f"{name}: {problem}" for name, problem in left_out.items()) or None,
            stops=self._stops.select_visible_stops(),
            left_out={name: encode_problem(problem) for name, problem in left_out.items()}, ended=ended,
            restarts=restarts, copies=self._copies.states.select_visible(now),
            prepared=select_oldest_places(boundary.prepared, self._captured.known, MAX_REPORTED_XA),
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


_TICK = 1.0
#: Seconds between checks whether a topic got more partitions.
_LOOK_AT_TOPICS = 30.0
_REPEAT_DEFINITIONS = RETENTION_MS / 1000 / 7


class CaptureTicker:
    """Does the periodic work of one run of capture.

    Times are in seconds of the clock.
    """

    def __init__(
        self,
        started: StartedCapture,
        ports: Ports,
        *,
        log: SourceLog,
        position: CapturePosition,
        rows: RowSender,
        snapshots: SnapshotScheduler,
        stops: TableStops,
        watermarks: WatermarkSender,
        copies: TableCopies,
        only_snapshot: bool,
    ) -> None:
        self._started = started
        self._server = ports.server
        self._now_ms = ports.clock.now_ms
        self._seconds = ports.clock.seconds
        self._writer = ports.writer
        self._log = log
        self._position = position
        self._rows = rows
        self._snapshots = snapshots
        self._stops = stops
        self._watermarks = watermarks
        self._copies = copies
        self._only_snapshot = only_snapshot
        self._topics = ports.topics
        self._next_tick = self._seconds()
        self._next_topics = self._next_tick + _LOOK_AT_TOPICS
        self._next_repeat = self._next_tick + _REPEAT_DEFINITIONS

    def write_heartbeat(self) -> None:
        """Report that capture is alive, once a second, while it waits in the middle of something."""
        if self._seconds() >= self._next_tick:
            self._next_tick = self._seconds() + _TICK
            self._position.note_proof()
            self._report_when_acknowledged(idle=False)

    def run_due_work(self) -> None:
        """Do what is due, at most once a second.

        Raises SnapshotFinishedError, TransientSourceError, and the errors of writing.
        """
        now = self._seconds()
        if now < self._next_tick:
            return
        self._next_tick = now + _TICK
        # Only between transactions: within one a row may be held, and its rows are being counted.
        if now >= self._next_repeat and not self._log.begun:
            self._next_repeat = now + _REPEAT_DEFINITIONS
            self._repeat_definitions()
        is_quiet = not self._log.heard and not self._log.inside
        self._report_when_acknowledged(idle=is_quiet and self._has_reached_log_end())
        if now >= self._next_topics and not self._log.inside:
            self._next_topics = now + _LOOK_AT_TOPICS
            self._check_topics()
        self._copies.poll_requests()
        if self._only_snapshot and not self._snapshots.tables.pending and not self._copies.busy:
            self._writer.drain()
            raise SnapshotFinishedError

    def send_final_watermark(self, why: str, *, restarts: bool) -> None:
        """Store the position and send the last watermark. Everything sent must be acknowledged."""
        self._position.note_proof()
        milestone = self._position.make_milestone(held=self._rows.holding)
        self._report_milestone(milestone, idle=False, ended=why, restarts=restarts)

    def _report_when_acknowledged(self, *, idle: bool) -> None:
        """Store the position and send the watermark once everything sent until now is acknowledged."""
        milestone = self._position.make_milestone(held=self._rows.holding)
        self._writer.call_when_acknowledged(lambda: self._report_milestone(milestone, idle=idle))

    def _report_milestone(
        self, milestone: Milestone, *, idle: bool, ended: str | None = None, restarts: bool = False
    ) -> None:
        """Store the milestone and send its watermark. Everything before it is in Kafka."""
        self._position.store_milestone(milestone)
        self._watermarks.send_watermark(
            milestone, idle=idle, events=self._rows.sent, ended=ended, restarts=restarts
        )

    def _check_topics(self) -> None:
        """Check that the tables' topics are those of the start, and have one partition each."""
        try:
            partitions = self._topics.count_partitions()
            ids = self._topics.fetch_topic_ids(self._list_table_topics())
        except TransientSourceError:
            return  # what is written waits for Kafka as well; the next check will find it
        self._require_same_topics(partitions, ids)
        self._stop_split_topics(partitions)

    def _list_table_topics(self) -> set[str]:
        """Return the topics of all known tables, and those that were there at the start."""
        captured = self._started.captured
        known = filter(captured.names.has_topic, captured.known)
        return {*captured.topic_ids, *map(captured.assign_topic_name, known)}

    def _require_same_topics(self, partitions: Mapping[str, int], ids: Mapping[str, str]) -> None:
        """Raise TransientSourceError if a topic was deleted, or created again: the next start stops its
        table, and creates the topic.

        A topic that this process has created since its start is seen here for the first time.
        """
        seen = self._started.captured.topic_ids
        for topic, topic_id in ids.items():
            seen.setdefault(topic, topic_id)
        lost = [name for name, was in seen.items() if name not in partitions or ids.get(name, was) != was]
        if lost:
            raise TransientSourceError(
                f"topic {min(lost)} was deleted or created again: capture restarts, and stops its table"
            )

    def _stop_split_topics(self, partitions: Mapping[str, int]) -> None:
        """Stop the tables with a topic that has several partitions now.

        Events go to the first one, as before, and so does the stop.
        """
        captured = self._started.captured
        file, pos = self._log.point
        for name in sorted(captured.known - captured.stopped.keys()):
            topic = captured.assign_topic_name(name)
            if partitions.get(topic, 1) > 1:
                captured.usable.discard(topic)
                stop = build_topic_stop([name], explain_partition_count(topic, partitions[topic]))
                self._stops.stop_tables(stop, LogMoment(file, pos - 1, self._now_ms()))

    def _has_reached_log_end(self) -> bool:
        """Return whether everything is read that the source's log has now.

        That nothing arrives does not show it: the last transactions may be under way. The clock of this
        machine does not count: it may differ from the source's.

        Raises TransientSourceError when the log ends before what was read of it. A server that is reset
        continues to send heartbeats from the file that it has deleted.
        """
        end, (file, pos) = self._server().read_timed_end(), self._log.point
        if end is None or (parse_binlog_file_number(end.file), end.pos) < (
            parse_binlog_file_number(file),
            pos,
        ):
            ends = "there is none" if end is None else f"it ends at {end.file}:{end.pos}"
            raise TransientSourceError(f"the log was read up to {file}:{pos}, and now {ends}")
        return self._position.compare_log_end(end)

    def _repeat_definitions(self) -> None:
        """Send definitions and stops again, long before retention deletes the last ones."""
        started, captured = self._started, self._started.captured
        for state in captured.tables.values():
            if state.name in captured.stopped:
                continue
            at = build_definition_context(started.record, state.defined_at)
            send_definition(self._writer, started.context, state, at)
        for name, stopped in captured.stopped.items():
            if stopped.position is not None:
                self._stops.send_table_stop(name)
