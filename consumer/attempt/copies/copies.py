"""Applies the markers of a copy's chunks to the target, in one attempt (docs/adr/0026-applying-a-copy.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from consumer.attempt.copies.held import gone_keys
from consumer.attempt.copies.keys_on_disk import IN_MEMORY
from consumer.attempt.copies.sweep import BoundRefusedError, Sweep, read_again
from consumer.attempt.copies.window import Window
from consumer.attempt.effects import Machine, ReadHeld, ask
from consumer.attempt.operations import CloseHeld, Operation, SupersedeDisplaced, Write
from consumer.attempt.readers.reader import Taken
from consumer.attempt.spec import UnitSpec
from consumer.attempt.transactions import Progress, retried
from consumer.errors import CopyNeededError
from consumer.ordering.model import Held, NetChange, TargetTable
from consumer.ordering.netchange import sort_keys
from consumer.ordering.progress import Mark
from consumer.tables.definition import InForce
from schemas.table.model import Key
from schemas.wire.event import Event

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CopyChunk:
    """The end of a chunk of a copy. `copy`: its id; `begins`, `since`: see schemas.wire.copies.CopyMark."""

    copy: str
    begins: int
    since: int
    after: Key | None
    upto: Key | None
    last: bool

    def sweeps(self, in_force: InForce) -> bool:
        """Tell whether rows that are gone can be told now: in its range, where that is the same range at the target, or in the whole table."""
        return in_force.ordered or self.last


def chunk_of_copy(topic: str, event: Event) -> CopyChunk | None:
    """Return what the marker of a repeated chunk says; None: it is of a copy that deletes nothing.

    Raises CopyNeededError: it does not say of which copy it is.
    """
    chunk, copy = event.chunk, event.copy
    if copy is not None and copy.partial:
        return None
    if chunk is None or copy is None or copy.begins is None or copy.since is None:
        raise CopyNeededError(
            f"{topic}: the marker of a repeated snapshot does not say of which copy it is: an older version of rowlock wrote it",
            cause="gap",
        )
    return CopyChunk(copy.id, copy.begins, copy.since, chunk.after, chunk.upto, chunk.last)


class Copies:
    """Of one attempt. `note` it all that is taken from the topic; its machines are for barriers: all lanes have drained."""

    def __init__(self, spec: UnitSpec) -> None:
        self._spec = spec
        self._window: Window | None = None

    def begun(self) -> None:
        """The attempt begins, with another definition or layout perhaps."""
        self._window = None

    def note(self, taken: Taken) -> None:
        window = self._window
        if window is not None:
            window.take(taken)
            if len(window) > IN_MEMORY:
                self._window = None  # what is left of it is read again

    def marker(
        self, chunk: CopyChunk, mark: Mark, in_force: InForce, progress: Progress
    ) -> Machine[Sequence[Held] | None]:
        """Delete what is gone by the marker of a chunk, and move all lanes past it in one transaction.

        At the end of the copy also held keys that are gone are let go: ends with the entries that are held then; None: as before.
        """
        spec = self._spec
        sweep = Sweep(
            spec.unit.topic,
            in_force,
            lambda table, keys: delete_rows(progress, table, keys),
            patient=spec.patient,
        )
        if len(progress.behind(mark)) < len(progress.rows):
            return None  # all lanes passed it together, and it was done before that
        if in_force.ordered:
            window = yield from self._window_since(chunk.since, mark[0], in_force)
            try:
                gone = yield from sweep.of_range(window, chunk.since, chunk.after, chunk.upto)
            except BoundRefusedError:
                upto = None if chunk.last else chunk.upto
                gone = yield from sweep.behind_refused(chunk.begins, mark[0], upto)
        else:
            gone = yield from sweep.of_table(chunk.begins, mark[0])
        if gone:
            target = in_force.target
            log.info(
                "rows deleted that the source has no more", pipeline=spec.unit.pipeline, topic=spec.unit.topic,
                table=f"{target.schema}.{target.name}", rows=gone, copy=chunk.copy,
            )  # fmt: skip
        if not chunk.last:
            yield from pass_together(progress, mark, ())
            return None
        self._window = None
        return (yield from self._ended(sweep, chunk.begins, mark, in_force, progress))

    def _window_since(self, since: int, upto: int, in_force: InForce) -> Machine[Window]:
        """Return the window behind `since`: what the attempt has read itself, or else read again."""
        window = self._window
        if window is None or window.since > since:
            window = Window(in_force.target, since)
            if upto - since > 1:
                yield from read_again(self._spec.unit.topic, in_force, since, upto, window.take)
            self._window = window
        return window

    def _ended(
        self, sweep: Sweep, begins: int, mark: Mark, in_force: InForce, progress: Progress
    ) -> Machine[Sequence[Held]]:
        """Let go of held keys that the source has no more, and move all lanes past the end of the copy."""
        held: Sequence[Held] = yield from retried(lambda: ask(ReadHeld()))
        entries = dict(gone_keys(in_force, held, begins))
        free = yield from sweep.without_row(list(entries))
        ids = [(entry.offset, entry.part) for key in free for entry in entries[key]]
        operations: list[Operation] = superseded(in_force, begins, mark)
        if ids:
            why = f"deleted at the source, by the copy that ended at offset {mark[0]}"
            operations.append(CloseHeld(ids, why))
        yield from pass_together(progress, mark, operations)
        closed = set(ids)
        return [entry for entry in held if (entry.offset, entry.part) not in closed]


def superseded(in_force: InForce, begins: int, mark: Mark) -> list[Operation]:
    """Return what marks the rows that had made room before a copy that ends began: it has brought what the source has of them.

    (A unique index of a shared target table holds the columns of `add:`: no row made room for another source's.)
    """
    target = in_force.target
    why = f"by the copy from offset {begins} to {mark[0]}"
    return [SupersedeDisplaced(f"{target.schema}.{target.name}", begins, why)]


def pass_together(progress: Progress, mark: Mark, operations: Sequence[Operation]) -> Machine[None]:
    """Move all lanes past a marker: a lane that went on alone would write rows that a repeated sweep takes for gone."""
    lanes = progress.behind(mark)
    yield from retried(lambda: progress.move(lanes, mark, operations))


def delete_rows(progress: Progress, table: TargetTable, keys: Sequence[Key]) -> Machine[None]:
    """Delete the rows of `keys` in one transaction that guards the unit's progress and moves no lane."""
    operations: list[Operation] = [Write(NetChange(table, deletes=sort_keys(keys)))]
    yield from progress.guarded(operations)
