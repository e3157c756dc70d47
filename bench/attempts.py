"""One attempt as a worker makes it (consumer.attempt), fed from a list: no Kafka, no Spark, no capture."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from consumer.attempt.drivers.driver import AttemptInputs
from consumer.attempt.drivers.run import apply_topic
from consumer.attempt.spec import UnitSpec, build_initial_layout
from consumer.ordering.lanes.lane import LaneLimits
from consumer.ordering.model import ApplyUnit
from consumer.slots.connections import ConnectionCache
from consumer.tables.router import TableRoute
from consumer.targets.dialect import open_session
from schemas.config.model import TargetConfig
from schemas.wire.codec import encode_event_value
from schemas.wire.records import format_former_table_topic
from tests.kits.apply import FakeSource


def measure_apply(
    config: TargetConfig, route: TableRoute, source: FakeSource, events: Sequence[Any], lanes: int
) -> float:
    """Apply a definition and the rows after it to a new table; return the rows a second."""
    records = list(enumerate(map(encode_event_value, events)))
    cache, routes = ConnectionCache(config, "bench"), (route,)
    unit = ApplyUnit("p", format_former_table_topic("bench", source.name, "bank", source.table.name))
    session = open_session(config, name="bench")
    try:
        session.ensure_bookkeeping()
        epoch, _, _ = session.take_over(unit, "id", build_initial_layout(routes, lanes).encode(), lanes)
        spec = UnitSpec(
            unit=unit, source=source.name, epoch=epoch, topic_id="id", routes=routes, lanes=lanes,
            limits=LaneLimits(), small_batch=0
        )  # fmt: skip
        slices = [records[at : at + 1000] for at in range(0, len(records), 1000)]
        started = time.monotonic()
        report = apply_topic(spec, cache, AttemptInputs(slices), {})
        seconds = time.monotonic() - started
        assert (report.state, report.applied) == ("ok", len(records)), report
        return (len(records) - 1) / seconds
    finally:
        session.close()
        cache.close()
