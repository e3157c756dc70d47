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
    up = commands.add_parser(
        "up",
        help="start services, print where they are (as JSON if the output is not a terminal), and stay until "
        "Ctrl-C, which removes them and their data",
    )
    up.add_argument("--kafka", action="store_true")
    up.add_argument("--mariadb", type=int, default=0, metavar="N", help="how many MariaDB servers")
    up.add_argument("--postgres", action="store_true")
    up.add_argument("--mysql", action="store_true")
    arguments = parser.parse_args()
    if arguments.command == "up" and not _select_services(arguments):
        up.error("name a service, such as --kafka")
    return arguments


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


def _render_client(service: MariaDB | PostgreSQL) -> str:
    """Return the command that opens the server; the name of a database may follow."""
    return shlex.join(service.build_shell_command("")[:-1])


def _describe_service(service: Service) -> dict[str, str | int]:
    user = {"user": service.user} if isinstance(service, MariaDB | MySQL | PostgreSQL) else {}
    client: dict[str, str] = {}
    if isinstance(service, MariaDB | PostgreSQL):
        client["client"] = _render_client(service)
    return {
        "host": service.host,
        "port": service.port,
        **user,
        **client,
        "pid": service.process.pid,
        "log": str(service.home.log),
    }


def _render_services(services: dict[str, Service]) -> str:
    """Return what a person needs to use the running services."""
    lines = []
    for name, service in services.items():
        lines.append(f"{name}: {service.kind} {service.read_version()} runs")
        if isinstance(service, Kafka):
            lines.append(f"  bootstrap: {service.bootstrap}")
        else:
            lines.append(f"  host: {service.host}, port: {service.port}")
        if isinstance(service, MariaDB | MySQL | PostgreSQL):
            lines.append(f"  user: {service.user}, without a password")
        if isinstance(service, MariaDB | PostgreSQL):
            lines.append(f"  client: {_render_client(service)}")
        lines.append(f"  data and log: {service.home.folder}")
    return "\n".join([*lines, "Ctrl-C ends everything above and removes its data."])


def _run_services(services: dict[str, Service]) -> None:
    with terminate_cleanly(), combine_services(*services.values()):
        if sys.stdout.isatty():
            print(_render_services(services), flush=True)
        else:
            described = {name: _describe_service(each) for name, each in services.items()}
            print(json.dumps(described, indent=2), flush=True)
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
