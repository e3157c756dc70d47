"""Tables of agents, units and pipelines for a terminal. Pure: rows as REST gives them, and the time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from rich.table import Table

from rowlock.commands.tables import plain, seconds
from rowlock.inspect.observed.versions import UNKNOWN, agent_version

Row = dict[str, Any]


def units_table(units: Sequence[Row], now_ms: int) -> Table:
    """Return units with how far they are behind the clock (by source commit time)."""
    table = Table("unit", "state", "agent", "epoch", "applied to", "rows/s", "reason", "since", "what to do")
    for unit in units:
        times = f" ({unit['failures']}×)" if unit["failures"] and unit["error"] else ""
        since = f"{seconds(unit['since_s'])} ago" if unit["reason"] else ""
        why = (f"{unit['reason']}{times}" if unit["reason"] else "", since, unit["remedy"] or "")
        cells = (
            unit["unit"],
            _state(unit),
            _agent(unit),
            str(unit["epoch"] or "–"),
            age(unit["checkpoint_ts"], now_ms),
        )
        table.add_row(*map(plain, (*cells, f"{unit['rows_per_s']:,}", *why)))
    return table


def _state(unit: Row) -> str:
    state = str(unit["state"])
    if not unit["paused"]:
        return state if unit["health"] in ("running", "starting") else f"{unit['health']} ({state})"
    return "paused" if state == "absent" else f"paused ({state})"


def _agent(unit: Row) -> str:
    moving = f" → {unit['moving_to']}" if unit["moving_to"] else ""
    return f"{unit['agent'] or '–'}{moving}"


def agents_table(agents: Sequence[Row]) -> Table:
    table = Table("agent", "state", "units", "rows/s", "last heard", "epoch", "version")
    for agent in agents:
        state = "draining" if agent["draining"] else agent["liveness"]
        shown = state if agent["state"] == "synced" and agent["connected"] else f"{state}, {_away(agent)}"
        shown += _backing_off(agent)
        shown += "" if agent["in_force"] else f", another configuration ({agent['configuration']}): no units"
        cells = (agent["name"], shown, str(agent["units"]), f"{agent['rows_per_s']:,}")
        version = agent_version(agent) or UNKNOWN
        more = (f"{seconds(agent['last_heard_s'])} ago", str(agent["agent_epoch"]), version)
        table.add_row(*map(plain, (*cells, *more)))
    return table


def _backing_off(agent: Row) -> str:
    """Say of an agent on which nothing gets ready that it is given nothing, or one unit on trial."""
    rest = agent["backs_off_s"]
    if rest is None:
        return ""
    what = f"no units for {seconds(rest)}" if rest else "on trial"
    return f", {what} ({agent['failures']} failed)"


def _away(agent: Row) -> str:
    return str(agent["state"]) if agent["state"] != "synced" else "not connected"


def pipelines_table(pipelines: Sequence[Row], now_ms: int) -> Table:
    table = Table("pipeline", "applied to", "captured to", "sources", "waits for")
    for pipeline in pipelines:
        sources = ", ".join(f"{name} {age(ts, now_ms)}" for name, ts in sorted(pipeline["by_source"].items()))
        waits = pipeline["waits_for"]
        more = f" and {len(waits) - 3} more" if len(waits) > 3 else ""
        ages = (age(pipeline["checkpoint_ts"], now_ms), age(pipeline["resolved_ts"], now_ms))
        table.add_row(*map(plain, (pipeline["pipeline"], *ages, sources, ", ".join(waits[:3]) + more)))
    return table


def events_table(events: Sequence[Row]) -> Table:
    table = Table("number", "time", "what", "about")
    for event in events:
        about = event["about"]
        first = [str(about[name]) for name in ("unit", "agent", "command") if name in about]
        rest = [f"{name} {value}" for name, value in about.items() if str(value) not in first]
        at = datetime.fromtimestamp(event["ts_ms"] / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
        table.add_row(*map(plain, (str(event["number"]), at, event["what"], ", ".join([*first, *rest]))))
    return table


def age(ts: int | None, now_ms: int) -> str:
    """Return how long ago a source commit time was."""
    return "–" if ts is None else f"{seconds(max(0, now_ms - ts) / 1000)} ago"
