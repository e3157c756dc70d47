"""A Kafka broker: one KRaft process that is broker and controller."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

from confluent_kafka.admin import AdminClient

from deploy.embedded.ports import pick_port
from deploy.embedded.server_process import ServerCommand
from deploy.embedded.service import Service
from deploy.fetch.cache import MB
from deploy.fetch.downloads import KAFKA_RELEASE, fetch_kafka_home
from deploy.fetch.ivy import find_pyspark_jars
from deploy.fetch.java import find_java

_LOG4J = """<Configuration status="WARN"><Appenders><Console name="out">
<PatternLayout pattern="%d %p %c{1} %m%n"/>
</Console></Appenders><Loggers><Root level="WARN"><AppenderRef ref="out"/></Root>
<Logger name="kafka.server" level="INFO"/></Loggers></Configuration>
"""


class Kafka(Service):
    """Kafka 4.1; `bootstrap` is the address for clients."""

    kind = "Kafka"

    def __init__(
        self,
        *,
        port: int | None = None,
        home: Path | None = None,
        extra: Sequence[str] = (),
        min_free: int = 512 * MB,
    ) -> None:
        super().__init__(port=port, home=home, extra=extra, min_free=min_free)
        self.controller_port = pick_port()

    @classmethod
    def fetch(cls) -> None:
        fetch_kafka_home()

    @classmethod
    def read_version(cls) -> str:
        return KAFKA_RELEASE.partition("-")[2]

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    def _prepare_data(self) -> ServerCommand:
        return self._build_java_command(
            "kafka.tools.StorageTool", "format", "-t", uuid4().hex[:22], "-c", self._write_settings()
        )

    def _build_command(self) -> list[str | Path]:
        return self._build_java_command("kafka.Kafka", self._write_settings())

    def _probe_server(self) -> None:
        socket.create_connection((self.host, self.port), timeout=1).close()
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        if not admin.list_topics(timeout=5).brokers:
            raise ConnectionError("the broker is not registered yet")

    def _build_java_command(self, main: str, *arguments: str | Path) -> list[str | Path]:
        """Return a Java command.

        Kafka's jars have no logging back end, so PySpark's comes before them in the class path.
        """
        jars = find_pyspark_jars()
        logging = [str(jar) for jar in jars.glob("*.jar") if jar.name.startswith(("log4j-", "slf4j-api-"))]
        classpath = os.pathsep.join([*logging, f"{fetch_kafka_home()}/*"])
        small = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
        log4j = self.home.folder / "log4j2.xml"
        log4j.write_text(_LOG4J, encoding="utf-8")
        return [
            find_java(),
            *small,
            f"-Dlog4j2.configurationFile={log4j}",
            "-cp",
            classpath,
            main,
            *arguments,
        ]

    def _write_settings(self) -> Path:
        file = self.home.folder / "server.properties"
        file.write_text("\n".join([*self._list_default_settings(), *self.extra, ""]), encoding="utf-8")
        return file

    def _list_default_settings(self) -> list[str]:
        return [
            "process.roles=broker,controller",
            "node.id=1",
            f"controller.quorum.voters=1@{self.host}:{self.controller_port}",
            "controller.listener.names=CONTROLLER",
            f"listeners=BROKER://{self.host}:{self.port},CONTROLLER://{self.host}:{self.controller_port}",
            "listener.security.protocol.map=BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name=BROKER",
            f"log.dirs={self.home.data}",
            "auto.create.topics.enable=false",
            "offsets.topic.replication.factor=1",
            "offsets.topic.num.partitions=4",
            "transaction.state.log.replication.factor=1",
            "transaction.state.log.min.isr=1",
            "transaction.state.log.num.partitions=4",
            "share.coordinator.state.topic.replication.factor=1",
            "share.coordinator.state.topic.min.isr=1",
            # By default the broker looks for hanging transactions every 10 s: too long for a
            # coordinator's takeover.
            "transaction.abort.timed.out.transaction.cleanup.interval.ms=1000",
            # After a kill -9 the restarted broker must wait until the controller gives up its former
            # instance.
            "broker.session.timeout.ms=3000",
            "broker.heartbeat.interval.ms=500",
            "group.initial.rebalance.delay.ms=0",
            "log.cleaner.dedupe.buffer.size=16777216",
            "num.network.threads=2",
            "num.io.threads=4",
        ]
