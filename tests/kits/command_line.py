"""`rowlock` as a user calls it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from click.testing import CliRunner, Result
from pydantic import SecretStr

from coordinator.rest import RestServer, create_app
from rowlock.cli import main
from tests.stands.fake_control import FakeControl

CONFIG = """\
kafka: {bootstrap: "127.0.0.1:1"}
sources:
  b1: {type: mariadb, host: 127.0.0.1, port: 1, user: u, password: topsecret, tables: [bank.*]}
targets:
  hq: {type: postgres, host: 127.0.0.1, port: 1, user: u, password: topsecret, database: d}
pipelines:
  p: {sources: [b1], target: hq, routes: [{from: bank.*, to: "public.{table}"}]}
"""
#: Packages that only the processes of a system need.
HEAVY_MODULES = {
    "pyspark", "py4j", "pyarrow", "pandas", "numpy", "grpc", "fastapi", "starlette", "uvicorn",
    "coordinator.rest", "coordinator.transport",
}  # fmt: skip
_IMPORTED = re.compile(r"^import time: +\d+ \| +\d+ \| +(\S+)$", re.MULTILINE)


def words_of(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:  # it ended just now
        return []


def environment() -> dict[str, str]:
    return {**os.environ, "ROWLOCK_LOG": "json"}


def invoke(config: Path, *words: str) -> Result:
    return CliRunner().invoke(main, [*words, "-c", str(config)])


@contextmanager
def serve_control(control: FakeControl) -> Iterator[str]:
    """Serve a leader that is none over REST; yields the address."""
    server = RestServer(create_app(control, control.desk, token=SecretStr("")), "127.0.0.1:0", None)
    try:
        yield server.start()
    finally:
        server.close()


def run_and_list_imports(
    *words: str,
    folder: Path,
    code: str = "import runpy; runpy.run_module('rowlock.cli', run_name='__main__')",
) -> tuple[subprocess.CompletedProcess[str], set[str]]:
    """Run `rowlock` in a process of its own; returns how it ended, and the modules that it imported."""
    root = str(Path(__file__).resolve().parents[2])
    ended = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", code, *words],
        cwd=folder, env={**os.environ, "PYTHONPATH": root}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return ended, set(_IMPORTED.findall(ended.stderr))


def find_imported(modules: set[str], packages: set[str]) -> set[str]:
    """Return those of `packages` that are among the modules."""
    return {each for each in packages if any(f"{name}.".startswith(f"{each}.") for name in modules)}
