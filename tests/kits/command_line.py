"""`rowlock` as a user calls it."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
from click.testing import CliRunner, Result

from deploy.fetch.downloads import fetch_spark_kafka_jars
from rowlock.cli import main


def words_of(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:  # it ended just now
        return []


def environment() -> dict[str, str]:
    jars = ",".join(str(jar) for jar in fetch_spark_kafka_jars())
    return {**os.environ, "ROWLOCK_SPARK_JARS": jars, "ROWLOCK_LOG": "json"}


def invoke(config: Path, *words: str) -> Result:
    return CliRunner().invoke(main, [*words, "-c", str(config)])
