"""One topic in one task attempt: from Kafka records to committed lanes (design.md §6).

begin (fence, read) → from the lowest lane's offset + 1, whatever the batch holds → decode → drop duplicates →
barriers (definition, truncate, chunk marker) → applier → at the end every lane, also an idle one, at the batch's end.

What ends an attempt never fails the Spark batch: progress is where it is, the report says why, and the next attempt
(the next batch, or the driver's restart) goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from consumer.applier import SHORT, Applier, AttemptLostError, Progress, Sessions, retried
from consumer.dedup import Deduplicator
from consumer.definition import InForce, definition_change, prepare, stored_table
from consumer.errors import FencedError, TransientError, UnitStoppedError
from consumer.events import ROW_OPS, Decode, bad_event, decode_any, decode_none, full_event
from consumer.kafka_reader import Record
from consumer.lanes import Limits
from consumer.layout import Layout, keys_fingerprint
from consumer.model import LaneProgress, RowChange, Unit, UnitState
from consumer.progress import Mark, advanced, plan, relaid
from consumer.reports import Report, State
from consumer.router import Route, fingerprint
from consumer.targets.base import Session
from schemas.codec import decode_table
from schemas.debezium import Modes
from schemas.event import Chunk, Event
from schemas.findings import START_OVER
from schemas.table import Row, Table

Slice = list[Record]
"""Records of one topic in offset order."""
ReadMissing = Callable[[int, int], Iterable[Slice]]
"""(start, upto) → the records of the topic in [start, upto), from Kafka itself."""


@dataclass(frozen=True, slots=True)
class UnitSpec:
    """What a worker must know of a unit. `source`: its name in the configuration.

    `assigned`: the coordinator's epoch, where there is one: what is known of the target table is kept through it.
    `real`: that table as it was read for this assignment, as JSON; empty: whoever needs it reads it.
    `debezium`: how its connector is set, where Debezium writes the topic.
    """

    unit: Unit
    source: str
    epoch: int
    topic_id: str
    routes: tuple[Route, ...]
    lanes: int
    create_tables: bool = True
    replace: bool = True
    limits: Limits = field(default_factory=Limits)
    short: int = SHORT
    assigned: int | None = None
    real: bytes = b""
    debezium: Modes | None = None


def initial_layout(routes: tuple[Route, ...], lanes: int) -> Layout:
    """Return the layout of a unit that has no definition yet."""
    return Layout(lanes=lanes, routes=fingerprint(routes))


def prepared(spec: UnitSpec, session: Session, table: Table) -> InForce:
    """Return what the source's `table` comes to in the target as it is now."""
    real = decode_table(spec.real) if spec.real else None
    return prepare(
        session,
        table,
        source_name=spec.source,
        routes=spec.routes,
        create=spec.create_tables,
        real=real,
        debezium=spec.debezium,
    )


def definition_in_force(
    spec: UnitSpec, session: Session, text: str, tables: MutableMapping[tuple[str, int], InForce]
) -> InForce:
    """Return what the stored definition `text` comes to, from `tables` where it is known."""
    place = (spec.unit.topic, spec.epoch if spec.assigned is None else spec.assigned)
    cached = tables.get(place)
    if cached is None or cached.text != text:
        cached = tables[place] = prepared(spec, session, stored_table(text))
    return cached


class TopicRun:
    """The state of one attempt."""

    def __init__(
        self,
        spec: UnitSpec,
        sessions: Sessions,
        read_missing: ReadMissing,
        tables: MutableMapping[tuple[str, int], InForce],
    ) -> None:
        """`tables`: definitions in force by (topic, epoch or assignment), kept by the process."""
        self.spec = spec
        self._sessions = sessions
        self._read_missing = read_missing
        self._tables = tables
        self.applied = 0
        self.dropped = 0
        self.held = 0
        self.displaced = 0
        self.commit_ts_ms = 0
        self._applier: Applier | None = None
        self._progress = Progress(spec.unit, sessions, ())

    # -- the attempt ---------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin an attempt: fence, read, choose the layout."""
        rows, state, self._held = retried(lambda: self._session.begin(self.spec.unit, self.spec.epoch))
        self._check(rows[0].topic_id, state)
        self._progress = Progress(self.spec.unit, self._sessions, rows)
        self._in_force = retried(lambda: self._prepared(state.definition))
        self._plan = plan(self._progress.rows, self._wanted_layout(self._in_force))
        if self._plan.switch_now:
            self._switch()
            return
        lowest = self._progress.lowest
        self._dedup = Deduplicator(self._progress.rows)
        self._mark: Mark = (lowest.offset, lowest.position, lowest.gen, lowest.commit_ts_ms)
        self._applier = self._new_applier()

    @property
    def _session(self) -> Session:
        return self._sessions.get(0)

    def _check(self, topic_id: str, state: UnitState) -> None:
        if state.stopped is not None:
            raise UnitStoppedError(state.stopped)
        if topic_id != self.spec.topic_id:
            raise UnitStoppedError(recreated(self.spec.unit.topic))
        if state.ddl is not None:
            raise UnitStoppedError(
                f"{self.spec.unit.topic}: a statement was interrupted ({state.ddl}); finish it by hand, then clear "
                f"`ddl` of the unit in rowlock_unit"
            )

    def _prepared(self, text: str | None) -> InForce | None:
        if text is None:
            return None
        return definition_in_force(self.spec, self._session, text, self._tables)

    def _wanted_layout(self, in_force: InForce | None) -> Layout:
        layout = initial_layout(self.spec.routes, self.spec.lanes)
        if in_force is None:
            return layout
        return msgspec.structs.replace(layout, keys=keys_fingerprint([in_force.target]))

    def _new_applier(self) -> Applier | None:
        in_force = self._in_force
        if in_force is None:
            return None
        return Applier(
            self._progress,
            self._plan.layout,
            in_force.target,
            wanted=in_force.wanted,
            held=self._held,
            limits=self.spec.limits,
            replace=self.spec.replace,
            short=self.spec.short,
        )

    def _switch(self) -> None:
        """All lanes stand equal: write the wanted layout, and begin anew with it."""
        wanted = self._wanted_layout(self._in_force)
        retried(lambda: self._progress.relayout(relaid(self._progress.rows, wanted), lambda _tx: None))
        self.begin()

    def report(self, state: State, error: Exception | None = None) -> Report:
        """Say what became of the attempt."""
        rows = self._progress.rows
        lowest = self._progress.lowest if rows else None
        return Report(
            topic=self.spec.unit.topic,
            state=state,
            epoch=self.spec.epoch,
            offset=lowest.offset if lowest else -1,
            applied=self.applied,
            dropped=self.dropped,
            held=self.held,
            displaced=self.displaced,
            commit_ts_ms=lowest.commit_ts_ms if lowest else 0,
            position=lowest.position if lowest else None,
            message=str(error) if error else "",
        )

    def stop(self, error: UnitStoppedError) -> Report:
        """Record in the target that the unit waits for a person, and say so."""
        try:
            retried(lambda: self._session.stop_unit(self.spec.unit, self.spec.epoch, str(error)))
        except TransientError as failure:
            return self.report("behind", failure)
        return self.report("stopped", error)

    # -- records -------------------------------------------------------------------------------------------------

    def consume(self, slices: Iterable[Slice]) -> None:
        """Apply `slices`; afterwards every lane stands at the last record, or this raises with progress where it is."""
        error: BaseException | None = None
        try:
            self._consume(slices)
        except BaseException as raised:
            error = raised
            raise
        finally:
            self._close_applier(error)

    def _consume(self, slices: Iterable[Slice]) -> None:
        try:
            for records in self._from_start(slices):
                self._take(records)
        except UnitStoppedError:
            self._drain()  # what came before the event that stops the unit is applied
            raise
        self._drain()

    def _from_start(self, slices: Iterable[Slice]) -> Iterator[Slice]:
        start = self._plan.start
        first = True
        for records in slices:
            if first and start < records[0][0]:
                yield from self._read_missing(start, records[0][0])
            elif records[-1][0] < start:
                self.dropped += len(records)
                continue
            first = False
            yield [record for record in records if record[0] >= start] if records[0][0] < start else records

    def _take(self, records: Slice) -> None:
        """Take a slice; at the offset where the stored layout ends, all lanes stand equal and the layout is changed."""
        finish = self._plan.finish
        if finish is None or records[-1][0] < finish:
            self._decode(records)
            return
        self._decode([record for record in records if record[0] <= finish])
        self._drain()
        self._close_applier()
        self._switch()
        if rest := [record for record in records if record[0] > finish]:
            self._take(rest)

    def _decode(self, records: Slice) -> None:
        """Decode, judge and collect row changes; anything else is a barrier. The hot loop: no calls it can do without."""
        changes: list[RowChange] = []
        offset = self._mark[0]
        decode, row = self._tools()
        judge = self._dedup.judge
        try:
            for offset, raw in records:
                if raw is None:
                    continue
                is_row = True
                try:
                    event = decode(raw)
                except (msgspec.DecodeError, UnicodeDecodeError):
                    event = self._uncommon(offset, raw)
                    is_row = event.op in ROW_OPS
                source = event.source
                position = source.position
                if judge(offset, position, source.prev, source.gen):
                    self.dropped += 1
                elif is_row:
                    before, after = event.before, event.after
                    if before is not None:
                        before = row(before)
                    if after is not None:
                        after = row(after)
                    snapshot = event.op == "r"
                    changes.append(
                        RowChange(
                            (offset, 0), before, after, snapshot, position, source.gen, source.ts_ms, raw
                        )
                    )
                else:
                    self._submit(changes, offset - 1)
                    changes = []
                    self._barrier(offset, raw)
                    decode, row = self._tools()
                    judge = self._dedup.judge
        except UnitStoppedError:
            self._submit(changes, offset - 1)
            raise
        self._submit(changes, offset)

    def _tools(self) -> tuple[Decode, Callable[[Any], Row]]:
        """Return the decoder of row events and the row function of the definition in force; without one, no row passes."""
        in_force = self._in_force
        return (decode_none, self._no_definition) if in_force is None else (in_force.decode_row, in_force.row)

    def _uncommon(self, offset: int, raw: bytes) -> Any:
        """Decode an event that the fast decoder refused: not a row, of another envelope version, or not for this unit.

        Raises UnitStoppedError: not an event, a newer major version, another table, not what the definition says.
        """
        in_force = self._in_force
        topic = self.spec.unit.topic
        try:
            event = decode_any(raw) if in_force is None else in_force.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise bad_event(topic, offset, raw, error) from error
        source = full_event(topic, offset, raw).source  # looks at the version
        if in_force is not None and source.table != in_force.source.name:
            raise UnitStoppedError(
                f"{topic} offset {offset}: an event of {source.db}.{source.table} in the topic of "
                f"{in_force.source.name}: one table a topic is what this version applies"
            )
        return event

    def _no_definition(self, _image: Any) -> Row:
        raise UnitStoppedError(
            f"{self.spec.unit.topic}: rows before any definition of the table: the beginning of the topic is missing: "
            f"{START_OVER}"
        )

    def _submit(self, changes: list[RowChange], upto: int) -> None:
        """Hand over `changes`; everything up to the offset `upto` is then taken."""
        _, position, _, commit_ts_ms = self._mark
        if changes and self._applier is not None:
            position, commit_ts_ms = changes[-1].position, changes[-1].ts_ms
            self._applier.submit(changes)
            self.applied += len(changes)
        self._mark = (upto, position, self._dedup.gen, commit_ts_ms)

    def _drain(self) -> None:
        if self._applier is not None:
            self._applier.drain(self._mark)
            return
        rows = self._progress.rows
        if lag := [row.lane for row in rows if row.offset < self._mark[0]]:
            self._progress.write(lag, self._mark)

    def _close_applier(self, error: BaseException | None = None) -> None:
        applier, self._applier = self._applier, None
        if applier is not None:
            try:
                applier.close(error)
            finally:  # what is committed counts, whatever ended the lanes
                self.held += applier.held
                self.displaced += applier.displaced

    # -- barriers ------------------------------------------------------------------------------------------------

    def _barrier(self, offset: int, raw: bytes) -> None:
        """Carry out a definition, truncate or chunk marker event: all lanes stand at its predecessor before."""
        event = full_event(self.spec.unit.topic, offset, raw)
        source = event.source
        mark: Mark = (offset, source.position, source.gen, source.ts_ms)
        if event.op == "t":
            self._drain()
            self._truncate(mark)
        elif event.chunk is not None:
            self._chunk(event.chunk, offset)
        else:
            self._define(event, mark)
        self.applied += 1
        self._mark = mark

    def _truncate(self, mark: Mark) -> None:
        in_force = self._in_force
        if in_force is None:
            return
        lanes = [row.lane for row in self._progress.rows if row.offset < mark[0]]
        target, where = in_force.target, in_force.routed.where
        retried(lambda: self._progress.move(lanes, mark, lambda tx: tx.truncate(target, where)))

    def _chunk(self, chunk: Chunk, offset: int) -> None:
        """A first snapshot's marker says nothing that the rows do not; a repeated one would have to delete."""
        if chunk.repeated:
            raise UnitStoppedError(
                f"{self.spec.unit.topic} offset {offset}: a repeated snapshot begins; this version applies first "
                f"snapshots only: {START_OVER}"
            )

    def _define(self, event: Event, mark: Mark) -> None:
        """Put the first definition in force, with the layout that follows from its target table; equal ones pass."""
        source = None if self._in_force is None else self._in_force.source
        table = definition_change(source, event, f"{self.spec.unit.topic} offset {mark[0]}")
        if table is None:
            return
        self._drain()
        self._put_in_force(table, [advanced(row, mark) for row in self._progress.rows])

    def define(self, table: Table) -> None:
        """Begin, and put the first definition in force where the topic carries none; one that is in force stays."""
        self.begin()
        if self._in_force is None:
            self._put_in_force(table, self._progress.rows)
        self._close_applier()

    def _put_in_force(self, table: Table, lanes: Sequence[LaneProgress]) -> None:
        """Store the definition with the layout that follows from it, all lanes standing as `lanes`; and begin anew."""
        in_force = retried(lambda: prepared(self.spec, self._session, table))
        rows = relaid(lanes, self._wanted_layout(in_force))
        state = UnitState(definition=in_force.text, ddl=None, stopped=None)
        self._close_applier()
        retried(lambda: self._progress.relayout(rows, lambda tx: tx.write_unit(state)))
        self.begin()


def recreated(topic: str) -> str:
    """Return the message for a topic that is not the one the progress speaks of."""
    return (
        f"{topic}: the Kafka topic was deleted and made again: its offsets mean something else now: "
        f"{START_OVER}"
    )


def _run_class(spec: UnitSpec) -> type[TopicRun]:
    from consumer.debezium import DebeziumRun  # it is a TopicRun

    return TopicRun if spec.debezium is None else DebeziumRun


def apply_topic(
    spec: UnitSpec,
    sessions: Sessions,
    slices: Iterable[Slice],
    *,
    read_missing: ReadMissing,
    tables: MutableMapping[tuple[str, int], InForce],
) -> Report:
    """Run one attempt over `slices` and return what became of it; only errors of the program itself are raised."""
    run = _run_class(spec)(spec, sessions, read_missing, tables)
    try:
        run.begin()
        run.consume(slices)
    except AttemptLostError as error:
        return run.report("behind", error)
    except FencedError as error:
        return run.report("fenced", error)
    except UnitStoppedError as error:
        return run.stop(error)
    except TransientError as error:
        return run.report("behind", error)
    return run.report("ok")
