"""Snapshots of single tables that are under way, and the readers that read their chunks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from msgspec.structs import replace

from producer.errors import TableStoppedError
from producer.snapshot.chunks import ChunkState, SnapshotMachine
from producer.source import ChunkQueue
from producer.sources.chunk_data import ChunkFailed, ChunkRead, ChunkRefused, ReadChunk
from producer.tables import TableState
from schemas.wire.copies import CopyMark, CopyState

ChunkAnswer = ChunkRead | ChunkFailed | ChunkRefused


class ChunkReaderLane:
    """A reader of chunks, and for whom its answers are, in order."""

    def __init__(self, reader: ChunkQueue) -> None:
        self.reader = reader
        self.asked: deque[SnapshotJob] = deque()

    def poll_answer(self) -> ChunkAnswer | None:
        """Return the next answer, if there is one. Raises what the reading raised; that was the answer then."""
        try:
            return self.reader.poll_answer()
        except TableStoppedError:
            self.asked.popleft()
            raise


class SnapshotJob:
    """One table's snapshot under way. `since`: offset of the last marker of a copy that is in the topic; `due`: when the next chunk may be
    read."""

    __slots__ = ("due", "lane", "machine", "since", "state", "table")

    def __init__(self, table: TableState, machine: SnapshotMachine) -> None:
        self.table = table
        self.machine = machine
        self.since = table.marker_offset
        self.due = 0.0
        self.state: ChunkState
        self.lane: ChunkReaderLane

    def build_copy_mark(self) -> CopyMark | None:
        """Return what the next marker says of the copy."""
        begun = self.table.begun
        if begun is None:
            return None
        since = begun.offset if self.since is None else self.since
        return replace(begun.mark, begins=begun.offset, since=since)

    def apply_pace(self, request: ReadChunk, asked: CopyState | None) -> ReadChunk:
        """Return the chunk that is to be read, with the condition and the pace of the copy that was `asked` for, if one was."""
        if asked is None:
            return request
        return request._replace(where=asked.where, not_before=max(request.not_before, self.due))


def compute_chunk_rows(most: int, asked: CopyState | None) -> int:
    """Return how many rows the next chunk has: of a copy with a rate no more than a second's."""
    rate = asked.max_rows_per_second if asked is not None else None
    return min(most, rate) if rate else most


class ChunkReaderLanes:
    """The lanes of a run, opened as they are needed. `open_reader` opens a reader of chunks."""

    def __init__(self, open_reader: Callable[[], ChunkQueue]) -> None:
        self._open_reader = open_reader
        self._lanes: list[ChunkReaderLane] = []

    def find_free_lane(self, jobs: Iterable[SnapshotJob]) -> ChunkReaderLane:
        """Return a lane that none of the jobs uses, made if there is none."""
        used = {id(job.lane) for job in jobs}
        lane = next((lane for lane in self._lanes if id(lane) not in used), None)
        if lane is None:
            lane = ChunkReaderLane(self._open_reader())
            self._lanes.append(lane)
        return lane

    def yield_answers(self) -> Iterator[tuple[SnapshotJob, ChunkAnswer]]:
        """Yield what was read, and for which job. Raises what a reading raised."""
        for lane in self._lanes:
            while lane.asked and (answer := lane.poll_answer()) is not None:
                yield lane.asked.popleft(), answer

    def close(self) -> None:
        """Stop reading; waits for a SELECT in flight."""
        for lane in self._lanes:
            lane.reader.close()
