"""The machines that change a unit's target table (docs/adr/0027-following-schema-changes.md). All lanes stand in front of the event.

A target whose statements commit with its transactions gets table, definition and progress in one of them. Elsewhere a mark is
committed first; then come the statements, and at last definition and progress, which take the mark away. Whoever finds a mark
ends the connection that it names, and takes the change up from the table as it is then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import structlog

from consumer.attempt.effects import (
    Alter,
    EndConnection,
    Explain,
    Machine,
    OwnConnection,
    ReadSharers,
    ReadTable,
    Restore,
    ask,
)
from consumer.attempt.evolution.in_target import routed_place, routed_table
from consumer.attempt.operations import (
    CloseHeldBefore,
    DropTarget,
    FollowDefinition,
    Operation,
    Truncate,
    WriteUnit,
)
from consumer.attempt.spec import UnitSpec
from consumer.attempt.transactions import Progress, retried
from consumer.errors import (
    COPY,
    CopyNeededError,
    MissingGrantError,
    RefusedError,
    StepsLeftError,
    TargetConfigError,
    UnitStoppedError,
)
from consumer.ordering.model import ApplyUnit, UnitState
from consumer.ordering.progress import Mark
from consumer.tables.definition import InForce
from consumer.tables.evolution.decisions import (
    DROPPED,
    Adopt,
    Gone,
    NeedsCopy,
    Stop,
    Verdict,
    decide,
)
from consumer.tables.evolution.plans import ChangeMark, Planned, TableChange, decode_mark, refused
from consumer.tables.fitness import rows_lost
from consumer.tables.stored import Stored, decode_stored
from consumer.targets.alterations import (
    AddColumn,
    AddUnique,
    Alteration,
    ChangeColumn,
    ChangeKey,
    DropColumn,
    DropTable,
    DropUnique,
    RenameColumn,
)
from schemas.findings import START_OVER
from schemas.table.model import Table
from schemas.wire.event import Event

log = structlog.get_logger(__name__)

ROUNDS = 6
"""How often statements are carried out for one change: other units may widen or narrow what is wanted meanwhile."""


class TableChanges:
    """Changes of one unit's target table in one attempt. `before`: the stored definition; `unfit`: why the target table does not fit it,
    which may be the next one's: then nothing is applied but the begin of a copy."""

    def __init__(self, spec: UnitSpec, progress: Callable[[], Progress]) -> None:
        """`progress`: as it is when a change is carried out."""
        self._spec = spec
        self._now = progress
        self.before: Stored | None = None
        self.unfit: CopyNeededError | None = None

    @property
    def _progress(self) -> Progress:
        return self._now()

    def restore(self, text: str | None) -> Machine[InForce | None]:
        """Build what follows from the stored definition; None: there is none, or the target table does not fit it."""
        self.before, self.unfit = None if text is None else decode_stored(text), None
        if text is None:
            return None
        if self.before is not None and self.before.lost:
            place = ".".join(routed_place(self._spec, self.before.table))
            self.unfit = CopyNeededError(
                rows_lost(place), cause="definition", after=self._progress.lowest.offset
            )
            return None
        try:
            in_force: InForce = yield from retried(lambda: ask(Restore(text)))
        except CopyNeededError as error:
            error.after = self._progress.lowest.offset
            self.unfit = error
            return None
        except UnitStoppedError as error:
            last = self._progress.lowest.offset
            self.unfit = CopyNeededError(str(error), cause="definition", after=last, instead=error)
            return None
        if in_force.stored != self.before:  # columns that are left out now, or have another name there
            yield from self._progress.guarded([WriteUnit(UnitState(in_force.text, None, None))])
            self.before = in_force.stored
        return in_force

    def judge(self, event: Event) -> Machine[Verdict]:
        """Say what an event means under the policy of the table's route."""
        before = self.before
        if before is None:
            return decide(None, event, "lenient")
        routed = routed_table(self._spec, before.table)
        sharing: Sequence[str] = ()
        if routed.added and event.definition is not None:
            sharing = yield from retried(lambda: ask(ReadSharers(before.table)))
        return decide(before.table, event, routed.policy, many=bool(sharing), left=before.left)

    # --- a definition

    def adopt(self, before: Stored, table: Table, verdict: Adopt, at: Mark) -> Machine[None]:
        """Put `table` in force after `before`; afterwards all lanes stand at `at`. Raises consumer.errors, as `follow`; and
        UnitStoppedError if the target does not fit what is in force now."""
        policy = routed_table(self._spec, table).policy
        change = TableChange(before, table, policy, verdict.columns, verdict.rewrite)
        stored = yield from self.follow(change, at)
        why: str | None = yield from retried(lambda: ask(Explain(stored)))
        if why is not None:
            raise UnitStoppedError(why)

    def follow(self, change: TableChange, at: Mark) -> Machine[Stored]:
        """Put a definition in force, and end with what is stored; afterwards all lanes stand at `at`. Raises consumer.errors: then the old
        one is in force, and no statement is under way; TransientError: it is taken up again by the next attempt."""
        connection: int | None = yield from retried(lambda: ask(OwnConnection()))
        if connection is None:
            return (yield from self._whole(change, at))
        return (yield from self._by_statements(change, at, connection))

    def _whole(self, change: TableChange, at: Mark) -> Machine[Stored]:
        lanes = range(len(self._progress.rows))
        while True:
            asked = FollowDefinition(change, "whole", at)
            try:
                yield from self._progress.move(lanes, at, [asked, *_closing(change, at)])
            except (RefusedError, TargetConfigError) as error:
                change = self._otherwise(change, asked.found, error)
                continue
            _say(self._spec.unit, change, asked.found[-1])
            return asked.found[-1].stored

    def _by_statements(self, change: TableChange, at: Mark, connection: int) -> Machine[Stored]:
        """Carry out a change that statements make. Its mark goes with whatever ends it for good: the event is met again, and what heals it is found."""
        try:
            return (yield from self._stated(change, at, connection))
        except (RefusedError, TargetConfigError, UnitStoppedError):
            yield from self._unmark(change)
            raise

    def _stated(self, change: TableChange, at: Mark, connection: int) -> Machine[Stored]:
        planned = yield from self._mark(change, at, connection)
        lanes = range(len(self._progress.rows))
        said = planned
        for _ in range(ROUNDS):
            change = replace(change, planned=planned.stored)
            try:
                if planned.alter is not None:
                    yield Alter(planned.alter, connection)
            except (RefusedError, TargetConfigError) as error:
                change = self._otherwise(change, [planned], error)
                planned = yield from self._mark(change, at, connection)
                continue
            end = FollowDefinition(replace(change, settled=True), "end", at)
            try:
                yield from self._progress.move(lanes, at, [end, *_closing(change, at)])
            except StepsLeftError:
                change, planned = end.change, end.found[-1]
                continue
            _say(self._spec.unit, change, said)
            return planned.stored
        raise UnitStoppedError(
            f"{self._spec.unit.topic}: the target's table does not come out as its statements say ({_named(planned)}): "
            "alter it by hand as `rowlock check` says"
        )

    def _mark(self, change: TableChange, at: Mark, connection: int) -> Machine[Planned]:
        asked = FollowDefinition(change, "mark", at, connection)
        yield from self._progress.guarded([asked])
        return asked.found[-1]

    def _unmark(self, change: TableChange) -> Machine[None]:
        """Nothing is under way any more: other units of the table need not wait."""
        yield from self._progress.guarded([WriteUnit(UnitState(change.before.encode(), None, None))])

    def _otherwise(
        self, change: TableChange, found: list[Planned], error: RefusedError | TargetConfigError
    ) -> TableChange:
        """Return what to try instead of statements that the target refused because of its rows. Raises `error`."""
        other = refused(change, found[-1]) if found and not isinstance(error, MissingGrantError) else None
        if other is None or (other.emptied and not isinstance(error, RefusedError)):
            raise error
        what = (
            "deletes the unit's rows first, the copy brings them again"
            if other.emptied
            else "leaves new unique indexes out"
        )
        log.warning(
            "the target refused to change a table with its rows",
            pipeline=self._spec.unit.pipeline, topic=self._spec.unit.topic, steps=_named(found[-1]), reason=str(error)[:300],
            rowlock=what,
        )  # fmt: skip
        return other

    # --- what an attempt finds

    def recover(self, state: UnitState) -> Machine[None]:
        """Take up the change of a mark; afterwards there is none any more: it is carried out, or its event is met again."""
        mark = decode_mark(state.ddl or "")
        if mark is None or state.definition is None:
            raise UnitStoppedError(
                f"{self._spec.unit.topic}: a statement was interrupted ({state.ddl}); finish it by hand, then clear "
                f"`ddl` of the unit in rowlock_unit"
            )
        connection: int | None = yield from retried(lambda: ask(OwnConnection()))
        if connection is None:
            raise UnitStoppedError(
                f"{self._spec.unit.topic}: a mark of another kind of target stands in rowlock_unit: {state.ddl}"
            )
        if mark.connection != connection:
            yield from retried(lambda: ask(EndConnection(mark.connection)))
        log.info(
            "a change of the target table is taken up again",
            pipeline=self._spec.unit.pipeline,
            topic=self._spec.unit.topic,
        )
        before = decode_stored(state.definition)
        try:
            if mark.after is None:
                yield from self._drop_by_statement(before, mark, connection)
            else:
                change = mark.change(before, mark.after)
                yield from self._by_statements(change, mark.at, connection)
        except (RefusedError, TargetConfigError, UnitStoppedError) as error:
            log.info(
                "a change cannot be taken up again, its event is met once more",
                pipeline=self._spec.unit.pipeline, topic=self._spec.unit.topic, reason=str(error)[:300],
            )  # fmt: skip

    # --- a dropped table

    def gone(self, in_force: InForce, at: Mark) -> Machine[None]:
        """Do what `on_drop` says, before the stop is raised; no lane moves. With the table the definition is given up as well.

        Raises CopyNeededError where the target does not drop the table: one that was made again is copied into it all the same.
        """
        how = self._spec.on_drop
        if how == "keep":
            return
        sharing = (
            (yield from retried(lambda: ask(ReadSharers(in_force.source)))) if in_force.routed.added else ()
        )
        if how == "empty" or sharing:
            yield from _empty(self._progress, in_force, at)
            return
        connection: int | None = yield from retried(lambda: ask(OwnConnection()))
        try:
            if connection is None:
                given_up = WriteUnit(UnitState(None, None, None))
                yield from self._progress.guarded([DropTarget(in_force.source), given_up, _closed(at)])
            else:
                mark = ChangeMark(connection, at, None)
                state = UnitState(in_force.text, mark.encode(), None)
                yield from self._progress.guarded([WriteUnit(state), _closed(at)])
                yield from self._drop_by_statement(in_force.stored, mark, connection)
        except (RefusedError, TargetConfigError, UnitStoppedError) as error:
            raise CopyNeededError(str(error), cause=DROPPED, after=at[0], instead=error) from error

    def _drop_by_statement(self, before: Stored, mark: ChangeMark, connection: int) -> Machine[None]:
        real = yield from retried(lambda: ask(ReadTable(before.table)))
        if real is not None:
            text = before.encode()
            if mark.connection != connection:
                named = UnitState(text, ChangeMark(connection, mark.at, None).encode(), None)
                yield from self._progress.guarded([WriteUnit(named)])
            try:
                yield Alter(DropTable(real), connection)
            except (RefusedError, TargetConfigError, UnitStoppedError):
                yield from self._progress.guarded([WriteUnit(UnitState(text, None, None))])
                raise
        yield from self._progress.guarded([WriteUnit(UnitState(None, None, None))])


def _say(unit: ApplyUnit, change: TableChange, planned: Planned) -> None:
    """Tell the log what a change that is carried out did."""
    if planned.alter is not None:
        log.info(
            "the target table follows the source", pipeline=unit.pipeline, topic=unit.topic,
            steps=_named(planned),
        )  # fmt: skip
    for name, column in planned.stored.names.items():
        if change.before.names.get(name) != column:
            log.warning(
                "a column of the source is written under another name: its own is there in another spelling, has values of another type, or is "
                "written for another column",
                pipeline=unit.pipeline, topic=unit.topic, source=name, target=column,
            )  # fmt: skip


def _closing(change: TableChange, at: Mark) -> list[Operation]:
    """Entries of the quarantine under another key mean nothing any more; their rows come anew."""
    old = [change.columns.renamed.get(name, name) for name in change.before.table.key.columns]
    return (
        []
        if sorted(old) == sorted(change.after.key.columns)
        else [CloseHeldBefore(at[0], "the table's key became another one")]
    )


def _closed(at: Mark) -> CloseHeldBefore:
    return CloseHeldBefore(at[0], f"the source's table was dropped at offset {at[0]}")


def _named(planned: Planned) -> list[str]:
    """Return the steps for people."""
    if planned.alter is None:
        return []
    return [_step(step) for step in planned.alter.steps]


def _step(step: Alteration) -> str:
    match step:
        case RenameColumn():
            what = f"{step.old} to {step.new}"
        case AddColumn():
            what = f"{step.column.name} {step.column.type.kind}"
        case DropColumn():
            what = step.name
        case ChangeColumn():
            null = " NULL" if step.wanted.nullable and not step.now.nullable else ""
            what = f"{step.wanted.name} {step.now.type.kind} to {step.wanted.type.kind}{null}"
        case AddUnique() | DropUnique():
            what = f"({', '.join(step.index.columns)})"
        case ChangeKey():
            what = f"({', '.join(step.wanted.columns)})"
    return f"{type(step).__name__} {what}"


def stop_of(verdict: Verdict, event: Event, place: str) -> CopyNeededError:
    """Return why a unit stops at an event; `place`: where that is."""
    table = (event.source.db, str(event.source.table))
    match verdict:
        case NeedsCopy():
            first = before_a_copy(verdict.remedy)
            return CopyNeededError(f"{place}: {verdict.why}", cause=verdict.cause, table=table, first=first)
        case Gone():
            first = before_a_copy(verdict.remedy)
            return CopyNeededError(f"{place}: {verdict.why}", cause=DROPPED, table=table, first=first)
        case Stop():
            return CopyNeededError(
                f"{place}: {verdict.why}: the definition of the table is another one, and `schema_changes` is stop", cause="policy",
                table=table, first="alter the target table by hand as the source's was",
            )  # fmt: skip
        case _:
            raise ValueError(f"{place}: {verdict} stops nothing")


def before_a_copy(remedy: str) -> str:
    """Return what a person must do, by the remedy of a stop, before a copy helps; "": nothing. Older topics say to start over."""
    for copy in (START_OVER, COPY):
        remedy = remedy.partition(copy)[0]
    return remedy.strip(" ,:;").removesuffix("then").removesuffix("and").strip(" ,:;")


def _empty(progress: Progress, in_force: InForce, at: Mark) -> Machine[None]:
    """Delete the unit's rows. The event at `at` is met again at each start: to a table that is all one, in a topic each time would be a record."""
    operations: list[Operation] = [Truncate(in_force.target, in_force.routed.where), _closed(at)]
    if in_force.target.topic is None:
        yield from progress.guarded(operations)
    elif in_force.stored.emptied != at[0]:
        emptied = replace(in_force.stored, emptied=at[0])
        yield from progress.once([*operations, WriteUnit(UnitState(emptied.encode(), None, None))])
