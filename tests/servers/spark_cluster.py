"""A standalone Spark cluster of one Master and one Worker, from the jars that PySpark brings.

What operators would start with Spark's sbin scripts, which PySpark does not bring. Both are services as the
databases are: loopback, free ports, a temporary home, and a guardian that ends them with everything they have
started.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import httpx
import psutil

from consumer.spark.query import set_environment
from deploy.embedded.ports import pick_port
from deploy.embedded.service import Service
from deploy.fetch.ivy import find_pyspark_jars
from deploy.fetch.java import find_java
from tests.kits.running import saying

EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"


class _Member(Service):
    """A process of the cluster; `port` is its RPC port, `ui` its web page. `logs`: folder of its log, which
    stays."""

    def __init__(self, logs: Path) -> None:
        super().__init__(log=logs / f"{self.kind}.log")
        self.ui = pick_port()

    @classmethod
    def read_version(cls) -> str:
        return metadata.version("pyspark")

    @property
    def state(self) -> dict[str, Any]:
        """What its web page says of it. Raises httpx.HTTPError while it does not answer."""
        answer = httpx.get(f"http://{self.host}:{self.ui}/json/", timeout=5, trust_env=False)
        found: dict[str, Any] = answer.raise_for_status().json()
        return found

    def _prepare_data(self) -> None:
        self.home.data.mkdir()
        self.process.environment |= {
            "SPARK_HOME": str(find_pyspark_jars().parent),
            "SPARK_SCALA_VERSION": "2.13",  # else a Worker looks for Spark's build folders to learn it
            "SPARK_LOCAL_DIRS": str(self.home.data),
        }
        set_environment(self.process.environment)  # executors inherit it, and import this source tree

    def _java(self, main: str, *arguments: str) -> list[str | Path]:
        small = (
            "-Xmx256m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            f"-Djava.io.tmpdir={self.home.data}",
        )
        own = ("--host", self.host, "--port", str(self.port), "--webui-port", str(self.ui))
        return [find_java(), *small, "-cp", f"{find_pyspark_jars()}/*", main, *own, *arguments]


class Master(_Member):
    """Spark's Master; `url` is what `spark.master` names."""

    kind = "spark-master"

    @property
    def url(self) -> str:
        return f"spark://{self.host}:{self.port}"

    def _build_command(self) -> list[str | Path]:
        return self._java("org.apache.spark.deploy.master.Master")

    def _probe_server(self) -> None:
        if (status := self.state["status"]) != "ALIVE":
            raise ConnectionError(f"the Master is {status}")


class Worker(_Member):
    """Spark's Worker, ready once its Master knows it. Executors are its children."""

    kind = "spark-worker"

    def __init__(self, logs: Path, master: Master) -> None:
        super().__init__(logs)
        self._master = master

    def executors(self) -> list[psutil.Process]:
        return saying(self.family(), EXECUTOR)

    def family(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def stop(self) -> None:
        """As any service; executors, and the Python they started, have then ended as well."""
        family = self.family() if self.running else []
        super().stop()
        for process in psutil.wait_procs(family, timeout=10)[1]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    def _build_command(self) -> list[str | Path]:
        own = ("--cores", "4", "--memory", "2g", "--work-dir", str(self.home.data))
        return self._java("org.apache.spark.deploy.worker.Worker", *own, self._master.url)

    def _probe_server(self) -> None:
        if not self._master.state["aliveworkers"]:
            raise ConnectionError("the Master does not know the Worker yet")


@contextlib.contextmanager
def spark_cluster(logs: Path) -> Iterator[tuple[Master, Worker]]:
    with Master(logs) as master, Worker(logs, master) as worker:
        yield master, worker
