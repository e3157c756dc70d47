"""`rowlock copy`: ask the coordinator that leads for a copy of one table, and show how far copies are."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import click
from rich.table import Table

from coordinator.server.operators.copies import CopyRefusedError
from rowlock.commands.options import FINDING, FINE
from rowlock.commands.tables import console, copied_rows, plain, seconds, since
from rowlock.coordinator.leader_client import LeaderClient
from rowlock.errors import CommandError
from rowlock.views.copy_desk import table_name
from rowlock.views.support import unsupported_on_the_way
from schemas.config.model import Config, load_config
from schemas.table.patterns import selects

LOOK_S = 1.0
_OVER = ("done", "refused", "cancelled")
Json = dict[str, Any]


def ask(config_file: Path, body: Json, what: Literal["", "cancel", "rate"]) -> Json:
    """Send the request and say that it came; `what`: the copy is taken back, or its rate is another one. Raises CommandError with what was refused."""
    config = load_config(config_file)
    if not what:
        _require_supported(config, str(body["table"]), body.get("source"))
    with LeaderClient.of(config) as leader:
        post = leader.post_new if what == "rate" else leader.post
        taken = post(f"/v1/copies/{what}".rstrip("/"), body)
    rate = body.get("max_rows_per_second")
    said = {
        "": "is copied again: `rowlock copy` shows how far it is",
        "cancel": "the copy is taken back",
        "rate": f"the copy goes on {f'at {rate:,} rows a second at most' if rate else 'as fast as the source gives rows'}",
    }[what]
    click.echo(f"{taken['table']} of {taken['source']}: {said}")
    return taken


def _require_supported(config: Config, table: str, source: str | None) -> None:
    """Raise CommandError where the table's source, or a target of it, is of a version that rowlock does not support."""
    try:
        place = table_name(table)
    except CopyRefusedError:
        return  # the leader refuses it
    named = config.sources if source is None else config.sources.keys() & {source}
    having = [name for name in named if selects(config.sources[name].tables, *place)]
    if refused := list(unsupported_on_the_way(config, having)):
        raise CommandError("\n".join(refused))


def listing(config_file: Path, output: str) -> int:
    """Show the last request of each table. Returns the exit code: 1 where one is refused."""
    with LeaderClient.of(load_config(config_file)) as leader:
        rows = _rows(leader)
    if output == "json":
        click.echo(json.dumps({"version": 1, "copies": rows}))
    elif rows:
        console().print(copies_table(rows, time.time_ns() // 1_000_000))
    else:
        click.echo("no table has been copied again within the last day")
    return FINDING if any(row["phase"] == "refused" for row in rows) else FINE


def wait_for(config_file: Path, request: str, output: str) -> int:
    """Show how far a request is until it is over. Returns the exit code: 0 only when the copy is complete."""
    last, row = "", None
    with LeaderClient.of(load_config(config_file)) as leader:
        while True:
            found = next((each for each in _rows(leader) if each["id"] == request), None)
            if found is None and row is not None:
                click.echo(f"{row['table']}: somebody has asked for another copy of it since", err=True)
                return FINDING
            row = found
            line = progress_line(row)
            if line != last:
                click.echo(line, err=True)
            last = line
            if row is not None and row["phase"] in _OVER:
                break
            time.sleep(LOOK_S)
    if output == "json":
        click.echo(json.dumps({"version": 1, "copies": [row]}))
    return FINE if row["phase"] == "done" else FINDING


def _rows(leader: LeaderClient) -> list[Json]:
    found: list[Json] = leader.get("/v1/copies")["copies"]
    return found


def progress_line(row: Json | None) -> str:
    """Return one line about a copy; None: capture has not taken the request yet, or another one came behind it."""
    if row is None:
        return "waiting for capture to take the request"
    if row["phase"] in ("refused", "cancelled"):
        return f"{row['table']}: {row['phase']}: {row['reason']}"
    left = f", about {seconds(row['eta_s'])} left" if row["eta_s"] is not None else ""
    return f"{row['table']}: {row['phase']}, {copied_rows(row['rows'], row['estimate'])}{left}"


def copies_table(rows: Sequence[Json], now_ms: int) -> Table:
    """Return the table that `rowlock copy` shows."""
    ill = any(row["reason"] for row in rows)
    table = Table(
        "source", "table", "phase", "rows", "left", "asked by", "asked", *(("reason",) if ill else ())
    )
    for row in rows:
        by = f"{row['by']} ({row['cause']})" if row["cause"] else row["by"]
        left = "" if row["eta_s"] is None else seconds(row["eta_s"])
        cells = (
            row["source"], row["table"], row["phase"], copied_rows(row["rows"], row["estimate"]), left, by, since(row["requested_ms"], now_ms),
            *((row["reason"],) if ill else ()),
        )  # fmt: skip
        table.add_row(*(plain(cell) for cell in cells))
    return table
