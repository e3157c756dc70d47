"""The Spark session of the apply process, whose tasks are slots.

This module is imported in a thread of its own (consumer.process.spark_beside): it imports PySpark and
Arrow, which takes a second, and starts Java, which takes several. It contains nothing that a takeover
needs.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from consumer.errors import SparkStartError
from consumer.spark import class_archive
from consumer.spark.cluster import build_cluster_environment, build_cluster_settings
from consumer.spark.executor_files import list_file_checks
from consumer.spark.query import (
    DAEMON_ENV,
    build_session_settings,
    find_cause,
    get_java_process,
    start_session,
)
from consumer.spark.slot_query import SlotQuery
from consumer.spark.slot_task import SlotTask
from consumer.spark.supported_versions import format_minor_version, require_supported_spark
from schemas.config.model import Config

LOG4J = """\
rootLogger.level = warn
rootLogger.appenderRef.file.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yyyy-MM-dd'T'HH:mm:ss.SSS} spark %p %c{1}: %m %ex{3}%n
logger.stream.name = org.apache.spark.sql.execution.streaming
logger.stream.level = error
logger.write.name = org.apache.spark.sql.execution.datasources.v2.WriteToDataSourceV2Exec
logger.write.level = off
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
"""Lines in which Spark repeats the error of a slot's query are left out: SparkSlots logs it."""


class Spark:
    """A Spark session. `java`: its Java process."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self.java: subprocess.Popen[bytes] = get_java_process(session)

    def start_slot(self, task: SlotTask, versions: dict[str, str], folder: Path) -> SlotQuery:
        """Start a query that carries a slot. See SlotQuery."""
        return SlotQuery(self._session, task, versions, folder)

    def count_cores(self) -> int | None:
        """Return how many tasks can run at once on the executors that Spark has; None: not known."""
        try:
            context = self._session.sparkContext._jsc.sc()
            profile = context.resourceProfileManager().defaultResourceProfile()
            return int(context.maxNumConcurrentTasks(profile))
        except Exception:  # noqa: BLE001  # not an interface of Spark, and only part of a message
            return None

    def stop(self) -> None:
        """Stop Spark. Its scheduler logs nothing from now on: it would log a task that ends meanwhile as
        an error.
        """
        log4j = self._session._jvm.org.apache.logging.log4j
        log4j.core.config.Configurator.setLevel("org.apache.spark.scheduler", log4j.Level.OFF)
        self._session.stop()


def start_spark(config: Config) -> Spark:
    """Return Spark with one session. Its files are in `state_dir`.

    Raises SparkVersionError, SparkStartError, and errors of any class for a local master.
    """
    version = require_supported_spark()
    folder = config.state_dir.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    log4j = folder / "log4j2.properties"
    log4j.write_text(LOG4J)
    settings = build_session_settings(
        master=config.spark.master,
        memory=config.spark.memory,
        local_dir=str(Path(folder) / "spark"),
        log4j=str(log4j),
        daemon=os.environ.get(DAEMON_ENV),
        classes=class_archive.list_archive_options(),
    )
    if not config.spark.is_cluster:
        return Spark(start_session(settings))
    for check_file in list_file_checks(config.spark):
        check_file()
    settings |= build_cluster_settings(config.spark)
    try:
        return Spark(start_session(settings, build_cluster_environment(config.spark)))
    except Exception as error:
        raise _build_start_error(config.spark.master, find_cause(str(error).splitlines()), version) from error


def _build_start_error(master: str, cause: str, version: str) -> SparkStartError:
    """Return the error of a session on a cluster that fails with `cause`. `version`: of PySpark."""
    if "BindException" in cause:
        return SparkStartError(
            f"no session on {master}, because Spark cannot listen at spark.driver: {cause}",
            "name an address of this machine as spark.driver.host, and free ports as spark.driver.port and "
            "spark.driver.block_manager_port",
        )
    return SparkStartError(
        f"no session on {master}: {cause}",
        f"the master must be reachable at this address and run Spark {format_minor_version(version)}, "
        f"because the agent's PySpark is {version}: a master of another version does not answer",
    )
