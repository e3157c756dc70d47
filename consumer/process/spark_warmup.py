"""Keeps an idle agent's Spark warm so that failover does not pay for the start of a JVM.

The first query of a JVM takes ten seconds (classes, Python workers, compiling). So a process that has
had no unit for a while runs a query that applies nothing, over the watermarks of a source, until that
has finished two batches.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import structlog
from py4j.protocol import Py4JError

from consumer.attempt.reports import ReportReceiver
from consumer.errors import ConsumerError
from consumer.spark.pipeline import PipelineSettings
from consumer.spark.query_handle import RunningQuery
from consumer.tables.discovery import KafkaCluster
from schemas.config.model import Config
from schemas.wire.records import format_watermark_topic

log = structlog.get_logger(__name__)

WARMUP_RETRY_S = 5.0
MAX_WARMUP_S = 60.0


def warm_spark(
    config: Config, spark: Any, slots: int, *, after: float, idle: Callable[[], bool], ended: threading.Event
) -> bool:
    """Run the warm-up query after `after` seconds if `idle()`; return whether it ran.

    Retries while no source has watermarks yet or Kafka does not answer. Errors are only logged: a cold
    Spark does no harm.
    """
    if not config.pipelines:
        return False
    apart = config.model_copy(update={"state_dir": config.state_dir / "warming"})
    pipeline = PipelineSettings.from_config(apart, next(iter(config.pipelines)), slots)
    pause = after
    while not ended.wait(pause) and idle():
        pause = WARMUP_RETRY_S
        try:
            found = _find_last_watermark(config)
            if found is not None:
                _run_warmup_query(spark, pipeline, *found, ended)
                return True
        except Exception as error:  # a cold Spark does no harm, so no error may end anything
            known = isinstance(error, ConsumerError | Py4JError | OSError)
            log.warning("Spark warm-up failed", error=str(error)[:300], exc_info=None if known else error)
    return False


def _find_last_watermark(config: Config) -> tuple[str, int] | None:
    """Return the topic and the offset of a source's last watermark; None if there is none yet."""
    captured = [name for name, source in config.sources.items() if source.events == "rowlock"]
    topics = [format_watermark_topic(config.kafka.prefix, source) for source in captured]
    cluster = KafkaCluster(config.kafka.bootstrap, config.kafka.options)
    for topic, (first, end) in cluster.fetch_bounds(topics).items():
        if end > first:
            return topic, end - 1
    return None


def _run_warmup_query(
    spark: Any, pipeline: PipelineSettings, topic: str, last: int, ended: threading.Event
) -> None:
    began = time.monotonic()
    run = f"{pipeline.name}-warming-{secrets.token_hex(4)}"
    receiver = ReportReceiver()
    try:
        config = pipeline.build_task_config(run, f"{run}-0", {}, receiver.port, receiver.token)
        config = replace(config, pipeline=run)  # a worker keeps connections for one run of a pipeline
        query = RunningQuery(spark, pipeline, config, {topic: last}, epochs={}, slots=pipeline.slots)
        while query.active and query.read_progress()[0] < 1 and time.monotonic() - began < MAX_WARMUP_S:
            if ended.wait(0.2):
                break
        query.stop()
    finally:
        receiver.close()
    log.info("Spark warmed up", ms=round((time.monotonic() - began) * 1000))
