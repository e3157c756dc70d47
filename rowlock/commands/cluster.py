"""The commands of a cluster: `rowlock coordinator | agent`, and the operators' commands to the leading
coordinator.

`rowlock units | agents | pipelines | events | copy | rebalance | reload | resign` are REST calls
(docs/reference/rest.md); `--output json` prints the answer of REST.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from socket import gethostname
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from rowlock.commands.help import CommandGroup
from rowlock.commands.options import (
    complete_printed_commands,
    config_option,
    fail_command,
    handed_option,
    output_option,
    read_config,
    read_config_to_change,
    report_command_errors,
)
from schemas.clock import read_clock_ms

if TYPE_CHECKING:
    from rowlock.coordinator.leader_client import LeaderClient
    from schemas.config.model import Config
    from schemas.findings import Finding


def _open_client(config: Config) -> LeaderClient:
    from rowlock.coordinator.leader_client import LeaderClient

    return LeaderClient.from_config(config)


def _show_rows(name: str, rows: list[dict[str, Any]], output: str, table: Callable[[], Any]) -> None:
    if output == "json":
        click.echo(json.dumps({"version": 1, name: rows}))
        return
    from rowlock.commands.tables import make_console

    make_console().print(table())


def reload_lines(answer: Mapping[str, Any]) -> list[str]:
    """Return the changes of a reload as lines for people."""
    lines = [str(each) for each in answer["changes"]] or ["the coordinator's file is unchanged"]
    lines += [f"placed again: {_describe_units(part)}" for part in answer["changed"]]
    lines += [f"removed: {_describe_units(part)}" for part in answer["gone"]]
    return [*lines, f"active: {answer['digest']}"]


def _describe_units(part: str) -> str:
    kind, _, name = part.partition("/")
    return f"capture of {name}" if kind == "source" else f"apply units of pipeline {name}"


def _post_command(config_file: Path, path: str, done: str, body: dict[str, Any] | None = None) -> None:
    with _open_client(read_config_to_change(config_file)) as leader:
        leader.post(path, body)
    click.echo(done)


@click.command()
@config_option
@click.option(
    "--name", help="Name of this coordinator in the cluster [default: host name and process number]."
)
@click.option("--listen", metavar="HOST:PORT", help="Instead of coordination.listen.")
@click.option("--rest", metavar="HOST:PORT", help="Instead of coordination.rest.")
@click.option("--or-any-port", is_flag=True, help="Serve REST on a free port if that port is in use.")
@click.option(
    "--without",
    metavar="KIND/NAME",
    multiple=True,
    help="Start without the apply units of source/NAME, pipeline/NAME or pipeline/NAME/SOURCE/DB.TABLE.",
)
@handed_option
@report_command_errors
def coordinator(  # noqa: PLR0917 - click passes options by name
    config_file: Path,
    name: str | None,
    listen: str | None,
    rest: str | None,
    or_any_port: bool,
    without: tuple[str, ...],
    handed: int | None,
) -> None:
    """Run a coordinator, which leads the agents or waits to lead, until Ctrl-C or SIGTERM.

    Start two or three, on different machines.
    """
    from schemas.config.changes.handed import announce_config, load_handed_config

    given = (("listen", listen), ("rest", rest))
    config = load_handed_config(
        config_file, handed, {("coordination", key): value for key, value in given if value}
    )
    from rowlock.coordinator.run import build_default_name, run_coordinator
    from rowlock.coordinator.sighup import reload_on_hangup
    from rowlock.inspect.copied_table import explain_unknown_table
    from rowlock.views.copy_desk import KafkaCopyDesk

    desk = KafkaCopyDesk(config, explain_unknown_table)
    with reload_on_hangup(config):
        sys.exit(
            run_coordinator(
                config,
                name or build_default_name(),
                desk,
                followers=(desk.use_config,),
                or_any_port=or_any_port,
                without=without,
                on_taken=announce_config if handed is not None else None,
                check_pipelines=_list_pipeline_errors,
            )
        )


def _list_pipeline_errors(config: Config, pipelines: Collection[str]) -> Sequence[Finding]:
    # Imported here: the modules of `check` know every kind of server, and an election has no time for them.
    from rowlock.inspect.checks.pipeline_check import list_pipeline_errors

    return list_pipeline_errors(config, pipelines)


@click.command()
@config_option
@click.option("--name", help="Name of the agent; only one process may use it [default: host name].")
@click.option(
    "--coordinator", "peers", metavar="HOST:PORT", multiple=True, help="Instead of coordination.coordinators."
)
@click.option("--metrics", metavar="HOST:PORT", help="Instead of coordination.agent_metrics.")
@click.option(
    "--end-on-refusal", is_flag=True, help="End with exit code 2 as soon as a unit needs an operator."
)
@handed_option
@report_command_errors
def agent(  # noqa: PLR0917 - click passes options by name
    config_file: Path,
    name: str | None,
    peers: tuple[str, ...],
    metrics: str | None,
    end_on_refusal: bool,
    handed: int | None,
) -> None:
    """Run an agent, with the units that the coordinator assigns to it, until Ctrl-C or SIGTERM."""
    from schemas.config.changes.handed import load_handed_config

    given = (("agent_metrics", metrics),)
    config = load_handed_config(
        config_file, handed, {("coordination", key): value for key, value in given if value}
    )
    from rowlock.agent.run import run_agent
    from rowlock.coordinator.sighup import reload_on_hangup

    coordinators = peers or config.coordination.coordinators
    with reload_on_hangup(config):
        sys.exit(run_agent(config, name or gethostname(), coordinators, end_on_refusal=end_on_refusal))


@click.group(cls=CommandGroup)
def units() -> None:
    """List, move, pause and resume the units of capture and apply.

    A unit captures one source, or applies one topic of a pipeline.
    """


@units.command("list")
@config_option
@output_option
@click.option("--pipeline", help="Only units of this pipeline.")
@click.option("--source", help="Only units of this source.")
@click.option("--agent", help="Only units on this agent, or moving to it.")
@click.option("--state", help="Only units in this state.")
@report_command_errors
def units_list(config_file: Path, output: str, **filters: str | None) -> None:
    """List the units with their agents, their progress and their last failures."""
    config = read_config(config_file)
    with _open_client(config) as leader:
        rows = leader.list_units({name: value for name, value in filters.items() if value is not None})
        if not rows:
            _require_known_filters(config, leader, filters)
    from rowlock.commands.cluster_tables import build_cluster_units_table, list_unit_reasons
    from rowlock.commands.reasons import print_reasons
    from rowlock.commands.tables import make_console

    _show_rows("units", rows, output, lambda: build_cluster_units_table(rows, read_clock_ms()))
    if output == "table":
        print_reasons(make_console(), list_unit_reasons(rows))
        complete_printed_commands(*(row["remedy"] or "" for row in rows))


def _require_known_filters(config: Config, leader: LeaderClient, filters: Mapping[str, str | None]) -> None:
    """End the command if a filter names a pipeline, source or agent that does not exist."""
    from rowlock.inspect.near_names import propose_names

    known: dict[str, Iterable[str]] = {"pipeline": config.pipelines, "source": config.sources}
    if filters["agent"] is not None:
        known["agent"] = [str(each["name"]) for each in leader.get("/v1/agents")["agents"]]
    for what, names in known.items():
        if (name := filters[what]) is not None and name not in names:
            fail_command(f"there is no {what} {name!r}; {propose_names(name, names)}")


@units.command("move")
@config_option
@click.argument("unit")
@click.argument("agent")
@report_command_errors
def units_move(config_file: Path, unit: str, agent: str) -> None:
    """Move UNIT to AGENT; the old agent runs it until the new one is ready."""
    _post_command(config_file, f"/v1/units/{quote(unit)}/move", f"{unit} moves to {agent}", {"agent": agent})


@units.command("cancel")
@config_option
@click.argument("unit")
@report_command_errors
def units_cancel(config_file: Path, unit: str) -> None:
    """Cancel the move of UNIT.

    The command is refused once the unit's present agent was asked to stop it.
    """
    _post_command(config_file, f"/v1/units/{quote(unit)}/cancel", f"{unit} stays where it is")


@units.command("pause")
@config_option
@click.argument("unit")
@report_command_errors
def units_pause(config_file: Path, unit: str) -> None:
    """Stop UNIT until it is resumed."""
    _post_command(config_file, f"/v1/units/{quote(unit)}/pause", f"{unit} is being paused")


@units.command("resume")
@config_option
@click.argument("unit")
@report_command_errors
def units_resume(config_file: Path, unit: str) -> None:
    """Let a paused UNIT run again."""
    _post_command(config_file, f"/v1/units/{quote(unit)}/resume", f"{unit} is being resumed")


@click.group(cls=CommandGroup)
def agents() -> None:
    """List, drain and undrain the agents, which are the processes that run units."""


@agents.command("list")
@config_option
@output_option
@report_command_errors
def agents_list(config_file: Path, output: str) -> None:
    """List the agents."""
    with _open_client(read_config(config_file)) as leader:
        rows = leader.get("/v1/agents")["agents"]
    from rowlock.commands.cluster_tables import build_agents_table
    from rowlock.commands.slot_lines import format_slot_lines
    from rowlock.inspect.observed.slots import read_agent_slots

    _show_rows("agents", rows, output, lambda: build_agents_table(rows))
    if output == "table":
        for line in format_slot_lines(read_agent_slots(rows)):
            click.echo(line)


@agents.command("drain")
@config_option
@click.argument("agent")
@report_command_errors
def agents_drain(config_file: Path, agent: str) -> None:
    """Move all units of AGENT to other agents.

    It gets no units until you undrain it or start its process again.
    """
    _post_command(config_file, f"/v1/agents/{quote(agent, safe='')}/drain", f"{agent} is being drained")


@agents.command("undrain")
@config_option
@click.argument("agent")
@report_command_errors
def agents_undrain(config_file: Path, agent: str) -> None:
    """End the drain of AGENT, which keeps the units that it still has and is given units again."""
    _post_command(config_file, f"/v1/agents/{quote(agent, safe='')}/undrain", f"{agent} takes units again")


@click.group(cls=CommandGroup)
def pipelines() -> None:
    """List the pipelines with their progress."""


@pipelines.command("list")
@config_option
@output_option
@report_command_errors
def pipelines_list(config_file: Path, output: str) -> None:
    """List the pipelines with their checkpoints."""
    with _open_client(read_config(config_file)) as leader:
        rows = leader.get("/v1/pipelines")["pipelines"]
    from rowlock.commands.cluster_tables import build_pipelines_table

    _show_rows("pipelines", rows, output, lambda: build_pipelines_table(rows, read_clock_ms()))


@click.command()
@config_option
@output_option
@click.option(
    "--last",
    "limit",
    default=50,
    show_default=True,
    type=click.IntRange(1, 1000),
    help="Maximum number of events that are shown.",
)
@click.option("--after", default=0, metavar="NUMBER", help="Only events with a greater number.")
@report_command_errors
def events(config_file: Path, output: str, limit: int, after: int) -> None:
    """Show what the leading coordinator did, and why.

    It placed and moved units; agents joined or left; operators gave commands.
    """
    with _open_client(read_config(config_file)) as leader:
        rows = leader.get("/v1/events", {"after": after, "limit": limit})["events"]
    from rowlock.commands.cluster_tables import build_events_table

    _show_rows("events", rows, output, lambda: build_events_table(rows))


@click.command()
@config_option
@output_option
@click.argument("table", required=False)
@click.option("--source", help="The source of the table, if several sources may have it.")
@click.option(
    "--where",
    metavar="CONDITION",
    help="Copy only rows that match it (SQL of the source); no rows are deleted.",
)
@click.option(
    "--max-rows-per-second",
    type=click.IntRange(min=0),
    help="Maximum read rate; 0: no limit. Default: the source's copy_rows_per_second.",
)
@click.option("--cancel", is_flag=True, help="Cancel a copy that waits or runs.")
@click.option(
    "--rate-only",
    is_flag=True,
    help="Change the rate of a copy that waits or runs to --max-rows-per-second, or to no limit.",
)
@click.option(
    "--wait", is_flag=True, help="Show its progress until the targets have it. Exit with 1 if that fails."
)
@report_command_errors
def copy(  # noqa: PLR0917 - click passes options by name
    config_file: Path,
    output: str,
    table: str | None,
    source: str | None,
    where: str | None,
    max_rows_per_second: int | None,
    cancel: bool,
    rate_only: bool,
    wait: bool,
) -> None:
    """Copy a table again while everything runs, or show the progress of copies.

    TABLE is `database.table` at the source. The target's rows are replaced chunk by chunk, and rows that
    the source no longer has are deleted: readers never see the table empty. The copy ends any stop of the
    table. `rowlock copy` without TABLE shows the progress.
    """
    from rowlock.commands.copying import post_copy_request, show_copies, wait_for

    if table is None:
        sys.exit(show_copies(config_file, output))
    if (cancel or rate_only) and (where is not None or (cancel and rate_only)):
        raise click.UsageError("--where, --cancel and --rate-only exclude each other: give one of them")
    body: dict[str, object] = {"table": table, "source": source}
    if not cancel:
        body["max_rows_per_second"] = max_rows_per_second
    if not (cancel or rate_only):
        body["where"] = where
    taken = post_copy_request(config_file, body, "cancel" if cancel else "rate" if rate_only else "", output)
    if wait and not (cancel or rate_only):
        sys.exit(wait_for(config_file, taken["id"], output))
    if output == "json":
        click.echo(json.dumps({"version": 1, "accepted": taken}))


@click.command()
@config_option
@report_command_errors
def rebalance(config_file: Path) -> None:
    """Even out the load of the agents now."""
    _post_command(config_file, "/v1/rebalance", "the load is being evened out")


@click.command()
@config_option
@output_option
@report_command_errors
def reload(config_file: Path, output: str) -> None:
    """Activate the changed configuration file in the running system.

    The file is read on the machines of the leader and of all agents. If one of these files is invalid or
    differs, the command is refused with all errors, and the active configuration stays.
    """
    with _open_client(read_config_to_change(config_file)) as leader:
        answer = leader.reload_config()
    if output == "json":
        click.echo(json.dumps({"version": 1, **answer}))
        return
    click.echo("\n".join(reload_lines(answer)))


@click.command()
@config_option
@report_command_errors
def resign(config_file: Path) -> None:
    """Make the leading coordinator step down and trigger an election."""
    _post_command(config_file, "/v1/resign", "the coordinator resigns")


COMMANDS: tuple[click.Command, ...] = (
    coordinator,
    agent,
    units,
    agents,
    pipelines,
    events,
    copy,
    rebalance,
    reload,
    resign,
)
"""The commands of this module."""
