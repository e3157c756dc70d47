"""A run under faults whose slots are in executors on hosts of their own."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from deploy.embedded.ports import pick_port
from deploy.embedded.services import Kafka
from tests.faults.pulse import Pulse, list_statements
from tests.faults.whole_system import RunUnderFaults
from tests.kits.running import ACCOUNTS, HERE, Program
from tests.kits.whole_run import KINDS, Source, Target, whole_run
from tests.servers.spark_host import HostOptions, SparkHost
from tests.servers.spark_hosts import PYTHON, SparkHosts, admit_hosts, spark_hosts

TOKEN = b"the token of the executors of this test\n"


@dataclass(kw_only=True)
class RunOnHosts(RunUnderFaults):
    """A run with the `cluster` as its Spark. `token`: the file with the executors' token."""

    cluster: SparkHosts
    token: Path
    tables: list[str]
    """The tables beside that of the load, for a Pulse."""

    @property
    def driver_ports(self) -> tuple[int, ...]:
        """The ports at which executors reach the agent."""
        driver = self.parts["spark"]["driver"]
        return driver["port"], driver["block_manager_port"], driver["channel_port"]

    def list_open_hosts(self) -> list[str]:
        """Return the hosts whose slots are open, by the log."""
        open_slots: dict[int, str] = {}
        for line in self.read_log():
            if line["event"] == "slot opened":
                open_slots[line["slot"]] = line["host"]
            elif line["event"] == "slot lost":
                open_slots.pop(line["slot"], None)
            elif line["event"] == "process started" and "apply" in str(line.get("child")):
                open_slots.clear()
        return sorted(open_slots.values())

    def read_log(self) -> list[dict[str, Any]]:
        """Return rowlock's own lines of the log."""
        lines = self.run.log.read_text(errors="replace").splitlines()
        found = []
        for line in lines:
            with contextlib.suppress(ValueError):
                found.append(json.loads(line))
        return [each for each in found if isinstance(each, dict) and "event" in each]

    def until_open(self, *hosts: str) -> None:
        """Await that the slots of exactly these hosts are open, and that each may serve units."""
        self.run.until(
            lambda: self.list_open_hosts() == sorted(hosts) and not self._has_trouble(),
            f"slots on {hosts}",
            300,
        )

    def _has_trouble(self) -> bool:
        """Return whether a slot serves no unit because it could not reach a server a short time ago."""
        now = datetime.now(UTC)
        return any(
            datetime.fromisoformat(line["timestamp"]) + timedelta(seconds=line["retry_in_s"] + 5) > now
            for line in self.read_log()
            if line["event"] == "slot cannot reach a server"
        )

    def measure(self, fault: Callable[[], object], seed: int) -> float:
        """Let `fault` happen under load; afterwards every table of the target is equal, and no row of it was
        seen to go back. Return the longest time in seconds that a change of any table waited since then.
        """
        pulse = Pulse(self.source, self.office, self.db, self.tables)
        pulse.start()
        began: list[float] = []

        def strike() -> None:
            began.append(time.monotonic())
            fault()

        try:
            self.under_load(strike, seed)
            self.run.until(
                lambda: None not in pulse.find_resumption(began[0]).values(), "all tables resume", 120
            )
        finally:
            pulse.stop()
        assert pulse.regressions == []
        longest = max(pulse.find_longest_waits(began[0]).values())
        self.run.until(self.counts_are_equal, "all tables of the target equal the source", 120)
        print(f"\nlongest wait {longest:.1f} s")
        return longest

    def counts_are_equal(self) -> bool:
        """Return whether the tables beside that of the load have the same rows in source and target."""
        return self._read_counts(self.source) == self._read_counts(self.office)

    def until_counts_continue(self) -> None:
        """Await that the changes until now of the tables beside that of the load are in the target."""
        expected = self._read_counts(self.source)

        def have_arrived() -> bool:
            return all(
                seen >= now for seen, now in zip(self._read_counts(self.office), expected, strict=True)
            )

        self.run.until(have_arrived, "all tables continue", 120)

    def _read_counts(self, server: Source | Target) -> list[list[tuple[Any, ...]]]:
        """Return the rows of each table beside that of the load."""
        queries = [f"SELECT id, n FROM {name} ORDER BY id" for name in self.tables]
        return [[tuple(row) for row in server.execute(query, database=self.db)] for query in queries]

    @contextlib.contextmanager
    def lock_counts(self) -> Iterator[None]:
        """Lock the target's rows of the tables beside that of the load: each transaction that changes one
        waits."""
        with contextlib.closing(self.office.connect(self.db)) as connection, connection.cursor() as cursor:
            cursor.execute("BEGIN")
            for name in self.tables:
                cursor.execute(f"SELECT n FROM {name} FOR UPDATE")
            yield
            connection.rollback()

    def list_lines(self, event: str, host: SparkHost, since: datetime) -> list[dict[str, Any]]:
        """Return the lines of the log with this event that name the host, written after `since`."""
        return [
            line
            for line in self.read_log()
            if line["event"] == event
            and line.get("host") == host.name
            and datetime.fromisoformat(line["timestamp"]) > since
        ]

    def build_options(self, **more: Any) -> HostOptions:
        return build_host(self.token, **more)


def build_host(token: Path, content: bytes = TOKEN, **more: Any) -> HostOptions:
    """Return the options of a host that has `content` in the token's file, and one core: for one slot."""
    files = {token: content, **more.pop("files", {})}
    return HostOptions(files=files, **{"cores": 1, **more})


def make_package(folder: Path) -> Path:
    """Return the archive that executors get."""
    package = folder / "rowlock-spark.tar.gz"
    made = HERE.call("spark", "package", "--output", str(package), "--python", Path(PYTHON).name)
    assert made.returncode == 0, made.stderr
    return package


@contextlib.contextmanager
def run_on_hosts(
    folder: Path,
    package: Path | None,
    source: Source,
    broker: Kafka,
    office: Target,
    database: str,
    *,
    tables: int = 7,
    hosts: list[HostOptions] | None = None,
    encrypted: bool = True,
    configure: Callable[[RunOnHosts], None] = lambda _: None,
    **spark: Any,
) -> Iterator[RunOnHosts]:
    """Start a run with two hosts; it has applied the snapshot. `tables`: beside that of the load;
    `encrypted`: Spark's connections; `configure` may change the configuration; `spark`: more keys of its
    section."""
    token = folder / "executor-token"
    token.write_bytes(TOKEN)
    options = build_host(token)
    with spark_hosts(
        folder, *(hosts or (options, options)), encrypted=encrypted, settings={"spark.worker.timeout": "10"}
    ) as cluster:
        cluster.expose(broker.port, office.port, source.port)
        admit_hosts(office)
        schema = "public" if KINDS[type(office)] == "postgres" else database
        names = [f"pulse{number}" for number in range(tables)]
        pipeline = {
            "sources": ["branch"], "target": "hq", "lanes": 4,
            "routes": [{"from": f"{database}.*", "to": f"{schema}.{{table}}"}],
        }  # fmt: skip
        with whole_run(
            folder, database, broker, {"branch": source}, {"hq": office}, {"to-hq": pipeline}
        ) as whole:
            made = RunOnHosts(
                **vars(whole), source=source, office=office, broker=broker, cluster=cluster, token=token,
                tables=names,
            )  # fmt: skip
            made.parts["spark"] = build_spark_section(cluster, token, package, **spark)
            if not encrypted:
                made.parts["spark"] |= {"insecure": True}
                for option in ("spark.authenticate", "spark.network.crypto.enabled"):
                    del made.parts["spark"]["options"][option]
            configure(made)
            made.write_parts()
            made.run.program = Program(sys.executable, {"SPARK_CONF_DIR": str(cluster.settings_file.parent)})
            made.change("branch", *ACCOUNTS, *list_statements(names))
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
        "driver": {
            "host": cluster.address,
            "port": pick_port(),
            "block_manager_port": pick_port(),
            "channel_port": pick_port(),
        },
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
