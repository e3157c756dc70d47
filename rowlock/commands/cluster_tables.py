"""Tables of agents, units and pipelines for a terminal. Pure: built from REST's rows and the time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from rich.table import Table

from rowlock.commands.reasons import Reason
from rowlock.commands.tables import escape_markup, format_duration, make_table
from rowlock.inspect.observed.versions import UNKNOWN_VERSION, read_agent_version

ClusterRow = dict[str, Any]


def build_cluster_units_table(units: Sequence[ClusterRow], now_ms: int) -> Table:
    """Return the table of units, with their lag (by source commit time)."""
    table = make_table("unit", "state", "agent", "epoch", "applied to", "rows/s")
    for unit in units:
        cells = (
            unit["unit"],
            _format_state(unit),
            _format_agent(unit),
            str(unit["epoch"] or "–"),
            format_age(unit["checkpoint_ts"], now_ms),
        )
        table.add_row(*map(escape_markup, (*cells, f"{unit['rows_per_s']:,}")))
    return table


def list_unit_reasons(units: Sequence[ClusterRow]) -> list[Reason]:
    """Return why units do not run, since when, and how often they have failed."""
    reasons = []
    for unit in units:
        times = f", failed {unit['failures']}×" if unit["failures"] and unit["error"] else ""
        note = f"{format_duration(unit['since_s'])} ago{times}"
        reasons.append(Reason(unit["unit"], unit["reason"] or "", unit["remedy"] or "", note))
    return reasons


def _format_state(unit: ClusterRow) -> str:
    state = str(unit["state"])
    if not unit["paused"]:
        return state if unit["health"] in ("running", "starting") else f"{unit['health']} ({state})"
    return "paused" if state == "absent" else f"paused ({state})"


def _format_agent(unit: ClusterRow) -> str:
    moving = f" → {unit['moving_to']}" if unit["moving_to"] else ""
    return f"{unit['agent'] or '–'}{moving}"


def build_agents_table(agents: Sequence[ClusterRow]) -> Table:
    table = make_table("agent", "state", "units", "rows/s", "last heard", "epoch", "slots", "version")
    for agent in agents:
        state = "draining" if agent["draining"] else agent["liveness"]
        shown = (
            state
            if agent["state"] == "synced" and agent["connected"]
            else f"{state}, {_describe_absence(agent)}"
        )
        shown += _describe_backoff(agent)
        shown += "" if agent["in_force"] else f", another configuration ({agent['configuration']}): no units"
        cells = (agent["name"], shown, str(agent["units"]), f"{agent['rows_per_s']:,}")
        version = read_agent_version(agent) or UNKNOWN_VERSION
        heard = f"{format_duration(agent['last_heard_s'])} ago"
        more = (heard, str(agent["agent_epoch"]), _format_slots(agent), version)
        table.add_row(*map(escape_markup, (*cells, *more)))
    return table


def _format_slots(agent: ClusterRow) -> str:
    slots = agent.get("slots")  # a leader before 0.3.0 knows none
    return "–" if slots is None else f"{slots['open']} of {slots['configured']}"


def _describe_backoff(agent: ClusterRow) -> str:
    """Return the note on an agent that is given no units, or one on trial, because preparations there
    fail.
    """
    rest = agent["backs_off_s"]
    if rest is None:
        return ""
    what = f"no units for {format_duration(rest)}" if rest else "on trial"
    return f", {what} ({agent['failures']} failed)"


def _describe_absence(agent: ClusterRow) -> str:
    return str(agent["state"]) if agent["state"] != "synced" else "not connected"


def build_pipelines_table(pipelines: Sequence[ClusterRow], now_ms: int) -> Table:
    table = make_table("pipeline", "applied to", "captured to", "sources", "waits for")
    for pipeline in pipelines:
        sources = ", ".join(
            f"{name} {format_age(ts, now_ms)}" for name, ts in sorted(pipeline["by_source"].items())
        )
        waits = pipeline["waits_for"]
        more = f" and {len(waits) - 3} more" if len(waits) > 3 else ""
        ages = (format_age(pipeline["checkpoint_ts"], now_ms), format_age(pipeline["resolved_ts"], now_ms))
        table.add_row(
            *map(escape_markup, (pipeline["pipeline"], *ages, sources, ", ".join(waits[:3]) + more))
        )
    return table


def build_events_table(events: Sequence[ClusterRow]) -> Table:
    table = make_table("number", "time", "what", "about")
    for event in events:
        about = event["about"]
        first = [str(about[name]) for name in ("unit", "agent", "command") if name in about]
        rest = [f"{name} {value}" for name, value in about.items() if str(value) not in first]
        at = datetime.fromtimestamp(event["ts_ms"] / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
        table.add_row(
            *map(escape_markup, (str(event["number"]), at, event["what"], ", ".join([*first, *rest])))
        )
    return table


def format_age(ts: int | None, now_ms: int) -> str:
    """Return how long ago a source commit time was."""
    return "–" if ts is None else f"{format_duration(max(0, now_ms - ts) / 1000)} ago"
