"""The demo's bank keeps its own rules, and its figures add up."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from deploy.embedded.services import Kafka, MariaDB
from rowlock.demo import world as demo_world
from rowlock.demo.bank import Bank
from rowlock.demo.load import compute_percentile
from rowlock.demo.rows import TopicRowCount
from rowlock.demo.run import DemoOutcome, WorkloadFigures, _list_facts, fetch_servers, require_alive
from rowlock.demo.tries import follow_row, format_tries, write_programs
from rowlock.demo.view import DemoFigures, DemoView, build_summary_rows
from rowlock.demo.waits import DemoWait, LogFollower, Milestones, describe_next_step, explain_problem
from rowlock.demo.world import DemoServers
from rowlock.errors import CommandError
from rowlock.inspect.observed.source_status import LEFT_OUT, NOT_RUNNING_TEXT, SourceStatus
from rowlock.inspect.status import ApplyUnitStatus, Status
from schemas.patience import AdaptiveTimeout
from schemas.wire.event import EventEnvelope, EventOp, Source
from schemas.wire.position import Position
from tests.kits.waiting import until

ROOT = Path(__file__).resolve().parents[2]
KEY_COLUMNS = {"customers": "email", "accounts": "number"}


def test_the_demo_begins_with_what_it_downloads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It announced the start of servers, and then downloaded for a minute."""
    monkeypatch.setenv("ROWLOCK_CACHE", str(tmp_path))
    fetched: list[str] = []
    for kind in (Kafka, MariaDB):
        monkeypatch.setattr(kind, "fetch", lambda kind=kind: fetched.append(kind.__name__))
    fetch_servers(DemoView())
    assert fetched == ["Kafka", "MariaDB"]
    line = capsys.readouterr().out
    assert line == (
        f"▸ downloading kafka-4.1.0 (44 MB) and mariadb-11.4.5 (149 MB) into {tmp_path}, where later runs "
        "find them\n"
    )
    for folder in ("kafka-4.1.0", "mariadb-11.4.5"):
        (tmp_path / folder).mkdir()
    fetch_servers(DemoView())
    assert capsys.readouterr().out == ""


class Branch:
    """A database of two columns a table: the key and the unique value. Refuses what a server would refuse."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[int, str | None]] = {"customers": {}, "accounts": {}, "transfers": {}}

    def execute(self, text: str, values: tuple[object, ...]) -> None:
        words = text.split()
        if words[0] == "INSERT":
            table, key = words[2].partition("(")[0], int(str(values[0]))
            assert key not in self.tables[table], text
            self.set(table, key, str(values[1]) if table in KEY_COLUMNS else None)
        elif words[0] == "DELETE":
            del self.tables[words[2]][int(str(values[0]))]
        else:
            key = int(str(values[-1]))
            assert key in self.tables[words[1]], text
            if re.search(r"SET (email|number) =", text):
                self.set(words[1], key, str(values[0]))

    def set(self, table: str, key: int, value: str | None) -> None:
        taken = [other for other, held in self.tables[table].items() if held == value and other != key]
        assert value is None or not taken, f"{table}: {value} is taken"
        self.tables[table][key] = value


@given(st.integers(0, 2**32), st.integers(1, 120))
def test_every_transaction_is_one_that_a_server_accepts(seed: int, count: int) -> None:
    bank, branch = Bank(Random(seed)), Branch()
    transactions = [*bank.seed_customers(50), *(bank.build_transaction() for _ in range(count))]
    for statement, values in (each for transaction in transactions for each in transaction):
        branch.execute(statement, values)
    assert branch.tables["customers"] == bank.emails
    assert branch.tables["accounts"] == bank.accounts


def test_values_wander_between_rows() -> None:
    bank = Bank(Random(1))
    list(bank.seed_customers(50))
    before = dict(bank.emails)
    bank.move_email()
    moved = [key for key in before if bank.emails[key] != before[key]]
    assert len(moved) == 2
    assert set(before.values()) & {bank.emails[key] for key in moved}


@pytest.mark.parametrize(("share", "expected"), [(0.5, 6), (0.99, 10), (0.0, 1)])
def test_percentile(share: float, expected: float) -> None:
    assert compute_percentile([float(n) for n in range(10, 0, -1)], share) == expected
    assert compute_percentile([], share) is None


def status(*units: ApplyUnitStatus) -> Status:
    return Status(1, 0, (), units)


def unit(topic: str, offset: int, end: int, lag: float) -> ApplyUnitStatus:
    return ApplyUnitStatus(
        "p",
        "s",
        topic,
        "t",
        "behind",
        offset=offset,
        end_offset=end,
        lag_events=end - offset,
        lag_seconds=lag,
        table="bank.acct",
    )


def all_rows(_topic: str, offset: int) -> int:
    """A topic with nothing but rows."""
    return offset + 1


def test_figures_add_up_over_branches() -> None:
    units = (unit("d.n.bank.acct", 3, 9, 1.0), unit("d.s.bank.acct", -1, 0, 2.5))
    figures = DemoFigures.from_status(status(*units), 10.0, all_rows)
    assert figures.captured == {"acct": 11}
    assert figures.applied == {"acct": 4}
    assert figures.backlog == 7
    assert figures.lag == 2.5
    later = DemoFigures.from_status(status(unit("d.n.bank.acct", 9, 9, 0.0)), 12.0, all_rows)
    assert later.compute_rate(figures) == 3.0
    assert later.compute_rate(figures, "acct") == 3.0
    assert later.compute_rate(figures, "another") == 0.0


def test_a_unit_whose_lag_is_unknown_adds_nothing_to_the_backlog() -> None:
    unknown = structs.replace(unit("d.n.bank.acct", 3, 9, 1.0), lag_events=None)
    assert DemoFigures.from_status(status(unknown), 10.0, all_rows).backlog == 0


def test_text_in_brackets_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    DemoView().print_text("the table [bold] of t")
    assert capsys.readouterr().out == "the table [bold] of t\n"


def test_only_errors_of_the_run_itself_are_its_last_error() -> None:
    milestones = Milestones()
    for line in ("java: a warning of Spark", "rowlock: warning: the port is taken"):
        milestones.take_line(line)
        assert milestones.error == ""
    milestones.take_line("rowlock: error: no server")
    assert milestones.error == "no server"


def test_plain_lines_every_five_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    view = DemoView()
    view.open()
    for now in range(12):
        view.show_figures(
            DemoFigures.from_status(status(unit("d.n.bank.acct", 3, 9, 1.0)), float(now), all_rows), 0.0123
        )
    view.close()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert (
        lines[0] == "  captured 10 · applied 4 · 0 rows/s · backlog 6 events · lag 1.0 s · latency p50 12 ms"
    )


def event(op: EventOp, position: Position) -> EventEnvelope:
    source = Source(
        version="1.0", connector="mariadb", name="n", ts_ms=0, snapshot="false", db="bank", table="acct",
        server_id=1, gtid=None, file="f.000001", pos=position[2], row=position[3], position=position,
        prev=None, gen=1,
    )  # fmt: skip
    return EventEnvelope(op=op, source=source, ts_ms=0)


def test_only_rows_are_counted_and_each_once() -> None:
    tally = TopicRowCount()
    assert tally.count_rows(7) == 0
    kinds: list[tuple[EventOp, Position]] = [
        ("m", (0, 1, 4, -9)),  # 0: the definition
        ("r", (0, 1, 9, -8)),
        ("r", (0, 1, 9, -7)),
        ("m", (0, 1, 9, -6)),  # 3: the end of the chunk
        ("c", (0, 1, 20, 0)),
        ("u", (0, 1, 30, 0)),
        ("c", (0, 1, 20, 0)),  # 6: sent again
        ("u", (0, 1, 30, 0)),  # 7: sent again
        ("d", (0, 1, 40, 0)),
        ("t", (0, 1, 50, 0)),  # 9: emptied
    ]
    for op, position in kinds:
        tally.add_event(event(op, position))
    assert [tally.count_rows(offset) for offset in range(-1, 10)] == [0, 0, 1, 2, 2, 3, 4, 4, 4, 5, 5]
    assert tally.count_rows(1_000) == 5, "what was not read is not counted"


def test_the_summary_tells_rows_of_the_snapshot_and_the_pace_after_it() -> None:
    snapshot = DemoFigures(10.0, {"a": 40, "b": 60}, {"a": 40, "b": 60})
    end = DemoFigures(20.0, {"a": 140, "b": 1_060}, {"a": 140, "b": 1_060})
    assert build_summary_rows(snapshot, end) == [
        ("a", "40", "140", "140", "10"),
        ("b", "60", "1,060", "1,060", "100"),
        ("all", "100", "1,200", "1,200", "110"),
    ]
    workload = WorkloadFigures(
        1.0, written=5_000, probes=0, lost_probes=0, latencies=[]
    )  # what the branches wrote is not what was applied
    outcome = DemoOutcome(100, snapshot, 1.0, workload, end, equal=True)
    assert dict(_list_facts(outcome))["rows/s"].startswith("110: 1,100 rows applied in 10 s")


def source(state: str = "running", **more: object) -> SourceStatus:
    return SourceStatus("north", state, **more)  # type: ignore[arg-type]


def seen(*units: ApplyUnitStatus, sources: tuple[SourceStatus, ...] = ()) -> tuple[Status, DemoFigures]:
    found = Status(1, 0, sources or (source(),), units)
    return found, DemoFigures.from_status(found, 0.0, all_rows)


RUNNING = Milestones(spark=True, slots=1, taken=1)


@pytest.mark.parametrize(
    ("status", "figures", "log", "expected"),
    [
        (None, None, Milestones(), "Kafka to answer"),
        (seen()[0], None, Milestones(), "Kafka to answer"),
        (*seen(sources=(source("new"),)), Milestones(), "capture to start at north"),
        (
            *seen(sources=(source("restarting", reason="no answer"),)),
            Milestones(),
            "capture to go on at north (no answer)",
        ),
        (*seen(sources=(source(snapshot_pending=("bank.acct",)),)), RUNNING, "existing rows of bank.acct"),
        (*seen(), RUNNING, "existing rows of all tables"),
        (*seen(unit("d.n.bank.acct", -1, 9, 1.0)), Milestones(), "taken over by the apply process"),
        (*seen(unit("d.n.bank.acct", 4, 9, 1.0)), RUNNING, "5 events to be applied"),
    ],
)
def test_the_demo_says_what_it_waits_for(
    status: Status | None, figures: DemoFigures | None, log: Milestones, expected: str
) -> None:
    assert expected in describe_next_step(status, figures, log, 1)


def test_what_is_wrong_is_one_sentence_and_what_only_begins_is_not_wrong() -> None:
    stopped = structs.replace(unit("d.n.bank.acct", 4, 9, 1.0), stopped="x is missing: add it")
    assert explain_problem(seen(stopped)[0]) == "d.n.bank.acct has stopped: x is missing: add it"
    both = explain_problem(seen(stopped, sources=(source("stopped", reason="log_bin is OFF"),))[0])
    assert both == "north is not captured: log_bin is OFF (and 1 more)"
    for reason in (NOT_RUNNING_TEXT, LEFT_OUT):
        assert explain_problem(seen(sources=(source("stopped", reason=reason),))[0]) is None


def test_the_demo_waits_as_long_as_anything_moves_and_then_says_why_not_in_one_sentence() -> None:
    at = [0.0]
    patience = AdaptiveTimeout(100, now=lambda: at[0], pressure=lambda: 1.0)
    waiting = DemoWait("the rows did not arrive", patience, busy=lambda: 11.0)
    for offset in range(5):
        at[0] += 90
        waiting.check_movement(*seen(unit("d.n.bank.acct", offset, 9, 1.0)), RUNNING, 1)
    at[0] += 99
    waiting.check_movement(
        *seen(unit("d.n.bank.acct", 4, 9, 2.0)), RUNNING, 1
    )  # a lag that grows is no progress
    at[0] += 2
    with pytest.raises(CommandError) as given_up:
        waiting.check_movement(
            *seen(unit("d.n.bank.acct", 4, 9, 3.0)), Milestones(True, 1, 1, "query failed"), 1
        )
    reported = str(given_up.value)
    assert reported.startswith("the rows did not arrive: it waited for 5 events")
    assert "101 s" in reported
    assert "11 times as much work" in reported
    assert reported.endswith("its last error: query failed")
    assert "\n" not in reported


def test_a_milestone_in_the_log_is_progress() -> None:
    at = [0.0]
    waiting = DemoWait("late", AdaptiveTimeout(100, now=lambda: at[0], pressure=lambda: 1.0))
    for log in (Milestones(), Milestones(True), Milestones(True, 1), Milestones(True, 1, 1)):
        at[0] += 101
        waiting.check_movement(None, None, log, 1)


def test_the_log_of_the_run_is_followed_line_by_line(tmp_path: Path) -> None:
    file = tmp_path / "run.log"
    file.write_text('{"event": "started", "child": "agent"}\n{"event": "Spark sta')
    follower = LogFollower(file)
    assert follower.read_new_lines() == Milestones()
    with file.open("a") as log:
        log.write(
            'rted", "seconds": 3}\nrowlock: refused to start\n26/01/01 WARN a line of '
            'Java\n{"event": "slot opened"}\n'
        )
    assert follower.read_new_lines() == Milestones(spark=True, slots=1, error="refused to start")
    with file.open("a") as log:
        log.write(
            '{"event": "unit taken over"}\n{"event": "ended", "reason": "lost", "level": "error"}\n[1]\n'
        )
    assert follower.read_new_lines() == Milestones(spark=True, slots=1, taken=1, error="ended: lost")


def test_a_run_that_has_ended_is_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "run.log"
    file.write_text("rowlock: error: Kafka at x does not answer\nrowlock: refused to start; see above\n")
    with subprocess.Popen([sys.executable, "-c", "raise SystemExit(2)"]) as process:
        process.wait()
        with pytest.raises(CommandError, match=r"ended with code 2: Kafka at x does not answer$"):
            require_alive(process, LogFollower(file))  # type: ignore[arg-type]


class Shell:
    """A server, as far as it says how a person looks at it."""

    def __init__(self, client: str) -> None:
        self.client, self.port = client, 1

    def build_shell_command(self, database: str) -> list[str]:
        return [self.client, database]


def test_what_the_kept_demo_prints_can_be_typed(tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    echo = Shell("/bin/echo")
    kafka = SimpleNamespace(bootstrap="127.0.0.1:9")
    write_programs(DemoServers(folder, kafka, {"north": echo, "south": echo}, echo), 1)  # type: ignore[arg-type]
    lines = [shlex.split(line, comments=True) for line in format_tries(folder).splitlines()[2:]]
    enter, *typed = (words for words in lines if words)
    assert enter == ["cd", str(folder)]
    programs = {words[0] for words in typed} - {"tail"}
    assert programs == {"./north", "./office", "./rowlock", "./follow", "./kill-worker"}
    with_no_path = {name: value for name, value in os.environ.items() if name != "PATH"}
    for command, shown in {
        "north -e 'SELECT 1'": "bank -e SELECT 1",
        "rowlock --version": "rowlock, version",
        "follow -h": "usage: rowlock.demo.tries follow",
        "kill-worker -h": "usage: rowlock.demo.tries kill",
    }.items():
        reported = subprocess.run(
            ["/bin/sh", "-c", f"./{command}"], env=with_no_path, cwd=folder,
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert reported.stdout.startswith(shown)


class Connection:
    """A connection to the bank, or to an office that shows the row after some questions."""

    def __init__(self, questions: int = 0) -> None:
        self.questions = questions
        self.inserted: list[tuple[object, ...]] = []

    def cursor(self) -> contextlib.nullcontext[Connection]:
        return contextlib.nullcontext(self)

    def execute(self, _: str, parameters: tuple[object, ...]) -> Connection:
        self.inserted.append(parameters)
        self.questions -= 1
        return self

    def fetchone(self) -> tuple[int] | None:
        return (1,) if self.questions < 0 else None


def test_a_followed_row_is_seen_in_kafka_and_in_the_office() -> None:
    bank = Connection()
    offsets = iter((None, 17))
    seen = follow_row(bank, Connection(questions=5), lambda _: next(offsets), 42)
    assert bank.inserted == [(42,)]
    assert [sighting.place for sighting in seen] == ["in Kafka, offset 17", "in the head office"]
    assert 0 < seen[0].seconds < seen[1].seconds


def test_a_row_that_does_not_arrive_ends_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rowlock.demo.tries.FOLLOW_GIVE_UP_S", 0.0)
    with pytest.raises(CommandError, match=r"^transfer 42 has not arrived after 0 s: \./rowlock status$"):
        follow_row(Connection(), Connection(questions=99), lambda _: None, 42)


@pytest.fixture
def no_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """`run_servers()` without servers."""
    for name in ("Kafka", "PostgreSQL", "MariaDB", "_prepare_servers"):
        monkeypatch.setattr(demo_world, name, lambda *_, **__: None)
    monkeypatch.setattr(demo_world, "combine_services", lambda *_: contextlib.nullcontext())


@pytest.mark.usefixtures("no_servers")
def test_the_log_outlives_a_failure_where_the_message_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    folders: list[Path] = []

    def fail(log: str | None) -> None:
        with demo_world.run_servers() as made:
            folders.append(made.folder)
            assert made.folder.stat().st_mode & 0o777 == 0o700
            if log:
                made.log_file.write_text(log)
            raise CommandError("it broke")

    with pytest.raises(CommandError) as caught:
        fail(None)
    assert str(caught.value) == "it broke"
    with pytest.raises(CommandError) as caught:
        fail("the cause")
    assert not [folder for folder in folders if folder.exists()]
    first, _, second = str(caught.value).partition("\n")
    assert first == "it broke"
    assert Path(second.rpartition(" ")[2]).read_text() == "the cause"


#: Enters run_servers() without servers, tells its folder and waits to be killed.
_KILLED = """
import contextlib, sys
from deploy.embedded.services import Kafka, MariaDB
from rowlock.demo import world as demo_world
for name in ("Kafka", "PostgreSQL", "MariaDB", "_prepare_servers"):
    setattr(demo_world, name, lambda *_, **__: None)
demo_world.combine_services = lambda *_: contextlib.nullcontext()
with demo_world.run_servers() as made:
    (made.folder / "password").write_text("x")
    print(made.folder, flush=True)
    sys.stdin.read()
"""


def test_a_killed_demo_leaves_no_password_behind() -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", _KILLED], cwd=ROOT, stdin=pipe, stdout=pipe, text=True
    ) as process:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().strip())
        assert (folder / "password").exists()
        process.kill()
    until(lambda: not folder.exists(), f"{folder} is removed", 20)
