"""`python -m deploy.embedded up|fetch`: services for work by hand."""

from __future__ import annotations

import argparse
import json
import shlex
import signal
import sys

from deploy.embedded.services import (
    Kafka,
    MariaDB,
    MySQL,
    PostgreSQL,
    Service,
    combine_services,
    terminate_cleanly,
)
from deploy.errors import EmbeddedError
from deploy.fetch.downloads import fetch_spark_kafka_jars


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m deploy.embedded", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("fetch", help="download the servers and jars that are missing")
    up = commands.add_parser("up", help="start services, print their ports as JSON, stay until Ctrl-C")
    up.add_argument("--kafka", action="store_true")
    up.add_argument("--mariadb", type=int, default=0, metavar="N", help="how many MariaDB servers")
    up.add_argument("--postgres", action="store_true")
    up.add_argument("--mysql", action="store_true")
    return parser.parse_args()


def _fetch_services() -> None:
    for kind in (Kafka, MariaDB, PostgreSQL):
        kind.fetch()
    fetch_spark_kafka_jars()
    try:
        MySQL.fetch()
    except EmbeddedError as error:  # only tests on MySQL need it, and they are skipped then
        print(f"MySQL is left out: {error.seen}", file=sys.stderr)


def _select_services(arguments: argparse.Namespace) -> dict[str, Service]:
    selected: dict[str, Service] = {}
    if arguments.kafka:
        selected["kafka"] = Kafka()
    for number in range(1, arguments.mariadb + 1):
        selected[f"mariadb{number}"] = MariaDB()
    if arguments.postgres:
        selected["postgres"] = PostgreSQL()
    if arguments.mysql:
        selected["mysql"] = MySQL()
    return selected


def _describe_service(service: Service) -> dict[str, str | int]:
    user = {"user": service.user} if isinstance(service, MariaDB | MySQL | PostgreSQL) else {}
    client: dict[str, str] = {}
    if isinstance(service, MariaDB | PostgreSQL):
        client["client"] = shlex.join(service.build_shell_command("")[:-1])  # the database comes last
    return {
        "host": service.host,
        "port": service.port,
        **user,
        **client,
        "pid": service.process.pid,
        "log": str(service.home.log),
    }


def _run_services(services: dict[str, Service]) -> None:
    with terminate_cleanly(), combine_services(*services.values()):
        print(
            json.dumps({name: _describe_service(each) for name, each in services.items()}, indent=2),
            flush=True,
        )
        signal.pause()


def main() -> int:
    arguments = _parse_arguments()
    try:
        if arguments.command == "fetch":
            _fetch_services()
        else:
            _run_services(_select_services(arguments))
    except EmbeddedError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
