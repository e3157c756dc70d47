"""The common part of all commands: exit codes, options, the configuration file, and the conversion of errors
to messages.

Modules that only a running or a failed command needs are imported there, so that `--help` is quick.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
from click.core import ParameterSource

if TYPE_CHECKING:
    from schemas.config.model import Config

FINE, FINDING, ERROR = 0, 1, 2
LOG_FORMAT_VARIABLE = "ROWLOCK_LOG"
"""The environment variable that chooses the format of the log; `--log-format` sets it."""
CONFIG_VARIABLE = "ROWLOCK_CONFIG"
"""The environment variable that names the configuration file where no `-c` does."""
DEFAULT_CONFIG_FILE = Path("rowlock.yaml")
"""The configuration file where neither `-c` nor the variable names one."""


def _choose_config_file(context: click.Context, _: click.Parameter, named: Path | None) -> Path | None:
    """Return the configuration file of a command: `named` by `-c` or the variable, else the default.

    Ends the command with exit code 2 if there is none.
    """
    if context.resilient_parsing:  # a shell completes the command
        return named
    if named is None and not DEFAULT_CONFIG_FILE.exists():
        fail_command(
            f"there is no configuration: neither -c FILE nor {CONFIG_VARIABLE} names one, and "
            f"{DEFAULT_CONFIG_FILE.absolute()} does not exist; write that file with `rowlock init`, or name "
            f"yours with -c FILE or {CONFIG_VARIABLE} (an example: {_find_example_file()})"
        )
    by_variable = context.get_parameter_source("config_file") is ParameterSource.ENVIRONMENT
    if named is not None and by_variable and not named.exists():
        fail_command(
            f"{CONFIG_VARIABLE} names the configuration {named}, which does not exist; correct "
            f"{CONFIG_VARIABLE}, or give -c FILE"
        )
    return named or DEFAULT_CONFIG_FILE


def _find_example_file() -> Path:
    import deploy

    return Path(deploy.__file__).with_name("config.example.yaml")


config_option = click.option(
    "-c",
    "--config",
    "config_file",
    envvar=CONFIG_VARIABLE,
    callback=_choose_config_file,
    metavar="FILE",
    type=click.Path(path_type=Path),
    help=f"The configuration [default: ${CONFIG_VARIABLE}, else ./{DEFAULT_CONFIG_FILE}].",
)
handed_option = click.option(
    "--handed",
    type=int,
    hidden=True,
    help="Descriptor at which `rowlock run` has handed the configuration over.",
)


def _choose_log_format(_: click.Context, __: click.Parameter, chosen: str | None) -> None:
    """Choose the format for this process and those that it starts, which read the variable."""
    if chosen is not None:
        os.environ[LOG_FORMAT_VARIABLE] = chosen


log_format_option = click.option(
    "--log-format",
    type=click.Choice(["console", "json"]),
    expose_value=False,
    callback=_choose_log_format,
    help="Lines for people, or JSON [default: for people on a terminal].",
)
output_option = click.option(
    "--output", type=click.Choice(["table", "json"]), default="table", show_default=True
)


def read_config(config_file: Path) -> Config:
    """Return the configuration of a command. Raises ConfigErrors."""
    from schemas.config.model import load_config

    return load_config(config_file)


def read_config_to_change(config_file: Path) -> Config:
    """Return the configuration of a command that changes something. Raises ConfigErrors.

    Unless `-c` named the file, it is printed on stderr: the variable may be set for another system than
    that of the current folder.
    """
    config = read_config(config_file)
    context = click.get_current_context(silent=True)
    named_by = context and context.get_parameter_source("config_file")
    if named_by is ParameterSource.ENVIRONMENT:
        click.echo(f"rowlock: using {config.path.absolute()} ({CONFIG_VARIABLE})", err=True)
    elif named_by is ParameterSource.DEFAULT:
        click.echo(f"rowlock: using {config.path.absolute()} (the current folder)", err=True)
    return config


def fail_command(message: str) -> NoReturn:
    """End the command with exit code 2 and a message on stderr."""
    for line in message.splitlines():
        click.echo(f"rowlock: {line}", err=True)
    complete_printed_commands(message)
    sys.exit(ERROR)


def complete_printed_commands(*printed: str) -> None:
    """Print the option that the commands in the texts `printed` need, if this command needed it.

    A remedy names no configuration file: the process that wrote it may run on another machine.
    """
    context = click.get_current_context(silent=True)
    if context is None or not (needed := _name_needed_option(context)):
        return
    root = context.find_root().command
    names = filter_configured(root.commands) if isinstance(root, click.Group) else ()
    command = re.compile(rf"\browlock ({'|'.join(map(re.escape, names))})\b")
    if any(command.search(text) for text in printed):
        click.echo(f"rowlock: add {needed} to the commands above", err=True)


def filter_configured(commands: Mapping[str, click.Command]) -> list[str]:
    """Return the names of the commands that have the option `-c`, and of groups with such commands."""
    return [
        name
        for name, command in commands.items()
        if isinstance(command, click.Group) or any(each.name == "config_file" for each in command.params)
    ]


def _name_needed_option(context: click.Context) -> str:
    """Return the `-c FILE` without which the next command would take another file; "": it is not needed."""
    if context.get_parameter_source("config_file") is not ParameterSource.COMMANDLINE:
        return ""
    return name_config_option(context.params["config_file"])


def name_config_option(file: Path) -> str:
    """Return the `-c FILE` with which a command takes this configuration; "": it does without."""
    default = Path(os.environ.get(CONFIG_VARIABLE) or DEFAULT_CONFIG_FILE)
    return "" if file.absolute() == default.absolute() else f"-c {shlex.quote(str(file))}"


def report_command_errors(command: Callable[..., Any]) -> Callable[..., Any]:
    """Run a command with logging as `--log-level` asks, and convert its expected errors to one message and
    exit code 2.
    """

    @wraps(command)
    def run_command(*args: Any, **kwargs: Any) -> Any:
        from rowlock.processes.log import configure_logging

        configure_logging(click.get_current_context().obj or "info")
        try:
            return command(*args, **kwargs)
        except KeyboardInterrupt:
            fail_command("interrupted")
        except Exception as error:
            from rowlock.commands.expected_errors import explain_expected_error

            if (message := explain_expected_error(error)) is None:
                raise
            fail_command(message)

    return run_command
