"""Fences removed or paused units, which no later takeover would fence.

The progress rows of an apply unit get the fencing token, as in a takeover, which also ends a connection
that locks them. A capture unit needs no fence: what a paused capture process writes when it continues is
the continuation of the log, and as soon as another process captures that source, readers drop it by its
lower `gen`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from dataclasses import dataclass

import structlog

from consumer.attempt.spec import build_initial_layout
from consumer.errors import FencedError
from consumer.ordering.model import ApplyUnit
from consumer.slots.pipeline import PipelineSettings
from consumer.targets.base import ProgressStore
from consumer.targets.dialect import open_progress
from rowlock.coordinator.inventory import split_unit_name
from schemas.config.model import Config

_LOG = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class FirstProgress:
    """The first values of progress rows that do not exist yet."""

    topic_id: str
    layout: str
    lanes: int


class UnitFencer:
    """Fences a unit when called with (unit, uid, assignment), and returns once every lower fencing token
    is refused.

    Can be called from any thread. Raises ConsumerError.
    """

    def __init__(self, config: Config) -> None:
        self._config = config

    def use_config(self, config: Config, changed: Collection[str]) -> None:
        """Use this configuration. A target that is no longer in it is reached by its last known settings."""
        del changed
        removed = {name: each for name, each in self._config.targets.items() if name not in config.targets}
        self._config = config.model_copy(update={"targets": {**removed, **config.targets}})

    def __call__(self, unit: str, uid: str, assignment: int) -> None:
        parts = split_unit_name(unit, uid)
        if parts is None:
            return
        pipeline, topic, target, topic_id = parts
        if target not in self._config.targets:
            _LOG.warning("unit not fenced because its target is not configured", unit=unit, target=target)
            return
        store = open_progress(self._config.targets[target], name=f"rowlock fence {pipeline}")
        with contextlib.closing(store):
            store.ensure_bookkeeping()
            fence_unit(
                store,
                ApplyUnit(pipeline, topic),
                assignment,
                FirstProgress(topic_id, *self._find_layout(pipeline)),
            )
        _LOG.info("unit fenced", unit=unit, assignment=assignment)

    def _find_layout(self, pipeline: str) -> tuple[str, int]:
        """Return the layout and the number of lanes of new progress rows. For a removed pipeline any
        layout is good.
        """
        if pipeline not in self._config.pipelines:
            return build_initial_layout((), 1).encode(), 1
        known = PipelineSettings.from_config(self._config, pipeline)
        return known.layout, known.config.lanes


def fence_unit(store: ProgressStore, unit: ApplyUnit, assignment: int, beginning: FirstProgress) -> None:
    """Raise the unit's fencing token to the assignment. A unit that waits for a person keeps waiting.

    Rows of a later assignment are fenced already.
    """
    _, before = store.read_progress(unit, lanes=False)
    with contextlib.suppress(FencedError):
        taken, _, _ = store.take_over(
            unit, beginning.topic_id, beginning.layout, beginning.lanes, assigned=assignment
        )
        if before is not None and before.stopped is not None:
            store.stop_unit(unit, taken, before.stopped, was=before.stopped)
