"""The command line: `rowlock demo | check | run | status | completion | verify | quarantine`, and the
commands of rowlock/commands/.

Results go to stdout, logs and errors to stderr. Exit code 0: success; 1: a finding (check refused,
verify found a difference); 2: an error. Whatever a command needs (the configuration's models, Kafka, Spark, a
driver) is imported by that command, so that `--help` and the completion of a shell are quick.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rowlock import __version__
from rowlock.commands.cluster import COMMANDS
from rowlock.commands.help import START_HERE, CommandGroup, format_beginning
from rowlock.commands.init import init
from rowlock.commands.options import (
    FINDING,
    FINE,
    complete_printed_commands,
    config_option,
    fail_command,
    log_format_option,
    output_option,
    read_config,
    read_config_to_change,
    report_command_errors,
)
from rowlock.commands.pages import show_page
from rowlock.commands.spark import spark

if TYPE_CHECKING:
    from rowlock.inspect.pairs import TablePair
    from rowlock.inspect.quarantine import EntrySelection
    from rowlock.inspect.status import Status
    from rowlock.inspect.verify import PairResult
    from schemas.config.model import Config
    from schemas.config.servers import TargetConfig


@click.group(
    cls=CommandGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="rowlock")
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True
)
@log_format_option
@click.pass_context
def main(context: click.Context, log_level: str) -> None:
    """Replicate committed rows of MySQL, MariaDB and Oracle through Kafka into MySQL, MariaDB, PostgreSQL,
    Oracle and Kafka."""
    context.obj = log_level
    if context.invoked_subcommand is None:
        click.echo(format_beginning(context, main))


main.chapters = {
    START_HERE: ("demo", "init", "check", "run", "status", "docs", "completion"),
    "Inspect and repair": (
        "verify",
        "quarantine",
        "copy",
        "reload",
        "cutover",
        "units",
        "pipelines",
        "events",
    ),
    "Cluster": ("coordinator", "agent", "agents", "rebalance", "resign", "spark"),
}

for _command in COMMANDS:
    main.add_command(_command)
main.add_command(init)
main.add_command(spark)
main.add_command(show_page)


STOPPED = "rowlock: stopped; start it again with `rowlock run`, and it continues where it ended"


@main.command()
@config_option
@click.option(
    "--until-caught-up",
    is_flag=True,
    help="End as soon as all rows that the sources have now are in the targets.",
)
@log_format_option
@report_command_errors
def run(config_file: Path, until_caught_up: bool) -> None:
    """Capture and apply in one process tree, until Ctrl-C or SIGTERM.

    On a terminal it shows a live view. A process that dies is restarted. A process that refuses to run (its
    message gives the reason) is not restarted, and the others continue.
    """
    config = read_config_to_change(config_file)
    from rowlock.processes.single_run import claim_run

    with claim_run(config):
        code = _run_system(config, until_caught_up=until_caught_up)
    sys.exit(code)


def _run_system(config: Config, *, until_caught_up: bool) -> int:
    """Check the system, run it until it ends, and return the exit code."""
    without = _check_before_start(config, all_needed=until_caught_up)
    from rowlock.coordinator.sighup import reload_on_hangup
    from rowlock.inspect.caught_up import CaughtUpGoal
    from rowlock.processes.run import run_processes

    goal = CaughtUpGoal(config, _print_error_line) if until_caught_up else None
    with reload_on_hangup(config), _show_progress(config) as use_config:
        code = run_processes(config, goal, without=without, use_config=use_config)
    if goal is not None and goal.summary:
        _print_error_line(f"rowlock: {goal.summary}")
    elif code == FINE:
        _print_stopped()
    return code


def _print_stopped() -> None:
    """Tell a person how the run goes on; a program that reads JSON lines knows by the exit code."""
    from rowlock.processes.log import choose_log_style

    if choose_log_style() == "console":
        _print_error_line(STOPPED)
        complete_printed_commands(STOPPED)


@contextlib.contextmanager
def _show_progress(config: Config) -> Iterator[Callable[[Config], object]]:
    """Show the live view during the block, if there is a terminal for it.

    Yields what it does with a configuration that the run has adopted.
    """
    from rowlock.processes.log import can_show_live_view

    if not can_show_live_view():
        yield lambda _: None
        return
    from rowlock.live.screen import show_live_view

    with show_live_view(config) as reader:
        yield reader.use_config


def _print_error_line(text: str) -> None:
    click.echo(text, err=True)


def _check_before_start(config: Config, *, all_needed: bool) -> list[str]:
    """Print the findings of `check` and their consequences, and end the command if nothing can be
    started.

    Returns the sources and pipelines that are not to be started.
    """
    from concurrent.futures import ThreadPoolExecutor

    from rowlock.coordinator.control_view import find_living_leader
    from rowlock.inspect.check import list_scoped_findings
    from rowlock.inspect.scopes import explain_refused_start, list_consequences, list_not_started

    with ThreadPoolExecutor(1) as pool:  # a leader is watched for seconds, in which `check` asks the servers
        living = pool.submit(find_living_leader, config.kafka)
        found = list_scoped_findings(config)
    findings = list(dict.fromkeys(each.finding for each in found))
    for finding in findings:
        _print_error_line(f"rowlock: {finding.level}: {finding}")
    if (leader := living.result()) is not None:
        from rowlock.commands.running_system import describe_living_system

        _print_error_line(f"rowlock: warning: {describe_living_system(config.kafka, leader)}")
    complete_printed_commands(*(finding.remedy for finding in findings))
    if refused := explain_refused_start(found, config.sources, config.pipelines, all_needed=all_needed):
        fail_command(refused)
    for line in list_consequences(found):
        _print_error_line(f"rowlock: {line}")
    return list_not_started(
        found, debezium=[n for n, each in config.sources.items() if each.events == "debezium"]
    )


@main.command()
@config_option
@output_option
@click.option(
    "--plan",
    "with_plan",
    is_flag=True,
    help="Show what a start or a reload would change, instead of checking.",
)
@report_command_errors
def check(config_file: Path, output: str, with_plan: bool) -> None:
    """Check the configuration, the servers, the grants and the tables before a run.

    The exit code is 1 if a finding would stop a part of the run.
    """
    config = read_config(config_file)
    if with_plan:
        _show_plan(config, output)
        return
    from rowlock.commands.needed_report import format_needed_changes
    from rowlock.commands.tables import (
        as_dict,
        build_findings_table,
        format_headroom_lines,
        has_errors,
        make_console,
    )
    from rowlock.inspect.check import list_scoped_findings
    from rowlock.inspect.headroom import list_short_logs, measure_headroom
    from rowlock.inspect.scopes import is_kafka_unreachable

    found = list_scoped_findings(config)
    findings = list(dict.fromkeys(each.finding for each in found))
    is_unreached = is_kafka_unreachable(found)
    kept, warnings = (
        ([], list_short_logs(config, findings)) if is_unreached else measure_headroom(config, findings)
    )
    findings += warnings
    if output == "json":
        report = {
            "findings": [as_dict(finding) for finding in findings],
            "headroom": [each.as_dict() for each in kept],
        }
        click.echo(json.dumps({"version": 1, **report}))
    else:
        if findings:
            make_console().print(build_findings_table(findings))
        for line in format_needed_changes(config, found):
            click.echo(line)
        if kept:
            click.echo("\n".join(format_headroom_lines(kept)))
        if not has_errors(findings):
            click.echo("only warnings: ready to run" if findings else "nothing found: ready to run")
        complete_printed_commands(*(finding.remedy for finding in findings))
    sys.exit(FINDING if has_errors(findings) else FINE)


def _show_plan(config: Config, output: str) -> None:
    """Show what the configuration would change in stored state: tables, topics, copies, target tables,
    layouts.
    """
    from rowlock.inspect.planned.plan import plan_lines
    from rowlock.inspect.planned.stored import read_run_plan

    found = read_run_plan(config)
    if output == "json":
        click.echo(json.dumps({"version": 1, **found.as_dict()}))
    else:
        click.echo("\n".join(plan_lines(found)))


@main.command()
@config_option
@output_option
@click.option("--watch", is_flag=True, help="Repeat every two seconds, until Ctrl-C.")
@report_command_errors
def status(config_file: Path, output: str, watch: bool) -> None:
    """Show how far capture and apply are, and what does not run and why.

    The exit code is 1 if something does not run.
    """
    config = read_config(config_file)
    from rowlock.inspect.status import StatusReader

    reader = StatusReader(config)
    try:
        healthy = _show_status(reader, output, repeats=watch)
        while watch:
            time.sleep(2)
            healthy = _show_status(reader, output, repeats=watch)
    finally:
        reader.close()
    sys.exit(FINE if healthy else FINDING)


def _show_status(reader: Any, output: str, *, repeats: bool) -> bool:
    """Print the status and return whether all runs. `repeats`: on a terminal, it replaces the one before."""
    from rowlock.commands.reasons import list_status_reasons, print_reasons
    from rowlock.commands.slot_lines import format_slot_lines
    from rowlock.commands.tables import (
        build_running_copies_table,
        build_sources_table,
        build_stops_table,
        build_unit_status_table,
        make_console,
    )
    from rowlock.inspect.observed.versions import format_version_lines

    seen = reader.read_status()
    healthy: bool = seen.healthy
    if output == "json":
        click.echo(json.dumps(seen.as_dict()))
        return healthy
    out = make_console()
    if repeats and out.is_terminal:
        out.clear()
    out.print(build_sources_table(seen))
    out.print(build_unit_status_table(seen))
    for table in (build_stops_table(seen), build_running_copies_table(seen)):
        if table is not None:
            out.print(table)
    print_reasons(out, list_status_reasons(seen))
    for line in (*format_slot_lines(seen.slots), *format_version_lines(seen.versions)):
        click.echo(line)
    for problem in seen.problems:
        click.echo(f"rowlock: {problem}", err=True)
    complete_printed_commands(*_list_remedies(seen))
    return healthy


def _list_remedies(seen: Status) -> list[str]:
    """Return all texts of a status that may name a command."""
    remedies = [source.remedy for source in seen.sources] + [unit.remedy for unit in seen.units]
    remedies += [table.remedy for source in seen.sources for table in source.tables]
    return [*seen.problems, *filter(None, remedies)]


@main.command()
@config_option
@output_option
@click.argument("tables", metavar="[TABLE]...", nargs=-1)
@click.option("--pipeline", help="Only this pipeline.")
@click.option("--table", "named", metavar="TABLE", multiple=True, help="The same as TABLE; may be repeated.")
@click.option(
    "--settle",
    "settle_s",
    default=15.0,
    show_default=True,
    help="Seconds to wait for rows that are still in transit.",
)
@click.option("--all", "show_all", is_flag=True, help="Print all differing keys, not only the first.")
@click.option(
    "--metrics-file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.prom",
    help="Also write the results to this file, for Prometheus.",
)
@report_command_errors
def verify(  # noqa: PLR0917 - click passes options by name
    config_file: Path,
    output: str,
    tables: tuple[str, ...],
    pipeline: str | None,
    named: tuple[str, ...],
    settle_s: float,
    show_all: bool,
    metrics_file: Path | None,
) -> None:
    """Compare every row of the sources with its row in the targets.

    TABLE is `database.table` at the source; without any, all tables are compared. The exit code is 1 if rows
    differ.
    """
    config = read_config(config_file)
    from rowlock.commands.compared_pairs import choose_pairs, parse_chosen_tables
    from rowlock.commands.tables import SHOWN, verify_lines
    from rowlock.commands.verify_progress import follow_verify
    from rowlock.inspect.verify import verify_pairs as compare

    chosen = parse_chosen_tables([*tables, *named])
    pipelines = [_require_pipeline(config, pipeline)] if pipeline else list(config.pipelines)
    pairs = choose_pairs(config, pipelines, chosen)
    record = _open_verify_metrics(metrics_file, None if pipeline or chosen else pairs)
    equal, printed = True, list[str]()
    with follow_verify(config) as progress:
        for result in compare(
            config,
            pairs,
            settle_s=settle_s,
            on_page=progress.show_page,
            on_settle=lambda pair, rows: progress.show_settling(pair, rows, settle_s),
        ):
            equal = equal and result.equal
            record(result)
            progress.clear_line()
            if output == "json":
                click.echo(json.dumps({"version": 1, **result.as_dict()}))
            else:
                lines = verify_lines(result, len(result.findings) if show_all else SHOWN)
                click.echo("\n".join(lines))
                printed += lines
    complete_printed_commands(*printed)
    sys.exit(FINE if equal else FINDING)


def _open_verify_metrics(
    path: Path | None, tables: Sequence[TablePair] | None
) -> Callable[[PairResult], None]:
    """Return a function that records a result in the file; without a file it does nothing."""
    if path is None:
        return lambda _result: None
    from rowlock.commands.verify_metrics import VerifyMetrics  # it loads FastAPI

    return VerifyMetrics.open_file(path, tables).record_result


@main.command()
@config_option
@output_option
@click.option("--sql", is_flag=True, help="Print the statements. (Nothing is changed.)")
@click.option("--target", help="The database that the script is for; needed if there are several.")
@report_command_errors
def cutover(config_file: Path, output: str, sql: bool, target: str | None) -> None:
    """Print the SQL statements that let the targets number new rows once applications write there.

    Exit 1 if a column has none.
    """
    if not sql:
        raise click.UsageError("give --sql: the statements are printed, and you run them on the target")
    config = read_config(config_file)
    from rowlock.inspect.cutover import format_cutover_lines, list_databases, list_numbered_columns

    known = list_databases(config)
    if target is not None and target not in known:
        fail_command(f"no pipeline writes to a database {target!r}; known: {', '.join(known) or 'none'}")
    if target is None and output == "table" and len(known) > 1:
        fail_command(f"a script is for one database, and there are {', '.join(known)}; give --target NAME")
    found = list_numbered_columns(config, [target] if target else known)
    if output == "json":
        click.echo(json.dumps({"version": 1, "columns": [each.as_dict() for each in found]}))
    else:
        click.echo("\n".join(format_cutover_lines(found)))
    sys.exit(FINDING if any(each.problem for each in found) else FINE)


def _require_pipeline(config: Config, pipeline: str) -> str:
    from rowlock.inspect.near_names import propose_names

    if pipeline not in config.pipelines:
        fail_command(f"there is no pipeline {pipeline!r}; {propose_names(pipeline, config.pipelines)}")
    return pipeline


@main.group(cls=CommandGroup)
def quarantine() -> None:
    """List, retry or discard the events that a target refused."""


@quarantine.command("list")
@config_option
@click.option("--resolved", is_flag=True, help="Those that have left the quarantine, the newest first.")
@click.option(
    "--last", type=click.IntRange(min=1), default=100, show_default=True, help="With --resolved: per topic."
)
@output_option
@report_command_errors
def quarantine_list(config_file: Path, resolved: bool, last: int, output: str) -> None:
    """List the quarantined events, and the number of displaced rows."""
    config = read_config(config_file)
    if resolved:
        _list_resolved_events(config, last, output)
        return
    from rowlock.inspect.observed.displaced import format_displaced_lines, list_displaced_rows
    from rowlock.inspect.quarantine import format_quarantine_lines, list_quarantined_events

    entries, displaced = list_quarantined_events(config), list_displaced_rows(config)
    if output == "json":
        found = {
            "held": [each.as_dict() for each in entries],
            "displaced": [each.as_dict() for each in displaced],
        }
        click.echo(json.dumps({"version": 1, **found}))
    else:
        click.echo("\n".join([*format_quarantine_lines(entries), *format_displaced_lines(displaced)]))


def _list_resolved_events(config: Config, last: int, output: str) -> None:
    from rowlock.inspect.quarantine import (
        format_resolved_lines,
        list_other_histories,
        list_resolved_events,
    )

    events = list_resolved_events(config, last)
    for line in list_other_histories(config):
        click.echo(line, err=True)
    if output == "json":
        click.echo(json.dumps({"version": 1, "resolved": [each.as_dict() for each in events]}))
    else:
        click.echo("\n".join(format_resolved_lines(events)))


@quarantine.command("retry")
@config_option
@click.option("--pipeline", help="Only this pipeline.")
@click.option("--topic", help="Only this topic.")
@click.option("--key", help="Only this key, as `list` shows it.")
@report_command_errors
def quarantine_retry(config_file: Path, pipeline: str | None, topic: str | None, key: str | None) -> None:
    """Apply the final image of each held key.

    The exit code is 1 if the target refuses one again, 2 if there is no such pipeline, topic or key.
    """
    config = read_config_to_change(config_file)
    _resolve_entries(config, "retry", _select_entries(config, pipeline, topic, key))


@quarantine.command("skip")
@config_option
@click.option("--pipeline", help="Only this pipeline.")
@click.option("--topic", help="Only this topic.")
@click.option("--key", help="Only this key, as `list` shows it.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@report_command_errors
def quarantine_skip(
    config_file: Path, pipeline: str | None, topic: str | None, key: str | None, yes: bool
) -> None:
    """Discard the held events and apply later changes of their keys again.

    The rows stay in the target as they are. The exit code is 2 if there is no such pipeline, topic or key.
    """
    config = read_config_to_change(config_file)
    selection = _select_entries(config, pipeline, topic, key)
    if not yes:
        chosen = [pipeline] if pipeline else config.pipelines
        targets = dict.fromkeys(config.pipelines[name].target for name in chosen)
        described = ", ".join(f"target {name} at {_get_address(config.targets[name])}" for name in targets)
        click.confirm(
            f"By {config.path.absolute()}, the held events of {described} are discarded and the target then "
            "differs from the source. Continue?",
            abort=True,
        )
    _resolve_entries(config, "skip", selection)


def _get_address(target: TargetConfig) -> str:
    from schemas.config.addresses import join_address
    from schemas.config.servers import KafkaTargetConfig

    if isinstance(target, KafkaTargetConfig):
        return target.bootstrap
    return join_address(target.host, target.port)


def _select_entries(
    config: Config, pipeline: str | None, topic: str | None, key: str | None
) -> EntrySelection:
    from rowlock.inspect.quarantine import EntrySelection, require_known_selection

    selection = EntrySelection(pipeline, topic, key)
    require_known_selection(config, selection)
    return selection


def _resolve_entries(config: Config, how: str, selection: EntrySelection) -> None:
    from rowlock.inspect.quarantine import resolve_quarantine

    outcome = resolve_quarantine(config, how, selection)
    click.echo("\n".join(outcome.lines))
    sys.exit(FINE if outcome.complete else FINDING)


@main.command()
@click.option(
    "--keep", is_flag=True, help="Leave everything running until Ctrl-C, and print commands to explore it."
)
@click.option(
    "--seconds",
    default=45,
    show_default=True,
    type=click.IntRange(5, 3600),
    help="Duration of the live workload.",
)
@report_command_errors
def demo(keep: bool, seconds: int) -> None:
    """Replicate two branch databases into a head office on this machine, and show figures and a comparison of
    all rows."""
    from rowlock.demo.run import run_demo as show

    sys.exit(show(keep=keep, seconds=seconds))


@main.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def print_completion(shell: str) -> None:
    """Print the script by which a shell completes rowlock's commands and options.

    \b
    bash: eval "$(rowlock completion bash)"       (in ~/.bashrc)
    zsh:  eval "$(rowlock completion zsh)"        (in ~/.zshrc, after compinit)
    fish: rowlock completion fish | source        (in ~/.config/fish/config.fish)
    """
    from click.shell_completion import BashComplete, FishComplete, ZshComplete

    kinds = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}
    click.echo(kinds[shell](main, {}, "rowlock", "_ROWLOCK_COMPLETE").source())


if __name__ == "__main__":
    main()
