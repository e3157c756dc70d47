"""The common part of all commands: exit codes, options, and the conversion of errors to messages."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, NoReturn

import click

from rowlock.commands.server_errors import explain_server_error
from rowlock.errors import CommandError
from schemas.config.model import ConfigErrors

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
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except (ConfigErrors, CommandError) as error:
            fail_command(str(error))
        except KeyboardInterrupt:
            fail_command("interrupted")
        except Exception as error:
            if (sentence := explain_server_error(error)) is None:
                raise
            fail_command(sentence)

    return wrapper
