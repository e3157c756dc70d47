"""Runs the tests of Spark on the oldest and the newest supported PySpark: `make test-spark-versions`.

`.venv` has one version; whichever of the two it does not have is downloaded once into rowlock's cache, and
used from an environment in `build/` that has all other packages from `.venv`. A version that pip cannot
find or download is skipped with a line that names it; ROWLOCK_REQUIRE_SPARK_VERSIONS=1 makes that an error.
`ARGS` of the make target, and the arguments of this module, are the versions to test instead of the two.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import site
import subprocess
import sys
import time
import venv
from functools import partial
from pathlib import Path

from consumer.spark.supported_versions import NEWEST, OLDEST, format_minor_version
from deploy.errors import EmbeddedError
from deploy.fetch.cache import MB, ensure_cached

ROOT = Path(__file__).resolve().parents[1]
OLDEST_VERSION = f"{OLDEST[0]}.{OLDEST[1]}.0"
REQUIRED = "ROWLOCK_REQUIRE_SPARK_VERSIONS"
_NEED = 1300 * MB
"""The source archive, and what is built from it."""
_HANDED_OVER = (
    "tests/integration/test_spark_beside.py::"
    "test_rows_arrive_and_keep_arriving_without_spark_and_it_takes_over_under_load"
)
CORE_TESTS = (
    "tests/unit/test_class_archive.py",
    "tests/unit/test_slots_together.py",
    "tests/unit/test_spark_beside.py",
    "tests/unit/test_spark_slots.py",
    "tests/unit/test_spark_versions.py",
    "tests/integration/test_spark_log.py",
    "tests/integration/test_apply_spark.py",
    _HANDED_OVER,
    "tests/integration/test_spark_cluster.py",
    "tests/faults/test_whole_system.py::test_source_equals_target_after[kill_driver]",
    "tests/faults/test_whole_system.py::test_source_equals_target_after[delete_query_folders]",
    "tests/faults/test_whole_system.py::test_worker_killed_keeps_the_query",
    "tests/faults/test_whole_system.py::test_stops_cleanly_and_leaves_nothing",
)
"""Start, slots, log, archive of classes, a standalone cluster, killed workers and drivers, `rowlock run`."""


class VersionUnavailableError(Exception):
    """A version of PySpark cannot be downloaded."""


def main(versions: list[str]) -> int:
    """Test the versions, and return an exit code."""
    worst = 0
    for version in versions or choose_versions(importlib.metadata.version("pyspark"), _find_newest_version()):
        began = time.monotonic()
        try:
            python = _make_environment(version)
        except VersionUnavailableError as error:
            _print(f"PySpark {version} is not tested, because it cannot be downloaded: {error}")
            worst = worst or int(bool(os.environ.get(REQUIRED)))
            continue
        _print(f"PySpark {version}: ready after {time.monotonic() - began:.0f} s")
        worst = _run_tests(python) or worst
        _print(f"PySpark {version}: {'failed' if worst else 'passed'} after {time.monotonic() - began:.0f} s")
    return worst


def choose_versions(own: str, newest: str) -> list[str]:
    """Return which of the oldest and the newest version the environment does not have itself.

    All other tests run on `own`, the environment's, so another patch release of it needs no tests.
    """
    tested = [OLDEST_VERSION, newest]
    return [each for each in tested if format_minor_version(each) != format_minor_version(own)]


def parse_newest(shown: str) -> str:
    """Return the newest supported version that `pip index versions` has shown.

    Raises VersionUnavailableError if it has shown none.
    """
    listed = re.search(r"^Available versions: (.+)$", shown, flags=re.MULTILINE)
    prefix = f"{NEWEST[0]}.{NEWEST[1]}."
    found = [each for each in (listed[1].split(", ") if listed else []) if each.startswith(prefix)]
    if not found:
        raise VersionUnavailableError(f"pip finds no version {prefix}x")
    return max(found, key=lambda each: [int(part) for part in re.findall(r"\d+", each)])


def _find_newest_version() -> str:
    """Return the newest patch release of the newest supported version; its first if pip finds none."""
    command = [sys.executable, "-m", "pip", "index", "versions", "pyspark", "--disable-pip-version-check"]
    try:
        return parse_newest(subprocess.run(command, check=False, capture_output=True, text=True).stdout)
    except VersionUnavailableError:
        return f"{NEWEST[0]}.{NEWEST[1]}.0"


def _make_environment(version: str) -> Path:
    """Return the Python of an environment with this PySpark, and with all else from the present one."""
    try:
        package = ensure_cached(f"pyspark-{version}", partial(_install_package, version), _NEED)
    except EmbeddedError as error:
        raise VersionUnavailableError(str(error)) from error
    folder = ROOT / "build" / f"spark-{version}"
    if not (folder / "bin" / "python").exists():
        venv.create(folder, symlinks=True)
    (own,) = folder.glob("lib/python*/site-packages")
    others = "".join(f"import site; site.addsitedir({each!r})\n" for each in site.getsitepackages())
    (own / "rowlock-spark.pth").write_text(f"{package}\n{others}")  # the package comes before the others
    return folder / "bin" / "python"


def _install_package(version: str, folder: Path) -> None:
    """Download and build PySpark into `folder`. Raises VersionUnavailableError."""
    command = [
        sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps",
        "--target", str(folder), f"pyspark=={version}",
    ]  # fmt: skip
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        shutil.rmtree(folder)
        raise VersionUnavailableError((done.stderr.strip().splitlines() or ["pip failed"])[-1])


def _run_tests(python: Path) -> int:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([python, "-m", "consumer.spark.class_archive"], check=True, cwd=ROOT, env=env)
    command = [str(python), "-m", "pytest", "-q", "-m", "", "-n", "2", *CORE_TESTS]
    return subprocess.run(command, check=False, cwd=ROOT, env=env).returncode


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
