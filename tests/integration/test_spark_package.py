"""`rowlock spark package`: another Python, as another user, loads all of slots from the archive alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.guard.processes import NOBODY_UID
from rowlock.spark_package.contents import MANIFEST_NAME

ROOT = Path(__file__).resolve().parents[2]
MINOR = "{}.{}".format(*sys.version_info)
#: Imports every module of slots, and what PySpark and drivers import later; prints where each came from.
LOAD = """
import importlib, importlib.metadata, json, pkgutil, sys, sysconfig
folder = sys.argv[1]
inside = folder, sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")
sys.path.insert(0, folder)
names = ["consumer.slots.channel", "consumer.slots.runner", "consumer.spark.slot_task"]
names += ["confluent_kafka", "psycopg", "psycopg_binary", "pymysql", "oracledb", "grpc", "pyarrow", "pandas"]
names += ["cryptography.x509", "sqlalchemy.dialects.mysql.pymysql", "sqlalchemy.dialects.postgresql.psycopg"]
for top in ("consumer", "schemas"):
    package = importlib.import_module(top)
    names += [each.name for each in pkgutil.walk_packages(package.__path__, top + ".")]
for name in names:
    importlib.import_module(name)
import consumer.spark.daemon
consumer.spark.daemon.PRELOADED = [n for n in consumer.spark.daemon.PRELOADED if "pyspark" not in n]
consumer.spark.daemon.import_worker_modules()
import psycopg, pyarrow, pandas
roots = {name: getattr(module, "__file__", None) for name, module in sys.modules.items() if "." not in name}
print(json.dumps({
    "outside": sorted(n for n, f in roots.items() if f and ("-packages/" in f or not f.startswith(inside))),
    "pyspark": importlib.util.find_spec("pyspark") is not None,
    "libpq": psycopg.pq.__impl__,
    "rows": pyarrow.Table.from_pandas(pandas.DataFrame({"a": [1, 2]})).num_rows,
    "rowlock": importlib.metadata.version("rowlock"),
    "loaded": len(names),
}))
"""


@pytest.fixture
def host() -> Iterator[Path]:
    """Yield an empty folder that every user may read, as an executor's is in none of the agent's."""
    with tempfile.TemporaryDirectory(prefix="rowlock-host-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


def find_other_python() -> str:
    """Return a Python of this version, which knows nothing of this one's packages; the system's if it can
    be.
    """
    for name in (f"/usr/bin/python{MINOR}", sys._base_executable):
        if os.access(name, os.X_OK):
            return name
    pytest.skip(f"there is no other Python {MINOR}")


def run_on_host(host: Path, python: str, code: str, *arguments: str) -> dict[str, Any]:
    """Run code without the environment and packages of this process, as another user where that can be."""
    other = f"setpriv --reuid {NOBODY_UID} --regid {NOBODY_UID} --clear-groups".split()
    may_change = os.getuid() == 0 and shutil.which("setpriv") and python.startswith("/usr/bin/")
    ended = subprocess.run(
        [*(other if may_change else ()), python, "-S", "-E", "-B", "-c", code, *arguments],
        check=False,
        cwd=host,
        env={"HOME": "/nonexistent", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return found


def test_all_modules_of_slots_load_from_the_archive_alone(host: Path, tmp_path: Path) -> None:
    archive, folder = tmp_path / "rowlock-spark.tar.gz", host / "rowlock"
    made = subprocess.run(
        [sys.executable, "-m", "rowlock.cli", "spark", "package", "--output", str(archive)],
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert made.returncode == 0, made.stderr
    assert f"    package: {archive}" in made.stdout.splitlines()
    folder.mkdir()
    subprocess.run(["tar", "-xzf", archive, "-C", folder, "--no-same-owner"], check=True)
    manifest = json.loads((folder / MANIFEST_NAME).read_text())

    seen = run_on_host(host, find_other_python(), LOAD, str(folder))

    assert seen.pop("loaded") > 150
    assert seen == {
        "outside": [], "pyspark": False, "libpq": "binary", "rows": 2, "rowlock": manifest["rowlock"],
    }  # fmt: skip
    assert manifest["python"] == MINOR
    assert not any(folder.rglob("__pycache__"))
    assert not any(folder.rglob("tests"))
