"""`rowlock demo`: replicates two branches into a head office on this machine, with figures and a
row-by-row verdict.

Everything is real: servers, broker, Spark, and `rowlock run` as a user starts it. The demo only fills
the branches, runs a workload for a while, and observes.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass

from deploy.embedded.services import EmbeddedError, Kafka, MariaDB, terminate_cleanly
from deploy.fetch.cache import cache_dir
from deploy.fetch.downloads import KAFKA_RELEASE, MARIADB_RELEASE, describe_missing_downloads
from rowlock.commands.tables import verify_lines
from rowlock.demo.bank import BANK_TABLES
from rowlock.demo.load import Branch, LatencyProbe, compute_percentile
from rowlock.demo.rows import RowCounter
from rowlock.demo.tries import format_tries, write_programs
from rowlock.demo.view import DemoFigures, DemoView, build_summary_rows
from rowlock.demo.waits import DemoWait, LogFollower, explain_problem
from rowlock.demo.world import OFFICE, DemoServers, run_rowlock, run_servers
from rowlock.errors import CommandError, KafkaUnreachableError
from rowlock.inspect.pairs import list_table_pairs
from rowlock.inspect.status import StatusReader
from rowlock.inspect.verify import verify_pairs
from schemas.config.model import load_config

CUSTOMERS = 600
"""Per branch; with accounts and transfers 3,600 existing rows."""
DEMO_POLL_S = 0.5
_KEEP_HINT = (
    "`rowlock demo --keep` leaves all of it running, with short commands to query both databases, "
    "follow a row, kill a worker, alter a table, and break and repair a row."
)


@dataclass(frozen=True, slots=True)
class WorkloadFigures:
    """The figures of the workload: of the branches, and of the probe."""

    seconds: float
    written: int
    """Row changes of the branches."""
    probes: int
    lost_probes: int
    latencies: list[float]
    """Seconds from commit to visibility."""


@dataclass(frozen=True, slots=True)
class DemoOutcome:
    """The result of the demo, for the summary."""

    seeded: int
    snapshot: DemoFigures
    """When the existing rows were in the head office."""
    snapshot_s: float
    workload: WorkloadFigures
    figures: DemoFigures
    """When all rows were in the head office."""
    equal: bool


def run_demo(*, keep: bool, seconds: int) -> int:
    """Run the demo. Returns 0 if source and target are equal, otherwise 1. Raises CommandError."""
    view = DemoView()
    try:
        with terminate_cleanly():
            return _run_phases(view, keep=keep, seconds=seconds)
    except EmbeddedError as error:
        raise CommandError(str(error)) from error
    finally:
        view.close()


def _run_phases(view: DemoView, *, keep: bool, seconds: int) -> int:
    fetch_servers(view)
    view.begin_phase("starting Kafka, two MariaDB branches and the PostgreSQL head office")
    with run_servers() as made:
        branches = [Branch(name, server) for name, server in made.branches.items()]
        view.begin_phase("filling the branches with existing customers, accounts and transfers")
        with ThreadPoolExecutor() as pool:
            seeded = sum(pool.map(lambda branch: branch.seed_tables(CUSTOMERS), branches))
        view.begin_phase(f"rowlock run -c {made.config_file}: the {seeded:,} existing rows first")
        with (
            run_rowlock(made) as process,
            closing(StatusReader(load_config(made.config_file))) as reader,
            closing(RowCounter(made.kafka.bootstrap)) as rows,
        ):
            stage = RunningDemo(made, process, view, reader, rows, LogFollower(made.log_file))
            with _open_view(view):
                began = time.monotonic()
                snapshot = stage.wait_until_applied("the existing rows did not all arrive in the head office")
                snapshot_s = time.monotonic() - began
                workload = _run_workload(stage, branches, seconds)
                figures = _await_catch_up(stage)
            equal = _verify_tables(stage)
            outcome = DemoOutcome(seeded, snapshot, snapshot_s, workload, figures, equal)
            _print_summary(view, outcome)
            if not equal:
                view.print_text(made.keep_log())
            if keep:
                _keep_running(stage, branches)
            else:
                view.print_text(_KEEP_HINT)
        view.begin_phase("stopped")
    return 0 if equal else 1


def fetch_servers(view: DemoView) -> None:
    """Download the servers that are not on this machine yet, and announce it before."""
    if missing := describe_missing_downloads(KAFKA_RELEASE, MARIADB_RELEASE):
        view.begin_phase(f"downloading {missing} into {cache_dir()}, where later runs find them")
    for kind in (Kafka, MariaDB):
        kind.fetch()


@contextmanager
def _open_view(view: DemoView) -> Iterator[None]:
    view.open()
    try:
        yield
    finally:
        view.close()


@dataclass(slots=True)
class RunningDemo:
    """The running demo with all its parts."""

    made: DemoServers
    process: subprocess.Popen[bytes]
    view: DemoView
    reader: StatusReader
    rows: RowCounter
    log: LogFollower

    def show_figures(
        self, latencies: list[float] | None = None, waiting: DemoWait | None = None
    ) -> DemoFigures | None:
        """Read and show the figures, and return them; None while they are not complete.

        Raises CommandError if `rowlock run` has ended, if there is a problem, or if `waiting` has waited
        too long.
        """
        require_alive(self.process, self.log)
        try:
            status = self.reader.read_status()
        except KafkaUnreachableError:
            if waiting is not None:
                waiting.check_movement(None, None, self.log.milestones, len(BANK_TABLES))
            return None
        ends = {unit.topic: unit.end_offset for unit in status.units if unit.end_offset is not None}
        counted = self.rows.read_up_to(ends)
        figures = DemoFigures.from_status(status, time.monotonic(), self.rows.count_rows)
        if (sentence := explain_problem(status)) is not None:
            raise CommandError(sentence)
        waits = (
            waiting.check_movement(status, figures, self.log.milestones, len(BANK_TABLES)) if waiting else ""
        )
        self.view.show_figures(figures, compute_percentile(latencies or [], 0.5), waits)
        pending = any(source.state == "new" or source.snapshot_pending for source in status.sources)
        complete = (
            counted and not pending and len(figures.captured) == len(BANK_TABLES) and not status.problems
        )
        return figures if complete else None

    def wait_until_applied(self, what: str) -> DemoFigures:
        """Wait until all captured events are applied, as long as there is progress. Raises CommandError."""
        waiting = DemoWait(what)
        while True:
            figures = self.show_figures(waiting=waiting)
            if figures is not None and figures.backlog == 0:
                return figures
            time.sleep(DEMO_POLL_S)


def require_alive(process: subprocess.Popen[bytes], log: LogFollower) -> None:
    """Raise CommandError with its last error if `rowlock run` has ended."""
    milestones = log.read_new_lines()
    if process.poll() is not None:
        why = f": {milestones.error}" if milestones.error else " without a word"
        raise CommandError(f"`rowlock run` ended with code {process.returncode}{why}")


def _run_workload(stage: RunningDemo, branches: list[Branch], seconds: int) -> WorkloadFigures:
    stage.view.begin_phase(
        f"the branches live for {seconds} s: inserts, updates, deletes, e-mails and account numbers handed on"
    )
    first, stop = branches[0], threading.Event()
    probe = LatencyProbe(first.name, first.server, stage.made.office, OFFICE, stop)
    threads = [probe.start(), *(branch.start(stop) for branch in branches)]
    began = time.monotonic()
    try:
        while time.monotonic() - began < seconds:
            stage.show_figures(probe.seconds)
            time.sleep(DEMO_POLL_S)
            if errors := [branch.error for branch in branches if branch.error]:
                raise CommandError("the workload failed: " + "; ".join(errors))
    finally:
        stop.set()
        for thread in threads:
            thread.join(10)
    return WorkloadFigures(
        seconds=time.monotonic() - began,
        written=sum(branch.rows for branch in branches),
        probes=probe.sent,
        lost_probes=probe.lost,
        latencies=probe.seconds,
    )


def _await_catch_up(stage: RunningDemo) -> DemoFigures:
    stage.view.begin_phase("the last rows are on their way")
    return stage.wait_until_applied("the last rows did not all arrive in the head office")


def _verify_tables(stage: RunningDemo) -> bool:
    stage.view.begin_phase("rowlock verify: every row of the branches against the head office")
    config = load_config(stage.made.config_file)
    equal = True
    for result in verify_pairs(config, list_table_pairs(config, config.pipelines), settle_s=15.0):
        equal = equal and result.equal
        for line in verify_lines(result):
            stage.view.print_text(f"  {line}")
    return equal


def _print_summary(view: DemoView, outcome: DemoOutcome) -> None:
    header = ("table", "of the snapshot", "captured", "applied", "rows/s after the snapshot")
    view.print_summary("Rows", header, build_summary_rows(outcome.snapshot, outcome.figures))
    view.print_summary("Figures", ("what", "value"), _list_facts(outcome))


def _list_facts(outcome: DemoOutcome) -> list[tuple[str, str]]:
    snapshot, figures, workload = outcome.snapshot, outcome.figures, outcome.workload
    p50, p99 = (compute_percentile(workload.latencies, share) for share in (0.5, 0.99))
    shown = "–" if p50 is None or p99 is None else f"p50 {p50 * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms"
    lost = f", {workload.lost_probes} lost" if workload.lost_probes else ""
    late, taken = figures.count_applied() - snapshot.count_applied(), figures.at - snapshot.at
    return [
        (
            "existing rows",
            f"{outcome.seeded:,}, in the head office {outcome.snapshot_s:.0f} s after `rowlock run` began",
        ),
        (
            "row changes while the branches lived",
            (
                f"{workload.written:,} of the workload and {workload.probes:,} of the probe "
                f"in {workload.seconds:.0f} s"
            ),
        ),
        (
            "rows/s",
            (
                f"{figures.compute_rate(snapshot):,.0f}: {late:,} rows applied in {taken:.0f} s "
                "(the branches wrote no faster)"
            ),
        ),
        ("commit to visible", f"{shown} ({len(workload.latencies)} probes{lost})"),
        (
            "verdict",
            "every row of the branches is in the head office, and none else"
            if outcome.equal
            else "DIFFERENT",
        ),
    ]


def _keep_running(stage: RunningDemo, branches: list[Branch]) -> None:
    write_programs(stage.made, stage.process.pid)
    stage.view.print_text(format_tries(stage.made.folder))
    stop = threading.Event()
    for branch in branches:
        branch.start(stop)
    try:
        while True:
            require_alive(stage.process, stage.log)
            time.sleep(1)
    except KeyboardInterrupt:
        stop.set()
