"""The part of a driver that does not depend on the kind of target: it runs an attempt's machine, reads
records, and asks the target for definitions and progress.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from consumer.attempt import effects as fx
from consumer.attempt.copies.key_sweep import KeySweep
from consumer.attempt.copies.keys import KeyComparison
from consumer.attempt.copies.keys_on_disk import ScratchKeys
from consumer.attempt.copies.table_sweep import TableSweep
from consumer.attempt.effects import Binding, HandlerTable, Machine, T, TableSnapshot
from consumer.attempt.evolution.in_target import resolve_target_place
from consumer.attempt.readers.reader import RecordSlice
from consumer.attempt.spec import (
    DefinitionCache,
    UnitAssignment,
    UnitSpec,
    load_active_definition,
    resolve_definition,
)
from consumer.errors import ServerSilentError, TransientError
from consumer.ordering.model import LaneProgress, QuarantineEntry, UnitState
from consumer.tables.definition import ActiveDefinition
from consumer.tables.shared_tables import SharedTableReader
from consumer.tables.target_checks import explain_changed_table
from consumer.targets.base import UnitTarget
from consumer.targets.session import SqlSession
from schemas.problems import Problem
from schemas.table.model import Key, Table

C_co = TypeVar("C_co", bound=UnitTarget, covariant=True)
C = TypeVar("C", bound=UnitTarget)
"""The interface of the target's connections."""


class Connections(Protocol[C_co]):
    """The connections of a process to one target: one for each lane, or only number 0 for a whole-batch
    target.
    """

    def get_connection(self, number: int) -> C_co:
        """Return a connection, connecting if needed. Raises TransientError."""

    def drop_if_broken(self, number: int) -> None:
        """Drop the connection if it is broken. Called after an error."""

    def drop_connection(self, number: int) -> None:
        """Close the connection, so that `get_connection` opens a new one."""

    def report_silence(self, error: ServerSilentError) -> None:
        """Report that the target is silent. Called before the attempt ends, from any of its threads."""


def refuse_source_lookup(table: Table, _keys: Sequence[Key]) -> Sequence[Key]:
    """Raise TransientError: this process cannot query the source."""
    raise TransientError(f"{table.db}.{table.name}: this process cannot query the source")


@dataclass(frozen=True, slots=True)
class AttemptInputs:
    """The records given to an attempt, and the functions by which it reads more from Kafka and asks the
    source.
    """

    slices: Iterable[RecordSlice] = ()
    read_missing: Callable[[int, int], Iterable[RecordSlice]] = lambda _start, _upto: ()
    """(start, upto) → the records of the topic in [start, upto)."""
    find_begin: Callable[[int, int | None], tuple[int, bytes] | None] = lambda _after, _hint: None
    """(after, hint) → see consumer.attempt.effects.FindBegin."""
    find_snapshot: Callable[[int], TableSnapshot | None] = lambda _after: None
    """(after) → see consumer.attempt.effects.FindSnapshot. Raises ConsumerError if the source's definition
    cannot be read."""
    read_rest: Callable[[int], Iterable[RecordSlice]] = lambda _start: ()
    """(start) → the topic's records from that offset on. Raises TransientError."""
    ask_source: Callable[[Table, Sequence[Key]], Sequence[Key]] = refuse_source_lookup
    """(table, keys) → see consumer.attempt.effects.AskSource."""
    is_assigned: Callable[[], bool] = lambda: True
    """Called during long operations; returns False once the unit should end here."""
    key_sweeps: MutableMapping[UnitAssignment, KeySweep | TableSweep] = field(default_factory=dict)
    """What the process remembers of units' key sweeps."""
    sharers: SharedTableReader = field(default_factory=SharedTableReader)
    """What the process remembers of other units of the pipeline."""
    watch_transaction: Callable[[UnitSpec, int, SqlSession], AbstractContextManager[None]] = (
        lambda _spec, _number, _session: nullcontext()
    )
    """(spec, number, session) → a context for one transaction; see
    consumer.attempt.drivers.lock_watch.LockWatch."""


class SliceReader:
    """Reads a range of the topic slice by slice.

    `read`: see `AttemptInputs.read_missing`.
    """

    def __init__(self, read: Callable[[int, int], Iterable[RecordSlice]]) -> None:
        self._read = read
        self._range = (0, 0)
        self._open: Iterator[RecordSlice] | None = None

    def read_slice(self, start: int, upto: int) -> RecordSlice | None:
        """Return the next slice of [start, upto), None at the end. Another range begins anew."""
        if self._open is None or self._range != (start, upto):
            self._range, self._open = (start, upto), iter(self._read(start, upto))
        records = next(self._open, None)
        if records is None:
            self._open = None
        return records


class AttemptDriver(Generic[C]):
    """Carries out the effects of one attempt over connections of the interface `C`.

    A subclass has the handlers of the effects that depend on the kind of target, and the whole table in
    `handlers`.
    """

    handlers: ClassVar[HandlerTable[Any]]

    def __init__(
        self, spec: UnitSpec, connections: Connections[C], inputs: AttemptInputs, tables: DefinitionCache
    ) -> None:
        self._spec, self._connections, self._inputs, self._tables = spec, connections, inputs, tables
        self._slices = iter(inputs.slices)
        self._missing, self._passed = SliceReader(inputs.read_missing), SliceReader(inputs.read_missing)
        self._rest: Iterator[RecordSlice] | None = None

    def _drive_machine(self, machine: Machine[T]) -> T:
        """Drive `machine` to its end, and return its result."""
        try:
            effect = next(machine)
            while True:
                try:
                    result = self.handlers.carry_out(self, effect)
                except Exception as error:  # noqa: BLE001  # the machine handles it
                    if isinstance(error, ServerSilentError):
                        self._connections.report_silence(error)
                    effect = machine.throw(error)
                else:
                    effect = machine.send(result)
        except StopIteration as end:
            value: T = end.value
            return value

    # --- the target

    def _begin_attempt(
        self, _effect: fx.BeginAttempt
    ) -> tuple[list[LaneProgress], UnitState, list[QuarantineEntry]]:
        connection = self._connections.get_connection(0)
        with self._watch_transaction(0, connection):
            return connection.begin_attempt(self._spec.unit, self._spec.epoch)

    def _watch_transaction(self, _number: int, _connection: C) -> AbstractContextManager[None]:
        """Watch a transaction that may wait for row locks."""
        return nullcontext()

    def _read_progress(self, effect: fx.ReadProgress) -> list[LaneProgress]:
        return self._connections.get_connection(effect.number).read_progress(self._spec.unit)[0]

    def _read_quarantine(self, _effect: fx.ReadQuarantine) -> list[QuarantineEntry]:
        return self._connections.get_connection(0).read_quarantine(self._spec.unit)

    def _check_session(self, effect: fx.CheckSession) -> None:
        self._connections.drop_if_broken(effect.number)

    def _drop_session(self, effect: fx.DropSession) -> None:
        self._connections.drop_connection(effect.number)

    def _stop_unit(self, effect: fx.StopUnit) -> None:
        spec = self._spec
        self._tables.pop(spec.place, None)  # the target table may differ when it goes on
        self._connections.get_connection(0).stop_unit(spec.unit, spec.epoch, effect.why, was=spec.was)

    # --- the definition

    def _restore_definition(self, effect: fx.RestoreDefinition) -> ActiveDefinition:
        connection = self._connections.get_connection(0)
        return load_active_definition(self._spec, connection, effect.text, self._tables)

    def _prepare_definition(self, effect: fx.PrepareDefinition) -> ActiveDefinition:
        connection = self._connections.get_connection(0)
        prepared = resolve_definition(
            self._spec, connection, effect.stored, first=effect.first, sharers=self._inputs.sharers
        )
        if effect.first:  # the attempt begins again with it, and need not read the table again
            self._tables[self._spec.place] = prepared
        return prepared

    def _explain_misfit(self, effect: fx.ExplainMisfit) -> Problem | None:
        spec, connection = self._spec, self._connections.get_connection(0)
        return explain_changed_table(
            connection, effect.stored, spec.source, spec.routes, debezium=spec.debezium is not None
        )

    def _read_table(self, effect: fx.ReadTable) -> Table | None:
        place = resolve_target_place(self._spec, effect.source)
        return self._connections.get_connection(0).read_table(*place)

    # --- records

    def _take_slice(self, _effect: fx.NextSlice) -> RecordSlice | None:
        return next(self._slices, None)

    def _read_missing(self, effect: fx.ReadMissing) -> RecordSlice | None:
        return self._missing.read_slice(effect.start, effect.upto)

    def _read_passed(self, effect: fx.ReadPassed) -> RecordSlice | None:
        self._require_assignment()
        return self._passed.read_slice(effect.start, effect.upto)

    def _read_rest(self, effect: fx.ReadRest) -> RecordSlice | None:
        self._require_assignment()
        self._rest = self._rest or iter(self._inputs.read_rest(effect.start))
        records = next(self._rest, None)
        if records is None:
            self._rest = None
        return records

    def _find_begin(self, effect: fx.FindBegin) -> tuple[int, bytes] | None:
        return self._inputs.find_begin(effect.after, effect.hint)

    def _find_snapshot(self, effect: fx.FindSnapshot) -> TableSnapshot | None:
        return self._inputs.find_snapshot(effect.after)

    def _ask_source(self, effect: fx.AskSource) -> Sequence[Key]:
        self._require_assignment()
        return self._inputs.ask_source(effect.table, effect.keys)

    def _read_clock(self, _effect: fx.ReadClock) -> float:
        return time.monotonic()

    def _open_keys(self, _effect: fx.OpenKeys) -> KeyComparison:
        return open_keys(self._spec.scratch)

    def _take_key_sweep(self, _effect: fx.TakeKeySweep) -> KeySweep | TableSweep | None:
        return self._inputs.key_sweeps.pop(self._spec.place, None)

    def _remember_key_sweep(self, effect: fx.RememberKeySweep) -> None:
        self._inputs.key_sweeps[self._spec.place] = effect.sweep

    def _require_assignment(self) -> None:
        """Raise TransientError if the unit should end here."""
        if not self._inputs.is_assigned():
            raise TransientError("the unit was taken away from this process")

    shared_handlers: ClassVar[tuple[Binding[AttemptDriver[Any]], ...]] = (
        fx.BeginAttempt.bind_handler(_begin_attempt),
        fx.ReadProgress.bind_handler(_read_progress),
        fx.ReadQuarantine.bind_handler(_read_quarantine),
        fx.CheckSession.bind_handler(_check_session),
        fx.DropSession.bind_handler(_drop_session),
        fx.StopUnit.bind_handler(_stop_unit),
        fx.RestoreDefinition.bind_handler(_restore_definition),
        fx.PrepareDefinition.bind_handler(_prepare_definition),
        fx.ExplainMisfit.bind_handler(_explain_misfit),
        fx.ReadTable.bind_handler(_read_table),
        fx.NextSlice.bind_handler(_take_slice),
        fx.ReadMissing.bind_handler(_read_missing),
        fx.ReadPassed.bind_handler(_read_passed),
        fx.ReadRest.bind_handler(_read_rest),
        fx.FindBegin.bind_handler(_find_begin),
        fx.FindSnapshot.bind_handler(_find_snapshot),
        fx.AskSource.bind_handler(_ask_source),
        fx.ReadClock.bind_handler(_read_clock),
        fx.OpenKeys.bind_handler(_open_keys),
        fx.TakeKeySweep.bind_handler(_take_key_sweep),
        fx.RememberKeySweep.bind_handler(_remember_key_sweep),
    )


def open_keys(scratch: str) -> KeyComparison:
    """Return storage for the keys of a table. `scratch`: a folder; "" is the system's."""
    return ScratchKeys(Path(scratch) if scratch else None)
