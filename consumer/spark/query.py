"""Spark's settings, and the reasons for them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

if TYPE_CHECKING:
    from schemas.config.spark import SparkConfig

log = structlog.get_logger(__name__)

DAEMON_ENV = "ROWLOCK_PYTHON_DAEMON"
"""Module of the daemon of Spark's Python workers, from the environment, instead of rowlock's own.

`pyspark.daemon` is PySpark's own: for a comparison if rowlock's daemon is suspected.
"""


def set_environment(env: dict[str, str]) -> None:
    """Set the environment that Spark reads: this Python for the workers, and loopback only."""
    env["PYSPARK_PYTHON"] = sys.executable
    env["PYSPARK_DRIVER_PYTHON"] = sys.executable
    env.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # The workers must find `consumer` also in a source tree that is not installed.
    root = str(Path(__file__).resolve().parent.parent.parent)
    paths = [path for path in env.get("PYTHONPATH", "").split(os.pathsep) if path]
    if root not in paths:
        env["PYTHONPATH"] = os.pathsep.join([root, *paths])


def build_session_settings(
    *,
    master: str,
    memory: str,
    local_dir: str,
    log4j: str | None,
    daemon: str | None = None,
    classes: Iterable[str] = (),
) -> dict[str, str]:
    """Return Spark's settings.

    `log4j`: path of a log4j2 configuration. `local_dir`: scratch space. `daemon`: see DAEMON_ENV.
    `classes`: Java's options for the archive of its classes (consumer.spark.class_archive).
    """
    # The JVM only starts tasks: the optimising compiler would cost more than it gains.
    java = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    # Spark creates a folder "artifacts" in Java's working directory, and one in Java's folder of temporary
    # files, which stays there if Java is killed. Neither should be outside of this process's folder.
    folder = Path(local_dir).resolve().parent
    java += [f"-Duser.dir={folder}", f"-Djava.io.tmpdir={folder}"]
    java += classes
    if log4j:
        java.append(f"-Dlog4j2.configurationFile={log4j}")
    return {
        "spark.master": master,
        "spark.app.name": "rowlock-apply",
        "spark.driver.memory": memory,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": " ".join(java),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": local_dir,
        "spark.python.daemon.module": daemon or "consumer.spark.daemon",
        "spark.python.worker.reuse": "true",
        # The target's fence drops a second attempt beside the first, so speculation is never useful.
        "spark.speculation": "false",
        # How often a query whose task runs would look for more to do.
        "spark.sql.streaming.pollingDelay": "1s",
        "spark.sql.streaming.metricsEnabled": "false",
        "spark.sql.streaming.numRecentProgressUpdates": "20",
        "spark.sql.streaming.stopTimeout": "20s",
    }


def ignore_pandas_warning() -> None:
    """Hide PySpark's warning of pandas 3 or later: PySpark imports pandas, and no data is given to it."""
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)


def start_session(settings: Mapping[str, str], environment: Mapping[str, str] | None = None) -> Any:
    """Return a SparkSession with `settings`. `environment`: see consumer.spark.cluster."""
    ignore_pandas_warning()
    from pyspark.sql import SparkSession

    set_environment(os.environ)  # type: ignore[arg-type]
    os.environ.update(environment or {})
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("WARN")
    return session


JAVA_ENDED = 4
"""Exit code of a process after its Java process has ended."""
JAVA_LOOK_S = 1.0


def get_java_process(session: Any) -> subprocess.Popen[bytes]:
    """Return the Java process of `session`."""
    process: subprocess.Popen[bytes] = session.sparkContext._gateway.proc
    return process


def end_with_java(
    java: subprocess.Popen[bytes], stop: threading.Event, end: Callable[[int], object]
) -> threading.Thread:
    """End this process when its Java process ends for any reason (kill -9, memory), unless `stop` is
    set.

    Otherwise nothing would be applied any more, without any message. The supervisor starts another
    process.
    """

    def watch() -> None:
        while not stop.wait(JAVA_LOOK_S):
            if (code := java.poll()) is not None:
                log.critical("Spark's Java process has ended, and this process with it", code=code)
                end(JAVA_ENDED)
                return

    thread = threading.Thread(target=watch, name="java", daemon=True)
    thread.start()
    return thread


def count_slots(spark: SparkConfig) -> int:
    """Return the number of slots: the N of `local[N,F]`, or `spark.slots` on a cluster."""
    if spark.is_cluster:
        return spark.slots
    number = spark.master.partition("[")[2].partition(",")[0]
    return int(number) if number.isdigit() else os.cpu_count() or 2


_LOST_EXECUTOR = re.compile(r"ExecutorLostFailure \(.*")
"""Why an executor was lost, in Spark's message about its task. No line of that message is an error's."""
_NO_ROWLOCK = "No module named 'consumer'"
"""What Spark reports if its daemon of Python workers cannot be imported."""
_LOST_TASK = re.compile(r"\(TID \d+\) \((\S+) executor \S+\)")
"""Where Spark's message about a lost task names the host."""


def find_host(lines: list[str]) -> str:
    """Return the host of the task whose failure Spark reports; "": it names none."""
    found = next((match for line in lines if (match := _LOST_TASK.search(line))), None)
    return found[1] if found else ""


def find_cause(lines: list[str]) -> str:
    """Return the last informative line of a Java or Python trace, or the reason for an executor's loss."""
    if any(_NO_ROWLOCK in line for line in lines):
        return (
            f"rowlock is not installed for the Python of the executor on {find_host(lines) or 'some host'}: "
            "configure spark.package, which `rowlock spark package` writes, or install rowlock there"
        )
    if lost := next((match for line in lines if (match := _LOST_EXECUTOR.search(line))), None):
        return lost[0][:400]
    messages = [
        line.strip() for line in lines if line.strip() and not line.strip().startswith(("at ", "..."))
    ]
    errors = [line for line in messages if "Error" in line or "Exception" in line]
    return (errors or messages or ["unknown"])[-1].removeprefix("RuntimeError: ")[:500]
