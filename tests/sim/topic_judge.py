"""The judge of one source's topics: of all that capture writes, of every table, whatever becomes of it
later."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from schemas.wire.codec import decode_stored_position
from schemas.wire.event import Chunk, EventEnvelope
from schemas.wire.position import LogPoint, Position, parse_binlog_file_number
from schemas.wire.records import StoredPosition, TableStop
from tests.sim.binlog import SourceRow
from tests.sim.kafka import Message, Topic
from tests.sim.truth import Cause, Rows, TableHistory, Where, Wrong
from tests.sim.wire import COLUMNS

_decode = msgspec.json.Decoder(EventEnvelope).decode


@dataclass
class Found:
    """What a reader makes of a topic that drops duplicates and what a zombie wrote, as
    consumer.ordering.dedup does."""

    table: str
    history: TableHistory
    rows: Rows = field(default_factory=dict)
    taken: dict[Where, int] = field(default_factory=dict)  # rows of the log, and the gen that sent each
    emptied: set[LogPoint] = field(default_factory=set)
    removed: set[LogPoint] = field(default_factory=set)
    stale: set[str] = field(default_factory=set)  # keys of rows that a statement removed
    kept: set[str] = field(default_factory=set)
    """Keys of rows that a target keeps: a statement removed them, and nothing has come of them since."""
    debt: int | None = None  # the offset of the last statement that no key sweep or copy has paid for
    skipped: bool = False  # readers have gone on at a copy behind a stop
    defined: Position | None = None
    stop: TableStop | None = None
    whole: bool = False
    copied: bool = False  # a copy has begun
    begin: Position | None = None  # from which on all is there, up to a stop
    living: dict[str, tuple[int, bool]] = field(default_factory=dict)
    """Key → offset of its last event since the copy began, and whether that is no delete."""
    last: Position | None = None  # of what is no stop
    unread: bool = False  # a stop is there that readers drop
    twice: str = ""  # what is wrong unless a stop follows
    _highest: Position | None = None
    _stopped_by: int = 0  # the gen that sent the stop
    _gen: int = 0
    _newest: dict[str, tuple[int, bool]] = field(default_factory=dict)
    _floor: int = -1
    _read: set[str] = field(default_factory=set)  # keys of rows from before the first stop

    def behind(self, stop: TableStop) -> bool:
        """Whether there are rows later than the cause of the stop. Where the cause is within a transaction,
        those of the transaction are, if a predecessor had sent them: it had read a catalogue by which the
        statement changed nothing here."""
        cause, published = stop.at[1:3], self.history.published
        if any(gen < self._stopped_by and published[where].at >= cause for where, gen in self.taken.items()):
            return True
        return self.last is not None and self.last[1:3] >= cause

    def take(self, event: EventEnvelope, offset: int) -> None:
        where = event.source
        if where.gen < self._gen or (self._highest is not None and where.position <= self._highest):
            self._gen = max(self._gen, where.gen)
            self.unread = self.unread or event.stop is not None
            return
        if where.prev is not None and (self._highest is None or where.prev > self._highest):
            raise Wrong(f"{self.table}: {where.position} follows {where.prev}, which is not there")
        self._gen, self._highest = where.gen, where.position
        self.last = self.last if event.stop is not None else where.position
        if event.copy is not None and event.definition is not None:
            if event.copy.keys:  # it ends no stop, and brings no row
                self.living.clear()
            else:
                self._begin(where.position)
        if self.stop is not None and event.stop is None:
            if not _anew(event) or where.gen <= self._stopped_by:
                raise Wrong(f"{self.table}: {event} stands behind the stop")
            self.stop = None
        if event.definition is not None:
            if self.defined is None:
                self.defined = self.begin = where.position
            elif event.copy is not None:
                return
            elif where.row < 0 or _anew(event):
                self.twice = (
                    f"{self.table}: taken up at {self.defined} and again at {where.position}: "
                    "what stands between is missing"
                )
        elif event.stop is not None:
            if self.stop is None and not self.skipped:
                self._read = {*self.rows}
            self.stop, self._stopped_by = event.stop, where.gen
        elif event.chunk is not None:
            self._chunk(event)
        elif event.op == "p":
            self.removed.add(where.position[1:3])
            gone = self.rows.keys() - self.history.removed[where.position[1:3]]
            self.stale |= gone
            self._keep(gone)
            self.debt = offset
        elif event.op == "k":
            self.living |= dict.fromkeys((str(key[0]).lower() for key in event.keys or ()), (offset, True))
        elif event.op == "t":
            if self.debt is not None:  # nothing distinguishes its rows from those that a statement removed
                self._keep(self.rows.keys())
            self.rows = {}
            self.stale.clear()
            self.living.clear()
            self.emptied.add(where.position[1:3])
            self._floor = self.history.emptied[where.position[1:3]]
        else:
            self._row(event, offset)

    def _begin(self, position: Position) -> None:
        """A copy begins: what follows is published, whatever was before."""
        if self.stop is not None or self.unread:  # capture had stopped the table in either case
            if self.stop is not None:
                self._keep_unread(self.stop.at[1:3], position[1:3])
            self.skipped = True
            self.whole, self.stop, self.begin, self.twice = False, None, position, ""
            self.unread = False
        self.copied = True
        self.living.clear()

    def _keep_unread(self, stop: LogPoint, begin: LogPoint) -> None:
        """Note what statements removed while capture had stopped the table."""
        for at, left in self.history.removed.items():
            if stop < at < begin:
                self._keep(self.rows.keys() & (self.history.rows_at(at).keys() - left))

    def _keep(self, keys: Iterable[str]) -> None:
        """Note that a target keeps the rows of these keys, as far as it has them in any case: a reader that a
        stop has held up may go on at the last copy, and never see what lies between."""
        self.kept |= {*keys} & self._read if self.stop is not None or self.skipped else {*keys}

    def _chunk(self, event: EventEnvelope) -> None:
        assert event.chunk is not None
        paid = event.chunk.last and event.copy is not None and event.copy.begins is not None
        if paid and self.debt is not None and self.debt < event.copy.begins:
            self.debt = None
        if event.chunk.repeated != (event.copy is not None):
            raise Wrong(f"{self.table}: {event} repeats a snapshot outside of a copy, or the other way round")
        if event.copy is not None and event.copy.since is not None:
            self._sweep(event.chunk, event.copy.since)
        if event.chunk.last and event.copy is not None:
            self._all_live()
        if event.copy is None or not event.copy.keys:
            self.whole = self.whole or event.chunk.last

    def _all_live(self) -> None:
        """All chunks are swept: what is left has come since the copy began, as a sweep of all keys at once
        would have it."""
        left = [key for key in self.rows if not self.living.get(key, (0, False))[1]]
        if left:
            raise Wrong(
                f"{self.table}: behind its copy are {left}, of which nothing has come since that began"
            )

    def _sweep(self, chunk: Chunk, since: int) -> None:
        """Delete what the chunk's keys do not have any more, as apply does it: by the events after `since`
        alone."""
        after, upto = (None if key is None else str(key[0]).lower() for key in (chunk.after, chunk.upto))
        for key in list(self.rows):
            offset, there = self.living.get(key, (0, False))
            if (
                (after is None or key > after)
                and (upto is None or key <= upto)
                and not (there and offset > since)
            ):
                del self.rows[key]
                self.stale.discard(key)

    def _row(self, event: EventEnvelope, offset: int) -> None:
        before, after = _row_of(event.before), _row_of(event.after)
        if event.op != "r":
            at = event.source.position[1:]
            step = self.history.published.get(at)
            if step is None or step.change != (before, after):
                raise Wrong(f"{self.table}: {before} → {after} at {at}, but in the log stands {step}")
            self.taken[at] = event.source.gen
        for row in (before, after):
            self.stale.discard("" if row is None else row[0].lower())
            self.kept.discard("" if row is None else row[0].lower())
            self._read.discard("" if row is None else row[0].lower())
        if before is not None:
            self.rows.pop(before[0].lower(), None)
            self.living[before[0].lower()] = (offset, False)
            self._newest[before[0].lower()] = (before[3], False)
        if after is not None:
            self._not_back(after)
            self.rows[after[0].lower()] = after
            self.living[after[0].lower()] = (offset, True)

    def _not_back(self, row: SourceRow) -> None:
        """A row never shows a version below one before it, nor that of a row that is deleted."""
        newest, there = self._newest.get(row[0].lower(), (-1, True))
        if row[3] < newest or (row[3] == newest and not there) or row[3] <= self._floor:
            raise Wrong(f"{self.table}: {row} goes back behind version {max(newest, self._floor)}")
        self._newest[row[0].lower()] = (row[3], True)


def _anew(event: EventEnvelope) -> bool:
    """Whether a table is taken up by who knows of nothing in its topic: where there is something, a stop has
    to follow (`Found.twice`)."""
    return event.definition is not None and event.source.prev is None


def _row_of(image: Mapping[str, object] | None) -> SourceRow | None:
    if image is None:
        return None
    row: tuple[object, ...] = tuple(image[name] for name in COLUMNS)
    return row  # type: ignore[return-value]


class TopicJudge:
    """Looks at every message that reaches a topic of the source.

    `topics`: table → its topic; `positions`: that of the records; `inside`: where each transaction starts and
    ends.
    """

    def __init__(
        self,
        histories: Mapping[str, TableHistory],
        topics: Mapping[str, str],
        positions: str,
        inside: list[tuple[LogPoint, LogPoint]],
    ) -> None:
        self._histories = histories
        self._table_of = {topic: table for table, topic in topics.items()}
        self._positions = positions
        self._there: dict[str, set[Where]] = {table: set() for table in topics}
        self._defined: dict[str, Position] = {}
        self._gens: dict[str, int] = {}
        #: Where a process took a table up that knew nothing of its topic: a predecessor had stopped it there,
        #: and it stops again.
        self._anew: dict[str, Position] = {}
        self._stops: dict[str, tuple[int, TableStop]] = {}  # by which gen, as readers have it
        self._inside = inside
        self.skipped: set[str] = set()  # tables of which readers have gone on at a copy behind a stop
        self.start: LogPoint | None = None
        self.stored: StoredPosition | None = None

    def appended(self, topic: str, message: Message) -> None:
        value = message.value()
        if value is None:
            return
        if topic == self._positions:
            self._record(decode_stored_position(value))
        elif (table := self._table_of.get(topic)) is not None:
            self._event(table, _decode(value))

    def _event(self, table: str, event: EventEnvelope) -> None:
        epoch, number, pos, row = event.source.position
        if event.source.gen < self._gens.get(table, 0):
            if event.op in "cud":
                self._there[table].add((number, pos, row))
            return
        if event.source.gen >= self._gens.get(table, 0):
            self._gens[table] = event.source.gen
            known = self._defined.get(table)
            if event.definition is not None and (
                known is None or (row < 0 and event.source.position > known)
            ):
                self._defined[table] = (epoch, number, pos, row)
        if event.op in "cud":
            self._there[table].add((number, pos, row))
        if event.stop is not None:
            self._stops[table] = (event.source.gen, event.stop)
        elif event.copy is not None and self._stops.pop(table, None) is not None:
            self.skipped.add(table)
        cause = self._cause(table)
        if _anew(event) and cause is not None:
            self._anew[table] = event.source.position
        again = event.definition is not None and self._anew.get(table) == event.source.position
        if cause is None or event.stop is not None or again:
            return
        at = (number, pos)
        if at > cause.start or (at == cause.start and row >= cause.row):
            raise Wrong(f"{table} stops at {cause}, and later comes {event}")

    def _cause(self, table: str) -> Cause | None:
        """Return what stops a table, once a reader knows of it."""
        defined = self._defined.get(table)
        return None if defined is None else self._histories[table].cause(defined[1:])

    # --- position records

    def _record(self, record: StoredPosition) -> None:
        point = (parse_binlog_file_number(record.file), record.pos)
        self.start = self.start or point
        if self.stored is None or record.gen >= self.stored.gen:
            self.stored = record
        for start, end in self._inside:
            if start < point < end:
                raise Wrong(
                    f"the position {point} is stored, inside of the transaction from {start} to {end}"
                )
        for table, defined in self._defined.items() if record.gen == self.stored.gen else ():
            self._has_all(table, defined, record, point)
            cause = self._cause(table)
            if cause is not None and point > cause.start and self._stop_of(table, record) is None:
                raise Wrong(f"the position {point} is stored without the stop of {table} at {cause}")

    def _stop_of(self, table: str, record: StoredPosition) -> TableStop | None:
        """Return the table's stop as the record has it, or as a predecessor wrote it that had not ended: its
        readers are stopped."""
        gen, stop = self._stops.get(table, (record.gen, None))
        return record.stops.get(f"d.{table}") or (stop if gen < record.gen else None)

    def _has_all(self, table: str, defined: Position, record: StoredPosition, point: LogPoint) -> None:
        """Whether the topic has all rows before the stored position."""
        there, stop = self._there[table], self._stop_of(table, record)
        until = point if stop is None else min(point, stop.at[1:3])
        for where, step in self._histories[table].published.items():
            if where > defined[1:] and step.at < until and where not in there:
                raise Wrong(f"the position {point} is stored, and {step} of {table} is not in its topic")

    # --- the end

    def found(self, table: str, topic: Topic, *, up_to_stop: bool = False) -> Found:
        """Return what a reader makes of a topic; `up_to_stop`: one that ends at the first stop, whatever
        follows."""
        found = Found(table, self._histories[table])
        for record in topic.records:
            if (value := record.value()) is not None:
                found.take(_decode(value), record.offset())
            if up_to_stop and found.stop is not None:
                break
        return found

    def at_the_end(self, table: str, topic: Topic, *, snapshot: bool, refused: bool) -> Found:
        """Judge a topic in which everything has come; `refused`: all that capture could read of the log."""
        found, history = self.found(table, topic), self._histories[table]
        if (
            found.twice
        ):  # by a predecessor that had not ended: nobody knows what is missing, and the table stops
            if found.stop is None:
                raise Wrong(found.twice)
            return found
        if refused:
            self._is_a_beginning(found)
            return found
        stop = self._stop(table, found)
        until = stop.at[1:3] if stop is not None else None
        if found.defined is None:
            return self._unpublished(found, stop)
        self._all_until(found, until)
        if not found.whole and (snapshot or found.copied):
            if stop is None and snapshot:
                raise Wrong(f"{table}: its snapshot has no end")
            return found
        if stop is not None and found.behind(stop):  # a predecessor had sent more before the stop was found
            return found
        rows = history.rows_at(until) if found.whole else history.rows_since(found.defined[1:], until)
        if stop is None and found.stale:
            raise Wrong(f"{table}: no key sweep has removed {found.stale}")
        if {key: row for key, row in found.rows.items() if key not in found.stale} != rows:
            raise Wrong(f"{table}: its topic comes to {found.rows}, the source at {until} to {rows}")
        return found

    def _all_until(self, found: Found, until: LogPoint | None) -> None:
        history, begin = self._histories[found.table], (found.begin or ())[1:]
        for where, step in history.published.items():
            if where > begin and (until is None or step.at < until) and where not in found.taken:
                raise Wrong(f"{found.table}: {step} is not in its topic")
        for at in history.emptied:
            if at > begin[:2] and (until is None or at < until) and at not in found.emptied:
                raise Wrong(f"{found.table}: the TRUNCATE at {at} is not in its topic")
        for at in history.removed:
            if at > begin[:2] and (until is None or at < until) and at not in found.removed:
                raise Wrong(f"{found.table}: the DROP PARTITION at {at} is not in its topic")

    def _is_a_beginning(self, found: Found) -> None:
        """Nothing was passed over: all before the stored position is there, and all before the last row."""
        assert self.stored is not None
        if found.defined is not None:
            stored, stop = self.stored, self.stored.stops.get(f"d.{found.table}")
            point = (parse_binlog_file_number(stored.file), stored.pos)
            self._all_until(found, point if stop is None else min(point, stop.at[1:3]))
            if found.taken and stop is None:
                self._all_until(found, found.history.published[max(found.taken)].at)

    def _stop(self, table: str, found: Found) -> TableStop | None:
        """Return the stop of a table, which its topic and the record must both have, if there was a cause,
        and not later than that."""
        assert self.stored is not None
        stop, cause = self.stored.stops.get(f"d.{table}"), self._cause(table)
        # Open: below what a zombie wrote where nothing of this gen fenced it off, readers drop a stop.
        if (stop is None) != (found.stop is None) and not (found.unread and cause is None):
            raise Wrong(f"{table}: the record has the stop {stop}, its topic {found.stop}")
        if stop is None:
            if cause is not None:
                raise Wrong(f"{table} goes on behind {cause}")
            return None
        if cause is not None and stop.at[1:3] > cause.at and table not in self._anew:
            raise Wrong(f"{table} stops at {stop.at}, its cause is at {cause}")
        if (cause is None or stop.at[1:3] != cause.at) and not self._may_stop_early(stop):
            raise Wrong(f"{table} stops, and nothing stops it: {stop}")
        return stop

    def _may_stop_early(self, stop: TableStop) -> bool:
        """Whether capture cannot know better: a statement after the stop hides what was there, or took a
        table away."""
        if "is stopped again" in stop.reason:  # the copy that had ended a stop
            return True
        behind = any(at >= stop.at[1:3] for history in self._histories.values() for at in history.altered)
        return stop.cause in ("definition", "dropped", "statement", "rows-replaced") and behind

    def _unpublished(self, found: Found, stop: TableStop | None) -> Found:
        """Nothing of a table was ever published: there is nothing, or it was stopped at first sight."""
        if found.rows or (stop is None and self._histories[found.table].rows_at(None)):
            raise Wrong(f"{found.table}: nothing of it is in its topic")
        return found
