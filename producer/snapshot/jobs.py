"""Running snapshots of single tables, and the readers of their chunks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from msgspec.structs import replace

from producer.errors import TableStoppedError
from producer.snapshot.chunks import ChunkState, SnapshotEffect, SnapshotEvent, SnapshotMachine
from producer.sources.chunk_data import ChunkFailed, ChunkRead, ChunkRefused, ReadChunk
from producer.sources.protocols import ChunkQueue
from producer.tables import TableState
from schemas.table.model import Table
from schemas.wire.copies import CopyMark, CopyState

KEYS_PER_ROW = 5
"""A chunk of a key sweep has this many keys for each row that a chunk of a copy has."""
ChunkAnswer = ChunkRead | ChunkFailed | ChunkRefused


class ChunkReaderLane:
    """A reader of chunks, with the jobs that wait for its answers, in order."""

    def __init__(self, reader: ChunkQueue) -> None:
        self.reader = reader
        self.asked: deque[SnapshotJob] = deque()

    def poll_answer(self) -> ChunkAnswer | None:
        """Return the next answer, or None. Raises the reading's error, which was the answer then."""
        try:
            return self.reader.poll_answer()
        except TableStoppedError:
            self.asked.popleft()
            raise


class SnapshotJob:
    """A running snapshot of one table.

    `due`: when the next chunk may be read. `began_with`: the whole definition at its begin; chunks of a key
    sweep are read as a part of it.
    """

    __slots__ = ("began_with", "due", "lane", "machine", "state", "table")

    def __init__(
        self, table: TableState, machine: SnapshotMachine, state: ChunkState, lane: ChunkReaderLane
    ) -> None:
        self.table, self.machine, self.state, self.lane = table, machine, state, lane
        self.due = 0.0
        self.began_with = table.table

    def apply_event(self, event: SnapshotEvent, now: float) -> list[SnapshotEffect]:
        """Apply an event to the chunk, and return its effects in order."""
        self.state, effects = self.machine.apply_event(self.state, event, now)
        return effects

    def limit_chunks(self, most: int, asked: CopyState | None) -> None:
        """Read chunks of at most `most` rows from now on, and of no more than the copy `asked` may read."""
        self.machine = SnapshotMachine(compute_chunk_rows(most, asked, self.table))

    def delay_next_chunk(self, seconds: float, now: float) -> None:
        """Read the next chunk `seconds` after this one was due."""
        self.due = max(self.due, now) + seconds

    def build_copy_mark(self) -> CopyMark | None:
        """Return the mark of the copy for the next marker; None: there is no copy."""
        begun = self.table.begun
        if begun is None:
            return None
        marker = self.table.marker_offset
        since = begun.offset if marker is None else marker
        return replace(begun.mark, begins=begun.offset, since=since)

    def apply_pace(self, request: ReadChunk, asked: CopyState | None) -> ReadChunk:
        """Return the request with the condition and the pace of the copy `asked`, if it is not None."""
        if asked is None:
            return request
        return request._replace(where=asked.where, not_before=max(request.not_before, self.due))


def select_read_table(state: TableState) -> Table:
    """Return the table as chunks read it: for a key sweep its key alone."""
    table = state.table
    if not state.reads_keys:
        return table
    columns = tuple(table.get_column(name) for name in table.key.columns)
    return replace(table, columns=columns, unique=(), left_out=())


def compute_chunk_rows(most: int, asked: CopyState | None, state: TableState) -> int:
    """Return how many rows the next chunk has.

    A chunk of a copy with a rate has at most one second's rows. Keys are small.
    """
    most *= KEYS_PER_ROW if state.reads_keys else 1
    rate = asked.max_rows_per_second if asked is not None else None
    return min(most, rate) if rate else most


class ChunkReaderLanes:
    """The lanes of a run, opened when needed. `open_reader`: opens a reader of chunks."""

    def __init__(self, open_reader: Callable[[], ChunkQueue]) -> None:
        self._open_reader = open_reader
        self._lanes: list[ChunkReaderLane] = []

    def find_free_lane(self, jobs: Iterable[SnapshotJob]) -> ChunkReaderLane:
        """Return a lane that none of the jobs uses; a new one if there is none."""
        used = {id(job.lane) for job in jobs}
        lane = next((lane for lane in self._lanes if id(lane) not in used), None)
        if lane is None:
            lane = ChunkReaderLane(self._open_reader())
            self._lanes.append(lane)
        return lane

    def yield_answers(self) -> Iterator[tuple[SnapshotJob, ChunkAnswer]]:
        """Yield the answers, each with its job. Raises the errors of reading."""
        for lane in self._lanes:
            while lane.asked and (answer := lane.poll_answer()) is not None:
                yield lane.asked.popleft(), answer

    def close(self) -> None:
        """Stop reading; waits for a SELECT in flight."""
        for lane in self._lanes:
            lane.reader.close()
