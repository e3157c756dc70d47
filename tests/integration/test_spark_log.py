"""What Spark writes at its start: nothing that every start writes, and every other warning."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from consumer.process.spark_session import LOG4J
from rowlock.processes.child_process import build_child_environment

START = """
import sys
from consumer.spark.query import build_session_settings, start_session

folder = sys.argv[1]
settings = build_session_settings(
    master="local[2,4]", memory="1g", local_dir=f"{folder}/spark",
    log4j=f"{folder}/log4j2.properties",
)
start_session(settings | {"spark.kryoserializer.buffer.mb": "1"}).stop()
"""


def test_only_the_warning_of_every_start_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "log4j2.properties").write_text(LOG4J)
    ended = subprocess.run(
        [sys.executable, "-c", START, str(tmp_path)], env=build_child_environment(), capture_output=True,
        text=True, check=True, timeout=300,
    )  # fmt: skip
    assert "'spark.kryoserializer.buffer.mb' has been deprecated" in ended.stderr
    assert "spark.local.dir" not in ended.stderr
    assert "FutureWarning" not in ended.stderr, "PySpark's warning of pandas 3"
