"""`rowlock copy`: requests a copy of one table from the leading coordinator, and shows the progress of
copies.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import click
from rich.table import Table

from coordinator.server.operators.copies import CopyRefusedError
from rowlock.commands.options import FINDING, FINE, complete_printed_commands, read_config_to_change
from rowlock.commands.reasons import Reason, print_reasons
from rowlock.commands.tables import (
    escape_markup,
    format_copied_rows,
    format_duration,
    format_since,
    make_console,
    make_table,
)
from rowlock.coordinator.leader_client import COPY_REQUEST_TIMEOUT_S, LeaderClient
from rowlock.coordinator.units import list_apply_units
from rowlock.errors import CommandError
from rowlock.inspect.observed.unit_goals import UnitGoals, wait_for_goals
from rowlock.views.copy_desk import parse_table_name
from rowlock.views.kafka import KafkaView
from rowlock.views.server_versions import yield_unsupported_servers
from schemas.clock import read_clock_ms
from schemas.config.model import Config, load_config
from schemas.patience import AdaptiveTimeout, scale_timeout
from schemas.table.names import find_meant_tables
from schemas.table.patterns import is_selected_by_patterns

COPY_POLL_S = 1.0
APPLY_STALLED_S = 120.0
"""`--wait` ends after this many seconds in which no target has applied anything of the copy."""
_OVER = ("done", "refused", "cancelled")
CopyJson = dict[str, Any]


def post_copy_request(
    config_file: Path, body: CopyJson, what: Literal["", "cancel", "rate"], output: str
) -> CopyJson:
    """Send the request and print a confirmation. Raises CommandError with the refusal.

    `what`: "cancel" cancels the copy, "rate" changes its rate, "" requests one.
    """
    config = read_config_to_change(config_file)
    if not what:
        _require_supported(config, str(body["table"]), body.get("source"))
    with LeaderClient.from_config(config) as leader:
        post = leader.post_new if what == "rate" else leader.post
        timeout = scale_timeout(COPY_REQUEST_TIMEOUT_S)
        taken = post(f"/v1/copies/{what}".rstrip("/"), body, timeout=timeout)
    rate = body.get("max_rows_per_second")
    outcome = {
        "": "is copied again: `rowlock copy` shows the progress, and a refusal",
        "cancel": "the copy is cancelled",
        "rate": "the copy continues "
        f"{f'at {rate:,} rows a second at most' if rate else 'as fast as the source gives rows'}",
    }[what]
    if output == "table":
        click.echo(f"{taken['table']} of {taken['source']}: {outcome}")
        complete_printed_commands(outcome)
    return taken


def _require_supported(config: Config, table: str, source: str | None) -> None:
    """Raise CommandError if rowlock does not support the version of the table's source or of one of its
    targets.
    """
    try:
        place = parse_table_name(table)
    except CopyRefusedError:
        return  # the leader refuses it
    named = config.sources if source is None else config.sources.keys() & {source}
    having = [name for name in named if is_selected_by_patterns(config.sources[name].tables, *place)]
    if refused := list(yield_unsupported_servers(config, having)):
        raise CommandError("\n".join(refused))


def show_copies(config_file: Path, output: str) -> int:
    """Show the last request of each table. Returns the exit code: 1 if one is refused."""
    with LeaderClient.from_config(load_config(config_file)) as leader:
        rows = _fetch_copies(leader)
    if output == "json":
        click.echo(json.dumps({"version": 1, "copies": rows}))
    elif rows:
        out = make_console()
        out.print(build_copies_table(rows, read_clock_ms()))
        print_reasons(out, (Reason(row["table"], row["reason"], "") for row in rows))
    else:
        click.echo("no table has been copied again within the last day")
    return FINDING if any(row["phase"] == "refused" for row in rows) else FINE


def wait_for(config_file: Path, request: str, output: str) -> int:
    """Show the progress of a request until the targets have applied the copy. Returns the exit code: 0 only
    then.
    """
    last, row = "", None
    config = load_config(config_file)
    with LeaderClient.from_config(config) as leader:
        while True:
            found = next((each for each in _fetch_copies(leader) if each["id"] == request), None)
            if found is None and row is not None:
                click.echo(f"{row['table']}: another copy of it was requested meanwhile", err=True)
                return FINDING
            row = found
            line = format_copy_progress(row)
            if line != last:
                click.echo(line, err=True)
            last = line
            if row is not None and row["phase"] in _OVER:
                break
            time.sleep(COPY_POLL_S)
    is_done = row["phase"] == "done" and _wait_until_applied(config, row)
    if output == "json":
        click.echo(json.dumps({"version": 1, "copies": [row]}))
    return FINE if is_done else FINDING


def _wait_until_applied(config: Config, row: CopyJson) -> bool:
    """Wait until all targets have applied a copy that capture has published. Returns whether they have."""
    with contextlib.closing(KafkaView(config.kafka)) as kafka:
        topics = kafka.list_topics()
        assigned = kafka.read_topic_tables([row["source"]], topics)
        units = [
            unit
            for unit in list_apply_units(config, topics, assigned)
            if unit.source == row["source"] and unit.table in find_meant_tables(row["table"])
        ]
        targets = ", ".join(sorted({unit.target for unit in units}))
        if units:
            click.echo(f"{row['table']}: published; waiting until {targets} has applied it", err=True)
        ends = {unit: kafka.read_span(unit.topic).high for unit in units}
        problem = wait_for_goals(UnitGoals(config, kafka), ends, AdaptiveTimeout(APPLY_STALLED_S))
    outcome = f"applied to {targets}" if problem is None else f"published, but not applied yet: {problem}"
    if units:
        click.echo(f"{row['table']}: {outcome}", err=True)
    return problem is None


def _fetch_copies(leader: LeaderClient) -> list[CopyJson]:
    found: list[CopyJson] = leader.get("/v1/copies")["copies"]
    return found


def format_copy_progress(row: CopyJson | None) -> str:
    """Return one line about a copy; None: capture has not received the request yet, or a later request
    has replaced it.
    """
    if row is None:
        return "waiting for capture to take the request"
    if row["phase"] in ("refused", "cancelled"):
        return f"{row['table']}: {row['phase']}: {row['reason']}"
    left = f", about {format_duration(row['eta_s'])} left" if row["eta_s"] is not None else ""
    return f"{row['table']}: {row['phase']}, {format_copied_rows(row['rows'], row['estimate'])}{left}"


def build_copies_table(rows: Sequence[CopyJson], now_ms: int) -> Table:
    """Return the table that `rowlock copy` shows."""
    table = make_table("source", "table", "phase", "rows", "left", "asked by", "asked")
    for row in rows:
        by = f"{row['by']} ({row['cause']})" if row["cause"] else row["by"]
        left = "" if row["eta_s"] is None else format_duration(row["eta_s"])
        cells = (
            row["source"], row["table"], row["phase"], format_copied_rows(row["rows"], row["estimate"]), left,
            by, format_since(row["requested_ms"], now_ms),
        )  # fmt: skip
        table.add_row(*(escape_markup(cell) for cell in cells))
    return table
