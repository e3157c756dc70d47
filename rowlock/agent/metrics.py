"""The metrics of an agent: what its processes report, and the units and leases that it holds."""

from __future__ import annotations

import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import structlog

from consumer.attempt.durations import Durations
from coordinator.core.agent_unit import AgentUnit
from coordinator.rest.exposition import (
    BUILD_INFO,
    Histogram,
    MetricValue,
    build_registry,
    create_metrics_app,
)
from coordinator.rest.server import Certificate, RestServer
from rowlock import __version__
from rowlock.agent.metric_definitions import (
    AGENT_METRICS,
    APPLIED_EVENTS,
    APPLIED_ROWS,
    BACKLOG_EVENTS,
    CAPTURE_FINISHED,
    CAPTURE_HEARD,
    CAPTURED_ROWS,
    COPIES,
    COPY_ESTIMATE,
    COPY_ROWS,
    DELIVERY_FAILURES,
    DISPLACED,
    HEADROOM_END,
    HELD_UNITS,
    LEASE_END,
    LOCK_CHAIN,
    LOCK_WAIT_SECONDS,
    LOCK_WAITS,
    OPEN_QUARANTINE,
    QUARANTINED,
    REMOVED_ROWS,
    RESOLVED,
    RETENTION,
    SLOTS,
    SNAPSHOTS,
    STARTS,
    TABLE_STOPPED,
    TRANSACTION_SECONDS,
    UNIT_APPLIED_TO,
    VISIBLE_SECONDS,
)
from rowlock.agent.reported import ReportedFigures
from rowlock.agent.retention import Kept
from rowlock.errors import CommandError
from schemas.config.model import Config
from schemas.units import ApplyName, CaptureName, UnitPhase, parse_unit_name

_LOG = structlog.get_logger()

RETRY_S = 10.0
"""Seconds until it is tried again to serve metrics on an address that was not free."""

_COPY_PHASES = ("waiting", "running", "done", "refused", "cancelled")


@dataclass(frozen=True, slots=True)
class AgentNumbers:
    """The numbers of an agent."""

    reported: ReportedFigures
    list_held: Callable[[], Sequence[AgentUnit]]
    """Returns the units that the agent holds."""
    per_topic: int
    """With more topics than this, no metric has a value for each topic."""
    get_kept: Callable[[], Kept] = Kept
    """Returns how long is kept what the units need."""
    clock: Callable[[], float] = time.monotonic
    """The clock of leases."""
    wall: Callable[[], float] = time.time

    def read_values(self) -> Iterator[MetricValue]:
        """Yield the present numbers. Never waits."""
        yield BUILD_INFO, (__version__, "agent"), 1
        yield from self._read_held()
        for process, count in sorted(self.reported.list_starts().items()):
            yield STARTS, process, count
        if (slots := self.reported.get_slots()) is not None:
            yield SLOTS, ("open",), slots.open
            yield SLOTS, ("configured",), slots.configured
        yield from self._read_captured()
        yield from self._read_headroom()
        yield from self._read_applied()

    def _read_held(self) -> Iterator[MetricValue]:
        held = [unit for unit in self.list_held() if unit.state is not UnitPhase.ABSENT]
        phases = Counter((unit.unit.partition("/")[0], unit.state) for unit in held)
        for kind in ("capture", "apply"):
            for phase in UnitPhase:
                if phase is not UnitPhase.ABSENT:
                    yield HELD_UNITS, (kind, phase.value), phases[kind, phase]
        leases = [unit.deadline for unit in held if unit.state is UnitPhase.REPLICATING]
        if leases:
            yield LEASE_END, (), self.wall() + min(leases) - self.clock()
        applied = {
            named: unit.mark.checkpoint_ts
            for unit in held
            if unit.mark is not None and isinstance(named := parse_unit_name(unit.unit), ApplyName)
        }
        if len(applied) <= self.per_topic:
            for named, time_ms in applied.items():
                if time_ms:
                    yield UNIT_APPLIED_TO, named, time_ms / 1000

    def _read_captured(self) -> Iterator[MetricValue]:
        for source, figures in self.reported.list_sources().items():
            yield CAPTURED_ROWS, (source,), figures.rows
            yield DELIVERY_FAILURES, (source,), figures.delivery_failures
            yield CAPTURE_FINISHED, (source,), float(figures.finished)
            if not figures.heard_at:
                continue
            yield CAPTURE_HEARD, (source,), figures.heard_at
            yield SNAPSHOTS, (source,), len(figures.last.snapshot_pending)
            stops, copies = sorted(figures.last.stops.items()), sorted(figures.last.copies.items())
            yield from ((TABLE_STOPPED, (source, table, cause), 1) for table, cause in stops)
            phases = Counter(copy.phase for _, copy in copies)
            yield from ((COPIES, (source, phase), phases[phase]) for phase in _COPY_PHASES)
            for table, copy in copies:
                if copy.phase == "running":
                    yield COPY_ROWS, (source, table), copy.rows
                    if copy.estimate is not None:
                        yield COPY_ESTIMATE, (source, table), copy.estimate
            for table, since_ms in sorted(figures.last.removed.items()):
                yield REMOVED_ROWS, (source, table), since_ms / 1000

    def _read_headroom(self) -> Iterator[MetricValue]:
        now = self.wall()
        least: dict[str, tuple[float, float, float]] = {}
        for place, needed_from, kept_s in self._list_kept_parts(now):
            end = needed_from + kept_s
            part = ((end - now) / kept_s, end, kept_s)
            least[place] = min(least.get(place, part), part)
        for place, (_share, end, kept_s) in sorted(least.items()):
            yield RETENTION, (place,), kept_s
            yield HEADROOM_END, (place,), end

    def _list_kept_parts(self, now: float) -> Iterator[tuple[str, float, float]]:
        """Yield (place, time from which on it is needed, seconds for which it is kept) of each running unit.
        A unit that has applied everything needs what comes from now on.
        """
        kept = self.get_kept()
        sources, figures = self.reported.list_sources(), self.reported.list_topics()
        for unit in self.list_held():
            mark, named = unit.mark, parse_unit_name(unit.unit)
            if unit.state is not UnitPhase.REPLICATING or mark is None or not mark.checkpoint_ts:
                continue
            done_to = mark.checkpoint_ts / 1000
            if isinstance(named, CaptureName) and named.source in kept.logs:
                source = sources.get(named.source)
                if source is not None and source.last.prepared_ms:
                    done_to = min(done_to, source.last.prepared_ms / 1000)
                if source is None or not source.finished:
                    yield f"source {named.source}", done_to, kept.logs[named.source]
            elif isinstance(named, ApplyName) and named.topic in kept.topics and named in figures:
                needed_from = done_to if figures[named].left else now
                yield f"pipeline {named.pipeline}", needed_from, kept.topics[named.topic]

    def _read_applied(self) -> Iterator[MetricValue]:
        for labels, figures in self.reported.list_units(self.per_topic).items():
            lanes = figures.lanes
            if figures.left is not None:
                yield BACKLOG_EVENTS, labels, figures.left
            yield APPLIED_EVENTS, labels, figures.applied
            yield APPLIED_ROWS, (*labels, "upsert"), lanes.upserted
            yield APPLIED_ROWS, (*labels, "delete"), lanes.deleted
            yield QUARANTINED, labels, figures.held
            if lanes.open_quarantine is not None:
                yield OPEN_QUARANTINE, labels, lanes.open_quarantine
            yield RESOLVED, labels, lanes.resolved
            yield DISPLACED, labels, figures.displaced
            yield LOCK_WAITS, labels, lanes.lock_waits
            yield LOCK_WAIT_SECONDS, labels, lanes.lock_wait_ms / 1000
            yield LOCK_CHAIN, labels, lanes.lock_chain
        for (pipeline, _), figures in self.reported.list_units(0).items():
            yield TRANSACTION_SECONDS, (pipeline,), _build_histogram(figures.lanes.transactions)
            yield VISIBLE_SECONDS, (pipeline,), _build_histogram(figures.lanes.visible)


def _build_histogram(durations: Durations) -> Histogram:
    return Histogram(durations.list_buckets(), durations.total_ms / 1000)


class MetricsServer:
    """Serves the metrics on an address. While the address is not free, it tries again every `RETRY_S`:
    replication does not depend on it.
    """

    def __init__(
        self,
        config: Config,
        address: str,
        numbers: AgentNumbers,
        wait: Callable[[threading.Event, float], bool] = threading.Event.wait,
    ) -> None:
        """`wait(closing, seconds)` waits before the next attempt; it returns True when `closing` is set.

        Raises CommandError if the certificate of the configuration cannot be used.
        """
        settings = config.coordination
        self._config, self._address, self._wait = config, address, wait
        self._certificate = Certificate(settings.tls.cert, settings.tls.key) if settings.tls else None
        self._registry = build_registry(AGENT_METRICS, numbers.read_values)
        self._closing = threading.Event()
        self._server: RestServer | None = None
        self._thread = threading.Thread(target=self._serve_later, name="metrics", daemon=True)
        if self._certificate is not None:
            _check_certificate(self._certificate)

    @property
    def address(self) -> str:
        """The address with the actual port, once it is served."""
        return self._address if self._server is None else self._server.address

    def start(self) -> None:
        """Serve the metrics, or try again later."""
        if not self._try_to_serve():
            self._thread.start()

    def await_start(self) -> None:
        """Wait until later attempts have succeeded or ended."""
        if self._thread.ident is not None:
            self._thread.join()

    def close(self) -> None:
        """Stop serving, and trying to."""
        self._closing.set()
        self.await_start()
        if self._server is not None:
            self._server.close()

    def _serve_later(self) -> None:
        while not self._wait(self._closing, RETRY_S):
            if self._try_to_serve():
                return

    def _try_to_serve(self) -> bool:
        settings = self._config.coordination
        app = create_metrics_app(self._registry, token=settings.token, prefix=self._config.kafka.prefix)
        server = RestServer(app, self._address, self._certificate)
        try:
            server.start()
        except OSError as error:
            _LOG.error(
                "metrics not served",
                address=self._address,
                error=str(error),
                remedy="choose a free address of this machine with --metrics or coordination.agent_metrics",
                retry_in_s=RETRY_S,
            )
            return False
        self._server = server
        _LOG.info("metrics served", address=server.address)
        return True


def _check_certificate(files: Certificate) -> None:
    """Raise CommandError if HTTPS cannot be served with the certificate."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(files.cert, files.key)
    except OSError as error:  # ssl.SSLError is one
        raise CommandError(
            f"metrics cannot be served with the certificate {files.cert} and the key {files.key}: {error}",
            "mend coordination.tls: its cert and key must be readable PEM files that belong together",
        ) from error
