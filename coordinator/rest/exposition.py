"""`GET /metrics`: the numbers of one process, for Prometheus.

Each metric is defined once, as a `MetricDefinition`; docs/reference/metrics.md is generated from the
definitions. A scrape reads only what the process has in memory: it waits for no database and not for
Kafka. Every process has a registry of its own, so nothing is added to a registry from elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from pydantic import SecretStr

from coordinator.rest import problems
from coordinator.rest.access import require_same_system
from coordinator.rest.access_check import RequestGuard


@dataclass(frozen=True, slots=True)
class MetricDefinition:
    """A metric: what the numbers under its name mean."""

    name: str
    """With its unit, and `_total` if it is a counter."""
    kind: Literal["gauge", "counter", "histogram"]
    meaning: str
    labels: tuple[str, ...] = ()

    def build_family(self) -> MetricFamily:
        """Return the metric without any values."""
        return _FAMILIES[self.kind](self.name, self.meaning, labels=self.labels)


MetricFamily = GaugeMetricFamily | CounterMetricFamily | HistogramMetricFamily
_FAMILIES: dict[str, type[MetricFamily]] = {
    "gauge": GaugeMetricFamily, "counter": CounterMetricFamily, "histogram": HistogramMetricFamily,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Histogram:
    """The value of a histogram."""

    buckets: Sequence[tuple[str, float]]
    """(upper bound, number of observations up to it), with the bound "+Inf" at the end."""
    sum: float


MetricValue = tuple[MetricDefinition, tuple[str, ...], float | Histogram]
"""A metric, the values of its labels in order, and its number."""

BUILD_INFO = MetricDefinition(
    "rowlock_build_info",
    "gauge",
    "Always 1; the labels have the version of rowlock, and the process: `coordinator` or `agent`.",
    ("version", "process"),
)


class StateCollector(Collector):
    """Collects the numbers of one process. `read` returns them; it is called with every scrape."""

    def __init__(
        self, definitions: Sequence[MetricDefinition], read: Callable[[], Iterable[MetricValue]]
    ) -> None:
        self._definitions, self._read = definitions, read

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics that have values now, in the order of their definitions."""
        families = {definition: definition.build_family() for definition in self._definitions}
        for definition, labels, number in self._read():
            _add_value(families[definition], labels, number)
        yield from (family for family in families.values() if family.samples)


def _add_value(family: MetricFamily, labels: Sequence[str], number: float | Histogram) -> None:
    if isinstance(number, Histogram):
        if not isinstance(family, HistogramMetricFamily):
            raise TypeError(f"{family.name} is no histogram")
        family.add_metric(labels, number.buckets, number.sum)
    else:
        family.add_metric(labels, number)  # type: ignore[arg-type, call-arg]


def build_registry(
    definitions: Sequence[MetricDefinition], read: Callable[[], Iterable[MetricValue]]
) -> CollectorRegistry:
    """Return a registry with the numbers that `read` returns, and those of this process itself (memory,
    processor time, open files).
    """
    registry = CollectorRegistry()
    registry.register(StateCollector(definitions, read))
    ProcessCollector(registry=registry)
    return registry


def add_metrics_path(app: FastAPI, registry: CollectorRegistry, prefix: str) -> None:
    """Add `GET /metrics`. `prefix`: see `coordinator.rest.app.create_app`."""
    router = APIRouter(dependencies=[Depends(require_same_system(prefix))])

    @router.get("/metrics", include_in_schema=False)
    def metrics(request: Request) -> Response:
        """The metrics of this process (docs/reference/metrics.md)."""
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(registry), headers={"Content-Type": content_type})

    app.include_router(router)


def create_metrics_app(registry: CollectorRegistry, *, token: SecretStr | None, prefix: str) -> FastAPI:
    """Return an application that serves `GET /metrics` and nothing else, with REST's rules of access."""
    app = FastAPI(title="rowlock metrics", openapi_url=None, docs_url=None, redoc_url=None)
    problems.install_problem_handlers(app)
    app.add_middleware(RequestGuard, token=token)
    add_metrics_path(app, registry, prefix)
    return app
