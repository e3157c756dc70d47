"""`python -m deploy.embedded up|fetch`: services for work by hand."""

from __future__ import annotations

import argparse
import json
import shlex
import signal
import sys
from pathlib import Path

from deploy.embedded.ports import HOST, is_free
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
from deploy.fetch.progress import print_step

USUAL_KAFKA_PORT = 9092
"""The port that `rowlock init` proposes, too."""


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m deploy.embedded", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("fetch", help="download the servers and jars that are missing")
    up = commands.add_parser(
        "up",
        help="start services for a trial on this machine",
        description="Start services for a trial on this machine, and download what is missing first. The "
        "command prints each step to stderr, then where the services are (as JSON if the output is not a "
        "terminal), and stays until Ctrl-C or SIGTERM, which ends the services and removes their data (but "
        "see --keep).",
    )
    up.add_argument("--kafka", action="store_true", help="start a Kafka broker")
    up.add_argument(
        "--port",
        type=int,
        metavar="N",
        help=f"the port of the Kafka broker; 0 is any free port  [default: {USUAL_KAFKA_PORT}]",
    )
    up.add_argument(
        "--keep",
        type=Path,
        metavar="DIR",
        help="keep Kafka's data in this folder, and continue with them at the next start that names it",
    )
    up.add_argument(
        "--mariadb", type=int, default=0, metavar="N", help="start N MariaDB servers on free ports"
    )
    up.add_argument("--postgres", action="store_true", help="start a PostgreSQL server on a free port")
    up.add_argument(
        "--mysql",
        action="store_true",
        help="start a MySQL server on a free port (needs root and debootstrap)",
    )
    arguments = parser.parse_args()
    if arguments.command == "up":
        _require_usable(up, arguments)
    return arguments


def _require_usable(up: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """End with exit code 2 unless the options fit together."""
    if not (arguments.kafka or arguments.mariadb > 0 or arguments.postgres or arguments.mysql):
        up.error("name a service, such as --kafka")
    if not arguments.kafka and (arguments.port is not None or arguments.keep is not None):
        up.error("--port and --keep are options of the Kafka broker: add --kafka")
    if arguments.port is not None and not 0 <= arguments.port < 65536:
        up.error(f"--port {arguments.port} is no port: name one from 1 to 65535, or 0 for any free one")


def _fetch_services() -> None:
    for kind in (Kafka, MariaDB, PostgreSQL):
        kind.fetch()
        print_step(f"{kind.kind} {kind.read_version()} is on this machine")
    try:
        MySQL.fetch()
    except EmbeddedError as error:  # only tests on MySQL need it, and they are skipped then
        print(f"MySQL is left out: {error.seen}", file=sys.stderr)


def _select_services(arguments: argparse.Namespace) -> dict[str, Service]:
    selected: dict[str, Service] = {}
    if arguments.kafka:
        selected["kafka"] = _prepare_kafka(arguments.port, arguments.keep)
    for number in range(1, arguments.mariadb + 1):
        selected[f"mariadb{number}"] = MariaDB()
    if arguments.postgres:
        selected["postgres"] = PostgreSQL()
    if arguments.mysql:
        selected["mysql"] = MySQL()
    return selected


def _prepare_kafka(port: int | None, folder: Path | None) -> Kafka:
    """Return the broker, not started. `port` None: the usual one; 0: any. `folder` None: its data are removed
    at the end.

    Raises EmbeddedError if it could not be started there; a download before that would be in vain.
    """
    chosen = USUAL_KAFKA_PORT if port is None else port
    if chosen and not is_free(chosen):
        raise EmbeddedError(
            f"port {chosen} on {HOST}",
            "another process listens there already, and Kafka was to have this port",
            "if that process is a Kafka broker, use it for the trial; otherwise stop it, or name another "
            "port with --port",
        )
    if folder is not None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise EmbeddedError(
                f"the folder {folder}",
                f"it cannot be used ({error.strerror})",
                "name another one with --keep",
            ) from error
    return Kafka(port=chosen or None, home=folder)


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
    return "\n".join([*lines, *_describe_end(services)])


def _describe_end(services: dict[str, Service]) -> list[str]:
    """Return what Ctrl-C does to the data."""
    kafka = services.get("kafka")
    kept = None if kafka is None else kafka.home.given
    if kept is None:
        end = "Ctrl-C ends everything above and removes its data."
        hint = "`--keep DIR` keeps Kafka's data for the next start; without them every table is copied again."
        return [end] if kafka is None else [end, hint]
    others = " and removes the data of all others" if len(services) > 1 else ""
    return [
        f"Ctrl-C ends everything above{others}. Kafka's data stay:",
        f"`--keep {shlex.quote(str(kept))}` at the next start continues with them.",
    ]


def _run_services(services: dict[str, Service]) -> None:
    for service in services.values():
        service.report_steps(print_step)
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
