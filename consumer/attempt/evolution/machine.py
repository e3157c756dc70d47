"""Alters a unit's target table to follow a schema change (docs/adr/0027-following-schema-changes.md).

All lanes are at the record before the event. In a target with transactional DDL, the table, the
definition and the progress change in one transaction. In other targets a mark is committed first, then
the statements run, and at last a transaction writes definition and progress and removes the mark. The
next attempt that finds a mark ends the connection that it names, and resumes the change from the table
as it is then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import structlog

from consumer.attempt.copies.removal import keeps_any_row
from consumer.attempt.effects import (
    AlterTarget,
    EndConnection,
    ExplainMisfit,
    Machine,
    OwnConnection,
    ReadQuarantine,
    ReadSharers,
    ReadTable,
    RestoreDefinition,
    ask_driver,
)
from consumer.attempt.evolution.in_target import resolve_target, resolve_target_place
from consumer.attempt.operations import (
    CloseQuarantineBefore,
    DropTarget,
    FollowDefinition,
    Operation,
    TruncateTarget,
    WriteUnit,
    build_retry_operations,
)
from consumer.attempt.spec import UnitSpec
from consumer.attempt.transactions import AttemptProgress, retry_transient
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
from consumer.ordering.progress import LaneMark
from consumer.ordering.recovery import list_keys_to_retry
from consumer.tables.definition import ActiveDefinition
from consumer.tables.evolution.decisions import (
    DROPPED_CAUSE,
    AdoptDefinition,
    DefinitionVerdict,
    NeedsCopy,
    SourceTableDropped,
    StopForPerson,
    is_key_form_changed,
    judge_table_event,
)
from consumer.tables.evolution.plans import (
    ChangeMark,
    ChangePlan,
    TableChange,
    choose_after_refusal,
    decode_mark,
)
from consumer.tables.router import ResolvedRoute
from consumer.tables.stored import StoredDefinition, compute_stable_since, decode_stored
from consumer.tables.target_checks import describe_lost_rows, is_target_changed
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
from schemas.table.model import Table
from schemas.wire.event import EventEnvelope

log = structlog.get_logger(__name__)

MAX_ROUNDS = 6
"""Maximum number of rounds of statements for one change: other units may change the target goal
meanwhile."""


class TableChanges:
    """Changes of one unit's target table in one attempt.

    `before`: the stored definition. `unfit`: why the target table does not fit it (it may fit the next
    one). While `unfit` is set, nothing is applied but the begin of a copy.
    """

    def __init__(self, spec: UnitSpec, progress: AttemptProgress) -> None:
        self._spec = spec
        self._progress = progress
        self.before: StoredDefinition | None = None
        self.unfit: CopyNeededError | None = None

    def note_stored(self, stored: StoredDefinition) -> None:
        """Note the stored definition, which describes the same table."""
        self.before = stored

    def restore_definition(self, text: str | None) -> Machine[ActiveDefinition | None]:
        """Build the active definition from the stored one; None if there is none or the target table
        does not fit it.
        """
        self.before, self.unfit = None if text is None else decode_stored(text), None
        if text is None:
            return None
        if self.before is not None and self.before.rows_missing:
            place = ".".join(resolve_target_place(self._spec, self.before.table))
            self.unfit = CopyNeededError(
                describe_lost_rows(place), cause="definition", after=self._progress.lowest.offset
            )
            return None
        try:
            active = yield from retry_transient(lambda: ask_driver(RestoreDefinition(text)))
        except CopyNeededError as error:
            error.after = self._progress.lowest.offset
            self.unfit = error
            return None
        except UnitStoppedError as error:
            last = self._progress.lowest.offset
            self.unfit = CopyNeededError(str(error), cause="definition", after=last, instead=error)
            return None
        if active.stored != self.before:  # the target now lacks columns or names them otherwise
            yield from self._progress.commit_guarded([WriteUnit(UnitState(active.text, None, None))])
            self.before = active.stored
        return active

    def judge_event(self, event: EventEnvelope) -> Machine[DefinitionVerdict]:
        """Return the meaning of an event under the policy of the table's route."""
        before = self.before
        if before is None:
            return judge_table_event(None, event, "lenient")
        routed = resolve_target(self._spec, before.table)
        sharing: Sequence[str] = ()
        if routed.added and event.definition is not None:
            sharing = yield from retry_transient(lambda: ask_driver(ReadSharers(before.table)))
        after = before.table if event.definition is None else event.definition
        renames = routed.select_renames(after)
        left = {name for name in after.column_names if renames.get(name, name) in before.retained_columns}
        return judge_table_event(before.table, event, routed.policy, many=bool(sharing), left=left)

    # --- a definition

    def adopt_definition(
        self, before: StoredDefinition, table: Table, verdict: AdoptDefinition, at: LaneMark
    ) -> Machine[None]:
        """Activate `table` after `before`; afterwards all lanes are at `at`.

        Raises the errors of `follow_change`, and UnitStoppedError if the target does not fit the new active
        definition, or keeps rows under keys of another form.
        """
        routed = resolve_target(self._spec, table)
        if is_key_form_changed(before.table, table, verdict.columns) and (
            yield from keeps_any_row(routed, before)
        ):
            raise build_kept_key_error(self._spec.unit.topic, routed)
        change = TableChange(before, table, routed.policy, verdict.columns, verdict.rewrite)
        stored = yield from self.follow_change(change, at)
        misfit = yield from retry_transient(lambda: ask_driver(ExplainMisfit(stored)))
        if misfit is not None:
            raise UnitStoppedError.from_problem(misfit)

    def follow_change(self, change: TableChange, at: LaneMark) -> Machine[StoredDefinition]:
        """Activate a definition, and return what is stored; afterwards all lanes are at `at`.

        On a ConsumerError the old definition is active and no statement is running. After a
        TransientError the next attempt resumes the change.
        """
        connection = yield from retry_transient(lambda: ask_driver(OwnConnection()))
        if connection is None:
            return (yield from self._apply_whole(change, at))
        return (yield from self._apply_by_statements(change, at, connection))

    def _apply_whole(self, change: TableChange, at: LaneMark) -> Machine[StoredDefinition]:
        lanes = range(len(self._progress.rows))
        quarantine = yield from self._list_quarantine_operations(change, at)
        while True:
            asked = FollowDefinition(change, "whole", at)
            try:
                yield from self._progress.move_lanes(lanes, at, [asked, *quarantine])
            except (RefusedError, TargetConfigError) as error:
                change = yield from self._choose_alternative(change, asked.found, error)
                continue
            _log_change(self._spec.unit, change, asked.found[-1])
            return asked.found[-1].stored

    def _apply_by_statements(
        self, change: TableChange, at: LaneMark, connection: int
    ) -> Machine[StoredDefinition]:
        """Carry out a change by statements.

        A final error removes the mark, so that the event is read again and a remedy for it can be found.
        """
        try:
            return (yield from self._run_statements(change, at, connection))
        except (RefusedError, TargetConfigError, UnitStoppedError):
            yield from self._unmark_change(change)
            raise

    def _run_statements(
        self, change: TableChange, at: LaneMark, connection: int
    ) -> Machine[StoredDefinition]:
        planned = yield from self._mark_change(change, at, connection)
        lanes = range(len(self._progress.rows))
        quarantine = yield from self._list_quarantine_operations(change, at)
        logged = planned
        for _ in range(MAX_ROUNDS):
            change = replace(change, planned=planned.stored)
            try:
                if planned.alter is not None:
                    yield AlterTarget(planned.alter, connection)
            except (RefusedError, TargetConfigError) as error:
                change = yield from self._choose_alternative(change, [planned], error)
                planned = yield from self._mark_change(change, at, connection)
                continue
            end = FollowDefinition(replace(change, statements_done=True), "end", at)
            try:
                yield from self._progress.move_lanes(lanes, at, [end, *quarantine])
            except StepsLeftError:
                change, planned = end.change, end.found[-1]
                continue
            _log_change(self._spec.unit, change, logged)
            return planned.stored
        raise UnitStoppedError(
            f"{self._spec.unit.topic}: rowlock's ALTER statements leave the target table different from "
            f"what is needed ({_describe_steps(planned)})",
            "alter it by hand as `rowlock check` describes",
        )

    def _list_quarantine_operations(self, change: TableChange, at: LaneMark) -> Machine[list[Operation]]:
        """Return the operations by which the quarantine follows a change.

        Entries under an earlier key are closed, because their rows are copied again. Otherwise the target may
        accept a row that it refused, so the keys are tried again, if the values of their rows are those of
        the same columns as before.
        """
        if is_key_changed(change):
            return [CloseQuarantineBefore(at[0], "the table's key became another one")]
        since = compute_stable_since(change.before, change.columns, at[0], rewrite=change.rewrite)
        if since == at[0]:
            return []
        held = yield from retry_transient(lambda: ask_driver(ReadQuarantine()))
        place = ".".join(resolve_target_place(self._spec, change.after))
        return build_retry_operations(list_keys_to_retry(held, place, at[0], "a change of the table"))

    def _mark_change(self, change: TableChange, at: LaneMark, connection: int) -> Machine[ChangePlan]:
        asked = FollowDefinition(change, "mark", at, connection)
        yield from self._progress.commit_guarded([asked])
        return asked.found[-1]

    def _unmark_change(self, change: TableChange) -> Machine[None]:
        """Remove the mark of a change, because no statement is running and the table's other units need
        not wait.
        """
        yield from self._progress.commit_guarded([WriteUnit(UnitState(change.before.encode(), None, None))])

    def _choose_alternative(
        self, change: TableChange, found: list[ChangePlan], error: RefusedError | TargetConfigError
    ) -> Machine[TableChange]:
        """Return the change to try instead of statements that the target refused because of its rows.

        Raises `error` if there is none.
        """
        other = (
            choose_after_refusal(change, found[-1])
            if found and not isinstance(error, MissingGrantError)
            else None
        )
        if other is None or (other.rows_deleted_first and not isinstance(error, RefusedError)):
            raise error
        if other.rows_deleted_first and (
            yield from keeps_any_row(resolve_target(self._spec, change.after), change.before)
        ):
            raise error
        what = (
            "deletes the unit's rows first, the copy brings them again"
            if other.rows_deleted_first
            else "leaves new unique indexes out"
        )
        log.warning(
            "schema change refused by the target",
            pipeline=self._spec.unit.pipeline, topic=self._spec.unit.topic, steps=_describe_steps(found[-1]),
            reason=str(error)[:300], rowlock=what,
        )  # fmt: skip
        return other

    # -- unfinished changes

    def recover_change(self, state: UnitState) -> Machine[None]:
        """Resume the unfinished change that a mark describes.

        Afterwards there is no mark: the change is complete, or its event is read again.
        """
        mark = decode_mark(state.ddl or "")
        if mark is None or state.definition is None:
            raise UnitStoppedError(
                f"{self._spec.unit.topic}: an ALTER of the target table was interrupted ({state.ddl})",
                "complete it by hand, then set column ddl of this topic's row in rowlock_unit to NULL",
            )
        connection = yield from retry_transient(lambda: ask_driver(OwnConnection()))
        if connection is None:
            raise UnitStoppedError(
                f"{self._spec.unit.topic}: column ddl of rowlock_unit records an unfinished ALTER of another "
                f"type of target: {state.ddl}"
            )
        if mark.connection != connection:
            yield from retry_transient(lambda: ask_driver(EndConnection(mark.connection)))
        log.info(
            "schema change resumed",
            pipeline=self._spec.unit.pipeline,
            topic=self._spec.unit.topic,
        )
        before = decode_stored(state.definition)
        if is_target_changed(before, resolve_target(self._spec, before.table)):
            yield from self._progress.commit_guarded([WriteUnit(UnitState(before.encode(), None, None))])
            return  # the event is read again, after the begin of a copy
        try:
            if mark.after is None:
                yield from self._drop_by_statement(before, mark, connection)
            else:
                change = mark.restore_change(before, mark.after)
                yield from self._apply_by_statements(change, mark.at, connection)
        except (RefusedError, TargetConfigError, UnitStoppedError) as error:
            log.info(
                "schema change not resumed",
                pipeline=self._spec.unit.pipeline, topic=self._spec.unit.topic, reason=str(error)[:300],
            )  # fmt: skip

    # --- a dropped table

    def handle_dropped_table(self, active: ActiveDefinition, at: LaneMark) -> Machine[None]:
        """Apply `on_drop` before the stop is raised; no lane moves. If the table is dropped, its
        definition is deleted. Nothing is deleted if the target keeps rows that the source removed.

        Raises CopyNeededError if the target refuses to drop the table. A table created again is still
        copied into it.
        """
        how = self._spec.on_drop
        if how == "keep":
            return
        if (yield from keeps_any_row(active.routed, active.stored)):
            log.warning(
                "rows not deleted after DROP TABLE", pipeline=self._spec.unit.pipeline,
                topic=self._spec.unit.topic, on_drop=how, reason="the target keeps rows (partitions: keep)",
            )  # fmt: skip
            return
        sharing = (
            (yield from retry_transient(lambda: ask_driver(ReadSharers(active.source))))
            if active.routed.added
            else ()
        )
        if how == "empty" or sharing:
            yield from _delete_unit_rows(self._progress, active, at)
            return
        connection = yield from retry_transient(lambda: ask_driver(OwnConnection()))
        try:
            if connection is None:
                given_up = WriteUnit(UnitState(None, None, None))
                yield from self._progress.commit_guarded(
                    [DropTarget(active.source), given_up, _close_all_quarantined(at)]
                )
            else:
                mark = ChangeMark(connection, at, None)
                state = UnitState(active.text, mark.encode(), None)
                yield from self._progress.commit_guarded([WriteUnit(state), _close_all_quarantined(at)])
                yield from self._drop_by_statement(active.stored, mark, connection)
        except (RefusedError, TargetConfigError, UnitStoppedError) as error:
            raise CopyNeededError(str(error), cause=DROPPED_CAUSE, after=at[0], instead=error) from error

    def _drop_by_statement(
        self, before: StoredDefinition, mark: ChangeMark, connection: int
    ) -> Machine[None]:
        real = yield from retry_transient(lambda: ask_driver(ReadTable(before.table)))
        if real is not None:
            text = before.encode()
            if mark.connection != connection:
                named = UnitState(text, ChangeMark(connection, mark.at, None).encode(), None)
                yield from self._progress.commit_guarded([WriteUnit(named)])
            try:
                yield AlterTarget(DropTable(real), connection)
            except (RefusedError, TargetConfigError, UnitStoppedError):
                yield from self._progress.commit_guarded([WriteUnit(UnitState(text, None, None))])
                raise
        yield from self._progress.commit_guarded([WriteUnit(UnitState(None, None, None))])


def _log_change(unit: ApplyUnit, change: TableChange, planned: ChangePlan) -> None:
    """Log what a completed change did."""
    if planned.alter is not None:
        log.info(
            "schema change applied", pipeline=unit.pipeline, topic=unit.topic,
            steps=_describe_steps(planned),
        )  # fmt: skip
    for name, column in planned.stored.names.items():
        if change.before.names.get(name) != column and planned.stored.route_names.get(name) != column:
            log.warning(
                "column written under another name", pipeline=unit.pipeline, topic=unit.topic, source=name,
                target=column, reason="the target has its name in another spelling",
            )  # fmt: skip


def is_key_changed(change: TableChange) -> bool:
    """Return whether other columns become the table's key."""
    old = [change.columns.renamed.get(name, name) for name in change.before.table.key.columns]
    return sorted(old) != sorted(change.after.key.columns)


def _close_all_quarantined(at: LaneMark) -> CloseQuarantineBefore:
    return CloseQuarantineBefore(at[0], f"the source's table was dropped at offset {at[0]}")


def build_kept_key_error(topic: str, routed: ResolvedRoute) -> UnitStoppedError:
    """Return the error of a unit whose table gets another key while the target keeps rows under the old."""
    place = f"{routed.schema}.{routed.table}"
    return UnitStoppedError(
        f"{topic}: the table's key changes, and {place} has rows that the source has removed "
        "(`partitions: keep`): rowlock would not find them under the new key, and would delete them",
        f"to keep them, rename {place} and delete this topic's rows of rowlock_kept; to delete them, set "
        "`partitions: follow` for its route; then copy the table",
    )


def _describe_steps(planned: ChangePlan) -> list[str]:
    """Return the steps as text for a log line."""
    if planned.alter is None:
        return []
    return [_describe_step(step) for step in planned.alter.steps]


def _describe_step(step: Alteration) -> str:
    match step:
        case RenameColumn():
            what = f"{step.old} to {step.new}"
        case AddColumn():
            what = f"{step.column.name} {step.column.type.kind}"
        case DropColumn():
            what = step.name
        case ChangeColumn():
            null = " NULL" if step.desired.nullable and not step.now.nullable else ""
            what = f"{step.desired.name} {step.now.type.kind} to {step.desired.type.kind}{null}"
        case AddUnique() | DropUnique():
            what = f"({', '.join(step.index.columns)})"
        case ChangeKey():
            what = f"({', '.join(step.desired.columns)})"
    return f"{type(step).__name__} {what}"


def build_copy_stop(verdict: DefinitionVerdict, event: EventEnvelope, place: str) -> CopyNeededError:
    """Return the error with which a unit stops at an event. `place`: where the event is."""
    table = (event.source.db, str(event.source.table))
    match verdict:
        case NeedsCopy():
            first = get_remedy_before_copy(verdict.remedy)
            return CopyNeededError(f"{place}: {verdict.why}", cause=verdict.cause, table=table, first=first)
        case SourceTableDropped():
            first = get_remedy_before_copy(verdict.remedy)
            return CopyNeededError(f"{place}: {verdict.why}", cause=DROPPED_CAUSE, table=table, first=first)
        case StopForPerson():
            return CopyNeededError(
                f"{place}: {verdict.why}: the definition of the table has changed, "
                "and `schema_changes` is stop", cause="policy",
                table=table, first="alter the target table by hand as the source's was",
            )  # fmt: skip
        case _:
            raise ValueError(f"{place}: {verdict} stops nothing")


def get_remedy_before_copy(remedy: str) -> str:
    """Return the action that the remedy of a stop asks for before a copy; "" if there is none.

    Older topics contain the remedy to start over, with the name of a page in brackets.
    """
    for copy in ("start over (", COPY):
        remedy = remedy.partition(copy)[0]
    return remedy.strip(" ,:;").removesuffix("then").removesuffix("and").strip(" ,:;")


def _delete_unit_rows(progress: AttemptProgress, active: ActiveDefinition, at: LaneMark) -> Machine[None]:
    """Delete the unit's rows.

    The event at `at` is read again at each start. Deleting a table's rows again is harmless; a topic
    would get another record each time, so the offset is stored there.
    """
    operations: list[Operation] = [
        TruncateTarget(active.target, active.routed.where),
        _close_all_quarantined(at),
    ]
    if active.target.topic is None:
        yield from progress.commit_guarded(operations)
    elif active.stored.emptied_at != at[0]:
        emptied = replace(active.stored, emptied_at=at[0])
        yield from progress.commit_once([*operations, WriteUnit(UnitState(emptied.encode(), None, None))])
