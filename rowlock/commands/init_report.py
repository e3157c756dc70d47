"""The output of `rowlock init`: servers, tables, findings, statements, and what a run will copy."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import click
from rich.table import Table

from rowlock.commands.needed_report import format_needed_changes
from rowlock.commands.options import name_config_option
from rowlock.commands.running_system import describe_living_system
from rowlock.commands.tables import (
    build_findings_table,
    escape_markup,
    format_duration,
    has_errors,
    make_console,
    make_table,
)
from rowlock.coordinator.control_view import find_living_leader
from rowlock.errors import CommandError
from rowlock.inspect.check import list_scoped_findings
from rowlock.inspect.checks.kafka_check import explain_unreached_kafka
from rowlock.inspect.first_config.config_text import ConfigDraft
from rowlock.inspect.first_config.copy_estimate import COPIED_ROWS_PER_S, CopyEstimate
from rowlock.inspect.first_config.new_user import PASSWORD_PLACEHOLDER, list_new_user_statements
from rowlock.inspect.first_config.server_survey import SurveyedServer
from rowlock.inspect.first_config.server_url import ServerUrl, Side
from rowlock.inspect.first_config.table_choice import TableList
from rowlock.views.kafka import KafkaView
from rowlock.views.retention import format_bytes
from schemas.config.addresses import join_address
from schemas.config.model import Config, load_config
from schemas.problems import Problem
from schemas.table.names import format_table_text

SHOWN_TABLES = 200
SHORTEST_SHOWN_S = 60.0
"""The start of Spark alone takes a part of a minute, so a shorter estimate would not be true."""


def describe_server(found: SurveyedServer) -> str:
    version = f" {found.version}" if found.version else ""
    return f"{found.url.kind}{version} at {join_address(found.url.host, found.url.real_port)}"


def show_new_user(side: Side, name: str, url: ServerUrl) -> None:
    """Print how an administrator creates the user of a server that refuses the log-in."""
    if statements := list_new_user_statements(side, url):
        click.echo(
            f"{side} {name}: it refuses user {url.user}. If there is no such user yet, an administrator "
            f"creates it (with a password in place of {PASSWORD_PLACEHOLDER}), and `init` then shows what is "
            "still missing:"
        )
        for each in statements:
            click.echo(f"  {each}")


def show_kafka(config: Config, source: str) -> Problem | None:
    """Print which Kafka cluster it is, and what it already has of the prefix. `source`: the name of the new
    source. If Kafka does not answer, print and return why.
    """
    kafka = config.kafka
    try:
        with closing(KafkaView(kafka)) as view:
            found = view.read_contents()
    except CommandError as error:
        problem = explain_unreached_kafka(kafka, error)
        click.echo(f"kafka: {problem.what}")
        return problem
    brokers = "1 broker" if found.brokers == 1 else f"{found.brokers} brokers"
    has = "no topics" if not found.topics else f"already {_count_topics(len(found.topics))}"
    captured = f" (sources captured into it: {', '.join(found.sources)})" if found.sources else ""
    click.echo(
        f"kafka: cluster {found.cluster_id} at {kafka.bootstrap}, {brokers}; it has {has} with the prefix "
        f"{kafka.prefix}{captured}"
    )
    if source in found.sources:
        click.echo(
            f"rowlock: warning: a source {source} has been captured there: `rowlock run` goes on from its "
            "stored position. For a system of its own, set another `prefix` under `kafka` in the file",
            err=True,
        )
    if (leader := find_living_leader(kafka)) is not None:
        click.echo(f"rowlock: warning: {describe_living_system(kafka, leader)}", err=True)
    return None


def _count_topics(number: int) -> str:
    return "1 topic" if number == 1 else f"{number:,} topics"


def show_tables(draft: ConfigDraft, listed: TableList, *, are_numbered: bool) -> None:
    """Print the tables that the draft's patterns select at its source. `are_numbered`: a person chooses some
    of them by their numbers.
    """
    if not listed.tables:
        name, patterns = draft.source.name, ", ".join(draft.choice.patterns)
        click.echo(
            f"source {name}: user {draft.source.url.user} sees no table that matches {patterns}: there is "
            "none yet, or the user may not read it"
        )
        return
    make_console().print(_build_list(listed, are_numbered=are_numbered))
    if len(listed.tables) > SHOWN_TABLES:
        click.echo(f"… and {len(listed.tables) - SHOWN_TABLES:,} more")


def _build_list(listed: TableList, *, are_numbered: bool) -> Table:
    has_problems = len(listed.fit) < len(listed.tables)
    table = make_table(
        *(("",) if are_numbered else ()), "table", "rows, about", "size, about",
        *(("cannot be captured",) if has_problems else ()),
    )  # fmt: skip
    numbers = {each.name: str(number) for number, each in enumerate(listed.fit, 1)}
    for each in listed.tables[:SHOWN_TABLES]:
        cells = (
            *((numbers.get(each.name, ""),) if are_numbered else ()), format_table_text(*each.name),
            f"{each.rows:,}", format_bytes(each.bytes), *((str(each.problem or ""),) if has_problems else ()),
        )  # fmt: skip
        table.add_row(*map(escape_markup, cells))
    return table


def show_check(config_file: Path, listed: TableList, draft: ConfigDraft, unreached: Problem | None) -> bool:
    """Print the findings of `check` about the written file, and what to do next. `unreached`: why Kafka does
    not answer, if that is known.

    Returns whether none of them would stop a run.
    """
    config = load_config(config_file)
    scoped = list_scoped_findings(config, unreached)
    findings = list(dict.fromkeys(each.finding for each in scoped))
    if findings:
        make_console().print(build_findings_table(findings))
    else:
        click.echo("nothing found: ready to run")
    for line in format_needed_changes(config, scoped):
        click.echo(line)
    _show_copy(listed, draft)
    if has_errors(findings):
        click.echo(
            f"next: correct what was found, then {_name_command('check', config_file)}, which may find more: "
            "some things only show once rights are granted and the server has been restarted"
        )
        return False
    click.echo(f"next: {_name_command('run', config_file)}")
    return True


def _name_command(name: str, config_file: Path) -> str:
    """Return the command to type, with the option that it needs for this configuration."""
    return " ".join(filter(None, ("rowlock", name, name_config_option(config_file))))


def _show_copy(listed: TableList, draft: ConfigDraft) -> None:
    chosen = [each for each in listed.list_selected(draft.choice.patterns) if each.problem is None]
    if not chosen:
        click.echo("`rowlock run` copies the tables as soon as they exist and the user may read them")
        return
    copy = CopyEstimate.from_tables(chosen)
    tables = "1 table" if copy.tables == 1 else f"{copy.tables:,} tables"
    rows = "1 row" if copy.rows == 1 else f"{copy.rows:,} rows"
    is_short = copy.duration_s < SHORTEST_SHOWN_S
    duration = "less than a minute" if is_short else f"about {format_duration(copy.duration_s)}"
    size = format_bytes(copy.bytes)
    click.echo(
        f"`rowlock run` copies {tables}, about {rows} ({size}), and then follows their changes. "
        f"The copy takes {duration} at {COPIED_ROWS_PER_S:,} rows a second, as measured on two cores "
        "(MariaDB to PostgreSQL)."
    )
