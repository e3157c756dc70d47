"""`rowlock spark`: archives of rowlock for executors on other machines, and of Java classes for this one."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rowlock.commands.help import CommandGroup
from rowlock.commands.options import report_command_errors
from rowlock.errors import CommandError

if TYPE_CHECKING:
    from rowlock.spark_package.contents import Manifest

DEFAULT_ARCHIVE = Path("rowlock-spark.tar.gz")
OWN_PYTHON = "python{}.{}".format(*sys.version_info)
MEGABYTE = 1_000_000


@click.group(cls=CommandGroup)
def spark() -> None:
    """Prepare the executors of Spark on other machines, and its start on this one."""


@spark.command()
@click.option(
    "--output",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    default=DEFAULT_ARCHIVE,
    show_default=True,
    help="The archive, *.tar.gz; an existing one is replaced.",
)
@click.option(
    "--python",
    metavar="COMMAND",
    default=OWN_PYTHON,
    help=f"Command that starts Python on the executors' hosts.  [default: {OWN_PYTHON}, as here]",
)
@report_command_errors
def package(output: Path, python: str) -> None:
    """Write one archive with rowlock and all that it needs on Spark's executors.

    It contains the files that are installed here, for the same version of Python and the same kind of
    machine. Nothing is downloaded. PySpark is not in it, because executors have Spark's own.
    """
    from rowlock.spark_package.archive import require_archive_name, write_archive
    from rowlock.spark_package.installed import list_files, list_needed_distributions, read_manifest

    require_archive_name(output)
    _require_same_version(python)
    distributions = list_needed_distributions()
    manifest = read_manifest(distributions)
    files = list_files(distributions)
    click.echo(f"rowlock: packing {len(files):,} files of {len(distributions)} distributions", err=True)
    write_archive(output, files, manifest)
    click.echo("\n".join(format_written_lines(output, output.stat().st_size, python, manifest)))


def _require_same_version(python: str) -> None:
    """Raise CommandError if the name of a Python has another version than this one."""
    named = re.fullmatch(r"python(\d+\.\d+)", Path(python).name)
    if named is not None and named[0] != OWN_PYTHON:
        raise CommandError(
            f"--python {python}: the files that are installed here are for {OWN_PYTHON}, and PySpark demands "
            "the same version of agent and executors",
            f"install rowlock with Python {named[1]}, and run the agent and this command there; or give the "
            f"executors' hosts Python {OWN_PYTHON.removeprefix('python')}",
        )


def format_written_lines(output: Path, size: int, python: str, manifest: Manifest) -> list[str]:
    """Return the text about a written archive: its size in bytes, its hosts, and what to configure."""
    hosts = manifest.platform.describe_hosts()
    return [
        f"written: {output} ({size / MEGABYTE:,.0f} MB, rowlock {manifest.rowlock})",
        f"for executors with Python {manifest.python}, Spark {manifest.pyspark}, {hosts}",
        "add to the configuration:",
        "  spark:",
        f"    package: {output.absolute()}",
        f"    python: {python}  # each executor's host needs Python {manifest.python} under this name",
    ]


@spark.command()
@report_command_errors
def prepare() -> None:
    """Archive the Java classes that Spark loads, so that it starts faster on this machine.

    Run it once on each machine that applies, and again after Java or PySpark was replaced. It takes a minute
    or two, and writes 150 MB beside the Python that rowlock runs in.
    """
    # No part of the first start: a second Java would need 1 GiB of memory and half a minute of processor time
    # while the first copies run, and a service often may not write to the folder of its Python.
    import subprocess

    from consumer.spark.class_archive import archive_file, make_class_archive

    try:
        made = make_class_archive()
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        raise CommandError(
            f"there is no archive of Spark's classes: {error}",
            "Spark works without it; for a faster start, run this command as a user that may write to "
            f"{archive_file().parent}",
        ) from error
    click.echo(f"{'made' if made else 'up to date:'} {archive_file()}")
