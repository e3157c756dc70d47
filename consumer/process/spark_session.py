"""The Spark session of the apply process, and the queries that run in it.

This module is imported in a thread of its own (consumer.process.spark_beside): it imports PySpark and
Arrow, which takes a second, and starts Java, which takes several. It contains nothing that a takeover
needs.
"""

from __future__ import annotations

import functools
import os
import subprocess
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from consumer.process import spark_warmup
from consumer.spark import class_archive
from consumer.spark.active_units import AttemptLocks
from consumer.spark.batch_query import BatchQuery
from consumer.spark.pipeline import PipelineSettings, TaskConfig
from consumer.spark.query import (
    DAEMON_ENV,
    JARS_ENV,
    build_local_master,
    build_session_settings,
    get_java_process,
    start_session,
)
from consumer.spark.query_handle import RunningQuery
from schemas.config.model import Config

LOG4J = """\
rootLogger.level = warn
rootLogger.appenderRef.file.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yyyy-MM-dd'T'HH:mm:ss.SSS} spark %p %c{1}: %m%n%ex{3}
logger.kafka.name = org.apache.kafka
logger.kafka.level = error
logger.bound.name = org.apache.spark.sql.kafka010
logger.bound.level = error
logger.stream.name = org.apache.spark.sql.execution.streaming
logger.stream.level = error
logger.native.name = org.apache.hadoop.util.NativeCodeLoader
logger.native.level = error
logger.task.name = org.apache.spark.scheduler
logger.task.level = error
logger.executor.name = org.apache.spark.executor
logger.executor.level = error
logger.conf.name = org.apache.spark.SparkConf
logger.conf.level = warn
logger.conf.filter.folder.type = RegexFilter
logger.conf.filter.folder.regex = Note that spark\\.local\\.dir will be overridden .*
logger.conf.filter.folder.onMatch = DENY
logger.conf.filter.folder.onMismatch = NEUTRAL
"""


class Spark:
    """A Spark session. `java`: its Java process."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self.java: subprocess.Popen[bytes] = get_java_process(session)

    def start_query(
        self,
        pipeline: PipelineSettings,
        config: TaskConfig,
        starting: Mapping[str, int],
        *,
        epochs: Mapping[str, int],
        per_trigger: int,
        attempts: AttemptLocks,
    ) -> RunningQuery:
        """Start a query (see RunningQuery).

        `attempts`: the attempt locks of this process, for whole-batch pipelines.
        """
        kind = functools.partial(BatchQuery, attempts=attempts) if pipeline.batches else RunningQuery
        return kind(
            self._session,
            pipeline,
            config,
            starting,
            epochs=epochs,
            slots=pipeline.slots,
            per_trigger=per_trigger,
        )

    def warm_up(
        self, config: Config, slots: int, *, after: float, idle: Callable[[], bool], ended: threading.Event
    ) -> bool:
        """Warm Spark up; see consumer.process.spark_warmup."""
        return spark_warmup.warm_spark(config, self._session, slots, after=after, idle=idle, ended=ended)

    def stop(self) -> None:
        self._session.stop()


def start_spark(config: Config) -> Spark:
    """Return Spark with one session for the queries of all configured pipelines.

    Its files are in `state_dir`.
    """
    folder = config.state_dir.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    log4j = folder / "log4j2.properties"
    log4j.write_text(LOG4J)
    settings = build_session_settings(
        master=build_local_master(config.spark.master, 2 * len(config.pipelines)),
        memory=config.spark.memory,
        jars=os.environ.get(JARS_ENV),
        local_dir=str(Path(folder) / "spark"),
        log4j=str(log4j),
        daemon=os.environ.get(DAEMON_ENV),
        classes=class_archive.list_archive_options(),
    )
    return Spark(start_session(settings))
