"""The benchmarks tell each kind of process of a run apart: the issue asks for the peak memory of each."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench.kit import kind_of
from rowlock.processes.child_process import build_child_command
from rowlock.processes.run import build_run_commands
from schemas.config.model import load_config
from tests.kits.command_line import CONFIG


def test_the_parts_of_a_run(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(CONFIG)
    parts = build_run_commands(load_config(file))
    assert {name: kind_of(command) for name, command in parts.items()} == {
        "coordinator": "coordinator",
        "agent": "agent",
    }
    assert kind_of([sys.executable, "-m", "rowlock.cli", "run", "-c", str(file)]) == "run"
    assert kind_of(build_child_command("consumer.main", file)) == "apply driver"
    assert kind_of(build_child_command("producer.main", file, "--source", "b1")) == "capture"


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        (("java -cp x org.apache.spark.deploy.SparkSubmit --conf "
        "a.module=consumer.spark.daemon pyspark-shell"), "Spark's JVM"),
        ("python -m consumer.spark.daemon pyspark.worker", "Python worker"),
        ("python -m pyspark.daemon pyspark.worker", "Python worker"),
        ("/usr/bin/python3 -S -c import os", "other (python3)"),
        ("", "ended"),
    ],
)  # fmt: skip
def test_what_they_start(command: str, kind: str) -> None:
    assert kind_of(command.split()) == kind
