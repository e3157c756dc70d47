"""A run under faults whose slots are in executors on hosts of their own."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.embedded.services import Kafka, MariaDB, PostgreSQL
from tests.faults.whole_system import RunUnderFaults
from tests.kits.running import ACCOUNTS, HERE, Program, Run
from tests.kits.whole_run import whole_run
from tests.servers.spark_host import HostOptions
from tests.servers.spark_hosts import PYTHON, SparkHosts, admit_hosts, spark_hosts

TOKEN = b"the token of the executors of this test\n"


@dataclass(kw_only=True)
class RunOnHosts(RunUnderFaults):
    """A run with the `cluster` as its Spark. `token`: the file with the executors' token."""

    cluster: SparkHosts
    token: Path

    def build_options(self, **more: Any) -> HostOptions:
        return HostOptions(files={self.token: TOKEN}, **more)


def make_package(folder: Path) -> Path:
    """Return the archive that executors get."""
    package = folder / "rowlock-spark.tar.gz"
    made = HERE.call("spark", "package", "--output", str(package), "--python", Path(PYTHON).name)
    assert made.returncode == 0, made.stderr
    return package


@contextlib.contextmanager
def run_on_hosts(
    folder: Path,
    package: Path,
    source: MariaDB,
    broker: Kafka,
    office: PostgreSQL,
    database: str,
    **spark: Any,
) -> Iterator[RunOnHosts]:
    """Start a run with two hosts; it has applied the snapshot. `spark`: more keys of its section."""
    token = folder / "executor-token"
    token.write_bytes(TOKEN)
    options = HostOptions(files={token: TOKEN})
    with spark_hosts(
        folder, options, options, encrypted=True, settings={"spark.worker.timeout": "10"}
    ) as cluster:
        cluster.expose(broker.port, office.port, source.port)
        admit_hosts(office)
        pipeline = {
            "sources": ["branch"], "target": "hq", "lanes": 4,
            "routes": [{"from": f"{database}.*", "to": "public.{table}"}],
        }  # fmt: skip
        with whole_run(
            folder, database, broker, {"branch": source}, {"hq": office}, {"to-hq": pipeline}
        ) as whole:
            made = RunOnHosts(
                **vars(whole), source=source, office=office, broker=broker, cluster=cluster, token=token
            )
            made.parts["spark"] = build_spark_section(cluster, token, package, **spark)
            made.write_parts()
            made.run.program = Program(sys.executable, {"SPARK_CONF_DIR": str(cluster.settings_file.parent)})
            made.change("branch", *ACCOUNTS)
            made.run.start()
            made.run.until(made.equal, "the snapshot is applied", 300)
            yield made


def build_spark_section(
    cluster: SparkHosts, token: Path, package: Path | None, **more: Any
) -> dict[str, Any]:
    """Return the section `spark` for a run on `cluster`."""
    return {
        "master": cluster.master.url,
        "memory": "512m",
        "slots": 2,
        "driver": {"host": cluster.address},
        "executor_token_file": str(token),
        "python": PYTHON,
        **({} if package is None else {"package": str(package)}),
        "options": {
            "spark.authenticate": True,
            "spark.network.crypto.enabled": True,
            "spark.executor.cores": 1,
            "spark.executor.memory": "512m",
        },
        **more,
    }


def find_opened_slots(run: Run) -> list[str]:
    """Return the log lines about opened slots."""
    return [line for line in run.log.read_text(errors="replace").splitlines() if "slot opened" in line]
