"""The common part of all commands: exit codes, options, and the conversion of errors to messages.

Expected failures of a command are CommandErrors long before the last handler here
(`_explain_server_error`). Any other error is a fault of rowlock, and keeps its traceback.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, NoReturn

import click

from consumer.errors import ConsumerError
from producer.errors import CaptureError
from rowlock.errors import CommandError
from schemas.config.model import ConfigErrors
from schemas.errors import SchemaError
from schemas.io.server_errors import choose_mysql_remedy, format_mysql_error

FINE, FINDING, ERROR = 0, 1, 2

config_option = click.option(
    "-c",
    "--config",
    "config_file",
    required=True,
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="The configuration.",
)
handed_option = click.option(
    "--handed",
    type=int,
    hidden=True,
    help="Descriptor at which `rowlock run` has handed the configuration over.",
)
output_option = click.option(
    "--output", type=click.Choice(["table", "json"]), default="table", show_default=True
)


def fail_command(message: str) -> NoReturn:
    """End the command with exit code 2 and a message on stderr."""
    for line in message.splitlines():
        click.echo(f"rowlock: {line}", err=True)
    sys.exit(ERROR)


def report_command_errors(command: Callable[..., Any]) -> Callable[..., Any]:
    """Convert the expected errors of a command to one message and exit code 2."""

    @wraps(command)
    def run_command(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except (ConfigErrors, CommandError) as error:
            fail_command(str(error))
        except KeyboardInterrupt:
            fail_command("interrupted")
        except Exception as error:
            if (sentence := _explain_server_error(error)) is None:
                raise
            fail_command(sentence)

    return run_command


#: Packages with exceptions that are answers of a server.
_DRIVERS = frozenset({"pymysql", "psycopg", "oracledb", "sqlalchemy", "confluent_kafka", "cimpl"})


def _explain_server_error(error: Exception) -> str | None:
    """Return the message for a person; None: the error is a fault of rowlock itself."""
    if isinstance(error, (ConsumerError, CaptureError, SchemaError)):
        return str(error)
    packages = {kind.__module__.partition(".")[0] for kind in type(error).__mro__}
    if packages.isdisjoint(_DRIVERS):
        return None
    if "pymysql" in packages:
        return (
            f"a database refuses what rowlock asks: {format_mysql_error(error)}: {choose_mysql_remedy(error)}"
        )
    words = " ".join(str(error).split())
    return f"a server refuses what rowlock asks: {words} ({type(error).__name__}): see the server's log"
