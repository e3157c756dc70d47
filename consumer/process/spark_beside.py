"""Starts Spark in a thread. Meanwhile units are taken over, and applied in the process's own slot, however
long the start takes.

Only the speed at which a backlog is applied depends on Spark. If Spark cannot be started at all, the
process ends: otherwise rows would be applied slowly without a visible reason.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog

from consumer.errors import SparkStartError
from schemas.config.model import Config

if TYPE_CHECKING:
    from consumer.process.spark_session import Spark

log = structlog.get_logger(__name__)

USUAL_START_S = "6 to 20"
"""Measured seconds of a start: on an idle machine, and on one with a load of 15 for its 2 cores."""
SPARK_SLOW_S = 60.0
"""Interval in seconds at which a start of Spark that is still running is logged as slow."""
SPARK_END_S = 10.0
"""Seconds that the end of the process waits for a start under way, which then ends with the process."""
SLOTS_END_S = 30.0
"""Seconds that the end of the process waits for Spark's thread, which keeps the queries of slots running."""


class SparkStarter:
    """Starts and stops Spark.

    `on_up(spark, seconds)`: called in Spark's thread once it has started, with the time that took.
    `on_slow(seconds)`: called while the start is slow. `on_failure()`: called when Spark cannot be
    started.
    """

    def __init__(
        self,
        config: Config,
        *,
        on_up: Callable[[Spark, float], None],
        on_slow: Callable[[float], None],
        on_failure: Callable[[], None],
    ) -> None:
        self._config, self._on_up, self._on_slow, self._on_failure = config, on_up, on_slow, on_failure
        self._began = time.monotonic()
        self._started = threading.Event()
        self._spark: Spark | None = None
        self._thread = threading.Thread(target=self._run_spark, name="Spark", daemon=True)
        self._patience = threading.Thread(target=self._warn_when_slow, name="Spark's patience", daemon=True)

    def start(self) -> None:
        log.info("Spark starts", usually_s=USUAL_START_S, meanwhile="the apply process applies rows itself")
        self._thread.start()
        self._patience.start()

    def stop(self) -> None:
        """Stop Spark. Waits up to `SPARK_END_S` for a start under way."""
        if not self._started.wait(SPARK_END_S):
            log.info("process ends while Spark starts")
        elif self._spark is not None:
            self._thread.join(SLOTS_END_S)
            self._spark.stop()

    def _run_spark(self) -> None:
        try:
            # Imported here because this import takes a second, and Java's start longer: nothing should
            # wait for them.
            from consumer.process.spark_session import start_spark

            spark = self._spark = start_spark(self._config)
        except Exception as error:  # noqa: BLE001  # it is logged
            log_failed_start(error)
            self._started.set()
            self._on_failure()
            return
        self._started.set()
        self._on_up(spark, time.monotonic() - self._began)

    def _warn_when_slow(self) -> None:
        while not self._started.wait(SPARK_SLOW_S):
            seconds = time.monotonic() - self._began
            log.warning("Spark start is slow", seconds=round(seconds))
            self._on_slow(seconds)


def log_failed_start(error: Exception) -> None:
    """Log why Spark or its slots cannot be started, after which the process ends."""
    if isinstance(error, SparkStartError):
        what, remedy = error.problem.what, error.problem.action
        log.critical("Spark cannot be started, and this process ends", error=what, remedy=remedy)
    else:
        log.critical("Spark cannot be started, and this process ends", exc_info=error)
