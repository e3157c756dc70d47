"""Rules of docs/adr/0027 that stand in the product's code, switched off there, for a test only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from consumer.attempt import effects as fx
from consumer.attempt import spec
from consumer.attempt.attempt_state import AttemptState
from consumer.attempt.evolution import in_target, machine
from consumer.attempt.evolution.machine import TableChanges
from consumer.attempt.evolution.next_definition import DefinitionSwitch
from consumer.tables import definition, router
from consumer.tables.evolution import decisions, plans, steps
from consumer.tables.evolution.plans import TableChange
from tests.sim.changing import Run

_drain, _define, _carry = AttemptState.drain, DefinitionSwitch.apply_table_event, Run.carry_out


@contextmanager
def _marks_are_written() -> Iterator[None]:
    with mock.patch.object(in_target, "_mark_change", return_value=None):
        yield


@contextmanager
def _connections_are_ended() -> Iterator[None]:
    def carry(self: Run, effect: Any, lane: Any) -> Any:
        if isinstance(effect, fx.EndConnection):
            yield
            return None
        return (yield from _carry(self, effect, lane))

    with mock.patch.object(Run, "carry_out", carry):
        yield


@contextmanager
def _statements_keep_their_connection() -> Iterator[None]:
    """A worker that was taken over sends its statement over whatever connection it has by then."""

    def carry(self: Run, effect: Any, lane: Any) -> Any:
        if isinstance(effect, fx.AlterTarget):
            self.number = self.world.connection()
            effect = replace(effect, connection=self.number)
        return (yield from _carry(self, effect, lane))

    with mock.patch.object(Run, "carry_out", carry):
        yield


@contextmanager
def _lanes_are_drained_first() -> Iterator[None]:
    defining: set[int] = set()

    def define(self: DefinitionSwitch, event: Any, mark: Any) -> Any:
        defining.add(id(self._attempt))
        yield from _define(self, event, mark)
        defining.discard(id(self._attempt))

    def drain(self: AttemptState) -> Any:
        if id(self) not in defining:
            yield from _drain(self)

    with (
        mock.patch.object(DefinitionSwitch, "apply_table_event", define),
        mock.patch.object(AttemptState, "drain", drain),
    ):
        yield


@contextmanager
def _others_are_asked() -> Iterator[None]:
    with mock.patch.object(in_target, "_lock_sharers", return_value={}):
        yield


@contextmanager
def _others_are_waited_for() -> Iterator[None]:
    def others(spec: Any, transaction: Any, routed: Any, same: Any, **_: Any) -> Any:
        if not routed.added:
            return {}
        place = (routed.schema, routed.table)
        return in_target.find_sharers(
            transaction.lock_units(), spec.unit.topic, spec.routes, place, same=same
        )

    with mock.patch.object(in_target, "_lock_sharers", others):
        yield


@contextmanager
def _rows_get_the_default() -> Iterator[None]:
    def added(column: Any, wish: Any) -> Any:
        return steps.AddColumn(steps.Column(name=column.name, type=column.type))

    with mock.patch.object(steps, "_plan_added_column", added):
        yield


@contextmanager
def _old_values_are_refused() -> Iterator[None]:
    with (
        mock.patch.object(plans, "_refuse_old_values", return_value=None),
        mock.patch.object(decisions, "_yield_added_reasons", side_effect=lambda *_: iter(())),
    ):
        yield


@contextmanager
def _lost_indexes_go() -> Iterator[None]:
    with (
        mock.patch.object(steps, "plan_dropped_indexes", side_effect=lambda *_: iter(())),
        mock.patch.object(machine.TableChanges, "adopt_definition", _adopt_unexplained),
    ):
        yield


def _adopt_unexplained(self: TableChanges, before: Any, table: Any, verdict: Any, at: Any) -> Any:
    policy = machine.resolve_target(self._spec, table).policy
    yield from self.follow_change(TableChange(before, table, policy, verdict.columns, verdict.rewrite), at)


@contextmanager
def _coming_indexes_are_locked() -> Iterator[None]:
    with mock.patch.object(router, "_list_missing_indexes", return_value=()):
        yield


RULES: dict[str, tuple[Callable[[], AbstractContextManager[None]], float]] = {
    "a mark is written": (_marks_are_written, 0.15),
    "the mark's connection is ended": (_connections_are_ended, 0.08),
    "a statement keeps its connection": (_statements_keep_their_connection, 0.08),
    "lanes are drained first": (_lanes_are_drained_first, 0.15),
    "others are asked": (_others_are_asked, 0.15),
    "others are waited for": (_others_are_waited_for, 0.15),
    "rows get the default": (_rows_get_the_default, 0.03),
    "old values are refused": (_old_values_are_refused, 0.08),
    "lost indexes go": (_lost_indexes_go, 0.15),
    "coming indexes are locked": (_coming_indexes_are_locked, 0.15),
}
"""Rule → what switches it off, and how many of a source's changes are statements where that shows soon."""
#: Rules that no seed has shown to be needed, and what holds them instead.
UNSEEN = {
    "values come first": "tests/unit/test_evolution.py: where the target has values of a column "
    "already, what is planned asks for the copy, too; no other statement of the simulation changes values",
    "the end plans again": "tests/unit/test_evolving.py: what others come to need while the statement runs",
}


@contextmanager
def _changed_names_need_a_copy() -> Iterator[None]:
    with mock.patch.object(spec, "explain_changed_route", return_value=""):
        yield


@contextmanager
def _two_columns_are_not_written_as_one() -> Iterator[None]:
    with (
        mock.patch.object(plans, "find_duplicate_columns", return_value=[]),
        mock.patch.object(definition, "find_duplicate_columns", return_value=[]),
    ):
        yield


@contextmanager
def _statements_are_read_by_the_names_of_the_target() -> Iterator[None]:
    with mock.patch.object(plans, "translate_changes", lambda changes, *_: changes):
        yield


@contextmanager
def _before_images_are_read_by_the_names_of_the_source() -> Iterator[None]:
    def build(source: Any, _names: Any, *more: Any) -> Any:
        return _make_functions(source, {}, *more)

    with mock.patch.object(definition, "_make_event_functions", build):
        yield


_make_functions = definition._make_event_functions
RENAME_RULES: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "changed names need a copy": _changed_names_need_a_copy,
    "two columns are not written as one": _two_columns_are_not_written_as_one,
    "statements are read by the names of the target": _statements_are_read_by_the_names_of_the_target,
    "before-images are read by the names of the source": _before_images_are_read_by_the_names_of_the_source,
}
"""Rules for columns to which the route gives another name."""
